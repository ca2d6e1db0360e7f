//! Bodies of requests: how large they may be, how long they may take to come, and how much memory all have together.

use crate::error::{ApiError, Result};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a client may take to send a request's head, and again its body; and wait for memory.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may be silent in its body.
const STALL: Duration = Duration::from_secs(2);
/// Most bytes of a call's, of an event's, and of a package's, as it comes in base64 with its configuration.
pub const MOST: usize = 6 << 20;
pub const MOST_EVENT: usize = 1 << 20;
pub const MOST_PACKAGE: usize = 70 << 20;
/// Kilobytes of all calls' and events', and of all packages', so that neither takes the others' room.
const CALLS: usize = 128 << 10;
const PACKAGES: usize = 2 * (MOST_PACKAGE >> 10);

/// The memory for them, in kilobytes.
pub struct Bodies {
	calls: Arc<Semaphore>,
	packages: Arc<Semaphore>,
}

impl Default for Bodies {
	fn default() -> Bodies {
		Bodies { calls: Arc::new(Semaphore::new(CALLS)), packages: Arc::new(Semaphore::new(PACKAGES)) }
	}
}

impl Bodies {
	/// Reads one that may have `most` bytes; its memory counts until the second value is dropped.
	pub async fn read(&self, headers: &HeaderMap, body: Body, most: usize) -> Result<(Bytes, OwnedSemaphorePermit)> {
		let too_large = || ApiError::too_large(format!("a request like this has {most} bytes at most"));
		let slow = || ApiError::slow("the body did not come in 10 seconds, or nothing of it for two");
		let said = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
		let len = match said {
			Some(len) if len > most as u64 => return Err(too_large()),
			Some(len) => len as usize,
			None => most,
		};
		let kilobytes = |len: usize| len.div_ceil(1 << 10);
		let of = if most > MOST { &self.packages } else { &self.calls };
		// All of it at once: if each had a part none might have all.
		let room = timeout(PATIENCE, of.clone().acquire_many_owned(kilobytes(len) as u32)).await;
		let full = "requests that run or come in have as much memory as they may; try again later";
		let mut room = room.map_err(|_| ApiError::too_many(full))?.map_err(ApiError::service)?;
		let mut body = Limited::new(body, most);
		let mut whole = Vec::with_capacity(len);
		let all = async {
			// Who stops in between doesn't hold it for long.
			while let Some(frame) = timeout(STALL, body.frame()).await.map_err(|_| slow())? {
				let broken = |e: Box<dyn std::error::Error + Send + Sync>| match e.is::<LengthLimitError>() {
					true => too_large(),
					false => ApiError::bad_content("the body breaks off"),
				};
				if let Ok(bytes) = frame.map_err(broken)?.into_data() {
					whole.extend_from_slice(&bytes);
				}
			}
			Ok::<_, ApiError>(())
		};
		timeout(PATIENCE, all).await.map_err(|_| slow())??;
		drop(room.split(kilobytes(len) - kilobytes(whole.len())));
		Ok((whole.into(), room))
	}
}

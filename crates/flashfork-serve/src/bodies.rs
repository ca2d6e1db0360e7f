//! Bodies of requests and answers: how large they may be, how long they may take to come, and how much memory all have
//! together.

use crate::error::{ApiError, Result};
use axum::{
	body::{Body, Bytes, HttpBody, to_bytes},
	http::{HeaderMap, header},
	response::Response,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{sync::Arc, time::Duration};
use tokio::{
	sync::{OwnedSemaphorePermit, Semaphore},
	time::timeout,
};

/// How long a client may take to send a request's head, and again its body; read nothing of its answer; and wait for
/// memory.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may be silent in its body.
const STALL: Duration = Duration::from_secs(2);
/// Most bytes of a call's, of an event's, and of a package's, as it comes in base64 with its configuration.
pub const MOST: usize = 6 << 20;
pub const MOST_EVENT: usize = 1 << 20;
pub const MOST_PACKAGE: usize = 70 << 20;
/// Of an event's result, in which control characters of an answer are six.
pub const MOST_RESULT: usize = 6 * MOST + (1 << 10);
/// Kilobytes of all calls' and events', and of all packages', so that neither takes the others' room.
const CALLS: usize = 128 << 10;
const PACKAGES: usize = 2 * (MOST_PACKAGE >> 10);
/// Of all answers that clients have not read yet, of calls and of what only reads: neither takes the others' room. Not
/// the calls' own: these would wait for their answers with it.
const ANSWERS: usize = 128 << 10;
const UNREAD: &str = "answers that clients don't read have as much memory as they may; try again later";
/// Bytes of an answer that is not counted: each connection has one.
const SMALL: u64 = 64 << 10;

/// The memory for them, in kilobytes.
pub struct Bodies {
	calls: Arc<Semaphore>,
	packages: Arc<Semaphore>,
	answers: Arc<Semaphore>,
	reads: Arc<Semaphore>,
}

/// An answer with its memory.
struct Held(Bytes, #[allow(dead_code)] OwnedSemaphorePermit);

impl AsRef<[u8]> for Held {
	fn as_ref(&self) -> &[u8] {
		&self.0
	}
}

/// Reads the rest of a body that nobody wants.
pub async fn discard(body: Body) {
	let mut rest = Limited::new(body, MOST_PACKAGE);
	let _ = timeout(PATIENCE, async { while let Some(Ok(_)) = rest.frame().await {} }).await;
}

fn kilobytes(len: usize) -> usize {
	len.div_ceil(1 << 10)
}

/// So many bytes of a memory, which are waited for only so long.
async fn room(of: &Arc<Semaphore>, len: usize, full: &str) -> Result<OwnedSemaphorePermit> {
	let room = timeout(PATIENCE, of.clone().acquire_many_owned(kilobytes(len) as u32)).await;
	room.map_err(|_| ApiError::too_many(full))?.map_err(ApiError::service)
}

impl Default for Bodies {
	fn default() -> Bodies {
		let all = [CALLS, PACKAGES, ANSWERS, ANSWERS].map(|most| Arc::new(Semaphore::new(most)));
		let [calls, packages, answers, reads] = all;
		Bodies { calls, packages, answers, reads }
	}
}

impl Bodies {
	/// Reads one that may have `most` bytes; its memory counts until the second value is dropped.
	pub async fn read(
		&self,
		headers: &HeaderMap,
		body: &mut Body,
		most: usize,
	) -> Result<(Bytes, OwnedSemaphorePermit)> {
		let too_large = || ApiError::too_large(format!("a request like this has {most} bytes at most"));
		let slow = || ApiError::slow("the body did not come in 10 seconds, or nothing of it for two");
		let said = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
		let len = match said {
			Some(len) if len > most as u64 => return Err(too_large()),
			Some(len) => len as usize,
			None if body.is_end_stream() => 0,
			None => most,
		};
		let of = if most > MOST { &self.packages } else { &self.calls };
		// All of it at once: if each had a part none might have all.
		let full = "requests that run or come in have as much memory as they may; try again later";
		let mut room = room(of, len, full).await?;
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

	/// Memory for an answer of so many bytes to who only reads, before that is made.
	pub async fn room_to_read(&self, most: usize) -> Result<OwnedSemaphorePermit> {
		room(&self.reads, most, UNREAD).await
	}

	/// Waits until there is memory for a call's answer, which another one may take by then.
	pub async fn has_room_for_answer(&self) -> Result<()> {
		room(&self.answers, MOST, UNREAD).await.map(drop)
	}

	/// Has an answer's memory count until its client has read it, or is cut off. As much as it may need is `reserved`;
	/// else it is waited for: the answer is there, and what it came of is not done again.
	pub async fn hold(&self, response: Response, reserved: Option<OwnedSemaphorePermit>) -> Result<Response> {
		if response.body().size_hint().exact().is_some_and(|len| len <= SMALL) {
			return Ok(response);
		}
		let (parts, body) = response.into_parts();
		let bytes = to_bytes(body, usize::MAX).await.map_err(ApiError::service)?;
		let len = kilobytes(bytes.len()).min(ANSWERS);
		let mut room = match reserved {
			Some(room) => room,
			None => self.answers.clone().acquire_many_owned(len as u32).await.map_err(ApiError::service)?,
		};
		drop(room.split(room.num_permits().saturating_sub(len)));
		Ok(Response::from_parts(parts, Bytes::from_owner(Held(bytes, room)).into()))
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use futures_util::FutureExt;

	#[tokio::test]
	async fn no_body_needs_no_memory() {
		let bodies = Bodies::default();
		let _all = bodies.packages.clone().acquire_many_owned(PACKAGES as u32).await.unwrap();
		let read = bodies.read(&HeaderMap::new(), &mut Body::empty(), MOST_PACKAGE).now_or_never();
		assert!(read.is_some_and(|read| read.is_ok()));
	}

	#[tokio::test]
	async fn calls_do_not_wait_for_what_readers_have_not_read() {
		let bodies = Bodies::default();
		let mut read = Vec::new();
		while bodies.reads.available_permits() >= kilobytes(MOST) {
			let room = bodies.room_to_read(MOST).await.unwrap();
			read.push(bodies.hold(Response::new(vec![0; MOST].into()), Some(room)).await.unwrap());
		}
		assert!(bodies.has_room_for_answer().now_or_never().is_some_and(|room| room.is_ok()));
	}
}

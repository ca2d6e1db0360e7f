//! The VM daemon, asked over its socket (`flashfork_proto::api`), one request a connection.

use crate::error::ApiError;
use axum::{
	body::{Body, Bytes, to_bytes},
	http::{Request, StatusCode},
	response::Response,
};
use flashfork_proto::api::{Error, ErrorCode, UPGRADE};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use std::{path::PathBuf, time::Duration};
use tokio::{net::UnixStream, time::timeout};

/// Most bytes of an answer: a list of a daemon's clones is long.
const MOST: usize = 64 << 20;
/// How long it may take to answer; it waits for a guest to be ready for a minute itself.
const ANSWER: Duration = Duration::from_secs(90);

/// Where it listens.
#[derive(Clone)]
pub struct Daemon {
	pub socket: PathBuf,
}

/// Why it has not done what it was asked.
#[derive(Debug)]
pub enum Refusal {
	/// Nobody listens there.
	Nobody(String),
	/// What was named isn't there.
	Absent(String),
	Other(String),
}

impl From<Refusal> for ApiError {
	fn from(refusal: Refusal) -> ApiError {
		let (Refusal::Nobody(why) | Refusal::Absent(why) | Refusal::Other(why)) = refusal;
		ApiError::not_ready(format!(
			"{why}; `flashfork vm doctor` says what virtual machines can do here; functions without --vm need none"
		))
	}
}

fn broken(e: impl std::fmt::Display) -> Refusal {
	Refusal::Other(format!("the VM daemon gives no usable answer: {e}"))
}

/// What comes in its time: places of calls wait for it.
async fn patiently<T>(what: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
	timeout(ANSWER, what).await.unwrap_or_else(|_| Err(broken("none in 90 seconds")))
}

impl Daemon {
	pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
		patiently(async { decode(self.ask("GET", path, Body::empty()).await?).await }).await
	}

	pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refusal> {
		let body = serde_json::to_vec(body).map_err(broken)?;
		patiently(async { decode(self.ask("POST", path, body.into()).await?).await }).await
	}

	/// Removes what may be gone.
	pub async fn delete(&self, path: &str) -> Result<(), Refusal> {
		match patiently(self.ask("DELETE", path, Body::empty())).await {
			Ok(_) | Err(Refusal::Absent(_)) => Ok(()),
			Err(refusal) => Err(refusal),
		}
	}

	/// A connection to the agent of a clone.
	pub async fn agent(&self, clone: &str) -> Result<TokioIo<Upgraded>, Refusal> {
		patiently(async {
			let response = self.ask("POST", &format!("/v1/clones/{clone}/agent"), Body::empty()).await?;
			Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(broken)?))
		})
		.await
	}

	async fn ask(&self, method: &str, path: &str, body: Body) -> Result<Response<Incoming>, Refusal> {
		let (socket, user) = (self.socket.display(), rustix::process::geteuid().as_raw());
		let stream = self.connect().await.map_err(|e| {
			Refusal::Nobody(format!(
				"there is no VM daemon at {socket}: {e}; `flashfork vm template create` starts one, by user {user} (sudo -u '#{user}'), as whom the server runs"
			))
		})?;
		let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
		tokio::spawn(connection.with_upgrades());
		let request = Request::builder().method(method).uri(path).header("host", "flashfork");
		let request = match path.ends_with("/agent") {
			true => request.header("connection", "upgrade").header("upgrade", UPGRADE),
			false => request.header("connection", "close").header("content-type", "application/json"),
		};
		let response = sender.send_request(request.body(body).map_err(broken)?).await.map_err(broken)?;
		let status = response.status();
		if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
			return Ok(response);
		}
		Err(match serde_json::from_slice::<Error>(&whole(response).await?) {
			Ok(error) if error.code == ErrorCode::NotFound => Refusal::Absent(error.message),
			Ok(error) => Refusal::Other(error.message),
			Err(_) => broken(status),
		})
	}

	/// What listens must run as this user or as root: any other would get to know what functions are given.
	async fn connect(&self) -> std::io::Result<UnixStream> {
		let stream = UnixStream::connect(&self.socket).await?;
		match stream.peer_cred()?.uid() {
			user if [rustix::process::geteuid().as_raw(), 0].contains(&user) => Ok(stream),
			user => Err(std::io::Error::other(format!("user {user} listens there, neither the server's nor root"))),
		}
	}
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, Refusal> {
	to_bytes(Body::new(response.into_body()), MOST).await.map_err(broken)
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Refusal> {
	serde_json::from_slice(&whole(response).await?).map_err(broken)
}

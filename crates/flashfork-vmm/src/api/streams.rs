//! The two paths that stop being HTTP: a clone's agent and its console.

use super::{Failure, Shared, description::Failed, request::Name};
use crate::daemon::DaemonError;
use axum::{
	extract::{Request, State},
	http::{
		HeaderMap, StatusCode,
		header::{CONNECTION, UPGRADE},
	},
	response::{IntoResponse, Response},
};
use flashfork_proto::api::{self, Error, ErrorCode};
use hyper_util::rt::TokioIo;
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
};
use std::{
	io::{self, Cursor},
	time::{Duration, Instant},
};
use tokio::{
	io::{AsyncReadExt, AsyncWriteExt, Chain, copy},
	net::{
		UnixStream,
		unix::{OwnedReadHalf, OwnedWriteHalf},
	},
};

/// Bytes read from a client at once.
const PIECE: usize = 4096;

/// How often it is looked whether a client that can't be read from is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How long a shell may leave what it is sent.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is tried.
const AGAIN: Duration = Duration::from_millis(5);

/// What a guest still says to a client that says no more may take so long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A connection to a clone's guest agent. The request has the headers `Connection: upgrade` and `Upgrade: flashfork`.
#[utoipa::path(
	post, path = "/v1/clones/{name}/agent",
	params(("name" = String, Path, description = "The clone's name")),
	responses((status = 101, description = "Upgraded: the agent's protocol follows"), Failed)
)]
pub(super) async fn agent(State(daemon): Shared, Name(name): Name, request: Request) -> Result<Response, Failure> {
	check(request.headers())?;
	let (stream, asked) = patiently(|| daemon.connect(&name)).await?;
	let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
	let guest = stream.map_err(|e| Failure(Error { code: ErrorCode::Exhausted, message: e.to_string() }))?;
	tokio::spawn(async move {
		if let Some((from, to)) = upgraded(request).await {
			pass_on(from, to, guest, || asked.note_answer()).await;
		}
	});
	Ok(switching())
}

/// What a client says, with what came along with its request.
type FromClient = Chain<Cursor<Vec<u8>>, OwnedReadHalf>;

async fn upgraded(request: Request) -> Option<(FromClient, OwnedWriteHalf)> {
	let parts = hyper::upgrade::on(request).await.ok()?.downcast::<TokioIo<UnixStream>>().ok()?;
	let (from, to) = parts.io.into_inner().into_split();
	Some((Cursor::new(parts.read_buf.into()).chain(from), to))
}

/// Returns when a client has closed both directions: one that has said all may still read. No event of its own says it.
async fn gone(client: &FromClient) {
	let client: &UnixStream = client.get_ref().1.as_ref();
	// POLLHUP and POLLERR are told in any case.
	while let Ok(0) | Err(Errno::INTR) =
		poll(&mut [PollFd::new(client, PollFlags::empty())], Some(&Timespec::default()))
	{
		tokio::time::sleep(LOOK).await;
	}
}

/// Either side may go away at any time; the other sees the end. A guest that hangs sees nothing and keeps nothing here.
/// `answered` is called when the guest has.
async fn pass_on(
	mut from_client: FromClient,
	mut to_client: OwnedWriteHalf,
	guest: UnixStream,
	answered: impl FnOnce(),
) {
	let (mut from_guest, mut to_guest) = guest.into_split();
	let asks = async {
		let mut bytes = vec![0; PIECE];
		while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
			tokio::select! {
				biased;
				taken = to_guest.write_all(&bytes[..count]) => if taken.is_err() { break },
				() = gone(&from_client) => return,
			}
		}
		let _ = to_guest.shutdown().await;
		tokio::time::sleep(LAST_WORDS).await;
	};
	let answers = async {
		let mut first = vec![0; PIECE];
		if let Ok(count @ 1..) = from_guest.read(&mut first).await
			&& to_client.write_all(&first[..count]).await.is_ok()
		{
			answered();
			let _ = copy(&mut from_guest, &mut to_client).await;
		}
		let _ = to_client.shutdown().await;
	};
	tokio::select! {
		() = answers => {}
		() = asks => {}
	}
}

/// A clone's console. The request has the headers `Connection: upgrade` and `Upgrade: flashfork`.
#[utoipa::path(
	post, path = "/v1/clones/{name}/console",
	params(("name" = String, Path, description = "The clone's name")),
	responses((status = 101, description = "Upgraded: its bytes follow, both ways"), Failed)
)]
pub(super) async fn console(State(daemon): Shared, Name(name): Name, request: Request) -> Result<Response, Failure> {
	check(request.headers())?;
	let (mut output, typist) = daemon.console(&name)?;
	tokio::spawn(async move {
		let Some((mut from, mut to)) = upgraded(request).await else { return };
		let (mut typed, mut said) = ([0; PIECE], [0; PIECE]);
		let mut typing = true;
		loop {
			let types = async {
				if typing {
					return from.read(&mut typed).await;
				}
				gone(&from).await;
				Err(io::ErrorKind::BrokenPipe.into())
			};
			tokio::select! {
				count = output.read(&mut said) => match count {
					Ok(count @ 1..) if to.write_all(&said[..count]).await.is_ok() => {}
					_ => break,
				},
				count = types => match count {
					// Who has typed all may still read.
					Ok(0) => typing = false,
					Ok(count) if patiently(|| typist.type_in(&typed[..count])).await.is_ok() => {}
					_ => break,
				},
			}
		}
		// Who has gone needs no end.
		let _ = to.shutdown().await;
	});
	Ok(switching())
}

/// Again and again while the clone's shell has no room for it, which may be a burst's fault; not for long, because it
/// may be the shell's.
async fn patiently<T>(mut attempt: impl FnMut() -> Result<T, DaemonError>) -> Result<T, DaemonError> {
	let deadline = Instant::now() + PATIENCE;
	loop {
		match attempt() {
			Err(DaemonError::Deaf(_)) if Instant::now() < deadline => tokio::time::sleep(AGAIN).await,
			other => return other,
		}
	}
}

fn switching() -> Response {
	(StatusCode::SWITCHING_PROTOCOLS, [(CONNECTION, "upgrade"), (UPGRADE, api::UPGRADE)]).into_response()
}

fn check(headers: &HeaderMap) -> Result<(), Failure> {
	if headers.get(UPGRADE).is_some_and(|value| value == api::UPGRADE) {
		return Ok(());
	}
	let message = format!("this path needs the headers Connection: upgrade and Upgrade: {}", api::UPGRADE);
	Err(Failure(Error { code: ErrorCode::Invalid, message }))
}

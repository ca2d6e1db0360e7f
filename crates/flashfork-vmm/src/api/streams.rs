//! The two paths that stop being HTTP: a clone's agent and its console.

use super::description::Failed;
use super::request::Name;
use super::{Failure, Shared};
use crate::daemon::DaemonError;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flashfork_proto::agent;
use flashfork_proto::api::{self, Error, ErrorCode};
use hyper_util::rt::TokioIo;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::UnixStream;

/// Bytes typed at once.
const TYPED: usize = 4096;

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
    let stream = patiently(|| daemon.connect(&name, agent::PORT)).await?;
    let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
    let guest = stream.map_err(|e| Failure(Error { code: ErrorCode::Exhausted, message: e.to_string() }))?;
    tokio::spawn(async move {
        if let Ok(client) = hyper::upgrade::on(request).await {
            pass_on(TokioIo::new(client), guest).await;
        }
    });
    Ok(switching())
}

/// Either side may go away at any time; the other sees the end. A guest that hangs sees nothing and keeps nothing here.
async fn pass_on(client: impl AsyncRead + AsyncWrite, guest: UnixStream) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_guest, mut to_guest) = guest.into_split();
    let asks = async {
        let _ = copy(&mut from_client, &mut to_guest).await;
        let _ = to_guest.shutdown().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        _ = copy(&mut from_guest, &mut to_client) => {
            let _ = to_client.shutdown().await;
        }
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
        let Ok(client) = hyper::upgrade::on(request).await else { return };
        let (mut from, mut to) = split(TokioIo::new(client));
        let mut typed = [0; TYPED];
        let mut typing = true;
        loop {
            tokio::select! {
                bytes = output.recv() => match bytes {
                    Some(bytes) if to.write_all(&bytes).await.is_ok() => {}
                    _ => break,
                },
                count = from.read(&mut typed), if typing => match count {
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

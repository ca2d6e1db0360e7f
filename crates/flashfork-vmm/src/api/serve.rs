//! Connections of clients. Who has one and asks nothing costs next to nothing, and not for long.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
	rt::{TokioIo, TokioTimer},
	service::TowerToHyperService,
};
use rustix::net::{RecvFlags, recv};
use std::time::Duration;
use tokio::{
	io::Interest,
	net::{UnixListener, UnixStream},
};

/// How long a client may take to ask, and again to send what belongs to it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long nobody is accepted when descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers all who come.
pub async fn serve(listener: UnixListener, router: Router) {
	// The runtime ends a thread that is idle for 10 s, and panics if there is none and can be none.
	tokio::spawn(async {
		while tokio::task::spawn_blocking(|| ()).await.is_ok() {
			tokio::time::sleep(PATIENCE / 2).await;
		}
	});
	loop {
		match listener.accept().await {
			Ok((stream, _)) => drop(tokio::spawn(answer(stream, router.clone()))),
			// Too few descriptors or too little memory: some are given back as others end.
			Err(_) => tokio::time::sleep(PAUSE).await,
		}
	}
}

async fn answer(stream: UnixStream, router: Router) {
	// What it takes to read a request is allocated when there is one.
	if matches!(tokio::time::timeout(PATIENCE, asked(&stream)).await, Ok(Ok(()))) {
		Box::pin(talk(stream, router)).await;
	}
}

/// Returns when there is something to read, or the end. That a stream is ready may turn out false, and does right after
/// `accept`: so a look is taken, which leaves the byte where it is.
async fn asked(stream: &UnixStream) -> std::io::Result<()> {
	let peek = || Ok(recv(stream, &mut [0_u8; 1], RecvFlags::PEEK)?);
	stream.async_io(Interest::READABLE, peek).await.map(drop)
}

async fn talk(stream: UnixStream, router: Router) {
	let connection = http1::Builder::new()
		.timer(TokioTimer::new())
		.header_read_timeout(PATIENCE)
		.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
	// A client that breaks off, or asks nonsense, has been told or is gone.
	let _ = connection.with_upgrades().await;
}

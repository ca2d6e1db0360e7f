//! Connections of clients: so many at a time, and none for those that say nothing.

use crate::bodies::PATIENCE;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
	rt::{TokioIo, TokioTimer},
	service::TowerToHyperService,
};
use std::{sync::Arc, time::Duration};
use tokio::{
	io::{AsyncRead, AsyncWrite},
	net::TcpListener,
	sync::{Semaphore, watch},
	time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Most bytes of what stands before a request's body, which are in memory until they are whole.
pub const MOST_HEAD: usize = 64 << 10;

/// Answers all who come until `ended`, and then those who have asked; `most` at a time.
pub async fn serve(
	listener: TcpListener,
	tls: Option<TlsAcceptor>,
	router: Router,
	most: usize,
	ended: impl Future<Output = ()>,
) {
	let room = Arc::new(Semaphore::new(most));
	let (mut ended, ending) = (std::pin::pin!(ended), watch::Sender::new(false));
	loop {
		let next = async { (room.clone().acquire_owned().await, listener.accept().await) };
		let (place, accepted) = tokio::select! {
			next = next => next,
			() = &mut ended => break,
		};
		match accepted {
			Ok((stream, _)) => {
				let (router, tls, ending) = (router.clone(), tls.clone(), ending.subscribe());
				tokio::spawn(async move {
					// Who breaks off, asks nonsense or has no certificate has been told or is gone.
					let _ = match tls {
						_ if stream.set_nodelay(true).is_err() => Ok(()),
						None => talk(stream, router, ending).await,
						Some(tls) => match timeout(PATIENCE, tls.accept(stream)).await {
							Ok(Ok(stream)) => talk(stream, router, ending).await,
							_ => Ok(()),
						},
					};
					drop(place);
				});
			}
			// Too few descriptors or too little memory: some are given back as others end.
			Err(_) => sleep(Duration::from_millis(100)).await,
		}
	}
	ending.send_replace(true);
	let _ = room.acquire_many(most as u32).await;
}

async fn talk(
	stream: impl AsyncRead + AsyncWrite + Unpin,
	router: Router,
	mut ending: watch::Receiver<bool>,
) -> hyper::Result<()> {
	// Nobody has to read what is answered; but then it is closed.
	let mut stream = TimeoutStream::new(stream);
	stream.set_write_timeout(Some(PATIENCE));
	let stream = Box::pin(stream);
	let mut connection = std::pin::pin!(
		http1::Builder::new()
			.timer(TokioTimer::new())
			.max_buf_size(MOST_HEAD)
			.header_read_timeout(PATIENCE)
			.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
	);
	tokio::select! {
		done = &mut connection => return done,
		_ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
	}
	connection.await
}

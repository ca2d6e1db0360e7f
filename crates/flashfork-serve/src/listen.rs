//! Connections of clients: so many at a time, and none for those that say nothing.

use crate::bodies::PATIENCE;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Answers all who come, `most` at a time.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, most: usize) {
	let room = Arc::new(Semaphore::new(most));
	loop {
		let Ok(place) = room.clone().acquire_owned().await else { return };
		match listener.accept().await {
			Ok((stream, _)) => {
				let (router, tls) = (router.clone(), tls.clone());
				tokio::spawn(async move {
					// Who breaks off, asks nonsense or has no certificate has been told or is gone.
					let _ = match tls {
						_ if stream.set_nodelay(true).is_err() => Ok(()),
						None => talk(stream, router).await,
						Some(tls) => match timeout(PATIENCE, tls.accept(stream)).await {
							Ok(Ok(stream)) => talk(stream, router).await,
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
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) -> hyper::Result<()> {
	http1::Builder::new()
		.timer(TokioTimer::new())
		.header_read_timeout(PATIENCE)
		.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
		.await
}

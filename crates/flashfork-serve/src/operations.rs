//! What whoever runs the server asks, at an address of its own: what it has counted, whether it answers, and whether
//! it is ready for calls.

use crate::{
	error::{ApiError, Result},
	front::Server,
	pool::TO_WARM,
};
use axum::{
	Router,
	extract::State,
	http::{StatusCode, header},
	response::IntoResponse,
	routing::get,
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// What it asks, without a key.
pub fn router(server: Arc<Server>) -> Router {
	Router::new()
		.route("/metrics", get(metrics))
		.route("/livez", get(|| async { "it lives\n" }))
		.route("/readyz", get(ready))
		.with_state(server)
}

async fn metrics(State(server): State<Arc<Server>>) -> Result<impl IntoResponse> {
	const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
	let waiting = match &server.cluster {
		Some(cluster) => cluster.waiting_events().await,
		None => Some(server.events.waiting()),
	};
	let text = server.pool.metrics.text(&server.pool, server.functions().len(), waiting);
	Ok(([(header::CONTENT_TYPE, KIND)], text.map_err(ApiError::service)?))
}

async fn ready(State(server): State<Arc<Server>>) -> (StatusCode, String) {
	let left = server.warming.load(Relaxed);
	// One that hangs keeps no others' calls away.
	if left > 0 && server.started.elapsed() < TO_WARM {
		return (StatusCode::SERVICE_UNAVAILABLE, format!("functions of before are being warmed: {left}\n"));
	}
	if server.cluster.as_ref().is_some_and(|cluster| cluster.is_draining()) {
		return (StatusCode::SERVICE_UNAVAILABLE, "the node is being drained, or is\n".into());
	}
	(StatusCode::OK, "ready\n".into())
}

//! Lambda's Runtime API, as the clone of one call has it, on a connection that is its own.

use crate::bodies::{MOST, is_too_large};
use crate::locked;
use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const ROOT: &str = "/2018-06-01/runtime/";

/// A call, for the clone that serves it.
pub struct Call {
	/// The request's id.
	pub id: String,
	/// Of this attempt: an answer that names another one is stale.
	pub invocation: String,
	pub arn: String,
	/// Milliseconds since 1970.
	pub deadline: u128,
	pub client_context: Option<HeaderValue>,
	pub payload: Bytes,
}

/// What the runtime has answered.
#[derive(Debug)]
pub enum Answer {
	Done(Bytes),
	/// An error, by the function or the runtime.
	Failed(Bytes),
	/// More than [`MOST`] bytes.
	TooLarge,
}

struct Invocation {
	call: Call,
	given: bool,
	answer: Option<oneshot::Sender<Answer>>,
}

/// Serves the clone until it goes.
pub async fn serve(stream: TcpStream, call: Call, answer: oneshot::Sender<Answer>) {
	let invocation = Arc::new(Mutex::new(Invocation { call, given: false, answer: Some(answer) }));
	let service = service_fn(move |request: Request<hyper::body::Incoming>| {
		let invocation = invocation.clone();
		async move { Ok::<_, Infallible>(respond(request.map(Body::new), &invocation).await) }
	});
	// What a runtime says that breaks off or makes no sense is no answer; its end is seen elsewhere.
	let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn refuse(status: StatusCode, kind: &str, why: &str) -> Response {
	(status, Json(json!({ "errorType": kind, "errorMessage": why }))).into_response()
}

async fn respond(request: Request<Body>, invocation: &Mutex<Invocation>) -> Response {
	let (parts, body) = request.into_parts();
	let path = parts.uri.path().strip_prefix(ROOT).unwrap_or_default();
	match (&parts.method, path.split('/').collect::<Vec<_>>().as_slice()) {
		(&Method::GET, ["invocation", "next"]) => next(invocation).await,
		(&Method::POST, ["invocation", id, what @ ("response" | "error")]) => {
			if let Some(refused) = stale(invocation, id, &parts.headers) {
				return refused;
			}
			let failed = *what == "error" || parts.headers.contains_key("lambda-runtime-function-error-type");
			let answer = match to_bytes(body, MOST).await {
				Ok(bytes) if failed => Answer::Failed(bytes),
				Ok(bytes) => Answer::Done(bytes),
				Err(e) if is_too_large(&e) => Answer::TooLarge,
				Err(_) => return refuse(StatusCode::BAD_REQUEST, "InvalidRequest", "the answer breaks off"),
			};
			accept(invocation, answer)
		}
		(&Method::POST, ["init", "error"]) => match to_bytes(body, MOST).await {
			Ok(bytes) => accept(invocation, Answer::Failed(bytes)),
			Err(_) => refuse(StatusCode::BAD_REQUEST, "InvalidRequest", "the error is too large, or breaks off"),
		},
		_ => refuse(StatusCode::NOT_FOUND, "NotFound", "there is no such operation"),
	}
}

async fn next(invocation: &Mutex<Invocation>) -> Response {
	{
		let mut invocation = locked(invocation);
		if !invocation.given {
			invocation.given = true;
			let call = &invocation.call;
			let headers = [
				("content-type", "application/json"),
				("lambda-runtime-aws-request-id", &call.id),
				("lambda-runtime-invocation-id", &call.invocation),
				("lambda-runtime-deadline-ms", &call.deadline.to_string()),
				("lambda-runtime-invoked-function-arn", &call.arn),
			];
			let mut response = (headers, call.payload.clone()).into_response();
			if let Some(context) = &call.client_context {
				response.headers_mut().insert("lambda-runtime-client-context", context.clone());
			}
			return response;
		}
		if invocation.answer.is_some() {
			return refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call has not been answered");
		}
	}
	// There is no other call for this clone, which is about to be ended.
	std::future::pending().await
}

/// Why an answer is not this call's, or not its first.
fn stale(invocation: &Mutex<Invocation>, id: &str, headers: &HeaderMap) -> Option<Response> {
	let invocation = locked(invocation);
	let echoed = headers.get("lambda-runtime-invocation-id");
	if id != invocation.call.id || echoed.is_some_and(|echoed| *echoed != *invocation.call.invocation) {
		return Some(refuse(StatusCode::BAD_REQUEST, "InvalidRequestID", "this is no call of this clone's"));
	}
	(!invocation.given || invocation.answer.is_none())
		.then(|| refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call is not to be answered now"))
}

fn accept(invocation: &Mutex<Invocation>, answer: Answer) -> Response {
	let sender = locked(invocation).answer.take();
	let too_large = matches!(answer, Answer::TooLarge);
	match sender.map(|sender| sender.send(answer)) {
		Some(Ok(())) if too_large => {
			refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "an answer has 6 MB at most")
		}
		Some(Ok(())) => (StatusCode::ACCEPTED, Json(json!({ "status": "OK" }))).into_response(),
		_ => refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call has been answered"),
	}
}

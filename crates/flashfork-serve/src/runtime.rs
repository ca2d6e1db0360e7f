//! Lambda's Runtime API, as a clone has it, on a connection that is its own.

use crate::{bodies::MOST, listen::MOST_HEAD, locked};
use axum::{
	Json,
	body::{Body, Bytes},
	http::{HeaderMap, HeaderValue, Method, Request, StatusCode},
	response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::{
	convert::Infallible,
	error::Error,
	pin::Pin,
	sync::{Arc, Mutex},
};
use tokio::{
	io::{AsyncRead, AsyncWrite},
	sync::{Notify, oneshot, watch},
};

const ROOT: &str = "/2018-06-01/runtime/";

/// A call, for the clone that serves it.
#[derive(Clone)]
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

/// The calls of a clone, one after the other.
#[derive(Default)]
pub struct Line {
	/// The one that is to be answered, or the last one.
	now: Mutex<Option<Invocation>>,
	more: Notify,
	/// Held by what brings a body.
	bringing: tokio::sync::Mutex<()>,
	/// How it has begun, from when it has said so.
	begun: watch::Sender<Option<Begun>>,
}

/// What a clone says first: that it waits for a call, or, in JSON, what has failed when its function was loaded.
pub type Begun = Result<(), Bytes>;

impl Line {
	/// Its next call, and what it will answer.
	pub fn give(&self, call: Call) -> oneshot::Receiver<Answer> {
		let (sender, answer) = oneshot::channel();
		*locked(&self.now) = Some(Invocation { call, given: false, answer: Some(sender) });
		self.more.notify_one();
		answer
	}

	/// How it begins, before it has a call.
	pub fn begins(&self) -> watch::Receiver<Option<Begun>> {
		self.begun.subscribe()
	}

	/// Whether it has asked for that.
	pub fn has_begun(&self) -> bool {
		locked(&self.now).as_ref().is_some_and(|invocation| invocation.given)
	}
}

/// What serves the connections of a clone.
pub type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves a clone, or one of its connections, until that goes.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, line: Arc<Line>) {
	let service = service_fn(move |request: Request<hyper::body::Incoming>| {
		let line = line.clone();
		async move { Ok::<_, Infallible>(respond(request.map(Body::new), &line).await) }
	});
	// What a runtime says that breaks off or makes no sense is no answer; its end is seen elsewhere.
	let _ = http1::Builder::new().max_buf_size(MOST_HEAD).serve_connection(TokioIo::new(stream), service).await;
}

fn refuse(status: StatusCode, kind: &str, why: &str) -> Response {
	(status, Json(json!({ "errorType": kind, "errorMessage": why }))).into_response()
}

async fn respond(request: Request<Body>, line: &Line) -> Response {
	let (parts, body) = request.into_parts();
	let path = parts.uri.path().strip_prefix(ROOT).unwrap_or_default();
	match (&parts.method, path.split('/').collect::<Vec<_>>().as_slice()) {
		(&Method::GET, ["invocation", "next"]) => next(line).await,
		(&Method::POST, ["invocation", id, what @ ("response" | "error")]) => {
			if let Some(refused) = stale(&locked(&line.now), id, &parts.headers) {
				return refused;
			}
			// By then another connection may have answered.
			let of = Some((*id, &parts.headers));
			let (bytes, trailers) = match whole(line, body).await {
				Ok(all) => all,
				Err(e) if e.is::<LengthLimitError>() => return accept(line, of, Answer::TooLarge),
				Err(_) => return refuse(StatusCode::BAD_REQUEST, "InvalidRequest", "the answer breaks off"),
			};
			let streamed = trailers.get("lambda-runtime-function-error-body");
			let error = streamed.and_then(|body| BASE64.decode(body).ok());
			let kind = "lambda-runtime-function-error-type";
			let failed = *what == "error" || parts.headers.contains_key(kind) || trailers.contains_key(kind);
			// Of a stream the error comes behind what was written of the answer.
			let bytes = error.map_or(bytes, Bytes::from);
			accept(line, of, if failed { Answer::Failed(bytes) } else { Answer::Done(bytes) })
		}
		(&Method::POST, ["init", "error"]) => match whole(line, body).await {
			Ok((bytes, _)) if locked(&line.now).is_none() => {
				line.begun.send_replace(Some(Err(bytes)));
				(StatusCode::ACCEPTED, Json(json!({ "status": "OK" }))).into_response()
			}
			Ok((bytes, _)) => accept(line, None, Answer::Failed(bytes)),
			Err(_) => refuse(StatusCode::BAD_REQUEST, "InvalidRequest", "the error is too large, or breaks off"),
		},
		_ => refuse(StatusCode::NOT_FOUND, "NotFound", "there is no such operation"),
	}
}

/// A body and what trails it. Of all connections of a clone only one brings one at a time, in one piece of memory.
async fn whole(line: &Line, body: Body) -> Result<(Bytes, HeaderMap), Box<dyn Error + Send + Sync>> {
	let _alone = line.bringing.lock().await;
	let (mut body, mut bytes, mut trailers) = (Limited::new(body, MOST), Vec::new(), HeaderMap::new());
	while let Some(frame) = body.frame().await {
		match frame?.into_data() {
			Ok(data) => bytes.extend_from_slice(&data),
			Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
		}
	}
	Ok((bytes.into(), trailers))
}

async fn next(line: &Line) -> Response {
	line.begun.send_if_modified(|begun| begun.is_none() && begun.replace(Ok(())).is_none());
	loop {
		if let Some(invocation) = locked(&line.now).as_mut() {
			if !invocation.given {
				invocation.given = true;
				return asked(&invocation.call);
			}
			if invocation.answer.is_some() {
				return refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call has not been answered");
			}
		}
		line.more.notified().await;
	}
}

fn asked(call: &Call) -> Response {
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
	response
}

/// Why an answer is not this call's, or not its first.
fn stale(now: &Option<Invocation>, id: &str, headers: &HeaderMap) -> Option<Response> {
	let echoed = headers.get("lambda-runtime-invocation-id");
	let its = |invocation: &&Invocation| {
		id == invocation.call.id && echoed.is_none_or(|echoed| *echoed == *invocation.call.invocation)
	};
	let Some(invocation) = now.as_ref().filter(its) else {
		return Some(refuse(StatusCode::BAD_REQUEST, "InvalidRequestID", "this is no call of this clone's"));
	};
	(!invocation.given || invocation.answer.is_none())
		.then(|| refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call is not to be answered now"))
}

/// Takes an answer, `of` the call with this id and these headers if it names one.
fn accept(line: &Line, of: Option<(&str, &HeaderMap)>, answer: Answer) -> Response {
	let mut now = locked(&line.now);
	if let Some(refused) = of.and_then(|(id, headers)| stale(&now, id, headers)) {
		return refused;
	}
	let sender = now.as_mut().and_then(|invocation| invocation.answer.take());
	let too_large = matches!(answer, Answer::TooLarge);
	match sender.map(|sender| sender.send(answer)) {
		Some(Ok(())) if too_large => {
			refuse(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "an answer has 6 MB at most")
		}
		Some(Ok(())) => (StatusCode::ACCEPTED, Json(json!({ "status": "OK" }))).into_response(),
		_ => refuse(StatusCode::FORBIDDEN, "InvalidStateTransition", "the call has been answered"),
	}
}

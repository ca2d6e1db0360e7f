//! What clients speak: AWS Lambda's Invoke API, as much of its other API as deploying takes, and functions' logs.

use crate::error::{ApiError, Result};
use crate::events::{Ended, Event, Events};
use crate::pool::{Function, Outcome, Pool, uuid};
use crate::runtime::{MOST, is_too_large};
use crate::store::{self, Config, Store};
use crate::{locked, note};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{sleep, timeout};

/// How long a client may take to send a request's head, and again its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of a package, as it comes in base64 with its configuration, and of an event.
const MOST_PACKAGE: usize = 70 << 20;
const MOST_EVENT: usize = 1 << 20;
/// Most connections at a time.
const MOST_CONNECTIONS: usize = 1024;
/// How often an event is tried.
const ATTEMPTS: u32 = 3;

/// All that requests are about.
pub struct Server {
	pub pool: Arc<Pool>,
	store: Store,
	events: Events,
	/// How long after its first failure an event is tried again; twice as long after the second.
	retry: Duration,
	functions: Mutex<BTreeMap<String, Arc<Function>>>,
	/// One at a time: packages are large.
	deploys: AsyncMutex<()>,
}

type Shared = Arc<Server>;

impl Server {
	/// With the functions that were deployed before.
	pub fn new(pool: Arc<Pool>, store: Store, events: Events, retry: Duration) -> Result<Server> {
		let mut functions = BTreeMap::new();
		for config in store.all()? {
			store.tidy(&config.function_name, &[&config]);
			functions.insert(config.function_name.clone(), Arc::new(Function::new(config)));
		}
		Ok(Server { pool, store, events, retry, functions: Mutex::new(functions), deploys: AsyncMutex::default() })
	}

	pub fn functions(&self) -> Vec<Arc<Function>> {
		locked(&self.functions).values().cloned().collect()
	}

	fn function(&self, asked: &str) -> Result<Arc<Function>> {
		let name = store::name(asked)?;
		let found = locked(&self.functions).get(name).cloned();
		found.ok_or_else(|| ApiError::not_found(format!("Function not found: {}", store::arn(name))))
	}

	/// Calls a function for an event until it succeeds, or often enough.
	pub async fn run(self: Shared, event: Event) {
		let (mut attempts, mut payload) = (0, String::new());
		let mut status = "Failed";
		while attempts < ATTEMPTS && status == "Failed" {
			if attempts > 0 {
				sleep(self.retry * attempts).await;
			}
			attempts += 1;
			match self.attempt(&event).await {
				Ok(outcome) => {
					payload = String::from_utf8_lossy(&outcome.payload).into_owned();
					status = if outcome.failed { "Failed" } else { "Succeeded" };
				}
				Err(e) => payload = e.to_string(),
			}
		}
		let ended = Ended { id: event.id, status: status.into(), attempts, payload };
		let done = tokio::task::spawn_blocking(move || self.events.end(ended)).await;
		if !matches!(done, Ok(Ok(()))) {
			note(format!("the result of an event can't be recorded; it runs again at the next start: {done:?}"));
		}
	}

	/// An event waits as long as it takes: it is no caller.
	async fn attempt(&self, event: &Event) -> Result<Outcome> {
		let function = self.function(&event.function)?;
		let slot = self.pool.slots.clone().acquire_owned().await.map_err(ApiError::service)?;
		function.call(&self.pool, slot, event.id.clone(), event.payload.clone().into(), None).await
	}
}

/// A page in a browser here could ask: by its own address, or a name that leads here.
async fn not_from_a_page(request: Request, next: Next) -> Result<Response> {
	let headers = request.headers();
	let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
	let here = host.is_some_and(|host| match host.host() {
		"localhost" | "[::1]" => true,
		host => host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
	});
	if here && !headers.contains_key(header::ORIGIN) && !headers.contains_key("sec-fetch-site") {
		return Ok(next.run(request).await);
	}
	Err(ApiError::denied("only programs on this machine may ask, by its loopback address"))
}

async fn all_of(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes> {
	let too_large = || ApiError::too_large(format!("a request like this has {most} bytes at most"));
	let said = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
	if said.is_some_and(|len| len > most as u64) {
		return Err(too_large());
	}
	let body = timeout(PATIENCE, to_bytes(body, most)).await;
	let body = body.map_err(|_| ApiError::slow("the body did not come in 10 seconds"))?;
	body.map_err(|e| if is_too_large(&e) { too_large() } else { ApiError::bad_content("the body breaks off") })
}

/// Answers all who come.
pub async fn serve(listener: TcpListener, server: Shared) {
	const FUNCTIONS: &str = "/2015-03-31/functions/";
	let nothing = || async { ApiError::not_found("there is no such operation") };
	let router = Router::new()
		.route(FUNCTIONS.trim_end_matches('/'), get(list).post(deploy))
		.route(FUNCTIONS, get(list).post(deploy))
		.route(&format!("{FUNCTIONS}{{name}}"), get(describe).delete(undeploy))
		.route(&format!("{FUNCTIONS}{{name}}/invocations"), post(invoke))
		.route(&format!("{FUNCTIONS}{{name}}/logs"), get(logs))
		.route(&format!("{FUNCTIONS}{{name}}/events/{{id}}"), get(result))
		.fallback(nothing)
		.method_not_allowed_fallback(nothing)
		.layer(middleware::from_fn(not_from_a_page))
		.with_state(server);
	let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
	loop {
		let Ok(place) = room.clone().acquire_owned().await else { return };
		match listener.accept().await {
			Ok((stream, _)) => {
				let router = router.clone();
				tokio::spawn(async move {
					talk(stream, router).await;
					drop(place);
				});
			}
			// Too few descriptors or too little memory: some are given back as others end.
			Err(_) => sleep(Duration::from_millis(100)).await,
		}
	}
}

async fn talk(stream: TcpStream, router: Router) {
	if stream.set_nodelay(true).is_err() {
		return;
	}
	let connection = http1::Builder::new()
		.timer(TokioTimer::new())
		.header_read_timeout(PATIENCE)
		.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
	// A client that breaks off, or asks nonsense, has been told or is gone.
	let _ = connection.await;
}

async fn invoke(State(server): State<Shared>, Path(name): Path<String>, request: Request) -> Result<Response> {
	let (parts, body) = request.into_parts();
	let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
	let kind = header("x-amz-invocation-type").unwrap_or("RequestResponse");
	let body = all_of(&parts.headers, body, if kind == "Event" { MOST_EVENT } else { MOST }).await?;
	let function = server.function(&name)?;
	let mut payload = String::from_utf8(body.into()).map_err(ApiError::bad_content)?;
	if payload.is_empty() {
		payload.push_str("{}");
	}
	serde_json::from_str::<serde::de::IgnoredAny>(&payload)
		.map_err(|e| ApiError::bad_content(format!("Could not parse request body into json: {e}")))?;
	let id = uuid();
	let response = Response::builder().header("x-amzn-requestid", &id).header("x-amz-executed-version", "$LATEST");
	let response = match kind {
		"DryRun" => response.status(StatusCode::NO_CONTENT).body(Body::empty()),
		"Event" => {
			let event = Event { id, function: function.config.function_name.clone(), payload };
			let (keeper, accepted) = (server.clone(), event.clone());
			let done = tokio::task::spawn_blocking(move || keeper.events.accept(accepted)).await;
			done.map_err(ApiError::service)??;
			tokio::spawn(server.run(event));
			response.status(StatusCode::ACCEPTED).body(Body::empty())
		}
		"RequestResponse" => {
			let context = header("x-amz-client-context").map(|text| {
				let bytes = BASE64.decode(text).map_err(ApiError::bad_content)?;
				HeaderValue::try_from(bytes).map_err(ApiError::bad_content)
			});
			let context = context.transpose()?;
			let slot = server.pool.slot().await?;
			let outcome = function.call(&server.pool, slot, id.clone(), payload.into(), context).await?;
			let how = if outcome.failed { "has failed" } else { "is done" };
			note(format!("{} {how}: {id}", function.config.function_name));
			let mut response = response.header(header::CONTENT_TYPE, "application/json");
			if outcome.failed {
				response = response.header("x-amz-function-error", "Unhandled");
			}
			if header("x-amz-log-type") == Some("Tail") {
				response = response.header("x-amz-log-result", BASE64.encode(&outcome.tail));
			}
			response.body(Body::from(outcome.payload))
		}
		_ => return Err(ApiError::invalid("InvocationType is RequestResponse, Event or DryRun")),
	};
	response.map_err(ApiError::service)
}

async fn deploy(State(server): State<Shared>, request: Request) -> Result<(StatusCode, Json<Value>)> {
	let (parts, body) = request.into_parts();
	let body = all_of(&parts.headers, body, MOST_PACKAGE).await?;
	let _one = server.deploys.lock().await;
	let mut value: Value = serde_json::from_slice(&body).map_err(ApiError::bad_content)?;
	drop(body);
	let package = value["Code"]["ZipFile"].take();
	let package = package.as_str().ok_or_else(|| ApiError::invalid("Code.ZipFile, a package in base64, is missing"))?;
	let package = BASE64.decode(package).map_err(ApiError::bad_content)?;
	let config: Config = serde_json::from_value(value).map_err(ApiError::bad_content)?;
	let unpacking = server.clone();
	let unpacked = tokio::task::spawn_blocking(move || unpacking.store.unpack(config, &package)).await;
	let config = unpacked.map_err(ApiError::service)??;
	let name = config.function_name.clone();
	let old = locked(&server.functions).get(&name).cloned();
	let function = Arc::new(Function::new(config.clone()));
	let kept: Vec<_> = old.iter().map(|old| &old.config).collect();
	if let Err(e) = function.warm(&server.pool).await {
		server.store.tidy(&name, &kept);
		let log = function.log();
		return Err(ApiError::invalid(format!("{}; it has printed:\n{}", e.why, String::from_utf8_lossy(&log))));
	}
	server.store.put(&config)?;
	// Calls of the old one may run on.
	server.store.tidy(&name, &[&kept[..], &[&config]].concat());
	locked(&server.functions).insert(name, function);
	Ok((StatusCode::CREATED, Json(config.shown())))
}

async fn list(State(server): State<Shared>) -> Json<Value> {
	let all: Vec<_> = server.functions().iter().map(|function| function.config.shown()).collect();
	Json(json!({ "Functions": all }))
}

async fn describe(State(server): State<Shared>, Path(name): Path<String>) -> Result<Json<Value>> {
	Ok(Json(json!({ "Configuration": server.function(&name)?.config.shown() })))
}

async fn undeploy(State(server): State<Shared>, Path(name): Path<String>) -> Result<StatusCode> {
	let _one = server.deploys.lock().await;
	let function = server.function(&name)?;
	let name = &function.config.function_name;
	server.store.remove(name)?;
	locked(&server.functions).remove(name);
	Ok(StatusCode::NO_CONTENT)
}

async fn logs(State(server): State<Shared>, Path(name): Path<String>) -> Result<Body> {
	Ok(server.function(&name)?.log().into())
}

async fn result(State(server): State<Shared>, Path((name, id)): Path<(String, String)>) -> Result<Json<Value>> {
	store::name(&name)?;
	match server.events.result(&id) {
		None => Err(ApiError::not_found("there is no such event")),
		Some(None) => Ok(Json(json!({ "Id": id, "Status": "Pending" }))),
		Some(Some(ended)) => Ok(Json(json!(ended))),
	}
}

//! What clients speak: AWS Lambda's Invoke API, as much of its other API as deploying takes, and functions' logs.

use crate::{
	bodies::{self, Bodies, MOST, MOST_EVENT, MOST_PACKAGE, MOST_RESULT},
	cluster::{Call, Cluster, Start},
	deploys::Deploys,
	error::{ApiError, Result},
	events::{ATTEMPTS, Ended, Event, Events},
	keys::{Keys, Right},
	listen, locked,
	pool::{Function, Functions, Outcome, Pool, TAIL, uuid},
	store::{self, Config, LATEST, Store},
};
use axum::{
	Json, Router,
	body::{Body, Bytes},
	extract::{DefaultBodyLimit, Extension, Path, RawQuery, Request, State},
	http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority},
	middleware::{self, Next},
	response::{IntoResponse, Response},
	routing::{get, post},
};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use flashfork_terminal::CliError;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
	collections::BTreeMap,
	net::Ipv4Addr,
	sync::{Arc, Mutex, atomic::AtomicUsize},
	time::{Duration, Instant},
};
use tokio::{
	net::TcpListener,
	sync::{Mutex as AsyncMutex, OwnedSemaphorePermit},
	time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tracing::{Instrument, debug_span, error};

/// Most connections at a time.
const MOST_CONNECTIONS: usize = 1024;

/// Most functions of a list, as with AWS, and most bytes of it but for one.
const MOST_LISTED: usize = 50;
const MOST_PAGE: usize = 1 << 20;

/// After which a result that could not be recorded is so again: the disk may have been full.
const AGAIN: Duration = Duration::from_secs(5);

/// All that requests are about.
pub struct Server {
	pub pool: Arc<Pool>,
	store: Store,
	pub events: Events,
	/// How long after its first failure an event is tried again; twice as long after the second.
	retry: Duration,
	/// Without them who is on this machine may ask, as one owner.
	keys: Option<Keys>,
	bodies: Bodies,
	/// Of the event that waits for a place.
	turn: AsyncMutex<()>,
	functions: Functions,
	deploys: Arc<Deploys>,
	/// How many functions of before are being warmed, since when.
	pub warming: AtomicUsize,
	pub started: Instant,
	/// Of a node: then functions and events are the cluster's.
	pub cluster: Option<Arc<Cluster>>,
}

type Shared = Arc<Server>;

/// Whose key a request is signed with.
#[derive(Clone)]
struct Owner(String);

/// The request's id.
#[derive(Clone)]
struct Id(String);

/// The memory of a request's body, for as long as any of these is there.
#[derive(Clone)]
struct Room(Arc<OwnedSemaphorePermit>);

/// The slot of a call that has run, held until there is memory for its answer.
#[derive(Clone)]
struct Slot(#[allow(dead_code)] Arc<OwnedSemaphorePermit>);

/// The owner where there are no keys.
const LOCAL: &str = "local";

impl Server {
	/// With the functions that were deployed before.
	pub fn new(pool: Arc<Pool>, store: Store, events: Events, retry: Duration, keys: Option<Keys>) -> Result<Server> {
		let mut functions = BTreeMap::new();
		for config in store.all()? {
			let lease = store.lease(&config);
			pool.metrics.know(&config.full_name());
			functions.insert(config.full_name(), Arc::new(Function::new(config, lease)));
		}
		let (warming, bodies, turn) = (AtomicUsize::default(), Bodies::default(), AsyncMutex::default());
		let (functions, deploys) = (Arc::new(Mutex::new(functions)), Arc::default());
		let started = Instant::now();
		Ok(Server {
			pool,
			store,
			events,
			retry,
			keys,
			bodies,
			turn,
			functions,
			deploys,
			warming,
			started,
			cluster: None,
		})
	}

	/// Removes packages of what is not deployed, or was cut off; of a server alone.
	pub fn tidy(&self) {
		for name in self.store.names() {
			let function = locked(&self.functions).get(&name).cloned();
			let kept: Vec<_> = function.iter().map(|function| &function.config).collect();
			// One whose configuration can't be read may be mended.
			if !kept.is_empty() || !self.store.has(&name) {
				self.store.tidy(&name, &kept);
			}
		}
	}

	/// Becomes a node of a cluster, with so many slots. It may have nothing of its own.
	pub async fn join(&mut self, start: Start, slots: u32) -> std::result::Result<(), CliError> {
		if !locked(&self.functions).is_empty() || self.events.any_waits() {
			let why = "has functions or events of a server alone: start that without --nats and undeploy them, or give another --state";
			return Err(CliError::Unable(format!("{} {why}", self.pool.state.display())));
		}
		let shared = (self.pool.clone(), self.store.clone(), self.functions.clone());
		self.cluster = Some(Cluster::join(start, shared, self.deploys.clone(), slots, self.retry).await?);
		Ok(())
	}

	pub fn functions(&self) -> Vec<Arc<Function>> {
		locked(&self.functions).values().cloned().collect()
	}

	async fn function(&self, owner: &str, asked: &str) -> Result<Arc<Function>> {
		let (of, name) = store::name(asked)?;
		let found = match &self.cluster {
			Some(cluster) => cluster.find(owner, name).await?,
			None => locked(&self.functions).get(&format!("{owner}:{name}")).cloned(),
		};
		let found = found.filter(|_| of.is_none_or(|of| of == owner));
		found.ok_or_else(|| ApiError::no_function(name))
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
		let ended = Ended { id: event.id, owner: event.owner, status: status.into(), attempts, payload };
		loop {
			let (server, ended) = (self.clone(), ended.clone());
			match tokio::task::spawn_blocking(move || server.events.end(ended)).await {
				Ok(Ok(())) => return,
				// Should the server end before, it runs again.
				failed => error!("the result of an event can't be recorded, and is tried again: {failed:?}"),
			}
			sleep(AGAIN).await;
		}
	}

	/// An event waits as long as it takes: it is no caller.
	async fn attempt(&self, event: &Event) -> Result<Outcome> {
		// One event at a time waits for a place: callers are not behind all that wait.
		let turn = self.turn.lock().await;
		let slot = self.pool.slots.clone().acquire_owned().await.map_err(ApiError::service)?;
		drop(turn);
		// As it is now, not as it was when the event began to wait.
		let function = self.function(&event.owner, &event.function).await?;
		function.call(&self.pool, slot, event.id.clone(), event.payload.clone().into(), None).await
	}
}

/// What servers before this one, or keys, could take for another request.
fn is_one(parts: &Parts) -> Result<()> {
	if parts.headers.get_all(header::HOST).iter().count() > 1 {
		return Err(ApiError::invalid("a request has one Host"));
	}
	match percent_decode_str(parts.uri.path()).decode_utf8() {
		Ok(_) => Ok(()),
		Err(e) => Err(ApiError::invalid(format!("the path is no text: {e}"))),
	}
}

/// A page in a browser here could ask: by its own address, or a name that leads here.
fn not_from_a_page(headers: &HeaderMap) -> Result<()> {
	let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
	let here = host.is_some_and(|host| match host.host() {
		"localhost" | "[::1]" => true,
		host => host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback()),
	});
	if here && !headers.contains_key(header::ORIGIN) && !headers.contains_key("sec-fetch-site") {
		return Ok(());
	}
	Err(ApiError::denied("only programs on this machine may ask, by its loopback address"))
}

/// Lets a request on when it is known whose it is, with all its body.
async fn admit(State(server): State<Shared>, request: Request, next: Next) -> Response {
	let (mut parts, mut body) = request.into_parts();
	let (right, most) = asks_for(&parts);
	let id = uuid();
	parts.extensions.insert(Id(id.clone()));
	let mut response = answer(&server, parts, &mut body, right, most, next).await.unwrap_or_else(|e| {
		if e.status != StatusCode::REQUEST_TIMEOUT {
			// Who still sends would find the connection broken, and not read why.
			tokio::spawn(bodies::discard(body));
		}
		e.into_response()
	});
	response.headers_mut().insert("x-amzn-requestid", HeaderValue::try_from(id).expect("it has digits and hyphens"));
	let operation = match right {
		Right::Invoke => "invoke",
		Right::Read => "read",
		Right::Deploy => "deploy",
	};
	server.pool.metrics.answered(operation, response.status().as_u16());
	response
}

async fn answer(
	server: &Server,
	mut parts: Parts,
	body: &mut Body,
	right: Right,
	most: usize,
	next: Next,
) -> Result<Response> {
	let claim = match &server.keys {
		Some(keys) => Some(keys.claim(&parts, right)?),
		None => not_from_a_page(&parts.headers).map(|()| None)?,
	};
	is_one(&parts)?;
	let (body, room) = server.bodies.read(&parts.headers, body, most).await?;
	let room = Arc::new(room);
	let owner = claim.map_or(Ok(LOCAL.to_owned()), |claim| claim.check(&parts, &body))?;
	parts.extensions.insert(Owner(owner));
	parts.extensions.insert(Room(room.clone()));
	// What is read can be read again. A call that another node answers holds no slot here meanwhile.
	let reserved = match right {
		Right::Read if parts.uri.path().contains("/events/") => Some(server.bodies.room_to_read(MOST_RESULT).await?),
		Right::Read => Some(server.bodies.room_to_read(MOST).await?),
		Right::Invoke if server.cluster.is_some() => {
			server.bodies.has_room_for_answer().await?;
			None
		}
		_ => None,
	};
	let mut response = next.run(Request::from_parts(parts, body.into())).await;
	let slot = response.extensions_mut().remove::<Slot>();
	let response = server.bodies.hold(response, reserved).await;
	drop((slot, room));
	response
}

/// What the key must be allowed to do, and how many bytes the body may have.
fn asks_for(parts: &Parts) -> (Right, usize) {
	let event = parts.headers.get("x-amz-invocation-type").is_some_and(|kind| kind == "Event");
	match parts.method {
		Method::GET | Method::HEAD => (Right::Read, 0),
		Method::POST if parts.uri.path().ends_with("/invocations") => {
			(Right::Invoke, if event { MOST_EVENT } else { MOST })
		}
		_ => (Right::Deploy, MOST_PACKAGE),
	}
}

/// Answers all who come until `ended`, and then those who have asked. Of so many descriptors connections take half at
/// most.
pub async fn serve(
	listener: TcpListener,
	tls: Option<TlsAcceptor>,
	server: Shared,
	descriptors: usize,
	ended: impl Future<Output = ()>,
) {
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
		.layer(DefaultBodyLimit::disable())
		.layer(middleware::from_fn_with_state(server.clone(), admit))
		.with_state(server);
	listen::serve(listener, tls, router, MOST_CONNECTIONS.min(descriptors / 2), ended).await;
}

async fn invoke(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Extension(Id(id)): Extension<Id>,
	Path(name): Path<String>,
	RawQuery(query): RawQuery,
	headers: HeaderMap,
	body: Bytes,
) -> Result<Response> {
	is_latest(query, &name)?;
	let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
	let kind = header("x-amz-invocation-type").unwrap_or("RequestResponse");
	let function = server.function(&owner, &name).await?;
	let mut payload = String::from_utf8(body.into()).map_err(ApiError::bad_content)?;
	if payload.is_empty() {
		payload.push_str("{}");
	}
	serde_json::from_str::<serde::de::IgnoredAny>(&payload)
		.map_err(|e| ApiError::bad_content(format!("Could not parse request body into json: {e}")))?;
	let response = Response::builder().header("x-amz-executed-version", LATEST);
	let response = match kind {
		"DryRun" => response.status(StatusCode::NO_CONTENT).body(Body::empty()),
		"Event" => {
			let event = Event { id, owner, function: function.config.function_name.clone(), payload };
			match &server.cluster {
				Some(cluster) => cluster.accept(&event).await?,
				None => {
					let keeper = server.clone();
					// What is accepted runs, also when the client has gone by then.
					let accepted = tokio::task::spawn_blocking(move || {
						keeper.events.accept(event.clone())?;
						tokio::spawn(keeper.run(event));
						Ok::<_, ApiError>(())
					});
					accepted.await.map_err(ApiError::service)??;
				}
			}
			response.status(StatusCode::ACCEPTED).body(Body::empty())
		}
		"RequestResponse" => {
			let context = header("x-amz-client-context").map(|text| {
				let bytes = BASE64.decode(text).map_err(ApiError::bad_content)?;
				HeaderValue::try_from(bytes).map_err(ApiError::bad_content)
			});
			let context = context.transpose()?;
			let name = function.config.full_name();
			let span = debug_span!("invoke", otel.kind = "server", function = name, id);
			#[cfg(feature = "otlp")]
			crate::traces::follow(&span, &headers);
			let call = async {
				match &server.cluster {
					Some(cluster) => {
						cluster.call(&function, Call { id: id.clone(), payload: payload.into(), context }).await
					}
					None => {
						let slot = server.pool.slot().instrument(debug_span!("admit")).await?;
						function.call(&server.pool, slot, id.clone(), payload.into(), context).await
					}
				}
			};
			let outcome = call.instrument(span).await?;
			let mut response = response.header(header::CONTENT_TYPE, "application/json");
			if outcome.failed {
				response = response.header("x-amz-function-error", "Unhandled");
			}
			if header("x-amz-log-type") == Some("Tail") {
				response = response.header("x-amz-log-result", BASE64.encode(&outcome.tail));
			}
			if let Some(slot) = outcome.slot {
				response = response.extension(Slot(slot));
			}
			response.body(Body::from(outcome.payload))
		}
		_ => return Err(ApiError::invalid("InvocationType is RequestResponse, Event or DryRun")),
	};
	response.map_err(ApiError::service)
}

/// What a request has behind its path under a name.
fn parameter(query: Option<String>, name: &str) -> Option<String> {
	let query = query?;
	let value = query.split('&').find_map(|pair| pair.split_once('=').filter(|(of, _)| *of == name))?.1;
	Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// Whether it is about the version that there is.
fn is_latest(query: Option<String>, name: &str) -> Result<()> {
	match parameter(query, "Qualifier") {
		Some(version) if version != LATEST => Err(ApiError::no_version(name, &version)),
		_ => Ok(()),
	}
}

/// Of a request to deploy what is not the configuration.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Deployment {
	#[serde(default)]
	code: Code,
	memory_size: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Code {
	zip_file: Option<String>,
}

/// To its end, also when its client goes.
async fn deploy(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Extension(Room(room)): Extension<Room>,
	body: Bytes,
) -> Result<(StatusCode, Json<Value>)> {
	tokio::spawn(deploy_for(server, owner, body, room).in_current_span()).await.map_err(ApiError::service)?
}

/// `room` is the memory of the body, and of the package.
async fn deploy_for(
	server: Shared,
	owner: String,
	body: Bytes,
	room: Arc<OwnedSemaphorePermit>,
) -> Result<(StatusCode, Json<Value>)> {
	// Twice, so that nothing is kept of what neither knows.
	let mut config: Config = serde_json::from_slice(&body).map_err(ApiError::bad_content)?;
	let Deployment { code, memory_size } = serde_json::from_slice(&body).map_err(ApiError::bad_content)?;
	drop(body);
	let (_, function) = store::name(&config.function_name).map_err(|e| ApiError::invalid(e.why))?;
	let _one = server.deploys.begin(&format!("{owner}:{function}")).await?;
	let package = code.zip_file.ok_or_else(|| ApiError::invalid("Code.ZipFile, a package in base64, is missing"))?;
	let package = BASE64.decode(package).map_err(ApiError::bad_content)?;
	if let Some(cluster) = &server.cluster {
		cluster.may_have(&config)?;
	}
	config.check()?;
	if let Some(template) = &config.vm {
		if server.cluster.is_some() {
			let why = "a cluster has no functions in virtual machines: their templates are at one node alone; deploy it at a server without --nats";
			return Err(ApiError::invalid(why));
		}
		if memory_size.is_some() {
			return Err(ApiError::invalid(
				"a function in a virtual machine has its template's memory: give no MemorySize",
			));
		}
		config.memory_size = server.pool.machines.memory(template).await?;
	}
	let package = Bytes::from(package);
	let unpacking = server.deploys.unpacking.lock().await;
	let (unpacker, packed) = (server.clone(), package.clone());
	let unpacked = tokio::task::spawn_blocking(move || unpacker.store.unpack(config, owner, &packed)).await;
	drop(unpacking);
	let config = unpacked.map_err(ApiError::service)??;
	// Other nodes are sent it once the function is warm.
	let package = server.cluster.is_some().then_some((package, room));
	let name = config.full_name();
	let old = locked(&server.functions).get(&name).cloned();
	let function = Arc::new(Function::new(config.clone(), server.store.lease(&config)));
	let kept: Vec<_> = old.iter().map(|old| &old.config).collect();
	if let Err(e) = function.warm(&server.pool).await {
		server.store.tidy(&name, &kept);
		if e.status == StatusCode::TOO_MANY_REQUESTS {
			return Err(e);
		}
		let log = function.log();
		let printed = String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]);
		let printed = if printed.is_empty() { String::new() } else { format!("; it has printed:\n{printed}") };
		let cure =
			if printed.contains("No module named awslambdaric") { "; pip install awslambdaric there" } else { "" };
		return Err(ApiError::invalid(format!("{}{cure}{printed}", e.why)));
	}
	match server.cluster.as_ref().zip(package) {
		Some((cluster, (package, _room))) => {
			if let Err(e) = cluster.deploy(function, &package).await {
				server.store.tidy(&name, &kept);
				return Err(e);
			}
		}
		None => {
			if let Err(e) = server.store.put(&config) {
				// It may be on disk all the same.
				let _ = old.as_ref().map_or_else(|| server.store.remove(&config), |old| server.store.put(&old.config));
				server.store.tidy(&name, &kept);
				return Err(e);
			}
			server.pool.metrics.know(&name);
			locked(&server.functions).insert(name.clone(), function);
		}
	}
	server.store.tidy(&name, &[&config]);
	Ok((StatusCode::CREATED, Json(config.shown())))
}

/// A page of functions, in the order of their names.
async fn list(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	RawQuery(query): RawQuery,
) -> Result<Json<Value>> {
	let most =
		parameter(query.clone(), "MaxItems").map_or(Ok(MOST_LISTED), |most| most.parse().map_err(ApiError::invalid))?;
	let after = parameter(query, "Marker").unwrap_or_default();
	let mut all = server.functions();
	all.retain(|function| function.config.owner == owner && function.config.function_name > after);
	let (mut page, mut bytes) = (Vec::new(), 0);
	for function in &all {
		let shown = function.config.shown();
		bytes += shown.to_string().len();
		if !page.is_empty() && (page.len() >= MOST_LISTED.min(most) || bytes > MOST_PAGE) {
			break;
		}
		page.push(shown);
	}
	let next = if page.len() < all.len() { page.last().map(|last| last["FunctionName"].clone()) } else { None };
	Ok(Json(json!({ "Functions": page, "NextMarker": next })))
}

async fn describe(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Path(name): Path<String>,
	RawQuery(query): RawQuery,
) -> Result<Json<Value>> {
	is_latest(query, &name)?;
	Ok(Json(json!({ "Configuration": server.function(&owner, &name).await?.config.shown() })))
}

async fn undeploy(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Path(name): Path<String>,
	RawQuery(query): RawQuery,
) -> Result<StatusCode> {
	is_latest(query, &name)?;
	let _one = server.deploys.begin(&format!("{owner}:{}", store::name(&name)?.1)).await?;
	let function = server.function(&owner, &name).await?;
	match &server.cluster {
		Some(cluster) => cluster.undeploy(&function.config).await?,
		None => {
			server.store.remove(&function.config)?;
			locked(&server.functions).remove(&function.config.full_name());
			server.pool.metrics.forget(&function.config.full_name());
		}
	}
	Ok(StatusCode::NO_CONTENT)
}

async fn logs(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Path(name): Path<String>,
) -> Result<Body> {
	Ok(server.function(&owner, &name).await?.log().into())
}

async fn result(
	State(server): State<Shared>,
	Extension(Owner(owner)): Extension<Owner>,
	Path((name, id)): Path<(String, String)>,
) -> Result<Json<Value>> {
	let (_, function) = store::name(&name)?;
	let found = match &server.cluster {
		Some(cluster) => cluster.result(&owner, function, &id).await?,
		None => server.events.result(&owner, &id),
	};
	match found {
		None => Err(ApiError::not_found("there is no such event")),
		Some(None) => Ok(Json(json!({ "Id": id, "Status": "Pending" }))),
		Some(Some(ended)) => Ok(Json(json!(ended))),
	}
}

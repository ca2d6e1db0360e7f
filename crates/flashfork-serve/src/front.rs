//! What clients speak: AWS Lambda's Invoke API, as much of its other API as deploying takes, and functions' logs.

use crate::error::{ApiError, Result};
use crate::events::{Ended, Event, Events};
use crate::keys::Keys;
use crate::pool::{Function, Outcome, Pool, uuid};
use crate::runtime::MOST;
use crate::store::{self, Config, Store};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header, request::Parts};
use axum::routing::{get, post};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
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
/// Whose functions are where there are no keys.
pub const NOBODY: &str = "local";

/// All that requests are about.
pub struct Server {
    pub pool: Arc<Pool>,
    pub store: Store,
    pub keys: Option<Keys>,
    pub events: Events,
    /// How long after its first failure an event is tried again; twice as long after the second.
    pub retry: Duration,
    functions: RwLock<BTreeMap<(String, String), Arc<Function>>>,
    /// One at a time: packages are large.
    deploys: Mutex<()>,
}

type Shared = Arc<Server>;

impl Server {
    /// With the functions that were deployed before.
    pub fn new(pool: Arc<Pool>, store: Store, keys: Option<Keys>, events: Events, retry: Duration) -> Result<Server> {
        let mut functions = BTreeMap::new();
        for (owner, config) in store.all()? {
            store.tidy(&owner, &config.function_name, &[&config]);
            let code = store.code(&owner, &config);
            let name = (owner.clone(), config.function_name.clone());
            functions.insert(name, Arc::new(Function::new(owner, config, code)));
        }
        let deploys = Mutex::default();
        Ok(Server { pool, store, keys, events, retry, functions: RwLock::new(functions), deploys })
    }

    pub fn functions(&self, owner: Option<&str>) -> Vec<Arc<Function>> {
        let all = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|function| owner.is_none_or(|owner| function.owner == owner)).cloned().collect()
    }

    fn function(&self, owner: &str, asked: &str) -> Result<Arc<Function>> {
        let name = store::name(asked)?;
        let all = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&(owner.to_owned(), name.to_owned())).cloned();
        found.ok_or_else(|| {
            ApiError::not_found(format!("Function not found: arn:aws:lambda:local:{owner}:function:{name}"))
        })
    }

    /// Who asks, and the body: not before it is known that he may, as far as that can be known without it.
    async fn admit(&self, parts: &Parts, body: Body, most: usize) -> Result<(String, Bytes)> {
        let claim = match &self.keys {
            Some(keys) => Some(keys.claim(parts)?),
            None => {
                not_from_a_page(&parts.headers)?;
                None
            }
        };
        let too_large = || ApiError::too_large(format!("a request like this has {most} bytes at most"));
        let said = parts.headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
        if said.is_some_and(|len| len > most as u64) {
            return Err(too_large());
        }
        let body = timeout(PATIENCE, to_bytes(body, most)).await;
        let body = body.map_err(|_| ApiError::slow("the body did not come in 10 seconds"))?;
        let body = body.map_err(|e| {
            let large = std::error::Error::source(&e).is_some_and(|why| why.is::<http_body_util::LengthLimitError>());
            if large { too_large() } else { ApiError::bad_content("the body breaks off") }
        })?;
        let owner = claim.map_or_else(|| Ok(NOBODY.to_owned()), |claim| claim.check(parts, &body))?;
        Ok((owner, body))
    }

    /// Calls a function for an event until it succeeds, or often enough.
    async fn run(self: Shared, event: Event) {
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
        let done = tokio::task::spawn_blocking(move || self.events.end(ended)).await;
        if !matches!(done, Ok(Ok(()))) {
            tracing::error!("the result of an event can't be recorded; it runs again at the next start: {done:?}");
        }
    }

    async fn attempt(&self, event: &Event) -> Result<Outcome> {
        let function = self.function(&event.owner, &event.function)?;
        let slot = self.pool.slots.clone().acquire_owned().await.map_err(|e| ApiError::service(e.to_string()))?;
        function.call_in(&self.pool, slot, event.id.clone(), event.payload().into(), None).await
    }
}

/// Where there are no keys, a page in a browser here could ask: by its own address, or a name that leads here.
fn not_from_a_page(headers: &HeaderMap) -> Result<()> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(host, _)| host);
    let here =
        matches!(host, "localhost" | "[::1]") || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    if here && !headers.contains_key(header::ORIGIN) && !headers.contains_key("sec-fetch-site") {
        return Ok(());
    }
    Err(ApiError::denied("without keys only programs on this machine may ask, by its loopback address"))
}

/// Events that were accepted before.
pub fn resume(server: &Shared, waiting: Vec<Event>) {
    waiting.into_iter().for_each(|event| drop(tokio::spawn(server.clone().run(event))));
}

/// Answers all who come.
pub async fn serve(listener: TcpListener, server: Shared) {
    const FUNCTION: &str = "/2015-03-31/functions/{name}";
    let router = Router::new()
        .route("/2015-03-31/functions", get(list).post(deploy))
        .route("/2015-03-31/functions/", get(list).post(deploy))
        .route(FUNCTION, get(describe).delete(undeploy))
        .route(&format!("{FUNCTION}/invocations"), post(invoke))
        .route(&format!("{FUNCTION}/logs"), get(logs))
        .route(&format!("{FUNCTION}/events/{{id}}"), get(result))
        .fallback(|| async { ApiError::not_found("there is no such operation") })
        .method_not_allowed_fallback(|| async { ApiError::not_found("there is no such operation") })
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

fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(value.to_string())).expect("plain headers")
}

async fn invoke(State(server): State<Shared>, Path(name): Path<String>, request: Request) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let kind = header("x-amz-invocation-type").unwrap_or("RequestResponse");
    let (owner, body) = server.admit(&parts, body, if kind == "Event" { MOST_EVENT } else { MOST }).await?;
    let function = server.function(&owner, &name)?;
    let payload = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
    serde_json::from_slice::<serde::de::IgnoredAny>(&payload)
        .map_err(|e| ApiError::bad_content(format!("Could not parse request body into json: {e}")))?;
    let id = uuid();
    let response = Response::builder().header("x-amzn-requestid", &id).header("x-amz-executed-version", "$LATEST");
    let response = match kind {
        "DryRun" => response.status(StatusCode::NO_CONTENT).body(Body::empty()),
        "Event" => {
            let event = Event::new(id, owner, function.config.function_name.clone(), &payload);
            let (keeper, accepted) = (server.clone(), event.clone());
            let done = tokio::task::spawn_blocking(move || keeper.events.accept(accepted)).await;
            done.map_err(|e| ApiError::service(e.to_string()))??;
            tokio::spawn(server.run(event));
            response.status(StatusCode::ACCEPTED).body(Body::empty())
        }
        "RequestResponse" => {
            let context = header("x-amz-client-context").map(|text| BASE64.decode(text)).transpose();
            let context = context.map_err(|_| ApiError::bad_content("the client context is no base64"))?;
            let context = context.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let outcome = function.call(&server.pool, id, payload, context).await?;
            tracing::info!(
                function = function.config.function_name,
                owner,
                id = outcome.id,
                failed = outcome.failed,
                "called"
            );
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
    response.map_err(|e| ApiError::service(e.to_string()))
}

async fn deploy(State(server): State<Shared>, request: Request) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let (owner, body) = server.admit(&parts, body, MOST_PACKAGE).await?;
    let _one = server.deploys.lock().await;
    let bad = |e: &dyn std::fmt::Display| ApiError::bad_content(e.to_string());
    let mut value: serde_json::Value = serde_json::from_slice(&body).map_err(|e| bad(&e))?;
    drop(body);
    let package = value["Code"]["ZipFile"].take();
    let package = package.as_str().ok_or_else(|| ApiError::invalid("Code.ZipFile, a package in base64, is missing"))?;
    let package = BASE64.decode(package).map_err(|e| bad(&e))?;
    let config: Config = serde_json::from_value(value).map_err(|e| bad(&e))?;
    let (unpacking, of) = (server.clone(), owner.clone());
    let unpacked = tokio::task::spawn_blocking(move || unpacking.store.unpack(&of, config, &package)).await;
    let config = unpacked.map_err(|e| ApiError::service(e.to_string()))??;
    let name = (owner.clone(), config.function_name.clone());
    let old = server.functions.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
    let function = Arc::new(Function::new(owner.clone(), config.clone(), server.store.code(&owner, &config)));
    let kept: Vec<_> = old.iter().map(|old| &old.config).collect();
    if let Err(e) = function.prepare(&server.pool).await {
        server.store.tidy(&owner, &name.1, &kept);
        return Err(ApiError::invalid(format!(
            "{}; it has printed:\n{}",
            e.why,
            String::from_utf8_lossy(&function.log())
        )));
    }
    server.store.put(&owner, &config)?;
    // Calls of the old one may run on.
    server.store.tidy(&owner, &name.1, &[&kept[..], &[&config]].concat());
    server.functions.write().unwrap_or_else(PoisonError::into_inner).insert(name, function);
    Ok(json(StatusCode::CREATED, &config.shown(&owner)))
}

async fn list(State(server): State<Shared>, request: Request) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let (owner, _) = server.admit(&parts, body, 0).await?;
    let all: Vec<_> = server.functions(Some(&owner)).iter().map(|function| function.config.shown(&owner)).collect();
    Ok(json(StatusCode::OK, &serde_json::json!({ "Functions": all })))
}

/// The function that a request without a body is about.
async fn asked(server: &Server, name: &str, request: Request) -> Result<Arc<Function>> {
    let (parts, body) = request.into_parts();
    let (owner, _) = server.admit(&parts, body, 0).await?;
    server.function(&owner, name)
}

async fn describe(State(server): State<Shared>, Path(name): Path<String>, request: Request) -> Result<Response<Body>> {
    let function = asked(&server, &name, request).await?;
    Ok(json(StatusCode::OK, &serde_json::json!({ "Configuration": function.config.shown(&function.owner) })))
}

async fn undeploy(State(server): State<Shared>, Path(name): Path<String>, request: Request) -> Result<Response<Body>> {
    let function = asked(&server, &name, request).await?;
    let _one = server.deploys.lock().await;
    let (owner, name) = (function.owner.clone(), function.config.function_name.clone());
    server.store.remove(&owner, &name)?;
    server.store.tidy(&owner, &name, &[]);
    server.functions.write().unwrap_or_else(PoisonError::into_inner).remove(&(owner, name));
    Ok(json(StatusCode::NO_CONTENT, &serde_json::Value::Null).map(|_| Body::empty()))
}

async fn logs(State(server): State<Shared>, Path(name): Path<String>, request: Request) -> Result<Response<Body>> {
    Ok(Response::new(asked(&server, &name, request).await?.log().into()))
}

async fn result(
    State(server): State<Shared>,
    Path((name, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let (owner, _) = server.admit(&parts, body, 0).await?;
    store::name(&name)?;
    match server.events.result(&owner, &id) {
        None => Err(ApiError::not_found("there is no such event")),
        Some(None) => Ok(json(StatusCode::OK, &serde_json::json!({ "Id": id, "Status": "Pending" }))),
        Some(Some(ended)) => Ok(json(StatusCode::OK, &serde_json::to_value(ended).unwrap_or_default())),
    }
}

//! The daemon's HTTP interface; `flashfork_proto::api` describes it.

mod request;
mod serve;
mod streams;

pub use serve::serve;

use crate::daemon::{Daemon, DaemonError};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use flashfork_proto::api::{
    self, CreateClones, CreateTemplate, ErrorCode, LoadTemplate, MAX_BODY, SaveTemplate, VERSION,
};
use request::{Body, Name};
use std::sync::Arc;
use std::time::Instant;

type Shared = State<Arc<Daemon>>;
type Answer<T> = Result<Json<T>, Failure>;

/// An error on its way to the client.
struct Failure(api::Error);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        Self(error.into())
    }
}

/// What the daemon answers.
pub fn router(daemon: Arc<Daemon>) -> Router {
    Router::new()
        .route("/v1", get(version))
        .route("/v1/templates", get(templates).post(create_template))
        .route("/v1/templates/load", post(load_template))
        .route("/v1/templates/{name}", get(template).delete(remove_template))
        .route("/v1/templates/{name}/save", post(save_template))
        .route("/v1/templates/{name}/clones", post(create_clones))
        .route("/v1/clones", get(clones))
        .route("/v1/clones/{name}", get(clone).delete(remove_clone))
        .route("/v1/clones/{name}/rollback", post(rollback))
        .route("/v1/clones/{name}/agent", post(streams::agent))
        .route("/v1/clones/{name}/console", post(streams::console))
        .route("/v1/stats", get(stats))
        .route("/v1/host", post(host))
        .fallback(nowhere)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(daemon)
}

/// Runs what blocks where it may: whatever reads files, waits for anybody or may free memory. The daemon has one thread
/// for requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DaemonError> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        // Panics abort; a runtime that ends answers nobody.
        Err(e) => Err(Failure(api::Error { code: ErrorCode::Internal, message: e.to_string() })),
    }
}

async fn nowhere() -> Failure {
    let message = format!("no such path: this daemon speaks version {VERSION} of the interface");
    Failure(api::Error { code: ErrorCode::NotFound, message })
}

async fn version() -> Json<api::Daemon> {
    let flashfork = env!("CARGO_PKG_VERSION").to_owned();
    Json(api::Daemon { flashfork, api: VERSION, pid: std::process::id() })
}

async fn templates(State(daemon): Shared) -> Answer<Vec<api::Template>> {
    blocking(move || Ok(daemon.templates())).await.map(Json)
}

async fn create_template(State(daemon): Shared, Body(request): Body<CreateTemplate>) -> Answer<api::Template> {
    blocking(move || daemon.create_template(&request)).await.map(Json)
}

async fn load_template(State(daemon): Shared, Body(request): Body<LoadTemplate>) -> Answer<api::Template> {
    blocking(move || daemon.load_template(&request)).await.map(Json)
}

async fn save_template(
    State(daemon): Shared,
    Name(name): Name,
    Body(request): Body<SaveTemplate>,
) -> Answer<api::Template> {
    blocking(move || daemon.save_template(&name, &request)).await.map(Json)
}

async fn template(State(daemon): Shared, Name(name): Name) -> Answer<api::Template> {
    blocking(move || daemon.template(&name)).await.map(Json)
}

async fn remove_template(State(daemon): Shared, Name(name): Name) -> Result<StatusCode, Failure> {
    blocking(move || daemon.remove_template(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn create_clones(
    State(daemon): Shared,
    Name(name): Name,
    Body(request): Body<CreateClones>,
) -> Answer<Vec<api::Clone>> {
    let started = Instant::now();
    blocking(move || daemon.create_clones(&name, &request, started)).await.map(Json)
}

async fn clones(State(daemon): Shared) -> Answer<Vec<api::Clone>> {
    blocking(move || Ok(daemon.clones())).await.map(Json)
}

async fn clone(State(daemon): Shared, Name(name): Name) -> Answer<api::Clone> {
    blocking(move || daemon.show_clone(&name)).await.map(Json)
}

async fn remove_clone(State(daemon): Shared, Name(name): Name) -> Result<StatusCode, Failure> {
    blocking(move || daemon.remove_clone(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn rollback(State(daemon): Shared, Name(name): Name) -> Answer<api::Clone> {
    blocking(move || daemon.rollback(&name)).await.map(Json)
}

async fn stats(State(daemon): Shared) -> Answer<api::Stats> {
    blocking(move || Ok(daemon.stats())).await.map(Json)
}

async fn host(State(daemon): Shared) -> Answer<api::Host> {
    blocking(move || Ok(daemon.host())).await.map(Json)
}

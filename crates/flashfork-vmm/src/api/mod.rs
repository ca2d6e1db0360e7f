//! The daemon's HTTP interface; `flashfork_proto::api` describes it.

mod description;
mod request;
mod serve;
mod streams;

pub use description::openapi;
pub use serve::serve;

use crate::daemon::{Daemon, DaemonError};
use axum::{
	Json, Router,
	extract::{DefaultBodyLimit, State},
	http::StatusCode,
	response::{IntoResponse, Response},
	routing::get,
};
use description::{Failed, described};
use flashfork_proto::{
	api::{self, CreateClones, CreateTemplate, ErrorCode, ForkClone, LoadTemplate, MAX_BODY, SaveTemplate, VERSION},
	printable,
};
use request::{Body, Name};
use std::{os::unix::fs::MetadataExt, sync::Arc, time::Instant};

type Shared = State<Arc<Daemon>>;
type Answer<T> = Result<Json<T>, Failure>;

struct Failure(api::Error);

impl IntoResponse for Failure {
	fn into_response(mut self) -> Response {
		// A guest or its shell may have put it in words.
		self.0.message = printable(&self.0.message);
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
	let (router, description) = described().split_for_parts();
	let describe = move || {
		let description = description.clone();
		async move { Json(description) }
	};
	router
		.route("/v1/openapi.json", get(describe))
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

/// Who answers.
#[utoipa::path(get, path = "/v1", responses((status = 200, description = "Done", body = api::Daemon), Failed))]
async fn version() -> Json<api::Daemon> {
	let flashfork = env!("CARGO_PKG_VERSION").to_owned();
	let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
	Json(api::Daemon { flashfork, api: VERSION, pid: std::process::id(), pid_namespace })
}

/// All templates.
#[utoipa::path(
	get, path = "/v1/templates",
	responses((status = 200, description = "Done", body = Vec<api::Template>), Failed)
)]
async fn templates(State(daemon): Shared) -> Answer<Vec<api::Template>> {
	blocking(move || Ok(daemon.templates())).await.map(Json)
}

/// Boots a guest and makes a template of it.
#[utoipa::path(
	post, path = "/v1/templates",
	request_body = CreateTemplate,
	responses((status = 200, description = "Done", body = api::Template), Failed)
)]
async fn create_template(State(daemon): Shared, Body(request): Body<CreateTemplate>) -> Answer<api::Template> {
	// Gone with this future, when the client hangs up.
	let client = Arc::new(());
	let waits = Arc::downgrade(&client);
	blocking(move || daemon.create_template(&request, &waits)).await.map(Json)
}

/// Loads a template that was saved.
#[utoipa::path(
	post, path = "/v1/templates/load",
	request_body = LoadTemplate,
	responses((status = 200, description = "Done", body = api::Template), Failed)
)]
async fn load_template(State(daemon): Shared, Body(request): Body<LoadTemplate>) -> Answer<api::Template> {
	blocking(move || daemon.load_template(&request)).await.map(Json)
}

/// Saves a template.
#[utoipa::path(
	post, path = "/v1/templates/{name}/save",
	params(("name" = String, Path, description = "The template's name")),
	request_body = SaveTemplate,
	responses((status = 200, description = "Done", body = api::Template), Failed)
)]
async fn save_template(
	State(daemon): Shared,
	Name(name): Name,
	Body(request): Body<SaveTemplate>,
) -> Answer<api::Template> {
	blocking(move || daemon.save_template(&name, &request)).await.map(Json)
}

/// A template.
#[utoipa::path(
	get, path = "/v1/templates/{name}",
	params(("name" = String, Path, description = "The template's name")),
	responses((status = 200, description = "Done", body = api::Template), Failed)
)]
async fn template(State(daemon): Shared, Name(name): Name) -> Answer<api::Template> {
	blocking(move || daemon.template(&name)).await.map(Json)
}

/// Removes a template with no clones.
#[utoipa::path(
	delete, path = "/v1/templates/{name}",
	params(("name" = String, Path, description = "The template's name")),
	responses((status = 204, description = "It is gone"), Failed)
)]
async fn remove_template(State(daemon): Shared, Name(name): Name) -> Result<StatusCode, Failure> {
	blocking(move || daemon.remove_template(&name)).await?;
	Ok(StatusCode::NO_CONTENT)
}

/// Makes clones.
#[utoipa::path(
	post, path = "/v1/templates/{name}/clones",
	params(("name" = String, Path, description = "The template's name")),
	request_body = CreateClones,
	responses((status = 200, description = "Done", body = Vec<api::Clone>), Failed)
)]
async fn create_clones(
	State(daemon): Shared,
	Name(name): Name,
	Body(request): Body<CreateClones>,
) -> Answer<Vec<api::Clone>> {
	let started = Instant::now();
	blocking(move || daemon.create_clones(&name, &request, started)).await.map(Json)
}

/// All clones, and those that ended last.
#[utoipa::path(
	get, path = "/v1/clones",
	responses((status = 200, description = "Done", body = Vec<api::Clone>), Failed)
)]
async fn clones(State(daemon): Shared) -> Answer<Vec<api::Clone>> {
	blocking(move || Ok(daemon.clones())).await.map(Json)
}

/// A clone.
#[utoipa::path(
	get, path = "/v1/clones/{name}",
	params(("name" = String, Path, description = "The clone's name")),
	responses((status = 200, description = "Done", body = api::Clone), Failed)
)]
async fn clone(State(daemon): Shared, Name(name): Name) -> Answer<api::Clone> {
	blocking(move || daemon.show_clone(&name)).await.map(Json)
}

/// Ends and removes a clone.
#[utoipa::path(
	delete, path = "/v1/clones/{name}",
	params(("name" = String, Path, description = "The clone's name")),
	responses((status = 204, description = "It is gone"), Failed)
)]
async fn remove_clone(State(daemon): Shared, Name(name): Name) -> Result<StatusCode, Failure> {
	blocking(move || daemon.remove_clone(&name)).await?;
	Ok(StatusCode::NO_CONTENT)
}

/// Takes a clone back to its template.
#[utoipa::path(
	post, path = "/v1/clones/{name}/rollback",
	params(("name" = String, Path, description = "The clone's name")),
	responses((status = 200, description = "Done", body = api::Clone), Failed)
)]
async fn rollback(State(daemon): Shared, Name(name): Name) -> Answer<api::Clone> {
	blocking(move || daemon.rollback(&name)).await.map(Json)
}

/// Forks a clone while it runs.
#[utoipa::path(
	post, path = "/v1/clones/{name}/fork",
	params(("name" = String, Path, description = "The clone's name")),
	request_body = ForkClone,
	responses((status = 200, description = "Done", body = api::Forked), Failed)
)]
async fn fork_clone(State(daemon): Shared, Name(name): Name, Body(request): Body<ForkClone>) -> Answer<api::Forked> {
	let started = Instant::now();
	blocking(move || daemon.fork_clone(&name, &request, started)).await.map(Json)
}

/// What the daemon has.
#[utoipa::path(get, path = "/v1/stats", responses((status = 200, description = "Done", body = api::Stats), Failed))]
async fn stats(State(daemon): Shared) -> Answer<api::Stats> {
	blocking(move || Ok(daemon.stats())).await.map(Json)
}

/// Finds out what the host's KVM can do, by trying.
#[utoipa::path(post, path = "/v1/host", responses((status = 200, description = "Done", body = api::Host), Failed))]
async fn host(State(daemon): Shared) -> Answer<api::Host> {
	blocking(move || Ok(daemon.host())).await.map(Json)
}

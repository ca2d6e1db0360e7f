//! The interface as an OpenAPI document, made of the same list that the router is made of.

use crate::daemon::Daemon;
use flashfork_proto::api;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

/// What every path may answer with.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code)] // describes only
pub(super) enum Failed {
	/// It was not done; the status follows from the code.
	#[response(status = "default")]
	Error(api::Error),
}

#[derive(OpenApi)]
#[openapi(
	components(schemas(api::Error, api::ErrorCode)),
	info(
		title = "flashfork-vmd",
		description = "Templates of virtual machines and clones of them: HTTP over a Unix socket.",
		license(name = "MIT OR Apache-2.0")
	)
)]
struct Interface;

/// All paths but the document's own, with what they take and answer.
pub(super) fn described() -> OpenApiRouter<Arc<Daemon>> {
	OpenApiRouter::with_openapi(Interface::openapi())
		.routes(routes!(super::version))
		.routes(routes!(super::templates, super::create_template))
		.routes(routes!(super::load_template))
		.routes(routes!(super::template, super::remove_template))
		.routes(routes!(super::save_template))
		.routes(routes!(super::create_clones))
		.routes(routes!(super::clones))
		.routes(routes!(super::clone, super::remove_clone))
		.routes(routes!(super::rollback))
		.routes(routes!(super::fork_clone))
		.routes(routes!(super::streams::agent))
		.routes(routes!(super::streams::console))
		.routes(routes!(super::stats))
		.routes(routes!(super::host))
}

/// The document, as the daemon has it at `/v1/openapi.json`.
#[must_use]
pub fn openapi() -> String {
	described().into_openapi().to_json().expect("it has names for keys")
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::collections::BTreeSet;

	/// Who reads it has no Rust at hand.
	#[test]
	fn limits_are_numbers() {
		for name in ["MAX_", "MIN_", "VERSION", "is_name", "crate::"] {
			assert!(!openapi().contains(name), "{name}");
		}
	}

	/// Errors are told as the document says, and no field of these answers is missing there.
	#[test]
	fn examples_of_all_answers_fit_their_schemas() {
		let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
		let schemas = &document["components"]["schemas"];
		let daemon = api::Daemon { flashfork: String::new(), api: 1, pid: 1, pid_namespace: 1 };
		let error = api::Error { code: api::ErrorCode::NotFound, message: String::new() };
		let host = api::Host { kvm: api::HostKvm::None, detail: String::new(), limits: String::new() };
		for (name, value) in [
			("Daemon", serde_json::to_value(daemon).unwrap()),
			("Error", serde_json::to_value(error).unwrap()),
			("Host", serde_json::to_value(host).unwrap()),
			("Stats", serde_json::to_value(api::Stats::default()).unwrap()),
		] {
			let told = schemas[name]["properties"].as_object().unwrap().keys().collect::<BTreeSet<_>>();
			assert_eq!(value.as_object().unwrap().keys().collect::<BTreeSet<_>>(), told, "{name}");
		}
		let codes = schemas["ErrorCode"]["enum"].as_array().unwrap();
		assert!(codes.contains(&serde_json::json!("not-found")), "{codes:?}");
		assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
	}
}

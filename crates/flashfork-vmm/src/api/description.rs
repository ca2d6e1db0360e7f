//! The interface as an OpenAPI document, made of the same list that the router is made of.

use crate::daemon::Daemon;
use flashfork_proto::api;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use std::collections::BTreeSet;

    /// `UPDATE=1` writes the document.
    #[test]
    fn the_document_says_what_the_code_does() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        // As narrow as lines can be told apart: it is a large part of a checkout.
        let mut text = Vec::new();
        let narrow = serde_json::ser::PrettyFormatter::with_indent(b"");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, narrow);
        described().into_openapi().serialize(&mut writer).unwrap();
        let text = String::from_utf8(text).unwrap() + "\n";
        if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "UPDATE=1 writes it anew");
    }

    /// Errors are told as the document says, and no field of these answers is missing there.
    #[test]
    fn examples_of_all_answers_fit_their_schemas() {
        let document = serde_json::to_value(described().into_openapi()).unwrap();
        let schemas = &document["components"]["schemas"];
        let daemon = api::Daemon { flashfork: String::new(), api: 1, pid: 1 };
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

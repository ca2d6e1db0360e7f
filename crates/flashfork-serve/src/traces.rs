//! Traces of calls, by OTLP over HTTP, to where the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like of
//! OpenTelemetry's specification). Those of a caller, who names one in `traceparent` (W3C), go on.

use axum::http::HeaderMap;
use hyper::body::Bytes;
use opentelemetry::{propagation::TextMapPropagator, trace::TracerProvider};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError, Request, Response, hyper::HyperClient};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

/// What of the environment says where they go to.
const PLACES: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Sends them, unless the environment doesn't say where. Nothing waits for that.
pub fn layer<S>(runtime: &Handle) -> Result<Option<impl Layer<S> + use<S>>, String>
where
	S: Subscriber + for<'a> LookupSpan<'a>,
{
	if !PLACES.iter().any(|name| std::env::var_os(name).is_some_and(|place| !place.is_empty())) {
		return Ok(None);
	}
	let client = HyperClient::with_default_connector(Duration::from_secs(10), None);
	let client = Client { client, runtime: runtime.clone() };
	let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
	let exporter = exporter.map_err(|e| format!("traces can't be sent: {e}"))?;
	let tracer = SdkTracerProvider::builder().with_batch_exporter(exporter).build().tracer("flashfork-serve");
	// Not those of what sends them.
	let ours = Targets::new().with_target("flashfork_serve", Level::DEBUG);
	Ok(Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours)))
}

/// Has a span be part of the trace that a request names, if it names one.
pub fn follow(span: &Span, headers: &HeaderMap) {
	// Fails where nothing is sent.
	let _ = span.set_parent(TraceContextPropagator::new().extract(&HeaderExtractor(headers)));
}

/// The batches come from a thread that is none of the runtime's.
#[derive(Debug)]
struct Client {
	client: HyperClient,
	runtime: Handle,
}

#[async_trait::async_trait]
impl HttpClient for Client {
	async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
		let client = self.client.clone();
		self.runtime.spawn(async move { client.send_bytes(request).await }).await?
	}
}

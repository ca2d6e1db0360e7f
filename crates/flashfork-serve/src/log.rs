//! What is told of what happens: lines on standard error, and with the feature `otlp` traces.

use tokio::runtime::Handle;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// How lines are written.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum Format {
	/// For people
	#[default]
	Text,
	/// An object of JSON on each line
	Json,
}

/// Begins it; traces are sent by tasks of this runtime. Says why not.
pub fn begin(format: Format, runtime: &Handle) -> Result<(), String> {
	let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
	let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
		Format::Text => lines.with_filter(LevelFilter::INFO).boxed(),
		Format::Json => lines.json().flatten_event(true).with_filter(LevelFilter::INFO).boxed(),
	};
	let all = tracing_subscriber::registry().with(lines);
	#[cfg(feature = "otlp")]
	let all = all.with(crate::traces::layer(runtime)?);
	let _ = runtime;
	all.init();
	Ok(())
}

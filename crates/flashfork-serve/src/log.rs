//! What is told of what happens: lines on standard error, and with the feature `otlp` traces.

use flashfork_proto::printable;
use std::fmt::Display;
use tokio::runtime::Handle;
use tracing_subscriber::{Layer, Registry, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Most bytes of a function's own words in a line.
const WORDS: usize = 1 << 10;

/// What a function says, or an error that may have its words in it, as a part of one line.
pub fn words(said: &impl Display) -> String {
	let mut words = printable(&said.to_string().chars().take(WORDS).collect::<String>());
	while words.len() > WORDS {
		words.pop();
	}
	words
}

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

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_function_s_own_words_are_a_short_part_of_one_line() {
		assert_eq!(words(&"boo\n2026 INFO call \x1b[31mé"), "boo\\n2026 INFO call \\u{1b}[31mé");
		for long in ["A", "é", "\n"] {
			let words = words(&long.repeat(5_000_000));
			assert!((WORDS - 1..=WORDS).contains(&words.len()) && !words.contains('\n'), "{}", words.len());
		}
	}
}

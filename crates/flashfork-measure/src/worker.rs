//! Worker processes: each measured configuration lives in its own, prepared once, then asked for batches of samples.
//!
//! A worker is this same executable started again with the hidden argument [`ARGUMENT`]; the program's `main` must pass
//! such calls to [`worker_main`] before it starts a thread (a process with other threads is not sealed). Requests and
//! replies are lines of JSON over the worker's standard input and output. A worker ends when its input closes, and is
//! killed when the coordinator's thread that started it dies.

mod channel;
mod coordinator;
mod serve;

use serde::{Serialize, de::DeserializeOwned};

use crate::{BenchError, Result};

pub use coordinator::Worker;
pub use serve::{Registered, worker_main};

/// The first argument that turns the program into a worker.
pub const ARGUMENT: &str = "bench-worker";

/// What a worker measures.
pub trait Subject: Sized {
	/// The name by which the new process finds it in the registry.
	const NAME: &'static str;
	/// What to prepare.
	type Spec: Serialize + DeserializeOwned;
	/// What the coordinator should know once it is prepared.
	type Ready: Serialize + DeserializeOwned;
	/// A request for samples, or for a change of state.
	type Ask: Serialize + DeserializeOwned;
	/// The answer.
	type Reply: Serialize + DeserializeOwned;

	/// Environment variables the worker's process is started with, on top of the coordinator's: for settings that libc
	/// reads once, before `main`.
	fn environment(_spec: &Self::Spec) -> Vec<(&'static str, String)> {
		Vec::new()
	}
	/// Prepares the subject, in the worker's process.
	fn prepare(spec: Self::Spec) -> Result<(Self, Self::Ready)>;
	/// Answers one request, in the worker's process.
	fn answer(&mut self, ask: Self::Ask) -> Result<Self::Reply>;
}

#[derive(Debug, Serialize, serde::Deserialize)]
enum Line<T> {
	Done(T),
	/// Why there is none, and whether that makes all answers before worthless.
	Failed {
		text: String,
		void: bool,
	},
}

/// The error of a worker that answers another question than was asked: a defect.
pub fn unexpected(reply: &impl std::fmt::Debug) -> BenchError {
	crate::unable!("a worker answered another question than was asked: {reply:?}")
}

/// ": text", or nothing for an empty text.
pub fn quoted(text: &str) -> String {
	let text = text.trim();
	if text.is_empty() { String::new() } else { format!(": {text}") }
}

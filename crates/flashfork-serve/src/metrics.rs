//! What the server counts, in Prometheus' terms.

use crate::pool::Pool;
use prometheus_client::{
	encoding::{EncodeLabelSet, EncodeLabelValue, text},
	metrics::{
		counter::Counter,
		family::Family,
		gauge::Gauge,
		histogram::{Histogram, exponential_buckets},
		info::Info,
	},
	registry::{Registry, Unit},
};
use std::time::{Duration, Instant};
use tracing::info;

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)] // the names are the labels' values
pub enum End {
	/// The function has answered.
	succeeded,
	/// It has failed, crashed or answered too much.
	failed,
	/// Its time was up.
	timed_out,
	/// No clone could be made.
	not_begun,
	/// Its caller went away.
	cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
	function: String,
	end: End,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Function {
	function: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
	operation: &'static str,
	status: u16,
}

/// All of it.
pub struct Metrics {
	registry: Registry,
	calls: Family<Called, Counter>,
	seconds: Family<Function, Histogram, fn() -> Histogram>,
	clone_seconds: Histogram,
	warm_seconds: Histogram,
	warmings_failed: Counter,
	requests: Family<Answered, Counter>,
	slots: Gauge,
	slots_used: Gauge,
	queued: Gauge,
	parked: Gauge,
	functions: Gauge,
	events: Gauge,
}

impl Default for Metrics {
	fn default() -> Metrics {
		let mut registry = Registry::with_prefix("flashfork_serve");
		let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
		registry.register("build", "The version of the server", build);
		// A clone of a call's takes from a tenth of a millisecond; a call up to a quarter of an hour.
		let call: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.5, 16));
		let metrics = Metrics {
			calls: Family::default(),
			seconds: Family::new_with_constructor(call),
			clone_seconds: Histogram::new(exponential_buckets(100e-6, 2.0, 14)),
			warm_seconds: Histogram::new(exponential_buckets(0.01, 2.5, 11)),
			warmings_failed: Counter::default(),
			requests: Family::default(),
			slots: Gauge::default(),
			slots_used: Gauge::default(),
			queued: Gauge::default(),
			parked: Gauge::default(),
			functions: Gauge::default(),
			events: Gauge::default(),
			registry,
		};
		metrics.registered()
	}
}

impl Metrics {
	fn registered(mut self) -> Metrics {
		let all = &mut self.registry;
		all.register("calls", "Calls that have ended, events' among them", self.calls.clone());
		let text = "From a call's place being free to its end";
		all.register_with_unit("call_duration", text, Unit::Seconds, self.seconds.clone());
		let text = "Making a clone for a call";
		all.register_with_unit("clone_duration", text, Unit::Seconds, self.clone_seconds.clone());
		let text = "Warming a function";
		all.register_with_unit("warm_duration", text, Unit::Seconds, self.warm_seconds.clone());
		all.register("warm_failures", "Functions that could not be warmed", self.warmings_failed.clone());
		all.register("requests", "Requests of clients that have been answered", self.requests.clone());
		all.register("slots", "Calls that may run at a time", self.slots.clone());
		all.register("slots_used", "Calls that run", self.slots_used.clone());
		all.register("queue_length", "Calls that wait for others to end", self.queued.clone());
		all.register("clones_waiting", "Clones that wait for a call", self.parked.clone());
		all.register("functions", "Functions that are deployed", self.functions.clone());
		all.register("events_waiting", "Events without a result", self.events.clone());
		self
	}

	/// A function is deployed, of this full name: its calls are counted.
	pub fn know(&self, function: &str) {
		drop(self.seconds.get_or_create(&Function { function: function.to_owned() }));
	}

	/// A call begins; it is cancelled unless something else is said of it.
	pub fn call(&self, function: String, id: String) -> Running<'_> {
		Running { metrics: self, function, id, begun: Instant::now(), end: End::cancelled }
	}

	pub fn cloned(&self, took: Duration) {
		self.clone_seconds.observe(took.as_secs_f64());
	}

	/// A function is warm after so long, or can't be warmed.
	pub fn warmed(&self, took: Option<Duration>) {
		match took {
			Some(took) => self.warm_seconds.observe(took.as_secs_f64()),
			None => drop(self.warmings_failed.inc()),
		}
	}

	pub fn answered(&self, operation: &'static str, status: u16) {
		self.requests.get_or_create(&Answered { operation, status }).inc();
	}

	/// Nothing is said any more of a function that has been removed.
	pub fn forget(&self, function: &str) {
		let function = function.to_owned();
		self.seconds.remove(&Function { function: function.clone() });
		for end in [End::succeeded, End::failed, End::timed_out, End::not_begun, End::cancelled] {
			self.calls.remove(&Called { function: function.clone(), end });
		}
	}

	/// All of it, as text in the format of OpenMetrics. `events`: how many wait, if that is known.
	pub fn text(&self, pool: &Pool, functions: usize, events: Option<usize>) -> Result<String, std::fmt::Error> {
		let (slots, free) = (pool.concurrency as i64, pool.slots.available_permits() as i64);
		self.slots.set(slots);
		self.slots_used.set(slots - free);
		self.queued.set(pool.waits() as i64);
		self.parked.set(pool.parked() as i64);
		self.functions.set(functions as i64);
		if let Some(events) = events {
			self.events.set(events as i64);
		}
		let mut out = String::new();
		text::encode(&mut out, &self.registry)?;
		Ok(out)
	}
}

/// A call that runs; counted, and told of in the log, when it is dropped.
pub struct Running<'a> {
	metrics: &'a Metrics,
	function: String,
	id: String,
	begun: Instant,
	pub end: End,
}

impl Drop for Running<'_> {
	fn drop(&mut self) {
		let function = std::mem::take(&mut self.function);
		let took = self.begun.elapsed();
		info!(function, id = self.id, end = ?self.end, ms = took.as_micros() as f64 / 1e3, "call");
		let took = took.as_secs_f64();
		let Some(seconds) = self.metrics.seconds.get(&Function { function: function.clone() }) else {
			// The function has been removed meanwhile.
			return;
		};
		seconds.observe(took);
		self.metrics.calls.get_or_create(&Called { function, end: self.end }).inc();
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_call_that_begins_or_ends_after_its_function_was_removed_is_not_counted() {
		let metrics = Metrics::default();
		for name in ["local:here", "local:gone"] {
			metrics.know(name);
			let running = metrics.call(name.into(), "id".into());
			if name == "local:gone" {
				metrics.forget(name);
				// It has waited for a place.
				drop(metrics.call(name.into(), "id".into()));
			}
			drop(running);
		}
		let mut text = String::new();
		text::encode(&mut text, &metrics.registry).unwrap();
		assert!(text.contains("local:here") && !text.contains("local:gone"), "{text}");
	}
}

//! The records of `bench unit-test`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, case::Case, cycle::Phase, subject::Ready};
use crate::{
	prelude::*,
	subjects::{database::Image, engine::Sealed},
};

/// What each harness does once, in records.
pub const INITIALISE: &str = "initialise";
pub const HUGE_HEAP: &str = "heap on huge pages before sealing";
pub const SEAL: &str = "seal";
pub const SEALED: &str = "sealed";
pub const SEALED_HUGE: &str = "sealed on 2 MB pages";

/// What records are made of: all of a run share the CPUs of the jobs and the image.
#[derive(Clone, Copy)]
pub struct Made<'a> {
	pub cpus: &'a [usize],
	pub image: &'a Image,
}

impl Made<'_> {
	/// Keeps how long the image took to build, when it was built.
	pub fn keep_image(self, run: &mut Run) -> Result {
		let took = self.image.built_in.map(|took| took.as_secs_f64());
		run.keep(self.row("image", "build image", "s"), took.into_iter().collect())
	}

	/// Keeps what the harnesses of `method` did once.
	pub fn keep_preparation(self, method: Method, ready: &[&Ready], run: &mut Run) -> Result {
		let of = |figure: fn(&Ready) -> f64| ready.iter().copied().map(figure).collect::<Vec<_>>();
		let sealed = |figure: fn(&Sealed) -> f64| -> Vec<f64> {
			ready.iter().filter_map(|ready| ready.sealed.as_ref().map(figure)).collect()
		};
		for (phase, unit, samples) in [
			(INITIALISE, "s", of(|ready| ready.initialise)),
			(HUGE_HEAP, "fraction", of(|ready| ready.pages.huge_fraction())),
			(SEAL, "s", sealed(|sealed| sealed.seconds)),
			(SEALED, "bytes", sealed(|sealed| sealed.bytes as f64)),
			(SEALED_HUGE, "fraction", sealed(Sealed::huge_fraction)),
		] {
			run.keep(self.row(method.as_ref(), phase, unit), samples)?;
		}
		Ok(())
	}

	pub fn row(self, method: &str, phase: &str, unit: &'static str) -> Row {
		let chosen = json!({ "phase": phase, "database_bytes": self.image.bytes, "jobs": self.cpus.len() });
		Row::of(method, unit, chosen).beside(json!({ "cpus": ascending(self.cpus) }))
	}
}

/// The record of what each harness of `method` did once.
pub fn once<'a>(document: &'a Document, method: Method, phase: &str) -> Option<&'a Record> {
	document.find(EXPERIMENT, method, json!({ "phase": phase }))
}

pub fn find(document: &Document, method: Method, case: Case, phase: Phase) -> Option<&Record> {
	document.find(EXPERIMENT, method, json!({ "phase": phase.as_ref(), "test": case.as_ref() }))
}

/// The methods that were measured, in table order.
pub fn methods(document: &Document) -> Vec<Method> {
	Method::all().filter(|&method| once(document, method, INITIALISE).is_some()).collect()
}

/// How many times as long as `other` the phase of `method` took, over the tests `cases`.
pub fn ratio(document: &Document, method: Method, other: Method, cases: &[Case], phase: Phase) -> Option<Ratio> {
	ratio_of_medians(&pooled(document, method, cases, phase), &pooled(document, other, cases, phase))
}

/// The samples of several tests, those of the same round together.
pub fn pooled(document: &Document, method: Method, cases: &[Case], phase: Phase) -> Rounds {
	let mut pooled = Rounds::default();
	for record in cases.iter().filter_map(|&case| find(document, method, case, phase)) {
		for (round, samples) in record.rounds().0.into_iter().enumerate() {
			match pooled.0.get_mut(round) {
				Some(pool) => pool.extend(samples),
				None => pooled.push(samples),
			}
		}
	}
	pooled
}

//! The records of `bench vm-jobs`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, guests::Kind};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

/// Which jobs a batch is made of.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Work {
	/// A small C program is compiled.
	Gcc,
	/// A Java program with a heavy start estimates π.
	Java,
	/// Both in turn.
	Mixed,
}

impl Work {
	/// What its jobs are, in turn.
	pub fn kinds(self) -> &'static [Kind] {
		match self {
			Self::Gcc => &[Kind::Gcc],
			Self::Java => &[Kind::Java],
			Self::Mixed => &[Kind::Gcc, Kind::Java],
		}
	}
}

/// How the machine of a job comes about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
	/// From nothing.
	Boot,
	/// By a claim.
	Clone(MemoryPages),
	/// A clone that has done another job goes back to its template.
	Rollback(MemoryPages),
}

impl Method {
	/// Every method there is, in table order.
	pub const ALL: [Self; 5] = [
		Self::Boot,
		Self::Clone(MemoryPages::Small),
		Self::Clone(MemoryPages::Thp),
		Self::Rollback(MemoryPages::Small),
		Self::Rollback(MemoryPages::Thp),
	];

	/// As records name it.
	pub fn name(self) -> String {
		match self {
			Self::Boot => "cold-boot".to_owned(),
			Self::Clone(pages) => format!("clone-{}", pages.as_ref()),
			Self::Rollback(pages) => format!("rollback-{}", pages.as_ref()),
		}
	}
}

/// What is found of jobs.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// From the request to the result.
	Latency,
	/// Of it: until the machine waited for the job.
	Ready,
	/// Of it: the job.
	Job,
	/// Jobs a second, one machine for each CPU.
	#[strum(serialize = "jobs per second")]
	Throughput,
	/// System time of all processes of ours, for each job.
	#[strum(serialize = "system time")]
	System,
}

impl Measure {
	fn unit(self) -> &'static str {
		if self == Self::Throughput { "1/s" } else { "us" }
	}
}

/// Jobs of one kind by one method.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cell {
	pub work: Work,
	pub method: Method,
}

impl Cell {
	pub fn row(self, cpus: usize, measure: Measure) -> Row {
		let chosen = json!({ "measure": measure.as_ref(), "jobs": self.work.as_ref() });
		Row::of(self.method.name(), measure.unit(), chosen).beside(json!({ "cpus": cpus }))
	}

	/// The record of one measure.
	pub fn find(self, document: &Document, measure: Measure) -> Option<&Record> {
		let wanted = json!({ "measure": measure.as_ref(), "jobs": self.work.as_ref() });
		document.find(EXPERIMENT, self.method.name(), wanted)
	}

	/// How many times that of a boot a measure's median is.
	pub fn beside_boot(self, document: &Document, measure: Measure) -> Option<Ratio> {
		ratio_of(self.find(document, measure), Self { method: Method::Boot, ..self }.find(document, measure))
	}
}

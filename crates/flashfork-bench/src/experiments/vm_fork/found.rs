//! The records of `bench vm-fork`: what tells them apart, and how they are found again.

use super::{EXPERIMENT, code::Spread};
use crate::{
	prelude::*,
	subjects::vm_host::{Claimed, Forked, MemoryPages},
};

/// As records name what forks took, and claims.
pub const FORK: &str = "live-fork";
const CLAIM: &str = "claim";
const PRIMED: &str = "primed-claim";

/// How many forks lie between a template and the one that booted.
pub const DEPTHS: [u32; 5] = [0, 1, 2, 4, 8];

/// Which guests are forked: both ends of what a guest can be.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
pub enum Guest {
	/// On 4 KB pages, of which each is looked at in the pause, and it writes all over them.
	#[strum(serialize = "4k, writes all over")]
	Wide,
	/// On the 2 MB pages that the monitor makes where it can, and what it writes lies together, so most stay.
	#[strum(serialize = "thp, writes together")]
	Together,
}

impl Guest {
	/// What its template's memory is made of.
	pub fn pages(self) -> MemoryPages {
		match self {
			Self::Wide => MemoryPages::Small,
			Self::Together => MemoryPages::Thp,
		}
	}

	/// Where it writes.
	pub fn spread(self) -> Spread {
		match self {
			Self::Wide => Spread::Wide,
			Self::Together => Spread::Together,
		}
	}
}

/// What is found of a fork.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Part {
	/// For how long the guest stood still.
	Pause,
	/// Of it: until it did.
	Stop,
	/// Of it: what was left was copied.
	Copy,
	/// Of it: the machine's state was saved.
	Save,
	/// Before it: from the request until nearly all was copied.
	#[strum(serialize = "copied before")]
	Before,
	/// Pages copied in the pause.
	#[strum(serialize = "pages left")]
	Left,
	/// Pages that the guest wrote since it could be forked, or was forked last.
	#[strum(serialize = "pages written")]
	Written,
}

impl Part {
	/// What it was of one fork, in its unit. `written`: pages.
	pub fn of(self, fork: &Forked, written: u32) -> f64 {
		let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
		match self {
			Self::Pause => us(fork.pause.total()),
			Self::Stop => us(fork.pause.stop),
			Self::Copy => us(fork.pause.copy),
			Self::Save => us(fork.pause.save),
			Self::Before => fork.copying.as_secs_f64() * 1e6,
			Self::Left => fork.pause.pages as f64,
			Self::Written => f64::from(written),
		}
	}

	pub fn unit(self) -> &'static str {
		match self {
			Self::Left | Self::Written => "count",
			_ => "us",
		}
	}
}

/// What is timed of a claim.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Step {
	/// From the request until the client knows of the first exit.
	#[strum(serialize = "first exit")]
	FirstExit,
	/// Of it: what the shell took.
	#[strum(serialize = "in the shell")]
	Shell,
	/// Of it: memory was mapped.
	Map,
}

impl Step {
	/// Microseconds of it.
	pub fn of(self, claimed: &Claimed) -> f64 {
		match self {
			Self::FirstExit => claimed.total.as_secs_f64() * 1e6,
			Self::Shell => claimed.times.total() as f64 / 1e3,
			Self::Map => claimed.times.map as f64 / 1e3,
		}
	}
}

/// Claims of one template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Claims {
	pub depth: u32,
	/// Whether their shells were primed: then their memory was mapped before.
	pub primed: bool,
	/// Pages that each level has written.
	pub pages: u32,
	/// Bytes of a guest's memory.
	pub size: u64,
}

impl Claims {
	/// One step. `layers`: files and extents that make up the template's memory.
	pub fn row(self, [files, extents]: [usize; 2], step: Step) -> Row {
		let chosen = json!({ "measure": step.as_ref(), "depth": self.depth, "pages": self.pages, "size": self.size });
		Row::of(method(self.primed), "us", chosen).beside(json!({ "files": files, "extents": extents }))
	}
}

/// As records name claims of shells that are primed or not.
fn method(primed: bool) -> &'static str {
	if primed { PRIMED } else { CLAIM }
}

/// The record of part of forks of guests of `size`.
pub fn part(document: &Document, guest: Guest, size: u64, part: Part) -> Option<&Record> {
	document.find(EXPERIMENT, FORK, json!({ "measure": part.as_ref(), "guest": guest.as_ref(), "size": size }))
}

pub fn step(document: &Document, primed: bool, depth: u32, step: Step) -> Option<&Record> {
	document.find(EXPERIMENT, method(primed), json!({ "measure": step.as_ref(), "depth": depth }))
}

/// How many times as long the guests of one size stood still as those of another.
pub fn pauses(document: &Document, guest: Guest, size: u64, other: u64) -> Option<Ratio> {
	ratio_of(part(document, guest, size, Part::Pause), part(document, guest, other, Part::Pause))
}

/// How many times as long a step of claims took at one depth as at another.
pub fn claims(document: &Document, primed: bool, depth: u32, other: u32, of: Step) -> Option<Ratio> {
	ratio_of(step(document, primed, depth, of), step(document, primed, other, of))
}

/// The sizes of guests of a kind that were forked, ascending.
pub fn sizes(document: &Document, guest: Guest) -> Vec<u64> {
	let is = |record: &&Record| record.method == FORK && record.text("guest") == Some(guest.as_ref());
	numbers(document.of(EXPERIMENT).filter(is), "size")
}

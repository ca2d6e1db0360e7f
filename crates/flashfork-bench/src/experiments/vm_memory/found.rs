//! The records of `bench vm-memory`: what tells them apart, and how they are found again.

use super::{
	EXPERIMENT,
	code::{Access, FIRST, PAGE},
};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

/// One way over all memory.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
pub enum Pass {
	#[strum(serialize = "booted, first")]
	Unbacked,
	#[strum(serialize = "booted, second")]
	Backed,
	#[strum(serialize = "clone, first")]
	Shared,
	#[strum(serialize = "clone, second")]
	BackedClone,
}

/// One kind of guest.
#[derive(Clone, Copy, PartialEq)]
pub struct Cell {
	/// What it does to its memory.
	pub access: Access,
	/// What its memory is made of.
	pub pages: MemoryPages,
}

impl Cell {
	/// One pass, in microseconds a page. `size`: bytes of the guest's memory.
	pub fn row(self, size: u64, huge_fraction: f64, pass: Pass) -> Row {
		let chosen = json!({
			"pass": pass.as_ref(),
			"access": self.access.as_ref(),
			"size": size,
			"pages_touched": touched(size),
		});
		Row::of(self.pages.as_ref(), "us/page", chosen).beside(json!({ "template_huge_fraction": huge_fraction }))
	}

	pub fn find(self, document: &Document, pass: Pass) -> Option<&Record> {
		document.find(EXPERIMENT, self.pages, json!({ "pass": pass.as_ref(), "access": self.access.as_ref() }))
	}

	/// How many times as long one pass took as another.
	pub fn ratio(self, document: &Document, pass: Pass, other: Pass) -> Option<Ratio> {
		ratio_of(self.find(document, pass), self.find(document, other))
	}
}

/// Pages of 4 KB that a pass over a guest of `size` bytes touches.
pub fn touched(size: u64) -> u64 {
	(size - u64::from(FIRST)) / u64::from(PAGE)
}

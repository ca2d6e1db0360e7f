//! The states a parent is measured in: idle, or having read everything and written a share of its pages.

use std::fmt;

use crate::{prelude::*, subjects::mix};

/// What the parent has done with its memory since it was filled (and sealed, where it is).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentState {
	/// Nothing.
	Idle,
	/// Read every page once, then written this share of its pages (in millionths, at least one page).
	Wrote(u32),
	/// The same, then read every page once more: the dearest state for memory sealed on 2 MB pages.
	WroteAndRead(u32),
	/// The same, and then what was only read was dropped from page tables, where memory is sealed.
	WroteReadAndDropped(u32),
}

impl ParentState {
	/// The states in the order they are gone through; what was written stays written.
	pub const ALL: [Self; 9] = [
		Self::Idle,
		Self::Wrote(100),
		Self::Wrote(1_000),
		Self::Wrote(10_000),
		Self::WroteAndRead(10_000),
		Self::WroteReadAndDropped(10_000),
		Self::Wrote(100_000),
		Self::WroteAndRead(100_000),
		Self::WroteReadAndDropped(100_000),
	];
	/// The states of a quick run.
	pub const QUICK: [Self; 3] = [Self::Idle, Self::Wrote(100), Self::Wrote(10_000)];

	/// The share of pages written, in millionths.
	pub fn millionths(self) -> u32 {
		match self {
			Self::Idle => 0,
			Self::Wrote(millionths) | Self::WroteAndRead(millionths) | Self::WroteReadAndDropped(millionths) => {
				millionths
			}
		}
	}

	/// The share of pages written, in percent.
	pub fn percent(self) -> f64 {
		f64::from(self.millionths()) / 1e4
	}
}

impl fmt::Display for ParentState {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		match self {
			Self::Idle => f.write_str("idle"),
			Self::Wrote(_) => write!(f, "wrote {} %", self.percent()),
			Self::WroteAndRead(_) => write!(f, "wrote {} %, read again", self.percent()),
			Self::WroteReadAndDropped(_) => write!(f, "wrote {} %, read again, dropped", self.percent()),
		}
	}
}

/// Brings a parent from one state to the next.
#[derive(Default)]
pub struct Touched {
	read: bool,
	/// Pages whose [`mix`] lies below this were written.
	below: u64,
}

impl Touched {
	/// Reads and writes what `state` asks for beyond what was done before, and returns how many pages are written in
	/// all. The values don't change.
	///
	/// Which pages: those whose hash is lowest, so that a larger share contains the smaller ones and every method
	/// writes the same ones, without a table of them that would be memory of its own to fork.
	pub fn advance(&mut self, region: &Region, state: ParentState) -> usize {
		if state != ParentState::Idle && !self.read {
			read_all(region);
			self.read = true;
		}
		let pages = region.pages();
		let written = (pages as u64 * u64::from(state.millionths())).div_ceil(1_000_000) as usize;
		let below = threshold(pages, written);
		for page in (0..pages).filter(|&page| (self.below..below).contains(&mix(page as u64))) {
			let index = page * WORDS_PER_PAGE;
			region.write(index, word(index));
		}
		self.below = self.below.max(below);
		if matches!(state, ParentState::WroteAndRead(_) | ParentState::WroteReadAndDropped(_)) {
			read_all(region);
		}
		written
	}
}

fn read_all(region: &Region) {
	for page in 0..region.pages() {
		region.read(page * WORDS_PER_PAGE);
	}
}

/// The number below which the hashes of exactly `wanted` of `pages` pages lie.
fn threshold(pages: usize, wanted: usize) -> u64 {
	let count = |below: u64| (0..pages).filter(|&page| mix(page as u64) < below).count();
	let (mut low, mut high) = (0, u64::MAX);
	while low < high {
		let middle = low + (high - low) / 2;
		if count(middle) < wanted { low = middle + 1 } else { high = middle }
	}
	low
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_threshold_selects_exactly_so_many_pages() {
		for wanted in [0, 1, 2, 77, 999, 1000] {
			let below = threshold(1000, wanted);
			assert_eq!((0..1000).filter(|&page| mix(page) < below).count(), wanted);
		}
	}

	#[test]
	fn shares_are_rounded_up_and_contents_stay() {
		let region = Region::filled(Method::Fork4k, 1000 * PAGE as u64).unwrap();
		let mut touched = Touched::default();
		let counts = ParentState::ALL.map(|state| touched.advance(&region, state));
		assert_eq!(counts, [0, 1, 1, 10, 10, 10, 100, 100, 100]);
		region.verify().unwrap();
	}

	#[test]
	fn an_empty_parent_has_nothing_to_touch() {
		let region = Region::filled(Method::Fork4k, 0).unwrap();
		assert_eq!(Touched::default().advance(&region, ParentState::WroteAndRead(100_000)), 0);
	}
}

//! Layers against a plain copy of all pages.

use super::*;
use proptest::prelude::*;

const PAGES: u64 = 512;
const BYTES: u64 = PAGES * PAGE as u64;

/// A memory and what it should hold: a word for each page.
#[derive(Clone)]
struct Memory {
	layers: Layered,
	words: Vec<u64>,
}

impl Memory {
	fn base() -> Self {
		let file = memfd::create("flashfork:test", BYTES, flashfork_proto::shape::Pages::Small).unwrap();
		// Holes, too.
		let words: Vec<u64> = (0..PAGES).map(|page| if page % 3 == 0 { 0 } else { page }).collect();
		for (page, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
			write(&file, &word.to_ne_bytes(), (page * PAGE) as u64).unwrap();
		}
		seal(&file).unwrap();
		Self { layers: Layered::single(file, BYTES), words }
	}

	/// As a live fork of a clone that has written `word` to these pages.
	fn fork(&self, written: &[Range<u64>], word: u64) -> Self {
		let file = delta::create("flashfork:test", BYTES).unwrap();
		let mut words = self.words.clone();
		let mut there = vec![0; (delta::length(BYTES) - BYTES) as usize];
		for page in written.iter().cloned().flatten() {
			write(&file, &word.to_ne_bytes(), page * PAGE as u64).unwrap();
			delta::mark(&mut there, &(page..page + 1));
			words[page as usize] = word;
		}
		write(&file, &there, BYTES).unwrap();
		Self { layers: self.layers.with(file, u64::MAX).unwrap(), words }
	}

	/// What is in its files, by its extents.
	fn read(&self) -> Vec<u64> {
		let mut found = Vec::new();
		for (range, file) in self.layers.ranges() {
			assert_eq!(range.start, found.len() as u64 * PAGE as u64);
			for at in range.step_by(PAGE) {
				let mut page = [0; PAGE];
				read(file, &mut page, at).unwrap();
				let (words, _) = page.as_chunks();
				assert!(words[1..].iter().all(|word| *word == [0; 8]));
				found.push(u64::from_ne_bytes(words[0]));
			}
		}
		found
	}
}

fn shown(layers: &Layered) -> Vec<u64> {
	let of = |number| layers.runs().filter(|(_, file)| *file == number).map(|(run, _)| run.end - run.start).sum();
	(0..layers.files.len() as u8).map(of).collect()
}

proptest! {
	#![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

	/// Trees of any form: a child of any of those that are there, whose parents may be gone.
	#[test]
	fn every_node_of_a_tree_holds_its_own(forks in prop::collection::vec(
		(any::<prop::sample::Index>(), prop::collection::vec((0..PAGES, 1..40u64), 0..6), any::<bool>()), 1..24,
	)) {
		let mut nodes = vec![Memory::base()];
		for (number, (parent, written, goes)) in (1..).zip(forks) {
			let parent = parent.index(nodes.len());
			let written: Vec<_> = written.into_iter().map(|(at, count)| at..(at + count).min(PAGES)).collect();
			let child = nodes[parent].fork(&written, number << 32);
			// What is in files of its own is more than what is in the newest.
			if let [_, lower @ .., newest] = &shown(&child.layers)[..] {
				prop_assert!(lower.iter().all(|lower| lower > newest), "{lower:?} {newest}");
			}
			nodes.push(child);
			if goes {
				nodes.swap_remove(parent);
			}
			for node in &nodes {
				prop_assert!(node.read() == node.words);
				prop_assert!(node.layers.files.len() <= MAX_LAYERS);
				let checked = node.layers.check(BYTES);
				prop_assert!(checked.is_ok(), "{:?}", checked.err());
			}
		}
	}
}

/// A base of so many pages without content, and a fork that has written the number of each of `written` to it.
fn scattered(pages: u64, written: impl Iterator<Item = u64>) -> Layered {
	let bytes = pages * PAGE as u64;
	let base = memfd::create("flashfork:test", bytes, flashfork_proto::shape::Pages::Small).unwrap();
	seal(&base).unwrap();
	let file = delta::create("flashfork:test", bytes).unwrap();
	let mut marks = vec![0; (delta::length(bytes) - bytes) as usize];
	for page in written {
		write(&file, &page.to_ne_bytes(), page * PAGE as u64).unwrap();
		delta::mark(&mut marks, &(page..page + 1));
	}
	write(&file, &marks, bytes).unwrap();
	Layered::single(base, bytes).with(file, u64::MAX).unwrap()
}

fn extents(layers: &Layered) -> Vec<(u32, u8)> {
	layers.extents().iter().map(|extent| (extent.pages, extent.file)).collect()
}

#[test]
fn pages_all_over_become_no_more_extents_than_a_claim_may_have_and_what_is_large_stays_where_it_is() {
	// A large untouched area beside scattered pages was copied, with all else.
	const APART: u64 = 2 * GAP;
	const LARGE: u64 = 1 << 20;
	let end = 2 * MAX_EXTENTS as u64 * APART;
	let layers = scattered(end + LARGE, (GAP..end).step_by(APART as usize).chain([end + LARGE - 1]));
	assert!(layers.extents().len() <= MAX_EXTENTS, "{}", layers.extents().len());
	let copied = shown(&layers)[1];
	assert!(copied < end, "{copied}");
	let largest = layers.runs().max_by_key(|(run, _)| run.end - run.start).unwrap();
	assert_eq!((largest.0.end, largest.1), (end + LARGE - 1, 0));
	let mut found = Vec::new();
	for (range, file) in layers.ranges() {
		for at in range.step_by(PAGE).filter(|at| at / (PAGE as u64) < end) {
			let mut word = [0; 8];
			read(file, &mut word, at).unwrap();
			found.extend(Some(u64::from_ne_bytes(word)).filter(|word| *word != 0));
		}
	}
	assert!(found.into_iter().eq((GAP..end).step_by(APART as usize)));
}

#[test]
fn narrow_gaps_are_closed_and_wide_ones_are_not() {
	let wide = GAP + 1;
	let written = [100, 100 + wide, 100 + wide + 1 + wide, 1000, 1000 + wide + 1];
	let layers = scattered(5000, written.into_iter());
	assert_eq!(
		extents(&layers),
		[
			(100, 0),
			(1 + GAP as u32 + 1, 1),
			(wide as u32, 0),
			(1, 1),
			(1000 - written[2] as u32 - 1, 0),
			(1, 1),
			(wide as u32, 0),
			(1, 1),
			(5000 - written[4] as u32 - 1, 0),
		]
	);
}

#[test]
fn extents_that_came_from_elsewhere_are_checked() {
	let memory = Memory::base().fork(&[30..31, 31..32], 1 << 32);
	let files = || memory.layers.files().iter().map(|file| file.try_clone().unwrap()).collect::<Vec<_>>();
	let extents = memory.layers.extents().to_vec();
	assert_eq!(extents.len(), 3);
	let refused = |files, extents| Layered::of(files, extents).check(BYTES).unwrap_err();
	let with = |at: usize, extent| {
		let mut changed = extents.clone();
		changed[at] = extent;
		changed
	};
	for changed in [
		extents[..2].to_vec(),
		Vec::new(),
		with(1, Extent { pages: 2, file: 2 }),
		with(2, Extent { pages: u32::MAX, file: 0 }),
		with(1, Extent { pages: 0, file: 1 }),
	] {
		assert!(matches!(refused(files(), changed), LayerError::Extents));
	}
	let mut open = files();
	open[1] = delta::create("flashfork:test", BYTES).unwrap();
	assert!(matches!(refused(open, extents.clone()), LayerError::File(MemfdError::NotSealed)));
	let mut swapped = files();
	swapped.reverse();
	assert!(matches!(refused(swapped, extents), LayerError::File(MemfdError::Size { .. })));
}

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
        let mut there = marks(&file, BYTES).unwrap();
        for page in written.iter().cloned().flatten() {
            write(&file, &word.to_ne_bytes(), page * PAGE as u64).unwrap();
            mark(&mut there, &(page..page + 1));
            words[page as usize] = word;
        }
        write(&file, &there, BYTES).unwrap();
        Self { layers: self.layers.with(file).unwrap(), words }
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
        let flat = nodes[0].layers.flat().unwrap().try_clone().unwrap();
        let flat = Memory { layers: Layered::single(flat, BYTES), ..nodes[0].clone() };
        prop_assert!(flat.read() == nodes[0].words);
    }
}

#[test]
fn pages_all_over_become_no_more_extents_than_a_claim_may_have() {
    let bytes = 4 * MAX_EXTENTS as u64 * PAGE as u64;
    let base = memfd::create("flashfork:test", bytes, flashfork_proto::shape::Pages::Small).unwrap();
    seal(&base).unwrap();
    let file = delta::create("flashfork:test", bytes).unwrap();
    let mut marks = vec![0; (delta::length(bytes) - bytes) as usize];
    for page in (0..4 * MAX_EXTENTS as u64).step_by(2).chain([1001]) {
        write(&file, &(page + 1).to_ne_bytes(), page * PAGE as u64).unwrap();
        mark(&mut marks, &(page..page + 1));
    }
    write(&file, &marks, bytes).unwrap();
    let layers = Layered::single(base, bytes).with(file).unwrap();
    let copied: u64 = layers.runs().filter(|(_, file)| *file == 1).map(|(run, _)| run.end - run.start).sum();
    assert!(copied < 4 * MAX_EXTENTS as u64, "the last pages, and whatever is as large as they are, stay: {copied}");
    assert!(layers.extents().len() <= MAX_EXTENTS, "{}", layers.extents().len());
    for (range, file) in layers.ranges() {
        for at in range.step_by(PAGE) {
            let (mut word, page) = ([0; 8], at / PAGE as u64);
            read(file, &mut word, at).unwrap();
            let written = page % 2 == 0 || page == 1001;
            assert_eq!(u64::from_ne_bytes(word), if written { page + 1 } else { 0 }, "page {page}");
        }
    }
}

#[test]
fn extents_that_came_from_elsewhere_are_checked() {
    let memory = Memory::base().fork(&[3..4, 4..5], 1 << 32);
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

//! Seeds that failed once, in `seeds.txt`: one a line, `SEED STEPS ROUTE [MODE [ALLOCATOR]]`, a comment behind `#`.

use crate::mode::{Allocator, Mode, name};
use clap::ValueEnum;
use flashfork_tests::route::Route;
use std::{
	fs::{self, OpenOptions},
	io::Write,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/seeds.txt");

#[derive(Clone, PartialEq, Eq)]
pub struct Seed {
	pub seed: u64,
	pub steps: usize,
	pub route: Route,
	pub mode: Mode,
	pub allocator: Allocator,
}

/// The seeds that are kept.
///
/// # Panics
/// When the file is missing or a line of it can't be read.
pub fn kept() -> Vec<Seed> {
	let text = fs::read_to_string(FILE).unwrap_or_else(|e| panic!("{FILE}: {e}"));
	text.lines()
		.map(|line| line.split('#').next().unwrap_or_default())
		.filter(|line| !line.trim().is_empty())
		.map(|line| parse(line).unwrap_or_else(|| panic!("{FILE}: {line}: not SEED STEPS ROUTE [MODE [ALLOCATOR]]")))
		.collect()
}

fn parse(line: &str) -> Option<Seed> {
	let mut words = line.split_whitespace();
	let (seed, steps, route) = (words.next()?, words.next()?, words.next()?);
	let mode = words.next().map_or(Some(Mode::Alone), |w| Mode::from_str(w, false).ok())?;
	let allocator = words.next().map_or(Some(Allocator::Glibc), |w| Allocator::from_str(w, false).ok())?;
	Some(Seed { seed: seed.parse().ok()?, steps: steps.parse().ok()?, route: route.parse().ok()?, mode, allocator })
}

/// Keeps a seed for all later runs, where the sources can be written.
pub fn keep(seed: &Seed) {
	// In a guest there are no sources.
	if !std::path::Path::new(FILE).exists() || kept().contains(seed) {
		return;
	}
	let route = format!("{:?}", seed.route).to_lowercase();
	let line = format!("{} {} {route} {} {}\n", seed.seed, seed.steps, name(seed.mode), name(seed.allocator));
	let written = OpenOptions::new().append(true).open(FILE).and_then(|mut file| file.write_all(line.as_bytes()));
	if let Err(e) = written {
		eprintln!("model: {FILE}: {e}; this seed was not kept");
	}
}

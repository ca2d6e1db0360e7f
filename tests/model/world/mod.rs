//! One tested process: what its memory should be and how it acts on it.

pub mod blocks;
pub mod check;
pub mod choose;
pub mod maps;
pub mod memory;
pub mod space;
pub mod table;

use crate::{
	content::Tag,
	journal::Journal,
	mode::Mode,
	rng::Rng,
	steps::{Immutable, Step, steps_of},
	template::{Library, Template},
	writer::Writer,
};
use blocks::Blocks;
use flashfork_tests::{
	past,
	route::{Route, Via},
};
use libc::c_int;
use space::Space;
use std::fs::File;
use table::Table;

/// A process made by this one and not waited for yet.
pub struct Child {
	pub pid: i32,
	pub name: String,
}

pub struct World {
	/// `p`, its children `p.0`, `p.1`, theirs `p.0.0`: the same in every run of a seed.
	pub name: String,
	pub depth: usize,
	pub rng: Rng,
	/// For what is looked at: that depends on what the kernel took back, and must not change what is done next.
	pub look: Rng,
	pub route: Route,
	pub mode: Mode,
	pub steps: &'static [(usize, Step)],
	pub journal: Journal,
	pub table: Table,
	pub blocks: Blocks,
	pub space: Space,
	pub template: Template,
	/// A file to map libraries from, where there are any.
	pub mapped: Option<Library>,
	/// Memory whose mappings can't be changed, and how much was made so far.
	pub immutable: Vec<Immutable>,
	pub immutables_made: usize,
	pub heap_pages: usize,
	pub children: Vec<Child>,
	pub forks: usize,
	/// Ranges excluded so far; the engine has room for a few.
	pub excluded: usize,
	/// The most pages under test that were found sealed after a seal.
	pub most_sealed: usize,
	/// The most of these that were a library's.
	pub most_of_libraries: usize,
	/// Advice this kernel doesn't know.
	pub unknown_advice: Vec<c_int>,
	/// Whether others act on the memory too ([`crate::steps`], visits).
	pub company: bool,
	/// Whether a snapshot is to come, and after it everything must be there that can't be made again.
	pub prepares: bool,
	/// The process that writes to this one.
	pub writer: Option<Writer>,
	/// A disk with the contents of the template, open for direct reads, where there is one.
	pub disk: Option<File>,
	next_tag: Tag,
	next_origin: u32,
}

impl World {
	pub fn new(seed: u64, route: Route, mode: Mode, journal: Journal, space: Space, template: Template) -> World {
		World {
			name: "p".into(),
			depth: 0,
			rng: Rng::new(seed),
			look: Rng::new(!seed),
			route,
			mode,
			steps: steps_of(mode),
			journal,
			table: Table::new(),
			blocks: Blocks::new(),
			space,
			template,
			mapped: None,
			immutable: Vec::new(),
			immutables_made: 0,
			heap_pages: 0,
			children: Vec::new(),
			forks: 0,
			excluded: 0,
			most_sealed: 0,
			most_of_libraries: 0,
			unknown_advice: crate::steps::unknown_advice(),
			company: false,
			prepares: false,
			writer: None,
			disk: None,
			next_tag: 1 << 32,
			next_origin: 0,
		}
	}

	/// Turns a copy made by fork into the child's own world.
	pub fn become_child(&mut self, name: String, seed: u64, table: Table, blocks: Blocks, journal: Journal) {
		// The parent's stay mapped here: they are the parent's.
		std::mem::forget(std::mem::replace(&mut self.table, table));
		std::mem::forget(std::mem::replace(&mut self.blocks, blocks));
		self.blocks.sign(seed);
		self.rng = Rng::new(seed);
		self.look = Rng::new(!seed);
		// Tags no other process writes: 16 bits for who, 48 for what.
		self.next_tag = (Rng::new(seed).next() | 1) << 48;
		self.name = name;
		self.journal = journal;
		self.depth += 1;
		self.forks = 0;
		self.children.clear();
	}

	/// From now on tags that nothing else of this process has: another thread's, or another turn's.
	pub fn number_tags(&mut self, number: u64) {
		self.next_tag = (number + 1) << 40;
		self.blocks.sign(number);
	}

	/// Which way the next call takes; in most modes the one given.
	pub fn way(&mut self, otherwise: Via) -> Via {
		match self.mode {
			Mode::PastShim | Mode::Flags => self.rng.pick(&[Via::Handle, Via::Bound, otherwise]),
			Mode::Raw if past::calls(Via::Raw).is_some() => self.rng.pick(&[Via::Raw, Via::Raw, otherwise]),
			_ => otherwise,
		}
	}

	pub fn tag(&mut self) -> Tag {
		self.next_tag += 1;
		self.next_tag
	}

	pub fn origin(&mut self) -> u32 {
		self.next_origin += 1;
		self.next_origin
	}
}

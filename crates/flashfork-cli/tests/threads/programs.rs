//! Programs in C that are ready in their middle, and what comes of them plainly and in clones.

use crate::place::{Place, assert_all_differ, assert_says, both, good, line, stdout};
use std::process::{Command, Output, Stdio};

pub struct Program {
	pub place: Place,
	path: String,
}

impl Program {
	pub fn new(source: &str) -> Program {
		let place = Place::new();
		let path = place.program_with("program", source, &["-lm", "-fexceptions"]);
		Program { place, path }
	}

	pub fn path(&self) -> &str {
		&self.path
	}

	#[track_caller]
	pub fn warm(&self, arguments: &[&str]) {
		good(self.try_warm(arguments));
	}

	pub fn try_warm(&self, arguments: &[&str]) -> Output {
		self.place.run(&[&self.warms()[..], arguments].concat())
	}

	#[track_caller]
	pub fn is_refused(&self, why: &str) {
		assert_says(line(&self.try_warm(&[])), why);
	}

	/// The command of a template `t` of it.
	pub fn warms(&self) -> [&str; 7] {
		["warm", "--threads", "--ready", "call", "t", "--", self.path()]
	}

	pub fn cloned(&self) -> Output {
		self.place.cloned()
	}

	/// What three clones of one draw at random: so many lines each, of which no two are alike.
	#[track_caller]
	pub fn draws_in_clones(&self, lines: usize) {
		self.warm(&[]);
		let clones = self.place.clones(3, 0, &[]);
		let all: Vec<&str> = clones.iter().flat_map(|clone| stdout(clone).lines()).collect();
		assert!(clones.iter().all(|clone| clone.status.success()) && all.len() == 3 * lines, "{clones:?}");
		assert_all_differ(all);
	}

	/// Each of so many clones of so many templates says this, and nothing of errors.
	#[track_caller]
	pub fn clones_say(&self, templates: usize, clones: usize, said: &str) {
		for _ in 0..templates {
			self.warm(&[]);
			for clone in self.place.clones(clones, 0, &[]) {
				assert_eq!((both(&clone), clone.status.code()), ((said, ""), Some(0)));
			}
			self.place.remove();
		}
	}

	/// What comes of it when it is started plainly.
	pub fn plain(&self, arguments: &[&str]) -> Output {
		Command::new(&self.path).args(arguments).stdin(Stdio::null()).output().unwrap()
	}

	#[track_caller]
	pub fn is_the_same_in_clones(&self, count: usize) {
		let plain = self.plain(&[]);
		assert!(!plain.stdout.is_empty(), "it says something");
		self.warm(&[]);
		let check = |clone: &Output| {
			assert_eq!(both(clone), both(&plain));
			assert_eq!(clone.status.code(), plain.status.code());
		};
		self.place.clones(count, count, &[]).iter().for_each(check);
	}
}

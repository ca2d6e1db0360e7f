//! Threads that do everything by chance, cloned at moments of chance.

use crate::{
	place::{both, often, stdout},
	programs::Program,
};

/// Templates, and clones of each that live together.
const TEMPLATES: usize = 25;
/// In `make test-all`.
const MANY: usize = 1250;
const CLONES: usize = 8;

#[test]
fn clones_made_at_any_moment_come_to_what_the_program_comes_to() {
	let program = Program::new(include_str!("torture.c"));
	let templates = often(TEMPLATES, MANY);
	for seed in 0..templates {
		// Earlier and later, by no rule that the program knows.
		let after = (seed * 7919 % 60_000).to_string();
		let arguments = [&seed.to_string(), after.as_str()];
		let plain = program.plain(&arguments);
		assert_eq!(plain.status.code(), Some(0), "{}", stdout(&plain));
		program.warm(&arguments);
		for clone in program.place.clones(0, CLONES, &[]) {
			assert_eq!(both(&clone), (stdout(&plain), ""), "{arguments:?}");
		}
		program.place.remove();
	}
}

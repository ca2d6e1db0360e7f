//! Runs the programs of this directory under the shim, one test for each, all of them on other kernels in the lab, and
//! keeps `docs/NEVER_SEAL.md` and `docs/FORK_SAFETY.md` in step.
//!
//! `cargo test -p flashfork-tests --test behaviour -- FILTER`

mod document;
mod lab;
mod program;
mod rows;

use libtest_mimic::{Arguments, Trial};

fn main() {
	let args = Arguments::from_args();
	let mut trials: Vec<_> = program::all().into_iter().map(program::Program::trial).collect();
	trials.extend(lab::trials());
	trials.push(Trial::test("every_row_has_a_program", rows::every_row_has_a_program));
	trials.push(Trial::test("every_program_of_a_row_is_named_for_it", rows::every_program_is_named_for_a_row));
	trials.push(Trial::test("every_program_has_a_name_of_its_own", program::every_name_is_one_program));
	trials.push(Trial::test("every_program_of_fork_safety_has_a_kind", document::every_program_has_a_kind));
	trials.push(Trial::test("documents_are_up_to_date", document::are_up_to_date));
	libtest_mimic::run(&args, trials).exit();
}

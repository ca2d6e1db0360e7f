//! Threads that do everything by chance, cloned at moments of chance.

use crate::place::{both, good, stdout};
use crate::programs::Program;
use std::process::Stdio;

/// Templates, and clones of each that live together.
const TEMPLATES: u64 = 25;
/// In `make test-all`.
const MANY: u64 = 1250;
const CLONES: usize = 8;

#[test]
fn clones_made_at_any_moment_come_to_what_the_program_comes_to() {
    let program = Program::new(include_str!("torture.c"));
    let templates = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { MANY } else { TEMPLATES };
    for seed in 0..templates {
        // Earlier and later, by no rule that the program knows.
        let after = (seed * 7919 % 60_000).to_string();
        let arguments = [&seed.to_string(), after.as_str()];
        let plain = program.plain(&arguments);
        assert_eq!(plain.status.code(), Some(0), "{}", stdout(&plain));
        program.warm(&arguments);
        let start = |_| {
            let mut command = program.place.flashfork(&["clone", "t"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = (0..CLONES).map(start).collect();
        for clone in all {
            let clone = clone.wait_with_output().unwrap();
            assert_eq!(both(&clone), (stdout(&plain), ""), "{arguments:?}");
        }
        good(program.place.run(&["rm", "t"]));
    }
}

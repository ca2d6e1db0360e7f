//! Other kernels, in the lab: of users with all rights and with none.

use crate::{
	place::{flashfork, stderr, stdout},
	programs::Program,
};

/// Boots guests of its own.
#[test]
#[ignore = "boots guests of its own: make test-all"]
fn clones_on_other_kernels_come_to_what_the_program_comes_to() {
	// An emulated processor is slow.
	let source = include_str!("torture.c").replace("steps = 1500", "steps = 150");
	let program = Program::new(&source);
	let bin = std::path::Path::new(flashfork());
	let command = bin.to_str().unwrap();
	let script = program.place.at("script");
	let warm = format!("{command} warm --threads --ready call t -- {} 3 20000", program.path());
	let text = format!(
		"export XDG_RUNTIME_DIR=/tmp/run; mkdir -m 700 /tmp/run\n{warm} >&2 || exit\nfor i in 1 2 3; do {command} clone t; done\n{command} rm t >&2\n{} 3 0\n",
		program.path()
	);
	std::fs::write(&script, text).unwrap();
	for kernel in ["6.1", "6.12"] {
		for user in ["0", "1000"] {
			let mut run = program.place.flashfork(&["lab", "run", "--kernel", kernel, "--cpus", "2", "--user", user]);
			for name in ["flashfork", "flashfork-cli", "flashfork-keeper", "libflashfork_preload.so"] {
				run.arg("--file").arg(bin.with_file_name(name));
			}
			run.arg("--file").arg(program.path()).arg("--file").arg(&script);
			let output = run.args(["--timeout", "600", "--", "sh"]).arg(&script).output().unwrap();
			let lines: Vec<_> = stdout(&output).lines().collect();
			assert_eq!(lines.len(), 4, "{kernel} {user}: {}{}", stdout(&output), stderr(&output));
			assert!(lines.iter().all(|line| *line == lines[3]), "{kernel} {user}: {lines:?}");
		}
	}
}

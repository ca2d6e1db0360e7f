//! Programs that say themselves where they are ready.

use crate::place::{Place, assert_says, good, line, stderr, stdout, target};
use std::process::Command;

/// It needs no library: the shim has the function.
const PROGRAM: &str = r#"
int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] == 'x') return 9;
    puts("warming");
    int in_clone = flashfork_ready ? flashfork_ready(&argc, &argv) : -1;
    for (int i = 1; i < argc; i++) printf("%s ", argv[i]);
    printf("%d %d %s\n", in_clone, flashfork_ready ? flashfork_ready(NULL, NULL) : -1, getenv("ONE") ? getenv("ONE") : "");
    return argc;
}
"#;

#[test]
fn a_program_is_ready_where_it_calls() {
	let place = Place::new();
	let program = place.program("calls", PROGRAM);
	let program = program.as_str();
	let warmed = place.run(&["warm", "--ready", "call", "t", "--", program, "a"]);
	assert!(stdout(&warmed).starts_with("warming\nt is ready where it called"), "{}", stdout(&warmed));
	for _ in 0..2 {
		let clone = place.flashfork(&["clone", "t", "b"]).env("ONE", "1").output().unwrap();
		assert_eq!((stdout(&clone), clone.status.code()), ("a b 1 0 1\n", Some(3)));
	}
	let never = place.run(&["warm", "--ready", "call", "u", "--", program, "x"]);
	let want = "ended with exit status 9 before it was ready; it must call flashfork_ready()";
	assert_says(line(&never), want);
}

#[test]
fn a_call_is_no_ready_point_where_there_is_another() {
	let place = Place::new();
	let program = place.program("calls", PROGRAM);
	place.warm(&[&program, "a"]);
	assert_eq!(stdout(&place.run(&["clone", "t", "b"])), "warming\na b 0 0 \n");
	let shim = place.shim();
	let plain = Command::new(&program).arg("a").env("LD_PRELOAD", &shim).output().unwrap();
	assert_eq!(stdout(&plain), "warming\na 0 0 \n");
}

#[test]
fn errno_is_what_it_is_in_the_plain_program() {
	let source = r#"
int flashfork_ready(int *, char ***) __attribute__((weak));
int main(void) { int first = errno; errno = 7; flashfork_ready(0, 0); printf("%d %d\n", first, errno); return 0; }"#;
	for options in [&["--ready", "main"][..], &["--ready", "call"], &["--ready", "call", "--threads"]] {
		let place = Place::new();
		let program = place.program("errno", source);
		good(place.flashfork(&["warm"]).args(options).arg("t").arg(&program).output().unwrap());
		assert_eq!(stdout(&place.run(&["clone", "t"])), "0 7\n", "{options:?}");
	}
}

/// A program in Rust, with the library.
#[test]
fn the_librarys_ready_is_the_shims() {
	let place = Place::new();
	let mut build = Command::new(env!("CARGO"));
	build.args(["build", "--locked", "-p", "flashfork-cli", "--example", "ready", "--target-dir"]).arg(target());
	assert!(build.status().unwrap().success());
	let program = target().join("debug/examples/ready");
	let warmed = place.run(&["warm", "--ready", "call", "t", "--", program.to_str().unwrap()]);
	assert!(
		stdout(&warmed).starts_with("warming\nt is ready where it called"),
		"{}{}",
		stdout(&warmed),
		stderr(&warmed)
	);
	let clone = place.flashfork(&["clone", "t", "a", "b c"]).env("ONE", "1").output().unwrap();
	assert_eq!(stdout(&clone), "a clone for [\"a\", \"b c\"] with Ok(\"1\")\n");
	let plain = Command::new(&program).output().unwrap();
	assert_eq!(stdout(&plain), "warming\nno template\n");
}

//! Wrappers that become the program (`exec`): what is warmed is the program that comes in the end. The reference is the
//! program itself, started anew.

use crate::{
	listen::warm,
	place::{both, line, stderr, stdout},
	programs::Program,
};

/// Says what it was given, its environment among it, from two threads.
const TELLS: &str = r#"
static char **given; static int count;
static void *other(void *x) { (void)x; READY; printf("%d %s %s\n", count, given[1], getenv("SET")); return 0; }
int main(int argc, char **argv) {
	(count = argc, given = argv);
	pthread_t t = thread_of(other); pthread_join(t, 0);
	printf("main\n"); return 3;
}"#;

#[test]
fn what_a_wrapper_becomes_is_the_template() {
	let program = Program::new(TELLS);
	let path = program.path();
	let script = |name, text: String| program.place.script(name, &text);
	let by_line = script("by_line", format!("#!/usr/bin/env sh\nset -e\nSET=set; export SET\nexec {path} \"$@\"\n"));
	let closing = format!("#!/bin/bash\nexec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-\nSET=set exec {path} a\n");
	let closes = script("closes", closing);
	let shell = format!("SET=set exec {path} a");
	// Bash takes a descriptor of the engine's for its own if it has such a number.
	let round = format!("exec 100<{path}; read -r -n 1 -u 100 || exit; SET=set exec {path} a 100<&-");
	let few = format!("ulimit -n 30; SET=set exec {path} a");
	let wrappers: [&[&str]; 8] = [
		&["bash", "-c", &round],
		&["bash", "-c", &few],
		&["sh", "-c", &shell],
		&["bash", "-c", &shell],
		&["env", "SET=set", path, "a"],
		&["nice", "env", "SET=set", "sh", "-c", "exec \"$@\"", "-", path, "a"],
		&[&by_line, "a"],
		&[&closes],
	];
	for wrapper in wrappers {
		warm(&program.place, "call", wrapper);
		for _ in 0..2 {
			let clone = program.cloned();
			assert_eq!(both(&clone), ("2 a set\nmain\n", ""), "{wrapper:?}");
			assert_eq!(clone.status.code(), Some(3), "{wrapper:?}");
		}
		program.place.remove();
	}
	program.place.until_empty();
}

#[test]
fn a_wrapper_without_the_shim_or_that_waits_is_told() {
	let program = Program::new(TELLS);
	let path = program.path();
	let refused = |ready: &str, wrapper: &[&str], why: &str| {
		let command = [&["warm", "--threads", "--ready", ready, "t", "--"], wrapper].concat();
		let refused = program.place.run(&command);
		assert!(!refused.status.success() && line(&refused).contains(why), "{wrapper:?}: {}", stderr(&refused));
	};
	refused("call", &["env", "-i", "/bin/sleep", "100"], "another program (exec)");
	refused("idle:0.2", &["env", "-u", "LD_PRELOAD", "/bin/sleep", "100"], "become another program (exec)");
	refused("idle:0.2", &["sh", "-c", "sleep 100; :"], "a child process");
	let log = format!(">{}/log", program.place.path().display());
	for redirection in [&*log, "2>&1", "</dev/zero"] {
		let script = format!("exec {path} a {redirection}; sleep 100");
		let waits = format!("exec /bin/sleep 100 {redirection}");
		refused("call", &["sh", "-c", &script], "exit status 3");
		refused("call", &["sh", "-c", &waits], "with other standard streams");
	}
	// What its own child becomes is no template, whatever that says.
	refused("call", &["sh", "-c", &format!("SET=set {path} a; exit 4")], "exit status 4");
	program.place.until_empty();
}

/// It goes on as if it hadn't tried.
#[test]
fn an_exec_that_fails_changes_nothing() {
	let program = Program::new(
		r#"int main(void) {
	char *arguments[] = {"no", NULL};
	for (int i = 0; i < 300; i++) if (execv("/no/such/file", arguments) != -1 || errno != ENOENT) return 1;
	if (execv("/bin/sh/", arguments) != -1 || execvp("no-such-program", arguments) != -1) return 1;
	printf("before\n"); READY; printf("%s\n", getenv("FLASHFORK_WARM") ? "told" : "not told"); return 0;
}"#,
	);
	program.warm(&[]);
	let clone = program.cloned();
	assert_eq!((stdout(&clone), clone.status.code()), ("not told\n", Some(0)), "{}", stderr(&clone));
}

//! What programs have done first in each of their clones: `flashfork_on_clone`.

use crate::{
	place::{assert_all_differ, both, good, line, stderr, stdout},
	programs::Program,
};

/// Before each program here.
const HOOKS: &str = r"
";

fn program(source: &str) -> Program {
	Program::new(&format!("{HOOKS}{source}"))
}

/// Nothing else of the program runs meanwhile, and what they have done is done when it goes on.
#[test]
fn hooks_run_before_any_other_thread_of_a_clone() {
	let program = program(
		r#"
static volatile unsigned long turns; static unsigned char seed[16]; static unsigned long before, after; static char order[8];
static void *spins(void *x) { for (;;) turns++; }
static int first(void *x) {
	before = turns; usleep(100000); after = turns;
	strcat(order, x); return getrandom(seed, sizeof seed, 0) != sizeof seed;
}
static int second(void *x) { strcat(order, x); strcat(order, getenv("OF_CALLER") ? "yes" : "no"); return 0; }
int main(void) {
	pthread_t t = thread_of(spins); while (!turns) usleep(1000);
	if (flashfork_on_clone(first, "a") || flashfork_on_clone(second, "b")) return 1;
	READY;
	printf("%s %d\n", order, before == after);
	for (int i = 0; i < 16; i++) fprintf(stderr, "%02x", seed[i]);
	unsigned long now = turns; while (turns == now) usleep(1000);
}
"#,
	);
	program.warm(&[]);
	let clones = [(); 3].map(|()| program.place.flashfork(&["clone", "t"]).env("OF_CALLER", "").output().unwrap());
	for clone in &clones {
		assert_eq!((stdout(clone), clone.status.code()), ("abyes 1\n", Some(0)), "{}", stderr(clone));
	}
	assert_all_differ(clones.iter().map(stderr));
}

/// They have run once before, in a clone that is only a trial: nothing of that is seen in the others.
#[test]
fn the_trial_of_hooks_leaves_nothing_in_the_template() {
	let program = program(
		r#"
static int ends[2];
static int writes(void *x) { return write(ends[1], "x", 1) != 1; }
int main(void) {
	another(); pipe2(ends, O_NONBLOCK);
	if (flashfork_on_clone(writes, 0)) return 1;
	READY;
	char bytes[8]; printf("%d\n", (int)read(ends[0], bytes, 8)); return 0;
}
"#,
	);
	program.clones_say(1, 2, "1\n");
}

/// A program whose hook waits for what another thread holds.
const STUCK: &str = r#"
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER; static volatile int has;
static void *holds(void *x) { pthread_mutex_lock(&held); has = 1; for (;;) pause(); }
static int locks(void *x) { pthread_mutex_lock(&held); pthread_mutex_unlock(&held); return 0; }
int main(void) {
	pthread_t t = thread_of(holds); while (!has) usleep(1000);
	if (flashfork_on_clone(locks, 0)) return 1;
	READY; return 0;
}
"#;

#[test]
fn hooks_that_wait_for_another_thread_are_refused() {
	let refused = program(STUCK).try_warm(&[]);
	// Before, perhaps, that it takes a while.
	let last = stderr(&refused).lines().last();
	assert!(last.is_some_and(|last| last.contains("does not come to an end in them")), "{}", stderr(&refused));
}

#[test]
fn hooks_that_fail_or_end_the_process_are_refused() {
	let source = |what: &str| {
		format!(
			r"
static int fails(void *x) {{ {what}; }}
int main(void) {{
    another();
    if (flashfork_on_clone(fails, 0)) return 1;
    READY; return 0;
}}
"
		)
	};
	for what in ["return 1", "_exit(3)", "abort()"] {
		let refused = program(&source(what)).try_warm(&[]);
		assert!(line(&refused).contains("that fails in them"), "{what}: {}", stderr(&refused));
	}
}

/// With threads and without: the caller is told, and nothing of the program has run.
#[test]
fn a_clone_whose_hook_fails_is_ended() {
	let program = program(
		r#"
static int fails(void *x) { return getenv("FAIL") != 0; }
int main(int argc, char **argv) {
	if (flashfork_on_clone(fails, 0)) return 1;
	READY; puts("runs"); return 0;
}
"#,
	);
	for threads in [true, false] {
		if threads {
			program.warm(&[]);
		} else {
			good(program.place.run(&["warm", "--ready", "call", "t", "--", program.path()]));
		}
		assert_eq!(stdout(&program.cloned()), "runs\n");
		let ended = program.place.flashfork(&["clone", "t"]).env("FAIL", "").output().unwrap();
		assert!(line(&ended).contains("flashfork_on_clone") && stdout(&ended).is_empty(), "{}", stderr(&ended));
		program.place.remove();
	}
}

/// Also where the clone is made ahead of its caller.
#[test]
fn hooks_run_in_clones_with_one_thread_before_they_go_on() {
	let program = program(
		r#"
static unsigned char seed[16]; static int runs;
static int renews(void *x) { runs++; return getrandom(seed, sizeof seed, 0) != sizeof seed; }
int main(void) {
	if (flashfork_on_clone(renews, 0)) return 1;
	READY;
	printf("%d\n", runs); for (int i = 0; i < 16; i++) fprintf(stderr, "%02x", seed[i]);
}
"#,
	);
	good(program.place.run(&["warm", "--ready", "call", "t", "--", program.path()]));
	let clones = [(); 3].map(|()| program.cloned());
	let all = clones.each_ref().map(both);
	assert!(all.iter().all(|(runs, seed)| *runs == "1\n" && seed.len() == 32), "{all:?}");
	assert_all_differ(all);
}

/// A program without a template, and one with the most hooks that there may be.
#[test]
fn hooks_are_counted() {
	let program = program(
		r#"
static int nothing(void *x) { return 0; }
int main(void) {
	int taken = 0; while (flashfork_on_clone && !flashfork_on_clone(nothing, 0)) taken++;
	int why = errno; READY; printf("%d %s\n", taken, taken ? strerror(why) : ""); return 0;
}
"#,
	);
	assert_eq!(stdout(&program.plain(&[])), "0 \n");
	program.clones_say(1, 1, "64 Cannot allocate memory\n");
}

//! What of a clone is new: its process, and its time.

use crate::{
	place::{assert_all_differ, kill, pids, state, stderr, stdout, until},
	programs::Program,
};
use std::{fs, path::Path, process::Stdio};

#[test]
fn numbers_are_new_for_the_process_and_the_same_for_its_threads() {
	let program = Program::new(
		r#"
static volatile int go, before, after; static int main_before;
static void *other(void *x) { before = gettid(); while (!go) usleep(1000); after = gettid(); return 0; }
int main(void) {
	pthread_t t = thread_of(other); while (!before) usleep(1000);
	main_before = getpid();
	READY;
	go = 1; int killed = pthread_kill(pthread_self(), 0); pthread_join(t, 0);
	printf("%d %d %d %d\n", getpid() == gettid(), getpid() != main_before, before == after, killed);
	fprintf(stderr, "%d %d\n", main_before, getpid()); return 0;
}
"#,
	);
	program.warm(&[]);
	let clones = [(); 3].map(|()| program.cloned());
	for clone in &clones {
		assert_eq!(stdout(clone), "1 1 1 0\n");
	}
	assert_all_differ(clones.iter().map(|clone| stderr(clone).split_once(' ').unwrap().1));
}

/// Scripts name files in /tmp by their numbers (`$$`).
#[test]
fn what_clones_start_has_other_numbers_in_each() {
	let program = Program::new(
		r#"
static void *brief(void *x) { *(int *)x = gettid(); return 0; }
int main(void) {
	pthread_t t = another();
	READY;
	printf("%d", getpid()); fflush(stdout);
	for (int i = 0; i < 4; i++) {
		int thread; pthread_create(&t, 0, brief, &thread); pthread_join(t, 0);
		pid_t child = fork(); if (!child) _exit(0);
		waitpid(child, 0, 0); printf(" %d %d", thread, child); fflush(stdout);
	}
}
"#,
	);
	program.warm(&[]);
	let clones = program.place.clones(4, 0, &[]);
	let numbers: Vec<&str> = clones.iter().flat_map(|clone| stdout(clone).split(' ')).collect();
	assert_eq!(numbers.len(), 4 * 9, "{numbers:?}");
	assert_all_differ(numbers);
}

/// What is asked of threads by their numbers is found in the clone's own /proc, and what each has for itself.
#[test]
fn threads_are_found_by_their_numbers_with_what_is_their_own() {
	Program::new(
		r#"
enum { OTHERS = 3 };
static volatile int go, numbers[OTHERS + 1];
static pthread_t all[OTHERS + 1]; static pthread_barrier_t tell;
static void *other(void *x) {
	long i = (long)x; numbers[i] = gettid(); char name[16]; snprintf(name, sizeof name, "number %ld", i);
	prctl(PR_SET_NAME, name); setpriority(PRIO_PROCESS, 0, i);
	cpu_set_t one; CPU_ZERO(&one); CPU_SET(0, &one); if (i == 1) sched_setaffinity(0, sizeof one, &one);
	if (i == 2) { struct sched_param none = {0}; sched_setscheduler(0, SCHED_BATCH, &none); }
	pthread_barrier_wait(&tell); while (!go) usleep(1000); pthread_barrier_wait(&tell); return 0;
}
int main(void) {
	pthread_barrier_init(&tell, 0, OTHERS + 1); all[0] = pthread_self();
	for (long i = 1; i <= OTHERS; i++) pthread_create(all + i, 0, other, (void *)i);
	pthread_barrier_wait(&tell); READY; numbers[0] = getpid(); prctl(PR_SET_NAME, "number 0");
	pthread_setname_np(all[3], "renamed");
	cpu_set_t cpus; sched_getaffinity(0, sizeof cpus, &cpus); int count = CPU_COUNT(&cpus);
	for (int i = 0; i <= OTHERS; i++) {
		char path[64], name[32] = "none"; snprintf(path, sizeof path, "/proc/self/task/%d/comm", numbers[i]);
		int f = open(path, O_RDONLY); if (f >= 0) { name[read(f, name, 31)] = 0; close(f); }
		CPU_ZERO(&cpus); sched_getaffinity(numbers[i], sizeof cpus, &cpus);
		printf("%d %d %d %d %s", getpriority(PRIO_PROCESS, numbers[i]), sched_getscheduler(numbers[i]), CPU_COUNT(&cpus) == count,
			pthread_kill(all[i], 0), name);
	}
	go = 1; pthread_barrier_wait(&tell); for (int i = 1; i <= OTHERS; i++) pthread_join(all[i], 0);
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// Nobody outside its namespace is there.
#[test]
fn a_clones_parent_has_no_number() {
	let program = Program::new("int main(void) { another(); READY; printf(\"%d\\n\", getppid()); return 0; }");
	program.clones_say(1, 1, "0\n");
}

/// Programs note their process's number, in a pid file for example. Outside it is the program's while it is warmed, and
/// then nobody's: whoever kills that by mistake ends no template. In clones nobody has it.
#[test]
fn the_number_that_a_program_has_noted_is_nobody_elses() {
	let program = Program::new(
		r#"
static int noted;
int main(int argc, char **argv) {
	another();
	noted = getpid(); int fd = open(argv[1], O_CREAT | O_WRONLY, 0600); dprintf(fd, "%d\n", noted); close(fd);
	while (access(argv[2], F_OK)) usleep(1000);
	READY;
	int killed = kill(noted, 0); printf("%d %d\n", killed, errno == ESRCH); return 0;
}
"#,
	);
	let place = &program.place;
	let [file, go] = ["pid", "go"].map(|name| place.at(name));
	let mut warm = place.flashfork(&program.warms());
	let mut warm = warm.args([&file, &go]).stdout(Stdio::null()).spawn().unwrap();
	let noted = || fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse::<i32>().ok();
	until("it has noted its number", || noted().is_some());
	let noted = noted().unwrap();
	assert_eq!(pids(place, "program"), [noted]);
	fs::write(&go, "").unwrap();
	assert!(warm.wait().unwrap().success());
	assert_ne!(place.template_pid(), noted);
	assert_eq!(state(noted), None);
	// No other program gets it while the template is there.
	kill(noted, libc::SIGKILL);
	assert!(Path::new(&format!("/proc/{noted}")).exists());
	for _ in 0..2 {
		assert_eq!(stdout(&place.cloned()), "-1 1\n");
	}
	place.remove();
	until("its number is free", || !Path::new(&format!("/proc/{noted}")).exists());
}

/// As if no time had passed: what was to be done every now and then is not done as often as was missed.
#[test]
fn the_time_that_a_template_waits_has_not_passed_in_clones() {
	let program = Program::new(
		r#"
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
int main(void) {
	another();
	int fd = timerfd_create(CLOCK_MONOTONIC, 0); struct itimerspec it = {{0, 1000000}, {0, 1000000}}; timerfd_settime(fd, 0, &it, 0);
	READY;
	uint64_t ticks; read(fd, &ticks, 8);
	printf("%lld %lu\n", now(), (unsigned long)ticks); return 0;
}
"#,
	);
	let now = || {
		let text = fs::read_to_string("/proc/uptime").unwrap();
		(text.split_once(' ').unwrap().0.parse::<f64>().unwrap() * 1e9) as i64
	};
	program.warm(&[]);
	let ready = now();
	// Older than a clone may be by any chance.
	std::thread::sleep(std::time::Duration::from_secs(2));
	let asked = now();
	let clone = program.cloned();
	let ended = now();
	let shown: i64 = stdout(&clone).split_once(' ').unwrap().0.parse().unwrap();
	// /proc/uptime has hundredths of seconds.
	let slack = 20_000_000;
	assert!(shown <= ready + (ended - asked) + slack, "{shown} {ready} {asked} {ended}");
}

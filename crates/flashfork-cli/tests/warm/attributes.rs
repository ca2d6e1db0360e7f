//! What a clone has of its caller.

use crate::place::{Before, Place, Start, act, block, both, flashfork, good, limit, rest, stderr, stdout};
use std::{
	fs,
	process::{Command, Stdio},
};

/// The words of a line of what `show` prints.
const SHOW: &str = r#"
extern char **environ;
static unsigned char *warmed;
static pid_t warmed_by;
__attribute__((constructor)) static void warm(void) {
	warmed = malloc(64 << 20);
	memset(warmed, 7, 64 << 20);
	warmed_by = getpid();
	fprintf(stderr, "constructor\n");
}
int main(int argc, char **argv, char **envp) {
	char here[4096];
	struct rlimit files;
	struct sigaction action;
	sigset_t blocked;
	cpu_set_t cpus;
	for (int i = 1; i < argc; i++) printf("argument=%s\n", argv[i]);
	printf("end of arguments=%d\n", argv[argc] == NULL);
	for (int i = 0; envp[i]; i++) printf("variable=%s\n", envp[i]);
	printf("environ=%d\n", envp == environ);
	printf("directory=%s\n", getcwd(here, sizeof here));
	printf("umask=%o\n", umask(0));
	getrlimit(RLIMIT_NOFILE, &files);
	printf("files=%lu %lu\n", files.rlim_cur, files.rlim_max);
	printf("nice=%d\n", getpriority(PRIO_PROCESS, 0));
	sched_getaffinity(0, sizeof cpus, &cpus);
	printf("cpus=%d\n", CPU_COUNT(&cpus));
	for (int s = 1; s < 32; s++) {
		sigaction(s, NULL, &action);
		if (action.sa_handler == SIG_IGN) printf("ignores=%d\n", s);
	}
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	for (int s = 1; s < 65; s++) if (sigismember(&blocked, s) == 1) printf("blocks=%d\n", s);
	long sum = 0;
	for (int i = 0; i < 64 << 20; i += 4096) sum += warmed[i];
	printf("memory=%d\n", sum == 7L * (64 << 8));
	printf("leader=%d\n", getpgrp() == getpid());
	printf("new process=%d\n", warmed_by != getpid());
	int open_files = 0;
	for (int fd = 0; fd < 200; fd++) open_files += dup2(fd, fd) == fd;
	printf("descriptors=%d\n", open_files);
}
"#;

#[test]
fn a_clone_has_what_is_its_callers_and_what_was_warmed() {
	let place = Place::new();
	let program = place.program("show", SHOW);
	let warmed = good(place.flashfork(&["warm", "t", "--", &program, "first"]).output().unwrap());
	assert_eq!(stderr(&warmed), "constructor\n", "once, and on the output of `warm`");
	// All but its ends, and some of what else the program has.
	let sealed = ["63 MB", "64 MB"].iter().any(|size| stdout(&warmed).contains(size));
	assert!(stdout(&warmed).contains("before main") && sealed, "{}", stdout(&warmed));
	let directory = place.at("here");
	fs::create_dir(&directory).unwrap();
	let mut clone = place.flashfork(&["clone", "t", "--flag", "", "-x"]);
	clone.env_clear().env("XDG_RUNTIME_DIR", place.path()).env("ONE", "1=2").current_dir(&directory);
	clone.before(|| {
		limit(libc::RLIMIT_NOFILE, 77, 99);
		// SAFETY: takes numbers, and a set that is a local.
		unsafe {
			libc::umask(0o027);
			libc::setpriority(libc::PRIO_PROCESS, 0, 5);
			let mut cpus: libc::cpu_set_t = std::mem::zeroed();
			libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
			libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus);
		}
		act(&[libc::SIGPIPE, libc::SIGUSR2, libc::SIGCHLD], libc::SIG_IGN);
		block(&[libc::SIGUSR1, libc::SIGRTMIN() + 3]);
	});
	let output = clone.output().unwrap();
	assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
	let runtime = format!("variable=XDG_RUNTIME_DIR={}", place.path().display());
	let here = format!("directory={}", directory.display());
	let blocked = format!("blocks={}", libc::SIGRTMIN() + 3);
	let want = ["argument=first", "argument=--flag", "argument=", "argument=-x", "end of arguments=1"];
	let environment = if runtime.as_str() < "variable=ONE=1=2" {
		[&runtime, "variable=ONE=1=2"]
	} else {
		["variable=ONE=1=2", &runtime]
	};
	let rest = [
		"environ=1",
		&here,
		"umask=27",
		"files=77 99",
		"nice=5",
		"cpus=1",
		"ignores=12",
		"ignores=13",
		"ignores=17",
		"blocks=10",
		&blocked,
		"memory=1",
		"leader=1",
		"new process=1",
		"descriptors=3",
	];
	let want = [&want[..], &environment, &rest].concat();
	assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), want);
}

#[test]
fn a_caller_with_nothing_special_has_an_ordinary_clone() {
	let place = Place::new();
	let program = place.program("show", SHOW);
	// Whatever `warm` was started under: it is no business of the clones.
	let mut warm = place.flashfork(&["warm", "t", "--", &program]);
	// But for those of the C library itself.
	let all: Vec<i32> = (1..=64).filter(|signal| ![32, 33].contains(signal)).collect();
	warm.before(move || {
		act(&[libc::SIGCHLD, libc::SIGINT], libc::SIG_IGN);
		block(&all);
	});
	assert!(warm.env("WARMED", "1").status().unwrap().success());
	// A variable of the tests' own that begins as those do which must not be seen.
	let output = place.flashfork(&["clone", "t"]).env_remove("FLASHFORK_TEST_ALL").output().unwrap();
	let text = stdout(&output);
	for none in ["argument=", "ignores=", "blocks=", "variable=WARMED", "variable=LD_PRELOAD", "variable=FLASHFORK"] {
		assert!(!text.lines().any(|l| l.starts_with(none)), "{none}: {text}");
	}
}

#[test]
fn what_is_run_or_warmed_has_the_callers_environment_as_it_is() {
	let caller = "import ctypes, os, sys
table = lambda words: (ctypes.c_char_p * (len(words) + 1))(*words, None)
words = [word.encode() for word in sys.argv[1:]]
own = [b'Z=1', b'D=1', b'odd', b'', b'=x', b'D=2', b'XDG_RUNTIME_DIR=' + os.environb[b'XDG_RUNTIME_DIR'], b'B=2']
ctypes.CDLL(None).execve(words[0], table(words), table(own))";
	let show = "print(open('/proc/self/environ').read().replace('\\0', '\\n'))";
	for options in [&["run"][..], &["warm", "t"], &["warm", "--threads", "t"]] {
		let place = Place::new();
		let mut command = Command::new("/usr/bin/python3");
		command.args(["-c", caller, flashfork()]).args(options).args(["--", "/usr/bin/python3", "-c", show]);
		let output = good(command.env("XDG_RUNTIME_DIR", place.path()).output().unwrap());
		let own = format!("Z=1\nD=1\nodd\n\n=x\nD=2\nXDG_RUNTIME_DIR={}\nB=2\n", place.path().display());
		assert!(stdout(&output).starts_with(&own), "{options:?}: {}", stdout(&output));
	}
}

#[test]
fn streams_are_the_callers_own() {
	let place = Place::with_shell();
	let file = place.at("file");
	let mut clone = place.shell("read a; echo $a; cat; echo error >&2");
	place.file("in", "first\nrest\n");
	clone.stdin(fs::File::open(place.at("in")).unwrap());
	clone.stdout(fs::File::create(&file).unwrap());
	let output = clone.stderr(Stdio::piped()).output().unwrap();
	assert_eq!((output.status.code(), stderr(&output)), (Some(0), "error\n"));
	assert_eq!(fs::read(&file).unwrap(), b"first\nrest\n");
}

/// Writes which standard streams are open.
const STREAMS: &str = r#"
int main(void) {
	int open[3];
	for (int n = 0; n < 3; n++) open[n] = fcntl(n, F_GETFD) >= 0;
	fprintf(fopen(getenv("OUT"), "w"), "%d%d%d", open[0], open[1], open[2]);
}
"#;

#[test]
fn streams_that_the_caller_has_closed_are_closed() {
	let place = Place::new();
	let program = place.program("streams", STREAMS);
	place.warm(&[&program]);
	let out = place.at("out");
	for (closing, want) in [("", "111"), ("<&-", "011"), (">&-", "101"), ("<&- >&- 2>&-", "000")] {
		let script = format!("{} clone t {closing}", flashfork());
		let mut sh = place.sh(&script);
		assert!(sh.env("OUT", &out).stdin(Stdio::null()).status().unwrap().success(), "{closing}");
		assert_eq!(fs::read_to_string(&out).unwrap(), want, "{closing}");
	}
}

/// A memfd is a file to the limit on their size; so is what a template seals its memory in.
#[test]
fn a_caller_that_may_write_no_files_has_its_clone() {
	let place = Place::new();
	let limited = |mut command: Command| command.before(|| limit(libc::RLIMIT_FSIZE, 0, 0)).output().unwrap();
	good(limited(place.flashfork(&["warm", "t", "--", "sh"])));
	for length in [1, 100_000] {
		let mut clone = place.shell("echo ${#LONG}; ulimit -f");
		clone.env("LONG", "x".repeat(length));
		let output = limited(clone);
		assert_eq!(both(&output), (&*format!("{length}\n0\n"), ""));
	}
}

/// The command stands in no pipe once the clone runs: who reads sees the end when the clone closes it.
#[test]
fn a_clone_in_a_pipeline_is_like_any_program_there() {
	let place = Place::with_shell();
	let mut silent = place.shell("echo a; exec >&-; exec sleep 1000").start();
	let text = rest(silent.stdout.as_mut().unwrap());
	assert_eq!((text.as_str(), silent.try_wait().unwrap().is_none()), ("a\n", true));
	silent.kill().unwrap();
	silent.wait().unwrap();
	let clone = format!("{} clone t -c", flashfork());
	let script = format!(
		"{clone} 'while :; do echo y; done' | head -n 2; echo ${{PIPESTATUS[0]}}; \
		 seq 100000 | {clone} 'exec cat' | {clone} 'exec md5sum'; seq 100000 | md5sum"
	);
	let mut bash = Command::new("bash");
	bash.args(["-c", &script]).env("XDG_RUNTIME_DIR", place.path());
	let output = bash.stdin(Stdio::null()).output().unwrap();
	let lines: Vec<_> = stdout(&output).lines().collect();
	assert_eq!(lines[..3], ["y", "y", "141"], "{}", stderr(&output));
	assert_eq!((lines.len(), lines[3]), (5, lines[4]));
}

/// What the kernel knows of a process and who starts one hands on, and what a program has of it that this one starts.
const KERNEL: &str = r#"
static unsigned char *warmed;
static pthread_attr_t attributes;
__attribute__((constructor)) static void warm(void) {
	warmed = malloc(64 << 20);
	memset(warmed, 7, 64 << 20);
	pthread_getattr_default_np(&attributes);
	if (getenv("OWN")) {
		pthread_attr_setstacksize(&attributes, 123 << 12);
		pthread_setattr_default_np(&attributes);
		struct sched_param none = {0};
		int filter = open("/proc/self/coredump_filter", O_WRONLY);
		sched_setscheduler(0, SCHED_BATCH, &none);
		dprintf(filter, "0x21");
		syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
}
int main(void) {
	struct sched_param priority;
	sched_getparam(0, &priority);
	printf("policy=%x %d\n", sched_getscheduler(0), priority.sched_priority);
	printf("ioprio=%lx\n", syscall(SYS_ioprio_get, 1, 0));
	printf("personality=%x\n", personality(0xffffffff));
	printf("no_new_privs=%d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	printf("secure bits=%x\n", prctl(PR_GET_SECUREBITS));
	printf("no gain of execution=%d\n", prctl(66, 0, 0, 0, 0)); // PR_GET_MDWE
	printf("no huge pages=%d\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	printf("timer slack=%d\n", prctl(PR_GET_TIMERSLACK));
	size_t stacks;
	pthread_getattr_default_np(&attributes);
	pthread_attr_getstacksize(&attributes, &stacks);
	printf("stacks of threads=%zu\n", stacks);
	fflush(stdout);
	system("cat /proc/self/coredump_filter; grep NoNewPrivs /proc/self/status; uname -m");
	return warmed[4096] - 7;
}
"#;

/// As they are set before a command is executed.
type Setting = fn();

/// A name, and how it is set; where that isn't allowed nothing is.
const SETTINGS: [(&str, Setting); 14] = [
	("nothing", || {}),
	("batch", || policy(libc::SCHED_BATCH, 0)),
	("idle, ordinary again for children", || policy(libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK, 0)),
	("first in, first out", || policy(libc::SCHED_FIFO, 1)),
	("ioprio", || io_priority(3 << 13)),
	("personality", || personality(libc::ADDR_NO_RANDOMIZE | PER_LINUX32)),
	("coredump_filter", || drop(fs::write("/proc/self/coredump_filter", "0x13"))),
	("no_new_privs", || prctl(libc::PR_SET_NO_NEW_PRIVS, 1)),
	// SECBIT_NO_CAP_AMBIENT_RAISE.
	("secure bits", || prctl(libc::PR_SET_SECUREBITS, 1 << 6)),
	("mdwe", || prctl(libc::PR_SET_MDWE, 1)),
	("no huge pages", || prctl(libc::PR_SET_THP_DISABLE, 1)),
	("timer slack", || prctl(libc::PR_SET_TIMERSLACK, 123_456)),
	("stacks of threads", || stacks(5_000_001)),
	("unlimited stacks", || stacks(libc::RLIM_INFINITY)),
];

/// Of these what nobody gives up.
const KEPT: [&str; 2] = ["no_new_privs", "mdwe"];

fn policy(policy: i32, sched_priority: i32) {
	// SAFETY: the structure is a local.
	unsafe { libc::sched_setscheduler(0, policy, &libc::sched_param { sched_priority }) };
}

fn io_priority(priority: i32) {
	const THIS: i32 = 1; // IOPRIO_WHO_PROCESS
	// SAFETY: takes numbers.
	unsafe { libc::syscall(libc::SYS_ioprio_set, THIS, 0, priority) };
}

const PER_LINUX32: i32 = 8;

fn personality(persona: i32) {
	// SAFETY: takes a number.
	unsafe { libc::personality(persona as libc::c_ulong) };
}

fn prctl(option: i32, value: i32) {
	// SAFETY: takes numbers.
	unsafe { libc::prctl(option, value, 0, 0, 0) };
}

fn stacks(rlim_cur: u64) {
	let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
	// SAFETY: the structure is a local.
	unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const limit) };
}

fn under(mut command: Command, set: Setting) -> Command {
	command.before(set);
	command
}

#[test]
fn a_clone_has_what_the_kernel_hands_on_from_its_caller() {
	let place = Place::new();
	let program = place.program("kernel", KERNEL);
	place.warm(&[&program]);
	for (name, set) in SETTINGS {
		let plain = under(Command::new(&program), set).output().unwrap();
		let clone = under(place.flashfork(&["clone", "t"]), set).output().unwrap();
		assert_eq!((clone.status.code(), stderr(&clone)), (Some(0), ""), "{name}");
		assert_eq!(stdout(&clone), stdout(&plain), "{name}");
	}
}

/// Where there is a difference between caller and template it is the caller's, or there is no clone.
#[test]
fn what_a_template_was_warmed_under_is_no_clones() {
	for (name, set) in SETTINGS {
		let place = Place::new();
		let program = place.program("kernel", KERNEL);
		let warmed = under(place.flashfork(&["warm", "t", "--", &program]), set).output().unwrap();
		assert!(warmed.status.success(), "{name}: {}", stderr(&warmed));
		let clone = place.flashfork(&["clone", "t"]).output().unwrap();
		if clone.status.code() == Some(1) {
			// The rest is given up only by who may.
			let root = nix::unistd::geteuid().is_root();
			assert!(KEPT.contains(&name) || !root, "{name}: {}", stderr(&clone));
			assert!(stderr(&clone).contains("warm it") && stderr(&clone).lines().count() == 1, "{}", stderr(&clone));
		} else {
			assert!(!KEPT.contains(&name), "{name}");
			assert_eq!((clone.status.code(), stderr(&clone)), (Some(0), ""), "{name}");
			assert_eq!(stdout(&clone), stdout(&Command::new(&program).output().unwrap()), "{name}");
		}
		// Under the same it is as it was.
		let plain = under(Command::new(&program), set).output().unwrap();
		let clone = under(place.flashfork(&["clone", "t"]), set).output().unwrap();
		assert_eq!(both(&clone), (stdout(&plain), ""), "{name}");
	}
}

#[test]
fn what_the_program_has_set_for_itself_stays_in_clones() {
	let place = Place::new();
	let program = place.program("kernel", KERNEL);
	good(place.flashfork(&["warm", "t", "--", &program]).env("OWN", "1").output().unwrap());
	let plain = Command::new(&program).env("OWN", "1").output().unwrap();
	let clone = place.flashfork(&["clone", "t"]).output().unwrap();
	assert_eq!(both(&clone), (stdout(&plain), ""));
}

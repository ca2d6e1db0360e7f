//! How clones begin and end, and that nothing is left of them.

use crate::{
	place::{
		Before, Place, Start, act, block, both, first_line, kill, limit, often, pid, pids, signal, state, stderr,
		stdout, until,
	},
	programs::Program,
};
use std::{
	fs,
	os::{fd::AsRawFd, unix::process::ExitStatusExt},
	path::Path,
	process::{Child, Command, Stdio},
};

/// Does what its last argument says, with a thread beside it.
const DOES: &str = r#"
static void on_term(int n) { _exit(42); }
int main(int argc, char **argv) {
	another();
	if (flashfork_ready) flashfork_ready(&argc, &argv);
	const char *what = argv[argc - 1]; setvbuf(stdout, 0, _IOLBF, 0);
	if (!strcmp(what, "exit")) return 7;
	if (!strcmp(what, "abort")) abort();
	if (!strcmp(what, "fault")) { volatile int *p = 0; *p = 1; }
	if (!strcmp(what, "handled")) signal(SIGTERM, on_term);
	if (!strcmp(what, "ends-main")) { puts("main ends"); pthread_exit(0); }
	if (!strcmp(what, "background")) { if (!fork()) { close(0); close(1); close(2); setsid(); sleep(1000); _exit(0); } return 0; }
	if (!strcmp(what, "orphan")) {
		int p[2]; pipe(p); int z = fork(); if (!z) { if (!fork()) { usleep(10000); _exit(0); } _exit(0); }
		waitpid(z, 0, 0); usleep(50000); int w = waitpid(-1, 0, WNOHANG); printf("%d %d\n", w, errno == ECHILD); return 0;
	}
	if (!strcmp(what, "place")) {
		char d[4096]; struct rlimit_ { uint64_t now, most; } l; syscall(SYS_prlimit64, 0, 7, 0, &l);
		sigset_t s; pthread_sigmask(SIG_SETMASK, 0, &s); struct sigaction a; sigaction(SIGHUP, 0, &a);
		int mask = umask(0); printf("%s %o %lu %d %d %s %d\n", getcwd(d, sizeof d), mask, (unsigned long)l.now,
			sigismember(&s, SIGUSR2), a.sa_handler == SIG_IGN, getenv("ONE") ? getenv("ONE") : "-", nice(0));
		return 0;
	}
	puts("runs");
	for (;;) pause();
}
"#;

/// Says of both threads what the kernel hands on from who starts a program.
const KERNEL: &str = r#"
static void *tell(void *x) {
	char filter[32] = ""; int f = open("/proc/self/coredump_filter", O_RDONLY); read(f, filter, 8); close(f);
	pthread_attr_t a; size_t stacks; pthread_getattr_default_np(&a); pthread_attr_getstacksize(&a, &stacks);
	printf("%zu %lx %lx %lx %lx %.8s\n", stacks, syscall(SYS_sched_getscheduler, 0), syscall(SYS_ioprio_get, 1, 0),
		syscall(SYS_personality, 0xffffffff), syscall(SYS_prctl, 39, 0, 0, 0, 0), filter);
	return 0;
}
static int go[2];
static void *other(void *x) { char c; read(go[0], &c, 1); return tell(x); }
int main(int argc, char **argv) {
	pthread_t t; pipe(go); pthread_create(&t, 0, other, 0);
	if (flashfork_ready) flashfork_ready(&argc, &argv);
	tell(0); write(go[1], "", 1); pthread_join(t, 0); return 0;
}
"#;

#[test]
fn both_threads_have_what_the_kernel_hands_on_from_their_caller() {
	let program = Program::new(KERNEL);
	program.warm(&[]);
	let hard = rustix::process::getrlimit(rustix::process::Resource::Stack).maximum.unwrap_or(libc::RLIM_INFINITY);
	let under = |mut command: Command| {
		let set = move || {
			// SAFETY: takes numbers, and a structure that is a local.
			unsafe {
				libc::sched_setscheduler(0, libc::SCHED_BATCH, &libc::sched_param { sched_priority: 0 });
				libc::syscall(libc::SYS_ioprio_set, 1, 0, 3 << 13);
				libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
				libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			}
			limit(libc::RLIMIT_STACK, 5_000_000, hard);
			fs::write("/proc/self/coredump_filter", "0x13").unwrap();
		};
		command.before(set).output().unwrap()
	};
	let clone = under(program.place.flashfork(&["clone", "t"]));
	let plain = under(Command::new(program.path()));
	assert_eq!(both(&clone), (stdout(&plain), ""));
	assert_eq!(stdout(&plain).lines().count(), 2);
}

fn warmed() -> Program {
	let program = Program::new(DOES);
	program.warm(&[]);
	program
}

/// A clone that has said that it runs.
fn running(place: &Place, what: &str) -> Child {
	let mut child = place.flashfork(&["clone", "t", what]).start();
	let line = first_line(&mut child.stdout);
	assert_eq!(line, "runs\n");
	child
}

#[test]
fn clones_end_as_the_program_does() {
	let program = warmed();
	for (what, code, signal) in
		[("exit", Some(7), None), ("abort", None, Some(libc::SIGABRT)), ("fault", None, Some(libc::SIGSEGV))]
	{
		let clone = program.place.run(&["clone", "t", what]);
		assert_eq!((clone.status.code(), clone.status.signal(), stderr(&clone)), (code, signal, ""), "{what}");
		let plain = program.plain(&[what]);
		assert_eq!((plain.status.code(), plain.status.signal()), (code, signal), "{what}");
	}
	let orphan = program.place.run(&["clone", "t", "orphan"]);
	assert_eq!(stdout(&orphan), "-1 1\n", "it comes to an init");
}

#[test]
fn signals_are_passed_on() {
	let program = warmed();
	for (what, sent, code) in
		[("waits", libc::SIGTERM, None), ("handled", libc::SIGTERM, Some(42)), ("waits", libc::SIGINT, None)]
	{
		let mut clone = running(&program.place, what);
		signal(&clone, sent);
		let status = clone.wait().unwrap();
		assert_eq!((status.code(), status.signal()), (code, code.is_none().then_some(sent)), "{what}");
	}
}

#[test]
fn what_is_the_callers_is_the_clones() {
	let program = warmed();
	let directory = program.place.at("somewhere");
	fs::create_dir(&directory).unwrap();
	let mut command = program.place.flashfork(&["clone", "t", "place"]);
	command.current_dir(&directory).env("ONE", "1");
	command.before(|| {
		limit(libc::RLIMIT_NOFILE, 123, 200);
		block(&[libc::SIGUSR2]);
		act(&[libc::SIGHUP], libc::SIG_IGN);
		// SAFETY: takes numbers.
		unsafe { (libc::umask(0o027), libc::nice(3)) };
	});
	let clone = command.output().unwrap();
	// SAFETY: asks for this process's own.
	let nice = (3 + unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }).min(19);
	let want = format!("{} 27 123 1 1 1 {nice}\n", directory.display());
	assert_eq!(both(&clone), (want.as_str(), ""));
}

#[test]
fn a_clone_that_stops_stops_its_caller() {
	let program = warmed();
	let mut clone = running(&program.place, "waits");
	let pid = pid(&clone);
	signal(&clone, libc::SIGTSTP);
	until("both stop", || state(pid) == Some('T'));
	signal(&clone, libc::SIGCONT);
	until("it goes on", || state(pid) != Some('T'));
	signal(&clone, libc::SIGTERM);
	assert_eq!(clone.wait().unwrap().signal(), Some(libc::SIGTERM));
}

/// Everything started in this place, of whatever name: `pids` looks at environments, which the keeper and its inits
/// have, and the program and its clones.
fn all(place: &Place) -> Vec<i32> {
	pids(place, "")
}

#[test]
fn nothing_is_left_of_a_removed_template() {
	let program = warmed();
	for _ in 0..5 {
		assert_eq!(program.place.run(&["clone", "t", "exit"]).status.code(), Some(7));
	}
	program.place.remove();
	until("all is gone", || all(&program.place).is_empty());
}

#[test]
fn nothing_is_left_of_what_is_killed() {
	let program = warmed();
	let place = &program.place;
	// The keeper, its init, the maker.
	for killed in 0..3 {
		if place.list().is_empty() {
			program.warm(&[]);
		}
		let mut clone = running(place, "waits");
		let keeper = place.template_pid();
		let below = |pid: i32| -> Vec<i32> {
			let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
			text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
		};
		let init = below(keeper)[0];
		let named = |name: &str| {
			let comm = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
			below(init).into_iter().find(|pid| comm(pid).trim() == name).unwrap()
		};
		let victim = match killed {
			0 => keeper,
			1 => init,
			_ => named("flashfork-maker"),
		};
		kill(victim, libc::SIGKILL);
		let status = clone.wait().unwrap();
		assert!(status.code() == Some(1) || status.signal() == Some(libc::SIGKILL), "{killed}: {status:?}");
		until("all is gone", || all(place).is_empty());
		assert!(place.list().is_empty());
	}
	// The command, and the clone.
	program.warm(&[]);
	let mut clone = running(place, "waits");
	clone.kill().unwrap();
	clone.wait().unwrap();
	until("its clone is gone", || is_idle(place));
	let mut clone = running(place, "waits");
	kill(pids(place, "program")[0], libc::SIGKILL);
	assert_eq!(clone.wait().unwrap().signal(), Some(libc::SIGKILL));
	until("it is gone", || is_idle(place));
}

/// Times that something is killed; in `make test-all`.
const KILLED: usize = 24;
const MANY_KILLED: usize = 1000;

/// Any process of the template's or the command's, while it is warmed, cloned, or ends. A namespace is there while a
/// process is, or a descriptor.
#[test]
fn whatever_is_killed_at_any_moment_nothing_is_left() {
	let program = Program::new(DOES);
	let place = &program.place;
	let mut chance: u64 = 1;
	let mut draw = |below: u64| {
		chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
		(chance >> 33) % below
	};
	let rounds = often(KILLED, MANY_KILLED);
	let mut open = None;
	for round in 0..rounds {
		if place.list().is_empty() && round % 3 > 0 {
			program.warm(&[]);
		}
		let warms = place.list().is_empty();
		if warms {
			open = None;
		} else if open.is_none() {
			until("it is idle", || place.list().is_empty() || is_idle(place));
			open = open_of_template(place);
		}
		let what = ["waits", "exit", "orphan"][draw(3) as usize];
		let command = if warms { program.warms().to_vec() } else { vec!["clone", "t", what] };
		let mut command = place.flashfork(&command);
		let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
		std::thread::sleep(std::time::Duration::from_micros(draw(if warms { 60_000 } else { 12_000 })));
		let all = all(place);
		if !all.is_empty() {
			kill(all[draw(all.len() as u64) as usize], libc::SIGKILL);
		}
		if what == "waits" && !warms {
			// The clone, if it lives.
			let _ = command.kill();
		}
		command.wait().unwrap();
		// A template that is left is as it was. It may have been killed, and be listed for a moment still.
		until("nothing is left", || {
			if place.list().is_empty() {
				open = None;
				return self::all(place).is_empty();
			}
			let now = is_idle(place).then(|| open_of_template(place)).flatten();
			// More was open at first if the connection of `ls` was.
			now.is_some_and(|now| now <= *open.get_or_insert(now))
		});
	}
	let _ = place.run(&["rm", "t"]);
	until("all is gone", || all(place).is_empty());
}

/// How many descriptors the template has open, once those of two namespaces and of a clock for the next clones are
/// among them: an init is there before its descriptors are. None when it has just ended.
fn open_of_template(place: &Place) -> Option<usize> {
	let pid = place.list().first()?["pid"].as_i64().unwrap();
	let links =
		fs::read_dir(format!("/proc/{pid}/fd")).ok()?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
	let all: Vec<_> = links.collect();
	let of_kind = |kind: &str| all.iter().filter(|link| link.to_string_lossy().starts_with(kind)).count();
	(of_kind("pid:[") == 2 && of_kind("time:[") == 1).then_some(all.len())
}

#[test]
fn namespaces_whose_init_was_killed_are_replaced() {
	let program = warmed();
	let place = &program.place;
	until("it is idle", || is_idle(place));
	let template = place.template_pid();
	let of_template = |pid: &i32| {
		let text = fs::read_to_string(format!("/proc/{template}/task/{template}/children")).unwrap();
		text.split_whitespace().any(|child| child.parse() == Ok(*pid))
	};
	let waiting: Vec<i32> = pids(place, "flashfork-init").into_iter().filter(|pid| !of_template(pid)).collect();
	assert_eq!(waiting.len(), 2);
	for pid in &waiting {
		kill(*pid, libc::SIGKILL);
	}
	until("others wait", || is_idle(place) && pids(place, "flashfork-init").iter().all(|pid| !waiting.contains(pid)));
	for _ in 0..3 {
		assert_eq!(place.run(&["clone", "t", "exit"]).status.code(), Some(7));
	}
	place.remove();
	until("all is gone", || all(place).is_empty());
}

/// No clone runs, and two namespaces wait for the next: of each there is an init, and of the template.
fn is_idle(place: &Place) -> bool {
	pids(place, "program").is_empty() && pids(place, "flashfork-init").len() == 3
}

/// As it does when the program is started plainly.
#[test]
fn what_a_clone_leaves_in_the_background_runs_on() {
	let program = warmed();
	assert!(program.place.run(&["clone", "t", "background"]).status.success());
	let left = pids(&program.place, "program");
	assert_eq!(left.len(), 1);
	let left = left[0];
	program.place.remove();
	assert!(state(left).is_some());
	kill(left, libc::SIGKILL);
	until("all is gone", || all(&program.place).is_empty());
}

#[test]
fn a_template_goes_after_so_many_clones() {
	let program = Program::new(DOES);
	let command = ["warm", "--threads", "--ready", "call", "--max-clones", "2", "t", "--", program.path()];
	assert!(program.place.run(&command).status.success());
	for _ in 0..2 {
		assert_eq!(program.place.run(&["clone", "t", "exit"]).status.code(), Some(7));
	}
	until("it is gone", || program.place.list().is_empty());
	until("all is gone", || all(&program.place).is_empty());
}

#[test]
fn fifty_clones_leave_no_process_and_no_descriptor() {
	let program = warmed();
	let fds = format!("/proc/{}/fd", program.place.template_pid());
	let open = || -> Vec<_> {
		let all = fs::read_dir(&fds).unwrap();
		all.filter_map(|fd| Some(fs::read_link(fd.unwrap().path()).ok()?.display().to_string())).collect()
	};
	// It has what it makes ahead: two namespaces, and one of time where the kernel knows those.
	let is_ready = |open: &[String]| {
		let of = |kind: &str| open.iter().filter(|name| name.starts_with(kind)).count();
		is_idle(&program.place)
			&& [of("mnt:"), of("time:")] == [2, usize::from(Path::new("/proc/self/ns/time").exists())]
	};
	until("it is ready", || is_ready(&open()));
	let before = (all(&program.place).len(), open().len());
	for _ in 0..50 {
		assert_eq!(program.place.run(&["clone", "t", "exit"]).status.code(), Some(7));
	}
	until("it is as before", || is_ready(&open()) && (all(&program.place).len(), open().len()) == before);
}

/// At its end it has a file locked, another one mapped if an argument names it, so much memory that it takes a while to
/// free it, and a thread beside it. What it says last it says when handlers of `exit` have run, and it has no child.
const LAST: &str = r#"
__attribute__((destructor)) static void last(void) {
	int w = waitpid(-1, 0, __WALL | WNOHANG); printf("%d %d\n", w, errno == ECHILD);
}
int main(int argc, char **argv) {
	another();
	if (flashfork_ready) flashfork_ready(&argc, &argv);
	if (flock(open(argv[1], O_RDWR), LOCK_EX | LOCK_NB)) return 1;
	if (argc > 2) mmap(0, 4096, PROT_READ, MAP_SHARED, open(argv[2], O_RDWR), 0);
	mmap(0, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return 7;
}
"#;

#[test]
fn what_a_clone_has_in_use_is_free_when_its_end_is_told() {
	let program = Program::new(LAST);
	program.warm(&[]);
	let place = &program.place;
	let [lock, file] = ["lock", "mapped"].map(|name| place.at(name));
	fs::write(&lock, "").unwrap();
	fs::write(&file, [1; 4096]).unwrap();
	let [lock, file] = [&lock, &file].map(|path| path.to_str().unwrap());
	// There is a lease where nobody has the file open to write, or mapped it when it was.
	let nobody_has = |path: &str| {
		let file = fs::File::open(path).unwrap();
		// SAFETY: takes numbers.
		unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0 }
	};
	for arguments in [&[lock][..], &[lock, file]].repeat(3) {
		let clone = place.run(&[&["clone", "t"], arguments].concat());
		assert!(nobody_has(file));
		fs::File::open(lock).unwrap().try_lock().unwrap();
		assert_eq!((clone.status.code(), stdout(&clone), stderr(&clone)), (Some(7), "-1 1\n", ""));
		assert!(pids(place, "program").is_empty());
	}
	until("all memory is gone", || is_idle(place) && pids(place, "flashfork-last").is_empty());
}

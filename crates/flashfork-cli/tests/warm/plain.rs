//! A clone does what its program does when it is started anew, also where it was made ahead, and where its end could be
//! told early.

use crate::place::{Place, Start, assert_says, flashfork, good, kill, state, stderr, stdout, until};
use std::{
	fs,
	process::{Command, Output, Stdio},
};

const PYTHON: &str = "/usr/bin/python3";

fn warmed(code: &str) -> Place {
	let place = Place::new();
	place.warm(&[PYTHON, "-c", code]);
	place
}

/// A clone that was made ahead, which runs this.
fn python(place: &Place, code: &str) -> Output {
	place.ahead();
	place.run(&["clone", "t", "-c", code])
}

fn prints(output: &Output, text: &str) {
	assert_eq!((output.status.code(), stdout(output), stderr(output)), (Some(0), text, ""));
}

#[test]
fn modules_that_a_handler_of_forks_imports_are_whole() {
	let handler = "import os\ndef h():\n    import uuid, textwrap\nos.register_at_fork(after_in_child=h)";
	let place = warmed(handler);
	for _ in 0..2 {
		prints(&python(&place, "import textwrap, uuid; print(textwrap.fill('hello', 3)); uuid.uuid4()"), "hel\nlo\n");
	}
}

#[test]
fn a_handler_of_forks_may_fork() {
	// The handler's own fork runs it, too.
	let handler = "import os
os.inside = False
def h():
    if os.inside: return
    os.inside = True
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b'child')
        os._exit(7)
    os.inside = False
    os.told = os.read(r, 9), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(r); os.close(w)
os.register_at_fork(after_in_child=h)";
	let place = warmed(handler);
	for _ in 0..2 {
		prints(&python(&place, "import os; print(os.told)"), "(b'child', 7)\n");
	}
	// In the handlers of the template itself, too.
	let before = handler.replace("after_in_child=h", "before=h, after_in_parent=h");
	let place = warmed(&before);
	for _ in 0..2 {
		prints(&python(&place, "import os; print(os.told)"), "(b'child', 7)\n");
	}
}

/// As C programs do it.
#[test]
fn a_handler_of_the_c_librarys_forks_may_fork() {
	let place = Place::new();
	let source = r#"static int code;
static void h(void) { int s; pid_t p = fork(); if (!p) _exit(7); waitpid(p, &s, 0); code = WEXITSTATUS(s); }
static int done;
static void once(void) { if (!done++) h(); done--; }
__attribute__((constructor)) static void start(void) { pthread_atfork(0, 0, once); }
int main(int argc, char **argv) { printf("%d %s\n", code, argv[1]); return 0; }
"#;
	let program = place.program("forks", source);
	place.warm(&[&program]);
	for _ in 0..2 {
		place.ahead();
		prints(&place.run(&["clone", "t", "word"]), "7 word\n");
	}
}

#[test]
fn signals_to_a_clone_that_waits_do_not_reach_the_next_callers_program() {
	let place = Place::with_shell();
	for sent in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
		kill(place.ahead(), sent);
		prints(&place.shell("echo here").output().unwrap(), "here\n");
	}
}

#[test]
fn files_opened_in_the_warm_up_are_flushed_at_the_end() {
	let place = Place::new();
	let log = place.at("log");
	let code = format!("import sys; sys.log = open({log:?}, 'a'); sys.log.write('warm ')");
	place.warm(&[PYTHON, "-c", &code]);
	for word in ["one", "two"] {
		prints(&python(&place, &format!("import sys; sys.log.write('{word} ')")), "");
	}
	assert_eq!(fs::read_to_string(log).unwrap(), "warm one two ");
}

#[test]
fn a_warm_up_that_ends_itself_ends_as_in_python_itself() {
	let place = Place::new();
	for code in ["sys.exit(5)", "raise SystemExit('bad')", "import nosuch"] {
		let file = place.at("file");
		let code = format!(
			"import sys, os, atexit\natexit.register(print, 'at exit')\nf = open({file:?}, 'w'); f.write('kept')\nprint('out')\n{code}"
		);
		let warm = place.run(&["warm", "t", "--", PYTHON, "-c", &code]);
		assert_eq!(fs::read_to_string(&file).unwrap(), "kept", "{}", stderr(&warm));
		let cold = Command::new(PYTHON).args(["-c", &code]).output().unwrap();
		assert_eq!(stdout(&warm), stdout(&cold));
		let told = stderr(&warm).strip_prefix(stderr(&cold)).unwrap_or_else(|| panic!("{}", stderr(&warm)));
		assert_eq!(told.lines().count(), 1, "{told}");
		assert_says(told, &format!("exit status {} before", cold.status.code().unwrap()));
	}
}

#[test]
fn a_thread_that_waits_for_input_keeps_no_clone_from_its_end() {
	let place = warmed("import ctypes, threading");
	for wait in ["ctypes.CDLL(None).getchar()", "os.read(0, 1)", "open(w, 'wb').write(bytes(1 << 20))"] {
		let code = format!(
			"import ctypes, os, sys, threading, time
r, w = os.pipe()
threading.Thread(target=lambda: {wait}, daemon=True).start()
time.sleep(0.2)
print('out')
sys.exit(3)"
		);
		let mut clone = place.flashfork(&["clone", "t", "-c", &code]).start_talk();
		let input = clone.stdin.take();
		until("it ends", || clone.try_wait().unwrap().is_some());
		drop(input);
		let output = clone.wait_with_output().unwrap();
		assert_eq!((output.status.code(), stdout(&output)), (Some(3), "out\n"), "{wait}");
	}
}

#[test]
fn a_lock_that_a_mapping_keeps_is_free_when_the_command_has_ended() {
	let place = warmed("import fcntl, mmap");
	let path = place.file("locked", [0; 4096]);
	// The mapping of a file that was locked keeps it open.
	let code = format!(
		"import ctypes, fcntl, os
c = ctypes.CDLL(None); c.mmap.restype = ctypes.c_void_p
fd = os.open({path:?}, os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX)
assert c.mmap(None, ctypes.c_size_t(4096), 3, 1, fd, ctypes.c_size_t(0)) != ctypes.c_void_p(-1).value
os.close(fd)
print(os.getpid(), flush=True)"
	);
	for code in [code.clone(), format!("{code}\nos._exit(0)")].iter().cycle().take(20) {
		let output = python(&place, code);
		assert_eq!(stderr(&output), "");
		let file = fs::File::open(&path).unwrap();
		// SAFETY: takes numbers.
		let free = unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&file), libc::LOCK_EX | libc::LOCK_NB) } == 0;
		assert!(free);
		assert_eq!(state(stdout(&output).trim().parse().unwrap()), None, "the clone is gone");
	}
}

#[test]
fn a_clone_with_children_has_ended_when_its_command_has() {
	let place = warmed("import os, subprocess");
	let code = "import os, subprocess
print(os.getpid(), subprocess.Popen(['sleep', '1000'], stdin=-3, stdout=-3, stderr=-3).pid, flush=True)";
	for code in [code.to_owned(), format!("{code}\nos._exit(0)")].iter().cycle().take(20) {
		let output = python(&place, code);
		let mut pids = stdout(&output).split_whitespace().map(|word| word.parse::<i32>().unwrap());
		let (clone, child) = (pids.next().unwrap(), pids.next().unwrap());
		kill(child, libc::SIGKILL);
		assert_eq!(state(clone), None);
	}
}

#[test]
fn a_clone_that_has_told_its_end_counts_no_more() {
	let place = warmed("import sys; sys.big = bytearray(64 << 20)");
	for _ in 0..10 {
		prints(&python(&place, "import sys; sys.big[::4096] = bytes(len(sys.big) // 4096)"), "");
		assert_eq!(place.list()[0]["clones_running"], 0);
	}
	assert_eq!(stdout(&place.run(&["rm", "t"])), "removed t\n");
}

#[test]
fn a_sandbox_that_kills_for_what_an_early_end_calls_kills_no_clone() {
	let place = warmed("import ctypes, struct");
	// chdir, stat, waitid, close_range and rt_sigqueueinfo end the process (numbers of x86-64).
	let code = "import ctypes, struct, sys
calls = [80, 4, 247, 436, 129]
filter = [(0x20, 0, 0, 0)] + [(0x15, len(calls) - i, 0, n) for i, n in enumerate(calls)] + [(6, 0, 0, 0x7fff0000), (6, 0, 0, 0x80000000)]
text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *f) for f in filter))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(filter), ctypes.addressof(text)))
c = ctypes.CDLL(None)
assert c.prctl(38, 1, 0, 0, 0) == 0 and c.prctl(22, 2, program, 0, 0) == 0
print('out', flush=True)";
	for end in ["sys.exit(4)", "os._exit(4)"] {
		let output = python(&place, &format!("import os\n{code}\n{end}"));
		assert_eq!((output.status.code(), stdout(&output), stderr(&output)), (Some(4), "out\n", ""));
	}
}

#[test]
fn a_semaphore_that_an_end_gives_back_is_free_when_the_command_has_ended() {
	let place = warmed("import ctypes");
	// SAFETY: takes numbers.
	let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
	assert!(set >= 0);
	let change = |by: i16, flags: i32| {
		let mut operation = libc::sembuf { sem_num: 0, sem_op: by, sem_flg: flags as i16 };
		// SAFETY: one operation, a local.
		unsafe { libc::semop(set, &raw mut operation, 1) }
	};
	change(1, 0);
	let taken = format!(
		"import ctypes, os, struct
assert ctypes.CDLL(None).semop({set}, struct.pack('Hhh', 0, -1, {undo}), 1) == 0",
		undo = libc::SEM_UNDO
	);
	let all = [taken.clone(), format!("{taken}\nos._exit(0)")];
	let free = all.iter().cycle().take(20).all(|code| {
		prints(&python(&place, code), "");
		change(-1, libc::IPC_NOWAIT) == 0 && change(1, 0) == 0
	});
	// SAFETY: removes what was made above.
	unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
	assert!(free);
}

#[test]
fn a_handler_of_signals_may_end_a_clone_on_a_small_stack() {
	let place = Place::new();
	let program = place.program(
		"handler",
		"static void end(int signal) { _exit(signal); }
int main(void) {
    /* The loader needs some to bind the call. */
    size_t size = sysconf(_SC_MINSIGSTKSZ) + 1024, page = 4096, all = (size + page - 1) / page * page;
    char *at = mmap(NULL, page + all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + page, all, PROT_READ | PROT_WRITE);
    stack_t stack = {.ss_sp = at + page + all - size, .ss_size = size};
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_ONSTACK};
    if (at == MAP_FAILED || sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL)) return 1;
    raise(SIGUSR1);
    return 2;
}",
	);
	place.warm(&[&program]);
	for _ in 0..3 {
		assert_eq!(place.cloned().status.code(), Some(libc::SIGUSR1));
	}
}

#[test]
fn a_small_stack_is_enough_for_a_template() {
	// In KB. Frames are larger where nothing is optimised.
	let limit = if cfg!(debug_assertions) { "112" } else { "64" };
	for command in [&["sh"][..], &["env", "sh"]] {
		let place = Place::new();
		let mut limited = place.sh("ulimit -s $1; shift; exec \"$0\" warm t -- \"$@\"");
		good(limited.args([flashfork(), limit]).args(command).output().unwrap());
		assert_eq!(place.shell("ulimit -s; exit 7").output().unwrap().status.code(), Some(7));
	}
}

#[test]
fn the_start_of_a_perl_script_is_its_own() {
	let place = Place::new();
	place.warm(&["perl", "-e", "1"]);
	let mut first = 0;
	until("a second has passed", || {
		let output = place.run(&["clone", "t", "-e", "print $^T"]);
		let start: u64 = stdout(&output).parse().unwrap();
		first = if first == 0 { start } else { first };
		start > first
	});
}

#[test]
fn signals_that_mean_nothing_to_a_template_do_not_end_it() {
	let place = Place::with_shell();
	let pid = place.template_pid();
	for sent in [libc::SIGRTMIN(), libc::SIGUSR1, libc::SIGRTMAX()] {
		kill(pid, sent);
		prints(&place.shell("echo here").output().unwrap(), "here\n");
	}
	assert_eq!(place.template_pid(), pid);
}

#[test]
fn objects_that_end_with_the_program_find_its_names() {
	let code = "import sys, threading, os
class Ends:
    def __init__(self, name): self.name = name
    def __del__(self): print('end of', self.name, sys.argv)
alone = Ends('one')
round = Ends('a circle')
round.itself = round
def closing():
    try: yield
    finally: print('closed', sys.argv)
open_still = closing()
next(open_still)
print(threading.main_thread().native_id == os.getpid())
";
	let plain = Command::new(PYTHON).args(["-c", code]).stdin(Stdio::null()).output().unwrap();
	let place = warmed("import threading");
	for _ in 0..2 {
		prints(&python(&place, code), stdout(&plain));
	}
}

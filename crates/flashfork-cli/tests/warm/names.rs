//! Names, and programs that can't be templates.

use crate::place::{FalseTemplate, Place, Start, assert_says, both, line, state, stderr, stdout, until};
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn bash_completes_names_and_options() {
	let place = Place::with_shell();
	let command = place.flashfork(&[]);
	let directory = std::path::Path::new(command.get_program()).parent().unwrap().display().to_string();
	let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
	for (words, offered) in [
		(&["clone", ""][..], "t --listen --fresh --help --version "),
		(&["rm", "t"], "t "),
		(&["warm", "--max"], "--max-clones "),
		(&["run", "--engine", "s"], "seal "),
	] {
		let mut bash = std::process::Command::new("bash");
		bash.env("PATH", &path).env("XDG_RUNTIME_DIR", place.path()).args(["-c", COMPLETE, "flashfork"]).args(words);
		let output = bash.output().unwrap();
		assert_eq!(both(&output), (offered, ""), "{words:?}");
	}
}

/// What bash does when somebody types the words and then the tabulator.
const COMPLETE: &str = r#"eval "$(flashfork completions bash)"
COMP_WORDS=("$0" "$@") COMP_CWORD=$#
_clap_complete_flashfork flashfork "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
printf '%s ' "${COMPREPLY[@]}""#;

#[test]
fn a_name_that_is_taken_is_told_and_nothing_is_started() {
	let place = Place::with_shell();
	let again = place.run(&["warm", "t", "--", "sh", "-c", "echo started"]);
	assert_says(line(&again), "there is a template t");
	assert_eq!(stdout(&again), "");
	assert_eq!(place.list().len(), 1);
}

#[test]
fn unknown_names_are_told_and_need_no_removing() {
	let place = Place::new();
	place.refuses(&["clone", "nobody"], "there is no template nobody");
	let removed = place.run(&["rm", "nobody", "nobody"]);
	assert_eq!((removed.status.code(), stdout(&removed)), (Some(0), &*"there is no template nobody\n".repeat(2)));
	assert!(place.list().is_empty());
	for bad in ["a/b", "..", "-x", ""] {
		assert_eq!(place.run(&["clone", "--", bad]).status.code(), Some(2), "{bad}");
	}
	assert_eq!(place.run(&["warm", "t"]).status.code(), Some(2));
	assert_eq!(place.run(&["warm", "--max-clones", "0", "t", "--", "sh"]).status.code(), Some(2));
}

#[test]
fn what_is_no_socket_is_never_removed() {
	let place = Place::with_shell();
	let file = place.file("flashfork/templates/notes", "mine");
	assert_eq!(place.list().len(), 1);
	for command in [&["clone", "notes"][..], &["rm", "notes"], &["warm", "notes", "--", "sh"]] {
		let output = place.run(command);
		assert_says(line(&output), "it is not a socket");
	}
	assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn programs_the_shim_can_not_get_into_are_refused_before_they_run() {
	let place = Place::new();
	for (command, why) in [
		("busybox", "statically linked"),
		("/etc/passwd", "no executable file"),
		("/nonexistent/program", "No such file"),
		("no-such-program", "not found in PATH"),
	] {
		let output = place.run(&["warm", "t", "--", command]);
		assert_says(line(&output), why);
	}
	assert!(place.list().is_empty());
}

/// A program that ends while it is warmed, one way or another, leaves neither a process nor a file.
#[test]
fn a_program_that_ends_before_it_is_ready_is_told() {
	let place = Place::new();
	for (end, how) in [
		("exit(3)", "ended with exit status 3"),
		("abort()", "was ended by signal 6"),
		("raise(SIGKILL)", "was killed before it was ready; somebody has, or memory was short"),
	] {
		let text = format!("__attribute__((constructor)) void f(void) {{ {end}; }} int main(void) {{}}");
		place.refuses(&["warm", "t", "--", &place.program("ends", &text)], how);
	}
	assert_eq!(place.names(), 0);
}

const THREAD: &str = r#"
static int stop[2];
static pthread_t thread;
static void *work(void *nothing) { char c; read(stop[0], &c, 1); return nothing; }
static void before_fork(void) { if (STOPS && thread) { write(stop[1], "", 1); pthread_join(thread, NULL); thread = 0; } }
__attribute__((constructor)) static void start(void) {
    pipe(stop);
    pthread_create(&thread, NULL, work, NULL);
    pthread_atfork(before_fork, NULL, NULL);
    fprintf(stderr, "%d\n", getpid());
}
int main(void) { puts("ran"); return 0; }
"#;

#[test]
fn a_program_with_threads_is_refused_and_ended() {
	let place = Place::new();
	let program = place.program_with("threads", THREAD, &["-DSTOPS=0"]);
	let output = place.run(&["warm", "t", "--", &program]);
	assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
	let (pid, why) = stderr(&output).split_once('\n').unwrap();
	assert!(why.contains("threads") && why.lines().count() == 1, "{why}");
	assert_eq!(state(pid.parse().unwrap()), None);
}

/// The group is another one's, so the dynamic linker would ignore the shim.
#[test]
fn a_setgid_program_is_refused() {
	let place = Place::new();
	let program = place.program("setgid", "int main(void) { return 0; }");
	// Only root may give a file away.
	if std::os::unix::fs::chown(&program, None, Some(65534)).is_err() {
		return;
	}
	fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
	place.refuses(&["warm", "t", "--", &program], "it is setgid");
}

/// A name that is found dead may be taken by the time it is to be removed: all who remove and give names take turns.
#[test]
fn a_name_that_was_taken_meanwhile_is_not_removed() {
	use nix::fcntl::{Flock, FlockArg};
	let place = Place::new();
	let path = place.at("flashfork/templates/t");
	for arguments in [&["rm", "t"][..], &["clone", "t"], &["ls"], &["warm", "t", "--", "sh"]] {
		let dead = FalseTemplate::new(&place, "t");
		// Its socket is closed, its name stays.
		let kept = path.with_extension("kept");
		fs::rename(&path, &kept).unwrap();
		fs::write(&path, "").unwrap();
		drop(dead);
		fs::rename(&kept, &path).unwrap();
		let lock = Flock::lock(fs::File::open(path.parent().unwrap()).unwrap(), FlockArg::LockExclusive).unwrap();
		let command = place.flashfork(arguments).start_both();
		until("it waits for its turn", || {
			let open = fs::read_dir(format!("/proc/{}/fd", command.id())).unwrap();
			let open = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
			// Once to look, once to lock.
			open.filter(|target| Some(&**target) == path.parent()).count() == 2
		});
		fs::remove_file(&path).unwrap();
		let alive = FalseTemplate::at(&path);
		drop(lock);
		if arguments[0] == "clone" {
			// It has asked nobody for anything yet, and asks whom the name leads to now.
			drop(alive.request());
		}
		// `ls` asks the new one nothing: it is of its list no more. `warm` finds the name taken.
		let output = command.wait_with_output().unwrap();
		assert_eq!(output.status.success(), ["rm", "ls"].contains(&arguments[0]), "{}", stderr(&output));
		assert!(path.exists(), "{arguments:?} removed it");
		drop(alive);
	}
}

/// As OpenBLAS does.
#[test]
fn threads_that_stop_for_a_fork_are_no_hindrance() {
	let place = Place::new();
	let program = place.program_with("threads", THREAD, &["-DSTOPS=1"]);
	place.warm(&[&program]);
	assert_eq!(stdout(&place.cloned()), "ran\n");
}

#[test]
fn a_directory_that_others_could_look_into_is_refused() {
	let place = Place::new();
	let directory = place.at("flashfork/templates");
	fs::create_dir_all(&directory).unwrap();
	fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
	place.refuses(&["warm", "t", "--", "sh"], "others may look into it");
	fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_long_path_to_the_names_is_no_hindrance() {
	let place = Place::new();
	let long = place.at("x".repeat(200));
	fs::create_dir(&long).unwrap();
	let name = "n".repeat(64);
	let run = |arguments: &[&str]| place.flashfork(arguments).env("XDG_RUNTIME_DIR", &long).output().unwrap();
	assert!(run(&["warm", &name, "--", "sh"]).status.success());
	assert_eq!(stdout(&run(&["clone", &name, "-c", "echo here"])), "here\n");
	assert!(run(&["rm", &name]).status.success());
	assert!(line(&run(&["clone", &name])).contains("there is no template"));
}

/// Whatever makes no sense to a template is answered, and it goes on.
#[test]
fn nonsense_on_the_socket_does_no_harm() {
	use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket};
	use std::os::fd::AsRawFd;
	let place = Place::with_shell();
	let address = UnixAddr::new(&place.at("flashfork/templates/t")).unwrap();
	for bytes in [&[0u8; 1][..], &[0xff; 24], &[1, 0, 0, 0, 0, 0, 0, 0], &[7; 4000]] {
		let end = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
		connect(end.as_raw_fd(), &address).unwrap();
		send(end.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL).unwrap();
		let mut answer = [0; 64];
		assert_eq!(recv(end.as_raw_fd(), &mut answer, MsgFlags::empty()), Ok(64));
		assert_eq!(answer[0], 6, "it failed");
	}
	assert_eq!(stdout(&place.shell("echo on").output().unwrap()), "on\n");
}

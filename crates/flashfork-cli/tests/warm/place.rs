//! Its own directory of names, with the programs of a test; what is in it ends with it.

use nix::sys::socket::{
	AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, socket,
};
use std::{
	fmt::Debug,
	fs,
	fs::DirBuilder,
	io::{BufRead, BufReader, Read},
	os::{
		fd::{AsRawFd, FromRawFd, OwnedFd},
		unix::fs::{DirBuilderExt, PermissionsExt},
	},
	path::{Path, PathBuf},
	process::{Child, Command, Output, Stdio},
	sync::Once,
};

#[path = "../../../flashfork-templates/tests/common/process.rs"]
mod process;
pub use process::{kill, until};

#[path = "../common/mod.rs"]
mod common;
pub use common::{Before, act, flashfork, limit, target};
#[allow(unused_imports, reason = "one of the two that have this module needs it")]
pub use common::{block, copy, forbid};

pub struct Place(tempfile::TempDir);

/// A command that ignores these signals when it starts, and of those that a shell may have ignored no other: what runs
/// in the background of a script ignores SIGINT and SIGQUIT, what Python executes SIGXFSZ, and so would its children.
pub fn ignoring(mut command: Command, all: &'static [i32]) -> Command {
	command.before(|| {
		act(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGXFSZ], libc::SIG_DFL);
		act(all, libc::SIG_IGN);
	});
	command
}

impl Place {
	pub fn new() -> Place {
		static BUILT: Once = Once::new();
		BUILT.call_once(|| common::build(&["flashfork-preload", "flashfork-keeper", "flashfork-java"]));
		Place(tempfile::tempdir().unwrap())
	}

	pub fn with_shell() -> Place {
		let place = Place::new();
		place.warm_shell();
		place
	}

	pub fn path(&self) -> &Path {
		self.0.path()
	}

	pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
		self.path().join(name)
	}

	/// Writes a file; its path.
	pub fn file(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> String {
		let path = self.at(name);
		fs::write(&path, text).unwrap();
		path.to_str().unwrap().to_owned()
	}

	/// The same, which may be executed.
	pub fn script(&self, name: &str, text: &str) -> String {
		let path = self.file(name, text);
		fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
		path
	}

	pub fn flashfork(&self, arguments: &[&str]) -> Command {
		let mut command = Command::new(exe());
		command.args(arguments).env("XDG_RUNTIME_DIR", self.path()).env_remove("LD_PRELOAD").stdin(Stdio::null());
		ignoring(command, &[])
	}

	pub fn run(&self, arguments: &[&str]) -> Output {
		self.flashfork(arguments).output().unwrap()
	}

	/// That nothing comes of it but a line that says this.
	#[track_caller]
	pub fn refuses(&self, arguments: &[&str], why: &str) {
		assert_says(line(&self.run(arguments)), why);
	}

	pub fn cloned(&self) -> Output {
		self.run(&["clone", "t"])
	}

	pub fn together(&self, count: usize, arguments: &[&str]) -> Vec<Output> {
		let all: Vec<_> = (0..count).map(|_| self.flashfork(arguments).start_both()).collect();
		all.into_iter().map(|command| command.wait_with_output().unwrap()).collect()
	}

	/// What came of clones of `t`: first one after the other, then so many at a time.
	pub fn clones(&self, alone: usize, together: usize, arguments: &[&str]) -> Vec<Output> {
		let words = [&["clone", "t"], arguments].concat();
		(0..alone).map(|_| self.run(&words)).chain(self.together(together, &words)).collect()
	}

	#[track_caller]
	pub fn remove(&self) {
		good(self.run(&["rm", "t"]));
	}

	#[track_caller]
	pub fn until_empty(&self) {
		until("all is gone", || pids(self, "").is_empty());
	}

	/// A shell outside any template.
	pub fn sh(&self, script: &str) -> Command {
		let mut sh = Command::new("sh");
		sh.args(["-c", script]).env("XDG_RUNTIME_DIR", self.path());
		sh
	}

	pub fn written(&self, terminal: bool, command: &str) -> String {
		let sh = if terminal { "script -qec \"$0\" /dev/null" } else { "eval \"$0\" 2>&1 | cat" };
		let output = self.sh(sh).arg(command).current_dir(self.path()).stdin(Stdio::null()).output().unwrap();
		stdout(&output).to_owned()
	}

	/// Compiles a C program, which begins with `begin.h`.
	pub fn program(&self, name: &str, source: &str) -> String {
		self.program_with(name, source, &[])
	}

	pub fn program_with(&self, name: &str, source: &str, flags: &[&str]) -> String {
		let text = self.file(format!("{name}.c"), [include_str!("begin.h"), source].concat());
		let program = text.strip_suffix(".c").unwrap();
		let mut cc = Command::new("cc");
		assert!(cc.args(["-O1", "-pthread", "-o", program, &text]).args(flags).status().unwrap().success());
		program.to_owned()
	}

	pub fn warm(&self, command: &[&str]) -> Output {
		let output = self.run(&[&["warm", "t", "--"], command].concat());
		assert!(output.status.success(), "{}", stderr(&output));
		output
	}

	pub fn warm_shell(&self) {
		self.warm(&["sh"]);
	}

	pub fn shell(&self, script: &str) -> Command {
		self.flashfork(&["clone", "t", "-c", script])
	}

	pub fn shim(&self) -> PathBuf {
		exe().with_file_name("libflashfork_preload.so")
	}

	pub fn list(&self) -> Vec<serde_json::Value> {
		let output = self.run(&["ls", "--json"]);
		assert!(output.status.success(), "{}", stderr(&output));
		serde_json::from_slice(&output.stdout).unwrap()
	}

	/// How many names there are, also of what is no template.
	pub fn names(&self) -> usize {
		fs::read_dir(self.at("flashfork/templates")).unwrap().count()
	}

	pub fn template_pid(&self) -> i32 {
		i32::try_from(self.list()[0]["pid"].as_i64().unwrap()).unwrap()
	}
}

impl Drop for Place {
	fn drop(&mut self) {
		for template in self.list() {
			let pid = i32::try_from(template["pid"].as_i64().unwrap()).unwrap();
			// A false one is the test itself.
			if pid != i32::try_from(std::process::id()).unwrap() {
				kill(pid, libc::SIGKILL);
			}
		}
	}
}

/// A socket by the name of a template, with nobody behind it but the test.
pub struct FalseTemplate {
	socket: OwnedFd,
	path: PathBuf,
}

impl FalseTemplate {
	pub fn new(place: &Place, name: &str) -> FalseTemplate {
		// As `warm` makes it.
		let directory = place.at("flashfork/templates");
		DirBuilder::new().recursive(true).mode(0o700).create(&directory).unwrap();
		FalseTemplate::at(&directory.join(name))
	}

	pub fn at(path: &Path) -> FalseTemplate {
		let path = path.to_owned();
		let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
		bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
		listen(&socket, Backlog::new(9).unwrap()).unwrap();
		FalseTemplate { socket, path }
	}

	/// The next caller that asks for something, when it has asked.
	pub fn request(&self) -> OwnedFd {
		loop {
			// SAFETY: a new descriptor, nobody else's.
			let caller = unsafe { OwnedFd::from_raw_fd(accept(self.socket.as_raw_fd()).unwrap()) };
			// Who only looks whether there is somebody goes again.
			match recv(caller.as_raw_fd(), &mut [0; 64], MsgFlags::empty()) {
				Ok(0) => {}
				asked => {
					assert_eq!(asked, Ok(flashfork_warm::Ask::LEN));
					return caller;
				}
			}
		}
	}
}

impl Drop for FalseTemplate {
	fn drop(&mut self) {
		fs::remove_file(&self.path).unwrap();
	}
}

/// So many, or `all` in `make test-all`.
pub fn often(some: usize, all: usize) -> usize {
	if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { all } else { some }
}

/// Starts commands of which the test has some streams.
pub trait Start {
	/// What it prints can be read.
	fn start(&mut self) -> Child;
	/// Its errors, too.
	fn start_both(&mut self) -> Child;
	/// It can be written to, and what it prints can be read.
	fn start_talk(&mut self) -> Child;
}

impl Start for Command {
	fn start(&mut self) -> Child {
		self.stdout(Stdio::piped()).spawn().unwrap()
	}

	fn start_both(&mut self) -> Child {
		self.stderr(Stdio::piped()).start()
	}

	fn start_talk(&mut self) -> Child {
		self.stdin(Stdio::piped()).start()
	}
}

/// The first line of a stream; what comes with it may be lost.
pub fn first_line(stream: &mut Option<impl Read>) -> String {
	next_line(&mut BufReader::new(stream.as_mut().unwrap()))
}

#[track_caller]
pub fn next_line(stream: &mut impl BufRead) -> String {
	let mut line = String::new();
	stream.read_line(&mut line).unwrap();
	line
}

pub fn rest(mut stream: impl Read) -> String {
	let mut rest = String::new();
	stream.read_to_string(&mut rest).unwrap();
	rest
}

pub fn processes() -> impl Iterator<Item = i32> {
	fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok())
}

/// Processes that live and were started in this place, of programs whose name begins so.
pub fn pids(place: &Place, name: &str) -> Vec<i32> {
	let mark = format!("XDG_RUNTIME_DIR={}", place.path().display());
	let ours = processes().filter(|pid| {
		let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
		let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
		comm.starts_with(name) && variables.split(|b| *b == 0).any(|v| v == mark.as_bytes()) && state(*pid).is_some()
	});
	ours.collect()
}

fn exe() -> &'static Path {
	Path::new(flashfork())
}

#[track_caller]
pub fn good(output: Output) -> Output {
	assert!(output.status.success(), "{}", stderr(&output));
	output
}

pub fn stdout(output: &Output) -> &str {
	std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
	std::str::from_utf8(&output.stderr).unwrap()
}

pub fn outcome(output: &Output) -> (Option<i32>, String, String) {
	(output.status.code(), stdout(output).to_owned(), stderr(output).to_owned())
}

pub fn both(output: &Output) -> (&str, &str) {
	(stdout(output), stderr(output))
}

/// The one line of a failure.
#[track_caller]
pub fn line(output: &Output) -> &str {
	let text = stderr(output);
	assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
	text.trim_end()
}

#[track_caller]
pub fn assert_says(said: &str, what: &str) {
	assert!(said.contains(what), "{said}");
}

/// As what is drawn at random.
#[track_caller]
pub fn assert_all_differ<T: Ord + Debug>(all: impl IntoIterator<Item = T>) {
	let mut all: Vec<T> = all.into_iter().collect();
	all.sort_unstable();
	assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
}

pub fn pid(child: &Child) -> i32 {
	i32::try_from(child.id()).unwrap()
}

pub fn signal(child: &Child, signal: i32) {
	kill(pid(child), signal);
}

/// The state of a process as `ps` shows it; `None` when it is gone or only waits to be waited for.
pub fn state(pid: i32) -> Option<char> {
	process::state(pid).filter(|state| !['Z', 'X'].contains(state))
}

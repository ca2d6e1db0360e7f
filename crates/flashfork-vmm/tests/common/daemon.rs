//! The daemon as a client sees it.
#![allow(dead_code)]

use super::common::{FORK, HALTS, SHOWS, kvm};
use flashfork_proto::api::{self, Clone, Forked, PoolStats, Stats, Template};
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
	io::{Read, Write},
	os::unix::{fs::PermissionsExt, net::UnixStream},
	path::{Path, PathBuf},
	process::{Child, Command},
	time::{Duration, Instant},
};

/// What does not happen for so long never will, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Daemon {
	pub child: Child,
	pub socket: PathBuf,
	pub dir: tempfile::TempDir,
}

impl Daemon {
	pub fn start() -> Option<Self> {
		Self::start_with(|_, _| ())
	}

	pub fn start_with(change: impl FnOnce(&mut Command, &Path)) -> Option<Self> {
		kvm()?;
		let dir = tempfile::tempdir().unwrap();
		let socket = dir.path().join("vmd.sock");
		let mut command = command(&socket);
		change(&mut command, dir.path());
		let child = command.spawn().unwrap();
		let daemon = Self { child, socket, dir };
		eventually(|| UnixStream::connect(&daemon.socket).is_ok());
		Some(daemon)
	}

	pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
		attempt(&self.socket, method, path, body).unwrap()
	}

	#[track_caller]
	fn done<T: DeserializeOwned>(&self, method: &str, path: &str, body: &Value) -> T {
		let (status, body) = self.ask(method, path, body);
		assert_eq!(status, 200, "{body}");
		serde_json::from_str(&body).unwrap()
	}

	#[track_caller]
	pub fn refused(&self, method: &str, path: &str, body: &Value, words: &str) {
		let (status, body) = self.ask(method, path, body);
		let error: api::Error = serde_json::from_str(&body).unwrap();
		assert_eq!(status, error.code.http_status());
		assert!(error.message.contains(words) && !error.message.contains('\n'), "{error}");
	}

	/// With a template `t` of a guest that idles.
	pub fn with_idler() -> Option<Self> {
		let daemon = Self::start()?;
		daemon.template("t", idler());
		Some(daemon)
	}

	/// With a program in the place of its shell, and a template `t` that another daemon has saved.
	pub fn with_fake_shell(program: &str) -> Option<Self> {
		let honest = Self::with_idler()?;
		let saved = honest.dir.path().join("saved");
		honest.save("t", &saved);
		let daemon = Self::start_with(|command, dir| {
			command.arg("--shell").arg(fake_shell(dir, program));
		})?;
		daemon.load("t", &saved);
		Some(daemon)
	}

	#[track_caller]
	pub fn template(&self, name: &str, code: Vec<u8>) -> Template {
		self.post("/v1/templates", &tiny(name, code))
	}

	/// A template of which there may be so many clones.
	#[track_caller]
	pub fn limited(&self, name: &str, code: Vec<u8>, most: u64) -> Template {
		let mut request = tiny(name, code);
		request["max_clones"] = json!(most);
		self.post("/v1/templates", &request)
	}

	#[track_caller]
	pub fn save(&self, template: &str, directory: &Path) {
		self.post::<Template>(&format!("/v1/templates/{template}/save"), &json!({ "directory": directory }));
	}

	#[track_caller]
	pub fn load(&self, name: &str, directory: &Path) -> Template {
		self.post("/v1/templates/load", &json!({ "name": name, "directory": directory }))
	}

	#[track_caller]
	pub fn templates(&self) -> Vec<Template> {
		self.get("/v1/templates")
	}

	#[track_caller]
	pub fn shown_template(&self, name: &str) -> Template {
		self.get(&format!("/v1/templates/{name}"))
	}

	#[track_caller]
	pub fn all_clones(&self) -> Vec<Clone> {
		self.get("/v1/clones")
	}

	#[track_caller]
	pub fn shown(&self, clone: &str) -> Clone {
		self.get(&format!("/v1/clones/{clone}"))
	}

	#[track_caller]
	pub fn roll_back(&self, clone: &str) -> Clone {
		self.post(&format!("/v1/clones/{clone}/rollback"), &Value::Null)
	}

	#[track_caller]
	pub fn fork(&self, clone: &str, body: &Value) -> Forked {
		self.post(&format!("/v1/clones/{clone}/fork"), body)
	}

	#[track_caller]
	pub fn remove_clone(&self, name: &str) {
		self.remove(&format!("/v1/clones/{name}"));
	}

	#[track_caller]
	pub fn remove_template(&self, name: &str) {
		self.remove(&format!("/v1/templates/{name}"));
	}

	#[track_caller]
	pub fn refuses_template(&self, request: &Value, words: &str) {
		self.refused("POST", "/v1/templates", request, words);
	}

	#[track_caller]
	pub fn refuses_clones(&self, template: &str, request: &Value, words: &str) {
		self.refused("POST", &format!("/v1/templates/{template}/clones"), request, words);
	}

	#[track_caller]
	pub fn refuses_fork(&self, clone: &str, request: &Value, words: &str) {
		self.refused("POST", &format!("/v1/clones/{clone}/fork"), request, words);
	}

	#[track_caller]
	pub fn refuses_rollback(&self, clone: &str, words: &str) {
		self.refused("POST", &format!("/v1/clones/{clone}/rollback"), &Value::Null, words);
	}

	#[track_caller]
	pub fn clones(&self, template: &str, body: &Value) -> Vec<Clone> {
		self.post(&format!("/v1/templates/{template}/clones"), body)
	}

	/// A clone that nobody waits for.
	#[track_caller]
	pub fn clone_of(&self, template: &str) -> Clone {
		let [clone] = self.clones_of(template, 1).try_into().unwrap();
		clone
	}

	#[track_caller]
	pub fn clones_of(&self, template: &str, count: usize) -> Vec<Clone> {
		self.clones(template, &json!({ "count": count, "wait": false }))
	}

	#[track_caller]
	pub fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> T {
		self.done("POST", path, body)
	}

	#[track_caller]
	pub fn get<T: DeserializeOwned>(&self, path: &str) -> T {
		self.done("GET", path, &Value::Null)
	}

	#[track_caller]
	pub fn remove(&self, path: &str) {
		assert_eq!(self.ask("DELETE", path, &Value::Null).0, 204);
	}

	pub fn shells(&self) -> Vec<u32> {
		let path = format!("/proc/{0}/task", self.child.id());
		let tasks = std::fs::read_dir(path).unwrap();
		let children = |task: std::io::Result<std::fs::DirEntry>| {
			std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
		};
		tasks
			.flat_map(|task| children(task).split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
			.filter(|pid| !is_store(*pid))
			.collect()
	}

	pub fn stats(&self) -> Stats {
		self.get("/v1/stats")
	}

	/// Waits until its pool has its two shells, and after the first clone one that is primed, and nothing is under way.
	pub fn settle(&self) {
		self.settle_with(0);
	}

	/// The same beside so many clones.
	pub fn settle_with(&self, clones: usize) {
		eventually(|| {
			let stats = self.stats();
			let primed = u32::from(stats.clones_made > 0);
			let settled = |pool: &PoolStats| (pool.ready, pool.primed, pool.preparing) == (2, primed, 0);
			self.shells().len() == 2 + primed as usize + clones && stats.pools.iter().all(settled)
		});
	}

	pub fn descriptors(&self) -> usize {
		std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
	}
}

impl Drop for Daemon {
	fn drop(&mut self) {
		// Killed, it would leave what it has to the next one.
		if matches!(self.child.try_wait(), Ok(None)) {
			rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
		}
		let _ = self.child.wait();
	}
}

pub fn end(daemon: &mut Daemon, signal: Signal) {
	rustix::process::kill_process(Pid::from_child(&daemon.child), signal).unwrap();
	daemon.child.wait().unwrap();
}

/// Another takes its place.
pub fn again(daemon: &mut Daemon) {
	daemon.child = command(&daemon.socket).spawn().unwrap();
	answers(daemon);
}

/// For a moment the socket may still be that of a process that the killed one was about to start.
pub fn answers(daemon: &Daemon) {
	eventually(|| attempt(&daemon.socket, "GET", "/v1", &Value::Null).is_some());
}

pub fn restart(daemon: &mut Daemon, signal: Signal) {
	end(daemon, signal);
	again(daemon);
}

/// Whether this process holds what a daemon has for the next one.
pub fn is_store(pid: u32) -> bool {
	// Its own name, so that who ends all daemons by name doesn't end it.
	std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"flashfork-store\n")
}

/// An answer, if all of it comes.
pub fn attempt(socket: &Path, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
	let body = body.to_string();
	let mut stream = UnixStream::connect(socket).ok()?;
	stream.set_read_timeout(Some(PATIENCE)).unwrap();
	let request = format!(
		"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
		 Content-Length: {}\r\n\r\n{body}",
		body.len()
	);
	// At once: who answers without reading the body may be gone before a second piece.
	stream.write_all(request.as_bytes()).ok()?;
	let mut answer = String::new();
	stream.read_to_string(&mut answer).ok()?;
	let (head, body) = answer.split_once("\r\n\r\n")?;
	Some((head[9..12].parse().unwrap(), body.to_owned()))
}

pub fn command(socket: &Path) -> Command {
	let mut command = Command::new(env!("CARGO_BIN_EXE_flashfork-vmd"));
	command.arg("--socket").arg(socket).args(["--pool", "2"]);
	command
}

pub fn tiny(name: &str, code: Vec<u8>) -> Value {
	json!({ "name": name, "tiny": code, "shape": { "memory_mib": 4, "vcpus": 1, "pages": "small", "disk": false } })
}

/// Puts a program in a directory.
pub fn fake_shell(directory: &Path, program: &str) -> PathBuf {
	let path = directory.join("shell");
	std::fs::write(&path, program).unwrap();
	std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
	path
}

/// Signals FORK, writes to its console, then halts for ever: hundreds of them cost no CPU time.
pub fn idler() -> Vec<u8> {
	[FORK, SHOWS, HALTS].concat()
}

/// FORK; writes the first 256 bytes of the reply to the console, then halts for ever.
pub fn teller() -> Vec<u8> {
	[
		FORK,
		&[0xba, 0x3c, 0x12, 0xbf, 0x00, 0x20], // mov dx, 0x123c; mov di, 0x2000
		&[0xb9, 0x00, 0x01, 0xfc, 0xf3, 0x6c], // mov cx, 256; cld; rep insb
		&[0xba, 0xf8, 0x03, 0xbe, 0x00, 0x20], // mov dx, 0x3f8; mov si, 0x2000
		&[0xb9, 0x00, 0x01, 0xf3, 0x6e],       // mov cx, 256; rep outsb
		HALTS,
	]
	.concat()
}

/// A connection to a clone's agent or console.
pub fn upgraded(daemon: &Daemon, what: &str) -> UnixStream {
	let mut stream = UnixStream::connect(&daemon.socket).unwrap();
	stream.set_read_timeout(Some(PATIENCE)).unwrap();
	let headers = "HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: flashfork\r\n\r\n";
	stream.write_all(format!("POST /v1/clones/{what} {headers}").as_bytes()).unwrap();
	let mut head = Vec::new();
	while !head.ends_with(b"\r\n\r\n") {
		let mut byte = [0];
		stream.read_exact(&mut byte).unwrap();
		head.push(byte[0]);
	}
	assert!(head.starts_with(b"HTTP/1.1 101"));
	stream
}

/// The first 256 bytes of the reply whose guest writes them to its console.
pub fn told(daemon: &Daemon, name: &str) -> Vec<u8> {
	let mut bytes = vec![0; 256];
	upgraded(daemon, &format!("{name}/console")).read_exact(&mut bytes).unwrap();
	bytes
}

#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) {
	let start = Instant::now();
	while !condition() {
		assert!(start.elapsed() < PATIENCE, "it did not happen");
		std::thread::sleep(Duration::from_millis(10));
	}
}

/// Whether a process runs, of which the first thread may have ended before others; whoever must bury it may take its
/// time.
pub fn exists(pid: u32) -> bool {
	let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
	let has = |what: &str| status.lines().any(|line| line == what);
	!(status.is_empty() || has("State:\tZ (zombie)") && has("Threads:\t1"))
}

/// Of a child of the daemon's, which may have ended by itself meanwhile.
pub fn kill(pid: u32) {
	let done = rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
	assert!(matches!(done, Ok(()) | Err(rustix::io::Errno::SRCH)), "{done:?}");
}

pub fn send(pid: u32, signal: Signal) {
	rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

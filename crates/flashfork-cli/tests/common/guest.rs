//! A clone without a machine: the agent is the real one, an ordinary process here; the daemon before it is a few lines
//! that pass bytes on.
#![allow(dead_code, reason = "not every test that has this module uses all of it")]

use super::common::{self, Before, act};
use flashfork_proto::{api, shell::ClaimTimes};
use serde_json::{Value, json};
use std::{
	io::{Read, Write},
	os::unix::net::{UnixListener, UnixStream},
	path::{Path, PathBuf},
	process::{Child, Command, ExitStatus, Stdio},
	sync::{Arc, Mutex},
	time::{Duration, Instant},
};

pub struct Guest {
	pub agent: Child,
	pub dir: tempfile::TempDir,
	/// Methods and paths of all requests.
	asked: Arc<Mutex<Vec<String>>>,
}

impl Guest {
	pub fn start() -> Self {
		let dir = tempfile::tempdir().unwrap();
		let place = dir.path().join("agent.sock");
		let agent =
			with_signals(Command::new(agent()).arg("serve").arg(format!("unix:{}", place.display()))).spawn().unwrap();
		Self::with(dir, agent)
	}

	/// One whose agent is `agent`, at `agent.sock` in `dir`.
	pub fn with(dir: tempfile::TempDir, agent: Child) -> Self {
		let place = dir.path().join("agent.sock");
		let listener = UnixListener::bind(dir.path().join("vmd.sock")).unwrap();
		eventually(|| UnixStream::connect(&place).is_ok());
		let asked = Arc::<Mutex<Vec<String>>>::default();
		let heard = asked.clone();
		std::thread::spawn(move || {
			for client in listener.incoming() {
				let (client, place, heard) = (client.unwrap(), place.clone(), heard.clone());
				std::thread::spawn(move || serve(client, &place, &heard));
			}
		});
		Self { agent, dir, asked }
	}

	pub fn exec(&self, options: &[&str], argv: &[&str]) -> Command {
		let mut command = self.vm();
		command.arg("exec").args(options).args(["clone", "--"]).args(argv);
		command
	}

	pub fn run(&self, template: &str, argv: &[&str]) -> Command {
		let mut command = self.vm();
		command.args(["run", "--template", template, "--"]).args(argv).stdin(Stdio::null()).stdout(Stdio::piped());
		command
	}

	pub fn vm(&self) -> Command {
		let mut command = Command::new(common::flashfork());
		command.arg("vm").arg("--socket").arg(self.dir.path().join("vmd.sock"));
		with_signals(&mut command);
		command
	}

	pub fn end(&mut self) {
		let _ = self.agent.kill();
		self.agent.wait().unwrap();
	}

	pub fn was_asked(&self, line: &str) -> bool {
		self.asked.lock().unwrap().iter().any(|asked| asked == line)
	}
}

/// What runs in the background of a script ignores SIGINT and SIGQUIT, and so would its children.
fn with_signals(command: &mut Command) -> &mut Command {
	command.before(|| act(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP], libc::SIG_DFL))
}

impl Drop for Guest {
	fn drop(&mut self) {
		self.end();
	}
}

/// What a daemon with one template and one clone answers to a request; one without a line asks whether somebody
/// listens.
fn serve(mut client: UnixStream, agent: &Path, asked: &Mutex<Vec<String>>) {
	let mut head = Vec::new();
	while !head.ends_with(b"\r\n\r\n") {
		let mut byte = [0];
		if client.read(&mut byte).unwrap() == 0 {
			return;
		}
		head.push(byte[0]);
	}
	let head = String::from_utf8(head).unwrap();
	let length = head.split_once("Content-Length: ").unwrap().1.split_once('\r').unwrap().0.parse().unwrap();
	client.read_exact(&mut vec![0; length]).unwrap();
	let asked_for = head.split_once(" HTTP/1.1").unwrap().0;
	asked.lock().unwrap().push(asked_for.into());
	let times = |line: &str| asked.lock().unwrap().iter().filter(|asked| *asked == line).count();
	let mut status = "200 OK";
	let answer = match asked_for {
		// It is killed, and another takes its place.
		_ if times("POST /v1/templates/dies/clones") == 1 && asked.lock().unwrap().len() == 4 => return,
		"POST /v1/clones/clone/agent" => return pass_on(client, agent),
		"POST /v1/clones/clone/console" => return until_its_end(client, agent),
		"GET /v1/clones/clone" => shown(agent),
		"GET /v1/clones" => json!([shown(agent)]),
		"GET /v1" => json!({ "flashfork": env!("CARGO_PKG_VERSION"), "api": api::VERSION, "pid": std::process::id() }),
		"GET /v1/templates" => json!([]),
		// Somebody else makes it, and gives up.
		"POST /v1/templates" if times(asked_for) == 1 => {
			status = "409 Conflict";
			json!({ "code": "exists", "message": "" })
		}
		"POST /v1/templates" => json!({}),
		"POST /v1/templates/slow/clones" => {
			// Long enough for a signal before the clone is there.
			std::thread::sleep(Duration::from_millis(500));
			json!([clone(1)])
		}
		// The one that is there is another of its name.
		"POST /v1/templates/old/clones" => json!([clone(0)]),
		made if made.starts_with("POST /v1/templates/") && made.ends_with("/clones") => json!([clone(1)]),
		"DELETE /v1/clones/clone" => json!(null),
		other => panic!("{other}"),
	}
	.to_string();
	write!(client, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
}

/// The clone, which lives while its agent does.
fn shown(agent: &Path) -> Value {
	let mut shown = clone(1);
	if UnixStream::connect(agent).is_err() {
		shown["state"] = json!("ended");
		shown["ended"] = json!("the guest\u{1b} powered off");
	}
	shown
}

/// A console on which nothing is written.
fn until_its_end(mut client: UnixStream, agent: &Path) {
	client.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
	if let Ok(mut agent) = UnixStream::connect(agent) {
		let _ = std::io::copy(&mut agent, &mut std::io::sink());
	}
}

fn clone(made_ns: u64) -> Value {
	json!({
		"name": "clone", "template": "t", "generation": "0", "state": "ready", "pid": 1, "cid": 3,
		"claim": ClaimTimes::default(), "first_exit_ns": 1, "made_ns": made_ns,
	})
}

fn pass_on(mut client: UnixStream, agent: &Path) {
	client.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
	let Ok(mut guest) = UnixStream::connect(agent) else { return };
	let (mut to_client, mut from_guest) = (client.try_clone().unwrap(), guest.try_clone().unwrap());
	std::thread::spawn(move || {
		let _ = std::io::copy(&mut from_guest, &mut to_client);
		let _ = to_client.shutdown(std::net::Shutdown::Both);
	});
	let _ = std::io::copy(&mut client, &mut guest);
	let _ = guest.shutdown(std::net::Shutdown::Both);
}

/// The agent, built with the profile of this test.
fn agent() -> PathBuf {
	let exe = std::env::current_exe().unwrap();
	// target/PROFILE/deps/this
	let profile = exe.ancestors().nth(2).unwrap();
	let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
	let mut build = Command::new(cargo);
	build.args(["build", "--quiet", "-p", "flashfork-agent", "--target-dir"]).arg(profile.parent().unwrap());
	if profile.ends_with("release") {
		build.arg("--release");
	}
	assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
	profile.join("flashfork-agent")
}

#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) {
	let start = Instant::now();
	while !condition() {
		assert!(start.elapsed() < Duration::from_secs(120), "it did not happen");
		std::thread::sleep(Duration::from_millis(10));
	}
}

#[track_caller]
pub fn end(child: &mut Child) -> ExitStatus {
	let mut status = None;
	eventually(|| {
		status = child.try_wait().unwrap();
		status.is_some()
	});
	status.unwrap()
}

//! The agent as an ordinary process of the host, at a Unix socket.
#![allow(dead_code, reason = "not every test that has this module uses all of it")]

use std::{
	os::unix::net::UnixStream,
	path::PathBuf,
	process::{Child, Command, Stdio},
	thread::sleep,
	time::{Duration, Instant},
};

use flashfork_proto::agent::Client;

/// More than anything here takes on the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Agent {
	child: Child,
	pub directory: tempfile::TempDir,
}

impl Agent {
	pub fn start() -> Self {
		let directory = tempfile::tempdir().unwrap();
		let place = format!("unix:{}", directory.path().join("socket").display());
		let child = Command::new(env!("CARGO_BIN_EXE_flashfork-agent"))
			.args(["serve", &place])
			.stderr(Stdio::null())
			.spawn()
			.unwrap();
		let agent = Self { child, directory };
		wait_until(|| agent.path().exists());
		agent
	}

	pub fn path(&self) -> PathBuf {
		self.directory.path().join("socket")
	}

	pub fn socket(&self) -> UnixStream {
		let mut socket = None;
		// It may be bound and not listen yet.
		wait_until(|| {
			socket = UnixStream::connect(self.path()).ok();
			socket.is_some()
		});
		let socket = socket.unwrap();
		socket.set_read_timeout(Some(PATIENCE)).unwrap();
		socket
	}

	pub fn client(&self) -> Client<UnixStream, UnixStream> {
		let socket = self.socket();
		Client::connect(socket.try_clone().unwrap(), socket).unwrap()
	}

	pub fn is_alive(&mut self) -> bool {
		self.child.try_wait().unwrap().is_none()
	}
}

impl Drop for Agent {
	fn drop(&mut self) {
		self.child.kill().unwrap();
		self.child.wait().unwrap();
	}
}

pub fn wait_until(mut condition: impl FnMut() -> bool) {
	let start = Instant::now();
	while !condition() {
		assert!(start.elapsed() < PATIENCE, "it did not happen in {} s", PATIENCE.as_secs());
		sleep(Duration::from_millis(5));
	}
}

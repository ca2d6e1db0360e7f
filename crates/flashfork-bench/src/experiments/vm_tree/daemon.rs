//! A daemon of the experiment's own, and its requests.

use std::{
	io::{self, BufRead, BufReader, ErrorKind, Read, Write},
	os::unix::{net::UnixStream, process::CommandExt},
	process::Child,
};

use flashfork_proto::{agent::Client, api};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::de::DeserializeOwned;

use crate::{
	prelude::*,
	subjects::{
		command::apart,
		vm_host::{PATIENCE, vm},
	},
};

/// A running daemon. Dropping it ends it, with all that it has; so does the end of this process.
pub struct Daemon {
	process: Child,
	work: WorkDir,
}

impl Daemon {
	/// With one shell ready, as the least that it can have.
	pub fn start(here: &dyn Places) -> Result<Self> {
		let work = WorkDir::new(None)?;
		let shell = here.shell()?;
		let mut command = apart(&shell.with_file_name("flashfork-vmd"));
		command.arg("--socket").arg(work.path().join("socket")).args(["--pool", "1", "--shell"]).arg(&shell);
		command.arg("--agent").arg(here.agent()?).arg("--cache").arg(here.cache("lab")?).stdout(Stdio::null());
		// SAFETY: between fork and exec, one system call.
		unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::INT))?)) };
		let process = command.spawn().or_cant("start flashfork-vmd")?;
		let mut daemon = Self { process, work };
		let begun = Instant::now();
		while let Err(error) = daemon.connect() {
			if begun.elapsed() > PATIENCE || daemon.process.try_wait().or_cant("wait for flashfork-vmd")?.is_some() {
				return Err(error).or_cant("reach flashfork-vmd");
			}
			std::thread::sleep(Duration::from_millis(5));
		}
		Ok(daemon)
	}

	fn connect(&self) -> io::Result<UnixStream> {
		UnixStream::connect(self.work.path().join("socket"))
	}

	/// What it answers to `request`, a method and a path; an error in its own words if it can't.
	pub fn ask<T: DeserializeOwned>(&self, request: &str, body: &Value) -> Result<T> {
		let body = if body.is_null() { String::new() } else { body.to_string() };
		let (head, mut stream) = self.send(request, "close\r\nContent-Type: application/json", &body)?;
		let mut answer = String::new();
		stream.read_to_string(&mut answer).or_cant("read what flashfork-vmd answers")?;
		match serde_json::from_str(if answer.is_empty() { "null" } else { &answer }) {
			Ok(found) if head.starts_with("HTTP/1.1 2") => Ok(found),
			_ => Err(serde_json::from_str(&answer).map_or_else(|_| vm(head + &answer), |error: api::Error| vm(error))),
		}
	}

	pub fn agent(&self, clone: &str) -> Result<Client<BufReader<UnixStream>, UnixStream>> {
		let connection = format!("Upgrade\r\nUpgrade: {}", api::UPGRADE);
		let (head, reader) = self.send(&format!("POST /v1/clones/{clone}/agent"), &connection, "")?;
		if !head.starts_with("HTTP/1.1 101") {
			return Err(vm(head));
		}
		let writer = reader.get_ref().try_clone().or_cant("talk to a guest's agent")?;
		Client::connect(reader, writer).map_err(vm)
	}

	/// The head of its answer, and what follows.
	fn send(&self, request: &str, connection: &str, body: &str) -> Result<(String, BufReader<UnixStream>)> {
		let length = body.len();
		let request = format!(
			"{request} HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: {length}\r\n\r\n{body}"
		);
		let send = || {
			let mut stream = self.connect()?;
			stream.set_read_timeout(Some(PATIENCE))?;
			stream.write_all(request.as_bytes())?;
			let (mut head, mut answer) = (String::new(), BufReader::new(stream));
			while !head.ends_with("\r\n\r\n") {
				if answer.read_line(&mut head)? == 0 {
					return Err(ErrorKind::UnexpectedEof.into());
				}
			}
			Ok::<_, io::Error>((head, answer))
		};
		send().or_cant("talk to flashfork-vmd")
	}
}

impl Drop for Daemon {
	fn drop(&mut self) {
		// Killed, it would leave its machines to another one.
		let _ = kill_process(Pid::from_child(&self.process), Signal::INT);
		let _ = self.process.wait();
	}
}

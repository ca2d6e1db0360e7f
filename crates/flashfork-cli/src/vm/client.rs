//! The daemon's side of the command: HTTP/1.1 over its socket, one request a connection.

use flashfork_proto::api::{self, ErrorCode, UPGRADE};
use flashfork_terminal::CliError;
use rustix::process::{Pid, geteuid};
use serde::{Serialize, de::DeserializeOwned};
use std::{
	io::{BufRead, BufReader, ErrorKind, Read, Write},
	os::{fd::AsRawFd, unix::net::UnixStream},
	path::{Path, PathBuf},
	time::Duration,
};

/// What a daemon answers at once it answers within this; only a guest may take longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Headers of a request that one answer ends.
const CLOSE: &str = "Connection: close\r\nContent-Type: application/json\r\n";

/// Where a daemon listens.
#[derive(Clone)]
pub struct Client {
	socket: PathBuf,
	patience: Duration,
}

/// Status and body's length of an answer whose head was read.
struct Head {
	status: u16,
	length: Option<usize>,
}

impl Client {
	pub fn new(socket: &Path) -> Self {
		Self { socket: socket.to_owned(), patience: PATIENCE }
	}

	/// The same, for who can wait so long only.
	pub fn within(self, patience: Duration) -> Self {
		Self { patience, ..self }
	}

	/// Whether somebody listens whom the user can trust.
	pub fn answers(&self) -> Result<bool, CliError> {
		match self.connect() {
			Ok(_) => Ok(true),
			Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(false),
			Err(e) => Err(CliError::file("reach the VM daemon at", &self.socket)(e)),
		}
	}

	/// A connection. What listens must run as this user or as root: any other could show the user what it likes, and
	/// would get to know what the user does.
	fn connect(&self) -> std::io::Result<UnixStream> {
		let stream = UnixStream::connect(&self.socket)?;
		let user = credentials(&stream)?.uid;
		if [geteuid().as_raw(), 0].contains(&user) {
			return Ok(stream);
		}
		Err(std::io::Error::other(format!("user {user} listens there, neither you nor root: give another --socket")))
	}

	/// The process that listens.
	pub fn peer(&self) -> Result<Pid, CliError> {
		let failed = || CliError::file("find who listens at", &self.socket);
		let stream = self.connect().map_err(failed())?;
		let pid = credentials(&stream).map_err(failed())?.pid;
		// Zero is what a process of another namespace is called here.
		Pid::from_raw(pid).ok_or_else(|| failed()(std::io::Error::other("a process that can't be seen from here")))
	}

	/// Who answers, of whatever version, if it is a daemon.
	pub fn daemon(&self) -> Result<api::Daemon, CliError> {
		serde_json::from_slice(&self.ask("GET", "/v1", &[])?.1).map_err(|_| self.no_daemon())
	}

	pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
		self.decode(&self.request("GET", path, &[])?)
	}

	/// What the daemon answers of what may be gone.
	pub fn if_there(&self, method: &str, path: &str) -> Result<Option<Vec<u8>>, CliError> {
		match self.ask(method, path, &[])? {
			(404, _) => Ok(None),
			(status, body) => done(status, body).map(Some),
		}
	}

	pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
		let body = serde_json::to_vec(body).map_err(|e| CliError::Unable(e.to_string()))?;
		self.decode(&self.request("POST", path, &body)?)
	}

	/// Whether it was made: not if the name is taken.
	pub fn make(&self, path: &str, body: &impl Serialize) -> Result<bool, CliError> {
		let body = serde_json::to_vec(body).map_err(|e| CliError::Unable(e.to_string()))?;
		let (status, body) = self.ask("POST", path, &body)?;
		match serde_json::from_slice::<api::Error>(&body) {
			Ok(error) if error.code == ErrorCode::Exists => Ok(false),
			_ => done(status, body).map(|_| true),
		}
	}

	pub fn delete(&self, path: &str) -> Result<(), CliError> {
		self.request("DELETE", path, &[]).map(drop)
	}

	/// A stream to what `path` leads to, after its switch of protocols.
	pub fn upgrade(&self, path: &str) -> Result<BufReader<UnixStream>, CliError> {
		let headers = format!("Connection: upgrade\r\nUpgrade: {UPGRADE}\r\n");
		let mut stream = self.send("POST", path, &headers, &[])?;
		let head = self.head(&mut stream)?;
		if head.status == 101 {
			return Ok(stream);
		}
		Err(failure(head.status, &self.body(&mut stream, &head)?))
	}

	fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, CliError> {
		let (status, body) = self.ask(method, path, body)?;
		done(status, body)
	}

	fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), CliError> {
		let mut stream = self.send(method, path, CLOSE, body)?;
		let head = self.head(&mut stream)?;
		Ok((head.status, self.body(&mut stream, &head)?))
	}

	fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<BufReader<UnixStream>, CliError> {
		let mut stream = self.connect().map_err(CliError::file("reach the VM daemon at", &self.socket))?;
		if method != "POST" {
			stream.set_read_timeout(Some(self.patience)).map_err(self.broke())?;
		}
		let length = body.len();
		let head = format!("{method} {path} HTTP/1.1\r\nHost: flashfork\r\n{headers}Content-Length: {length}\r\n\r\n");
		stream.write_all(&[head.as_bytes(), body].concat()).map_err(self.broke())?;
		Ok(BufReader::new(stream))
	}

	fn head(&self, stream: &mut impl BufRead) -> Result<Head, CliError> {
		let strange = || self.no_daemon();
		let mut line = String::new();
		if stream.read_line(&mut line).map_err(self.broke())? == 0 {
			return Err(CliError::Unable(format!(
				"what listens at {} closed the connection before it answered: see `flashfork vm ls` for what it has done",
				self.socket.display()
			)));
		}
		let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or_else(strange)?;
		let mut length = None;
		loop {
			line.clear();
			if stream.read_line(&mut line).map_err(self.broke())? == 0 {
				return Err(strange());
			}
			let Some((name, value)) = line.trim_end().split_once(':') else { break };
			if name.eq_ignore_ascii_case("content-length") {
				length = Some(value.trim().parse().map_err(|_| strange())?);
			}
		}
		Ok(Head { status, length })
	}

	fn body(&self, stream: &mut impl Read, head: &Head) -> Result<Vec<u8>, CliError> {
		let mut body = Vec::new();
		match head.length {
			Some(length) => stream.take(length as u64).read_to_end(&mut body),
			None => stream.read_to_end(&mut body),
		}
		.map_err(self.broke())?;
		Ok(body)
	}

	fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CliError> {
		let strange =
			|e| CliError::Unable(format!("the VM daemon at {} answered nonsense: {e}", self.socket.display()));
		serde_json::from_slice(body).map_err(strange)
	}

	fn no_daemon(&self) -> CliError {
		CliError::Unable(format!("what listens at {} is no VM daemon: give another --socket", self.socket.display()))
	}

	fn broke(&self) -> impl FnOnce(std::io::Error) -> CliError {
		|error| match error.kind() {
			ErrorKind::WouldBlock => CliError::Unable(format!(
				"what listens at {} gives no answer for {} s: end {} if it is a VM daemon that hangs, or give another --socket",
				self.socket.display(),
				self.patience.as_secs(),
				self.peer().map_or("it".into(), |pid| format!("process {pid}"))
			)),
			ErrorKind::InvalidData => self.no_daemon(),
			_ => CliError::file("talk to the VM daemon at", &self.socket)(error),
		}
	}
}

/// Who listens at the other end. rustix has no process whose number is zero, and the kernel has.
fn credentials(stream: &UnixStream) -> std::io::Result<libc::ucred> {
	let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
	let mut length = size_of_val(&found) as libc::socklen_t;
	let place = (&raw mut found).cast();
	// SAFETY: `found` is writable and as long as said; see unix(7), SO_PEERCRED.
	let asked =
		unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length) };
	if asked == 0 { Ok(found) } else { Err(std::io::Error::last_os_error()) }
}

fn done(status: u16, body: Vec<u8>) -> Result<Vec<u8>, CliError> {
	if (200..300).contains(&status) { Ok(body) } else { Err(failure(status, &body)) }
}

/// The daemon's own words, if they are.
fn failure(status: u16, body: &[u8]) -> CliError {
	match serde_json::from_slice::<api::Error>(body) {
		// That means to most users that this is no KVM for Linux, on a virtual machine above all.
		Ok(error) if error.code == ErrorCode::Unrunnable => CliError::Unable(format!(
			"{}; this KVM may run no Linux guests: `flashfork vm doctor` tries it; in the lab they run: docs/VIRTUAL_MACHINES.md",
			error.message
		)),
		Ok(error) => CliError::Unable(error.message),
		Err(_) => {
			let said = String::from_utf8_lossy(body);
			let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason");
			CliError::Unable(format!("the VM daemon refused with HTTP status {status}: {line}"))
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::os::unix::net::UnixListener;

	#[test]
	fn who_does_not_answer_is_not_waited_for_for_ever() {
		let dir = tempfile::tempdir().unwrap();
		let socket = dir.path().join("vmd.sock");
		let _listens = UnixListener::bind(&socket).unwrap();
		let client = Client { socket, patience: Duration::from_millis(20) };
		for error in [client.daemon().map(drop).unwrap_err(), client.delete("/v1/clones/a").unwrap_err()] {
			let said = error.to_string();
			assert!(said.contains("gives no answer") && said.contains(&std::process::id().to_string()), "{said}");
		}
	}

	#[test]
	fn a_refusal_has_a_reason() {
		assert_eq!(failure(404, b"").to_string(), "the VM daemon refused with HTTP status 404: no reason");
		assert_eq!(failure(400, b"\n bad \nx").to_string(), "the VM daemon refused with HTTP status 400: bad");
	}
}

//! The daemon's own calls of a guest's agent.

use flashfork_proto::agent::{Client, Exec, Reply, Request};
use serde_bytes::ByteBuf;
use std::{
	net::Shutdown,
	os::unix::net::UnixStream,
	sync::mpsc::{self, RecvTimeoutError},
	thread,
	time::Duration,
};

/// How long an agent may take to greet.
const GREETING: Duration = Duration::from_secs(5);

const AGENT: &str = "/run/flashfork/agent";

/// Bytes of what a command says that are kept, the last ones.
const SAID: usize = 4096;

/// A connection to an agent, which ends with this value, whoever still waits for what comes on it.
pub(super) struct Line(UnixStream);

impl Line {
	pub(super) fn new(stream: UnixStream) -> Self {
		Self(stream)
	}

	/// A client of the agent at the other end. All its greeting is there in time, or there is none.
	pub(super) fn greet(&self) -> Result<Client<UnixStream, UnixStream>, String> {
		let (one, other) = (self.0.try_clone(), self.0.try_clone());
		let (reader, writer) = (one.map_err(|e| e.to_string())?, other.map_err(|e| e.to_string())?);
		let late = self.0.try_clone().map_err(|e| e.to_string())?;
		let (greeted, waits) = mpsc::channel::<()>();
		let watch = move || {
			if waits.recv_timeout(GREETING) == Err(RecvTimeoutError::Timeout) {
				// It has ended already, else.
				let _ = late.shutdown(Shutdown::Both);
			}
		};
		thread::Builder::new().name("greeting".into()).spawn(watch).map_err(|e| e.to_string())?;
		let client = Client::connect(reader, writer).map_err(|e| e.to_string());
		drop(greeted);
		client
	}
}

impl Drop for Line {
	fn drop(&mut self) {
		// It has ended already, else.
		let _ = self.0.shutdown(Shutdown::Both);
	}
}

/// A command of these words; it goes on when nobody is there to hear of it.
pub(super) fn command(argv: &[String]) -> Exec {
	Exec { argv: argv.iter().map(|word| ByteBuf::from(word.as_bytes())).collect(), survives: true, ..Exec::default() }
}

/// Has the guest give the fork signal, while all else in it stands still. Gives how that ended in the guest that gave
/// it, with what it said: of a guest that becomes a template and doesn't go on nothing is heard.
pub(super) fn signal_fork(client: Client<UnixStream, UnixStream>) -> Result<(), String> {
	let (mut requests, mut replies) = client.split();
	let signal = command(&[AGENT, "signal", "fork"].map(str::to_owned));
	requests.send(&Request::Exec(signal)).map_err(|e| e.to_string())?;
	let mut said = Vec::new();
	loop {
		match replies.receive() {
			Ok(Reply::Started { .. }) => {}
			Ok(Reply::Stdout(bytes) | Reply::Stderr(bytes)) => keep_last(&mut said, &bytes),
			Ok(Reply::Exited(exit)) if exit.shell_status() == 0 => return Ok(()),
			Ok(Reply::Exited(exit)) => {
				let said = String::from_utf8_lossy(&said);
				let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
				return Err(format!("could not give the fork signal (status {}): {line}", exit.shell_status()));
			}
			Ok(Reply::Failed(e)) => return Err(e.to_string()),
			Ok(_) => return Err("has an agent that answers out of turn".into()),
			Err(_) => return Ok(()),
		}
	}
}

/// However much an agent has to say, little of it is kept.
fn keep_last(said: &mut Vec<u8>, bytes: &[u8]) {
	said.extend_from_slice(bytes);
	said.drain(..said.len().saturating_sub(SAID));
}

#[cfg(test)]
pub(super) mod tests {
	use super::*;
	use flashfork_proto::{
		Preamble, Protocol,
		agent::{Exit, Hello, MAX_FRAME, Stamp},
		frame,
	};
	use std::io::Write;

	pub(in super::super) fn greet(stream: &mut UnixStream) {
		stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
		Preamble(Protocol::Agent).send(&mut *stream).unwrap();
		let hello = Hello {
			agent: "0".into(),
			boot_id: [0; 16],
			monotonic_ns: 0,
			realtime: Stamp { seconds: 0, nanoseconds: 0 },
		};
		frame::write(stream, &Reply::Hello(hello), MAX_FRAME).unwrap();
		Preamble(Protocol::Agent).expect(&mut *stream).unwrap();
	}

	pub(in super::super) fn request(stream: &mut UnixStream) -> Option<Request> {
		frame::read(stream, MAX_FRAME).ok().flatten()
	}

	#[test]
	fn of_an_agent_that_floods_only_the_end_is_kept() {
		let mut said = Vec::new();
		for n in 0..100_u32 {
			keep_last(&mut said, &[n as u8; 10_000]);
			assert!(said.len() <= SAID && said.capacity() < 100_000, "{} {}", said.len(), said.capacity());
		}
		let (ours, mut theirs) = UnixStream::pair().unwrap();
		std::thread::scope(|scope| {
			scope.spawn(move || {
				greet(&mut theirs);
				assert!(matches!(request(&mut theirs), Some(Request::Exec(_))));
				for _ in 0..200 {
					frame::write(&mut theirs, &Reply::Stderr(vec![b'x'; 60_000].into()), MAX_FRAME).unwrap();
				}
				frame::write(&mut theirs, &Reply::Stderr(b"\nthe reason\n".to_vec().into()), MAX_FRAME).unwrap();
				frame::write(&mut theirs, &Reply::Exited(Exit::Code(3)), MAX_FRAME).unwrap();
			});
			let line = Line::new(ours);
			let why = signal_fork(line.greet().unwrap()).unwrap_err();
			assert_eq!(why, "could not give the fork signal (status 3): the reason");
		});
	}

	/// Each of its bytes came in time, and so the greeting never ended.
	#[test]
	fn an_agent_that_greets_byte_by_byte_is_given_up() {
		let (ours, mut theirs) = UnixStream::pair().unwrap();
		std::thread::scope(|scope| {
			scope.spawn(move || {
				Preamble(Protocol::Agent).send(&mut theirs).unwrap();
				// A long frame, until nobody reads it any more.
				theirs.write_all(&60_000_u32.to_le_bytes()).unwrap();
				while theirs.write_all(&[0]).is_ok() {
					thread::sleep(Duration::from_millis(100));
				}
			});
			assert!(Line::new(ours).greet().is_err());
		});
	}
}

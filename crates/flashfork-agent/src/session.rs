//! One connection, from preamble to end.

use std::{
	fs::{self, File},
	sync::OnceLock,
	thread,
	time::Duration,
};

use flashfork_proto::{
	Preamble, Protocol,
	agent::{AgentError, ErrorKind, Hello, MAX_FRAME, Reply, Request},
	frame,
};

use crate::{clock, conn::Conn, dial, entropy, exec, exec::Running, files, hooks, log, power, reaper::Reaper};

/// Where the kernel tells one boot from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What a session may do to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
	/// Run commands and hooks.
	Process,
	/// Also reseed, set the clock and power off.
	System,
}

/// A connection over `stream` that has been told who answers; none if that is not possible.
pub fn greet(stream: File) -> Option<Conn> {
	let conn = Conn::new(stream).and_then(|conn| send_greeting(&conn).map(|()| conn));
	conn.inspect_err(|error| log::line(&format!("cannot serve a connection: {error}"))).ok()
}

/// Answers one connection until it ends or makes no sense.
pub fn run(conn: &Conn, reaper: &Reaper, rights: Rights) {
	if let Err(reason) = answer(conn, reaper, rights) {
		log::line(&format!("closed a connection: {reason}"));
	}
	conn.close();
}

fn answer(conn: &Conn, reaper: &Reaper, rights: Rights) -> Result<(), String> {
	let mut reader = conn.clone();
	Preamble(Protocol::Agent).expect(&mut reader).map_err(|error| error.to_string())?;
	// Dropped with the session, which ends the command unless it may survive.
	let mut running: Option<Running> = None;
	loop {
		let request = match frame::read(&mut reader, MAX_FRAME) {
			Ok(Some(request)) => request,
			Ok(None) => return Ok(()),
			Err(error) => {
				conn.send(&failed(ErrorKind::Invalid, error.to_string()));
				return Err(error.to_string());
			}
		};
		let busy = running.as_ref().is_some_and(Running::is_running);
		let reply = match request {
			Request::Exec(_) if busy => failed(ErrorKind::Busy, "a command runs on this connection already".into()),
			Request::Exec(command) => match exec::start(&command, conn, reaper) {
				Ok(started) => {
					running = Some(started);
					continue;
				}
				Err(error) => Reply::Failed(error),
			},
			Request::Stdin(_) | Request::StdinEnd | Request::Signal(_) | Request::Resize(_) => {
				if let Some(running) = running.as_mut().filter(|_| busy) {
					running.control(request).map_err(|reason| {
						conn.send(&failed(ErrorKind::Invalid, reason.to_owned()));
						reason.to_owned()
					})?;
				}
				continue;
			}
			Request::Dial(_) | Request::Fetch(_) | Request::Store(_) if busy => {
				failed(ErrorKind::Busy, "a command runs on this connection".into())
			}
			// The connection is used up, unless there was none.
			Request::Dial(port) => match dial::run(port, conn, &mut reader) {
				Ok(()) => return Ok(()),
				Err(error) => Reply::Failed(error),
			},
			Request::Fetch(path) => match files::fetch(&path, conn)? {
				Some(reply) => reply,
				None => continue,
			},
			Request::Store(store) => files::store(&store, conn, &mut reader)?,
			Request::Data(_) | Request::DataEnd | Request::Piece(_) => {
				let message = "a part of a connection or copy that was not asked for";
				conn.send(&failed(ErrorKind::Invalid, message.into()));
				return Err(message.into());
			}
			request => other(request, reaper, rights, conn),
		};
		if !conn.send(&reply) {
			return Err("the host does not read its replies".into());
		}
	}
}

/// Sends preamble and hello in one write, so that they make one packet.
fn send_greeting(conn: &Conn) -> std::io::Result<()> {
	let mut bytes = Preamble(Protocol::Agent).bytes().to_vec();
	frame::encode(&Reply::Hello(hello()), MAX_FRAME, &mut bytes).map_err(std::io::Error::other)?;
	conn.write(|file| std::io::Write::write_all(file, &bytes))
}

/// What tells this boot of the kernel from others, a template's clones not from one another: the kernel makes it up
/// when it is first read, so the agent reads it before there is a template.
pub fn boot_id() -> [u8; 16] {
	static ID: OnceLock<[u8; 16]> = OnceLock::new();
	*ID.get_or_init(|| fs::read_to_string(BOOT_ID).ok().and_then(|text| parse_uuid(&text)).unwrap_or_default())
}

/// What the agent says of itself.
pub fn hello() -> Hello {
	Hello {
		agent: env!("CARGO_PKG_VERSION").to_owned(),
		boot_id: boot_id(),
		monotonic_ns: clock::monotonic_ns(),
		realtime: clock::now(),
	}
}

/// Requests of one reply each.
fn other(request: Request, reaper: &Reaper, rights: Rights, conn: &Conn) -> Reply {
	let allowed = rights == Rights::System;
	match request {
		Request::Ping => Reply::Pong { monotonic_ns: clock::monotonic_ns() },
		Request::Hooks(identity) => Reply::Hooked(hooks::run_all(&identity, reaper)),
		Request::Reseed(bytes) if allowed => entropy::reseed(&bytes).map_or_else(Reply::Failed, |()| Reply::Reseeded),
		Request::SetClock(stamp) if allowed => {
			clock::set(stamp).map_or_else(Reply::Failed, |step_ns| Reply::ClockSet { step_ns })
		}
		Request::PowerOff if allowed && rustix::process::getpid().is_init() => {
			conn.send(&Reply::PoweringOff);
			// The reply has to leave the guest before the guest does.
			thread::sleep(Duration::from_millis(20));
			failed(ErrorKind::Failed, power::end())
		}
		Request::PowerOff if allowed => {
			failed(ErrorKind::Denied, "this agent is not the guest's init, which alone may end it".into())
		}
		_ => failed(ErrorKind::Denied, "this agent was started without --system and leaves the machine alone".into()),
	}
}

fn failed(kind: ErrorKind, message: String) -> Reply {
	Reply::Failed(AgentError { kind, message })
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
	let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
	let mut bytes = [0; 16];
	if digits.len() != 32 {
		return None;
	}
	for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
		*byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
	}
	Some(bytes)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_boot_id_is_sixteen_bytes() {
		let id = parse_uuid("0011ff33-4455-6677-8899-aabbccddeeff\n").unwrap();
		assert_eq!((id[0], id[2], id[15]), (0, 0xff, 0xff));
		assert_eq!(parse_uuid("short"), None);
		assert_ne!(hello().boot_id, [0; 16]);
	}
}

//! The connection to a template.

use crate::{directory::Directory, error::Error, name::Name, recipe::Kept, renew::Stale};
use flashfork_warm::{Ask, Tell};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::{FileType, Mode, OFlags, fstat},
	io::Errno,
	net::{
		AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
		SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, sendmsg, socket_with,
		sockopt::{Timeout, set_socket_timeout},
	},
	process::{getegid, geteuid},
};
use std::{
	io::{IoSlice, IoSliceMut},
	mem::MaybeUninit,
	os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
	time::{Duration, Instant},
};

/// How long a template may take to answer a question: it has nothing else to do, but a fork, and its host may be busy.
pub const LIMIT: Duration = Duration::from_secs(10);

/// How often a template that doesn't answer is looked at.
pub const LOOK: Duration = Duration::from_millis(250);

/// A connection.
#[derive(Debug)]
pub struct Link {
	end: OwnedFd,
	/// The template's process; unknown where it can't be seen from here.
	pub template: Option<i32>,
}

/// Whom a name leads to.
pub enum Found {
	/// A template.
	Alive(Link),
	/// One that is stopped. It must get no descriptors: it would keep them from those who wait for their end.
	Stopped(Link),
	/// A template gone without having given up its name.
	Dead,
	/// Nobody.
	Nobody,
}

/// What there is to hear.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Heard {
	/// A message.
	Tell(Tell),
	/// Something that is none.
	Nonsense,
	/// The end of the connection, and of the template.
	End,
}

/// How a process is.
pub enum State {
	/// As it should be.
	Runs,
	/// Stopped, by a signal or a debugger.
	Stopped,
	/// No process any more.
	Gone,
}

/// Why a template doesn't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
	/// It is stopped.
	Stopped,
	/// Time is up.
	Mute,
}

impl Link {
	/// Connects to the template of that name, if it lives.
	pub fn find(names: &Directory, name: &Name) -> Result<Found, Error> {
		let failed = |e: Errno| Error::Connect { name: name.clone(), source: e.into() };
		let end = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
		let end = end.map_err(failed)?;
		// Only where thousands wait already does connecting wait.
		set_socket_timeout(&end, Timeout::Send, Some(LIMIT)).map_err(failed)?;
		// A socket, and no link to another: by this very entry.
		let entry = match rustix::fs::openat(
			&names.open,
			name.as_ref(),
			OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
			Mode::empty(),
		) {
			Err(Errno::NOENT) => return Ok(Found::Nobody),
			opened => opened.map_err(failed)?,
		};
		if !FileType::from_raw_mode(fstat(&entry).map_err(failed)?.st_mode).is_socket() {
			return Err(Error::NoSocket(names.path.join(name)));
		}
		let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", entry.as_raw_fd())).map_err(failed)?;
		match connect(&end, &address) {
			Ok(()) => {}
			Err(Errno::CONNREFUSED) => return Ok(Found::Dead),
			Err(Errno::AGAIN) => return Err(Error::Full { name: name.clone(), seconds: LIMIT.as_secs() }),
			Err(e) => return Err(failed(e)),
		}
		let peer = peer(&end).map_err(|source| Error::Connect { name: name.clone(), source })?;
		if (peer.uid, peer.gid) != (geteuid().as_raw(), getegid().as_raw()) {
			return Err(Error::OtherUser { name: name.clone(), user: peer.uid, group: peer.gid });
		}
		let link = Link { end, template: seen(&peer) };
		Ok(match link.state() {
			State::Runs => Found::Alive(link),
			// A tracer that only looks stops it for moments.
			State::Stopped if link.stays_stopped() => Found::Stopped(link),
			State::Stopped => Found::Alive(link),
			// A process that its warm-up has started holds the socket.
			State::Gone => Found::Dead,
		})
	}

	/// Connects to a template that can be asked for something. The name of one that is gone is removed.
	pub fn to(names: &Directory, name: &Name) -> Result<Link, Error> {
		match Link::find(names, name)? {
			Found::Alive(link) => Ok(link),
			Found::Stopped(link) => Err(link.silent(name, Silence::Stopped, LIMIT)),
			Found::Nobody => Err(Error::Nobody(name.clone())),
			Found::Dead => {
				names.clear(name)?;
				Err(Error::Gone(name.clone()))
			}
		}
	}

	/// Over a socket that is there.
	pub fn over(end: OwnedFd) -> Link {
		Link { end, template: None }
	}

	/// Over a connection to a template found before.
	pub fn of(end: OwnedFd) -> std::io::Result<Link> {
		let template = seen(&peer(&end)?);
		Ok(Link { end, template })
	}

	/// Sends a request, and descriptors with it.
	pub fn ask(&self, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
		let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(flashfork_warm::DESCRIPTORS))];
		let mut with = SendAncillaryBuffer::new(&mut room);
		if !descriptors.is_empty() {
			with.push(SendAncillaryMessage::ScmRights(descriptors));
		}
		let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
		sendmsg(&self.end, &[IoSlice::new(&ask.encode())], &mut with, flags).map(drop)
	}

	/// What has come, without waiting.
	pub fn hear(&self) -> Option<Heard> {
		let mut bytes = [0; Tell::LEN];
		loop {
			return Some(match recv(&self.end, &mut bytes[..], RecvFlags::DONTWAIT) {
				Ok((0, _)) => Heard::End,
				Ok((count, _)) => Tell::decode(&bytes[..count]).map_or(Heard::Nonsense, Heard::Tell),
				Err(Errno::AGAIN) => return None,
				Err(Errno::INTR) => continue,
				Err(_) => Heard::End,
			});
		}
	}

	/// On which sockets of TCP the template's program listens, by its descriptors of them.
	pub fn listeners(&self, name: &Name) -> Result<Vec<(i32, OwnedFd)>, Error> {
		// One that has just ended is seen below.
		let _ = self.ask(Ask::Listeners, &[]);
		let (mut all, until) = (Vec::new(), Instant::now() + LIMIT);
		loop {
			match self.told_with(name, until)? {
				(Some(Tell::Listens { number }), Some(socket)) => all.push((number, socket)),
				(Some(Tell::Facts(_)), None) => return Ok(all),
				(Some(Tell::Stale { why, renews, count, name: what }), None) => {
					return Err(Error::Stale(Stale::new(name, why, renews, count, &what)));
				}
				_ => return Err(self.misunderstood(name)),
			}
		}
	}

	/// What the template was made by.
	pub fn recipe(&self, name: &Name) -> Result<Kept, Error> {
		// As above.
		let _ = self.ask(Ask::Recipe, &[]);
		match self.told_with(name, Instant::now() + LIMIT)? {
			(Some(Tell::Recipe), Some(file)) => {
				Kept::of(&file).map_err(|source| Error::Connect { name: name.clone(), source })
			}
			_ => Err(self.misunderstood(name)),
		}
	}

	/// Has a template that is to be made anew let go of the ports of TCP on which it listens. It makes no clones then,
	/// and this says on which of them others still listen by its sockets. `None`: it has none, and stays as it is.
	pub fn let_go(&self, name: &Name) -> Result<Option<Vec<u16>>, Error> {
		// As above.
		let _ = self.ask(Ask::LetGo, &[]);
		match self.told_with(name, Instant::now() + LIMIT)? {
			(Some(Tell::Ports { ports }), None) => Ok(Some(ports.into_iter().filter(|port| *port > 0).collect())),
			(Some(Tell::Facts(_)), None) => Ok(None),
			_ => Err(self.misunderstood(name)),
		}
	}

	/// The next message, and the descriptor that came with it.
	fn told_with(&self, name: &Name, until: Instant) -> Result<(Option<Tell>, Option<OwnedFd>), Error> {
		loop {
			let (mut bytes, mut room) = ([0; Tell::LEN], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
			let mut with = RecvAncillaryBuffer::new(&mut room);
			let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
			let count = match recvmsg(&self.end, &mut [IoSliceMut::new(&mut bytes)], &mut with, flags) {
				Ok(message) => message.bytes,
				Err(Errno::AGAIN | Errno::INTR) => {
					let left = until.saturating_duration_since(Instant::now());
					match self.state() {
						State::Gone => return Err(Error::Gone(name.clone())),
						State::Stopped => return Err(self.silent(name, Silence::Stopped, LIMIT)),
						State::Runs if left.is_zero() => return Err(self.silent(name, Silence::Mute, LIMIT)),
						// What it fails with is a signal, or shows again when time is up.
						State::Runs => drop(readable(&[self.as_fd()], Some(left.min(LOOK)))),
					}
					continue;
				}
				Err(_) => 0,
			};
			let descriptor = with.drain().find_map(|message| match message {
				RecvAncillaryMessage::ScmRights(mut all) => all.next(),
				_ => None,
			});
			if count == 0 {
				return Err(Error::Gone(name.clone()));
			}
			return Ok((Tell::decode(&bytes[..count]), descriptor));
		}
	}

	/// The next message, if it comes until then and the template is not stopped.
	pub fn answer(&self, until: Instant) -> Result<Heard, Silence> {
		loop {
			if let Some(heard) = self.hear() {
				return Ok(heard);
			}
			let left = until.saturating_duration_since(Instant::now());
			// What it fails with is a signal, or shows again when time is up.
			if readable(&[self.as_fd()], Some(left.min(LOOK))).is_ok_and(|[ready]| ready) {
				continue;
			}
			match self.state() {
				State::Stopped => return Err(Silence::Stopped),
				State::Gone => return Ok(Heard::End),
				State::Runs if left.is_zero() => return Err(Silence::Mute),
				State::Runs => {}
			}
		}
	}

	/// Whether process numbers are the same to the template and here (`pid_namespaces(7)`).
	pub fn has_our_numbers(&self) -> bool {
		let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
		self.template.is_some_and(|pid| space(&pid.to_string()).is_some_and(|theirs| Some(theirs) == space("self")))
	}

	/// How the template's process is. One that is gone may have left the connection to what it has started while it was
	/// warmed.
	pub fn state(&self) -> State {
		let Some(pid) = self.template else { return State::Runs };
		let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
		match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
			Some('T' | 't') => State::Stopped,
			None | Some('Z' | 'X') => State::Gone,
			Some(_) => State::Runs,
		}
	}

	fn stays_stopped(&self) -> bool {
		std::thread::sleep(LOOK / 50);
		matches!(self.state(), State::Stopped)
	}

	/// No more is said or heard: whoever waits here sees that there is something to see.
	pub fn end(&self) {
		// It may have been ended from the other side.
		let _ = rustix::net::shutdown(&self.end, rustix::net::Shutdown::Both);
	}

	/// Its silence, which has lasted `limit`.
	pub fn silent(&self, name: &Name, why: Silence, limit: Duration) -> Error {
		let (name, pid) = (name.clone(), self.template);
		match why {
			Silence::Stopped => Error::Stopped { name, pid },
			Silence::Mute => Error::Silent { name, pid, seconds: limit.as_secs() },
		}
	}

	/// What it says makes no sense.
	pub fn misunderstood(&self, name: &Name) -> Error {
		Error::Misunderstood { name: name.clone(), pid: self.template }
	}
}

impl AsFd for Link {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.end.as_fd()
	}
}

/// Who is at the other end. Not by rustix, whose type for it has no room for the 0 of a process that can't be seen
/// from here.
fn peer(socket: &OwnedFd) -> std::io::Result<libc::ucred> {
	let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
	let mut len = size_of::<libc::ucred>() as u32;
	let (at, level, what) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
	// SAFETY: the structure is a local, and as long as said.
	if unsafe { libc::getsockopt(at, level, what, (&raw mut peer).cast(), &raw mut len) } != 0 {
		return Err(std::io::Error::last_os_error());
	}
	Ok(peer)
}

/// Its process, where it can be seen from here.
fn seen(peer: &libc::ucred) -> Option<i32> {
	Some(peer.pid).filter(|pid| *pid > 1)
}

/// Which of these have something to read or are at their end, after that time at the latest.
pub fn readable<const N: usize>(all: &[BorrowedFd<'_>; N], limit: Option<Duration>) -> rustix::io::Result<[bool; N]> {
	let mut ready = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
	// What is too long for the kernel's structure is for ever.
	let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
	poll(&mut ready, limit.as_ref())?;
	Ok(ready.each_ref().map(|one| !one.revents().is_empty()))
}

#[cfg(test)]
mod tests {
	use super::*;
	use rustix::net::{send, socketpair};

	fn pair() -> (Link, OwnedFd) {
		let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
		let (ours, theirs) = pair.unwrap();
		(Link::over(ours), theirs)
	}

	#[test]
	fn silence_has_an_end() {
		let (link, theirs) = pair();
		assert!(matches!(link.answer(Instant::now() + Duration::from_millis(300)), Err(Silence::Mute)));
		drop(theirs);
		assert!(matches!(link.answer(Instant::now()), Ok(Heard::End)));
	}

	#[test]
	fn a_template_in_another_space_names_no_process_of_this_one() {
		use std::process::{Command, Stdio};
		let link = |pid| Link { template: Some(pid), ..pair().0 };
		assert!(link(std::process::id() as i32).has_our_numbers());
		let mut outer = Command::new("unshare");
		let mut outer = outer
			.args(["--user", "--pid", "--fork", "cat"])
			.stdin(Stdio::piped())
			.stdout(Stdio::piped())
			.spawn()
			.unwrap();
		// It runs when it answers.
		std::io::Write::write_all(outer.stdin.as_mut().unwrap(), b"x").unwrap();
		std::io::Read::read_exact(outer.stdout.as_mut().unwrap(), &mut [0]).unwrap();
		let inner = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id())).unwrap();
		assert!(!link(inner.trim().parse().unwrap()).has_our_numbers());
		drop(outer.stdin.take());
		assert!(outer.wait().unwrap().success());
	}

	#[test]
	fn nonsense_is_told_from_the_end() {
		let (link, theirs) = pair();
		assert!(link.hear().is_none());
		for bytes in [&[0xff; 3][..], &[6; 200]] {
			send(&theirs, bytes, SendFlags::empty()).unwrap();
			assert!(matches!(link.answer(Instant::now() + LIMIT), Ok(Heard::Nonsense)));
		}
	}
}

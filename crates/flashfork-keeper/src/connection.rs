//! A caller, and the clone made for it.

use crate::{message, process};
use flashfork_warm::Tell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What came with a request: the start, the directory and the standard streams.
pub type Request = Vec<OwnedFd>;

/// A clone that was forked.
#[derive(Debug)]
pub struct Clone {
	/// Its process as the template's init sees it.
	pub inner: i32,
	process: OwnedFd,
	/// Where it says how its beginning went, until it has.
	pub report: Option<OwnedFd>,
	/// Its namespace's init waits while this is open.
	_leash: OwnedFd,
	pub stopped: bool,
}

impl Clone {
	pub fn new(inner: i32, process: OwnedFd, report: OwnedFd, leash: OwnedFd) -> Clone {
		Clone { inner, process, report: Some(report), _leash: leash, stopped: false }
	}

	/// Sends it a signal, or its process group. One that has ended gets none: its number may be another's.
	pub fn signal(&self, signal: i32, group: bool) {
		if let Some(pid) = process::number_of(&self.process)
			&& !process::has_ended(&self.process)
		{
			process::kill(if group { -pid } else { pid }, signal);
		}
	}
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
	/// None: the caller has gone.
	pub socket: Option<OwnedFd>,
	/// The caller, if it can be seen from here.
	caller: Option<i32>,
	/// Whether the caller is stopped and continued with its clone.
	pub job: bool,
	/// A request for which there is no clone yet.
	pub request: Option<Request>,
	/// Sockets that its clone has in place of those on which the program listens, by its numbers for them.
	pub listeners: Vec<(i32, OwnedFd)>,
	pub clone: Option<Clone>,
	/// Whether it has asked for a clone.
	pub has_asked: bool,
}

impl Connection {
	/// Of a caller of this user; `None` for others, whom the directory keeps out already. `outside`: of one outside of
	/// this process number space alone.
	pub fn of(socket: OwnedFd, outside: bool) -> Option<Connection> {
		let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
		let mut len = size_of::<libc::ucred>() as u32;
		// SAFETY: the structure is a local, and as long as said.
		let known = unsafe {
			let (at, level, what) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
			libc::getsockopt(at, level, what, (&raw mut peer).cast(), &raw mut len) == 0
		};
		// SAFETY: asks for a number.
		let own = known && peer.uid == unsafe { libc::geteuid() };
		let caller = Some(peer.pid).filter(|pid| *pid > 0);
		let wanted = own && !(outside && caller.is_some());
		wanted.then_some(Connection {
			socket: Some(socket),
			caller,
			job: false,
			request: None,
			listeners: Vec::new(),
			clone: None,
			has_asked: false,
		})
	}

	/// Tells the caller, if it is there.
	pub fn tell(&self, tell: Tell) {
		if let Some(socket) = &self.socket {
			// A caller who is gone or doesn't read is no reason to wait.
			let _ = message::send(socket.as_fd(), &tell.encode(), &[]);
		}
	}

	/// Tells it, and passes a descriptor.
	pub fn tell_with(&self, tell: Tell, descriptor: &OwnedFd) {
		if let Some(socket) = &self.socket {
			// As above.
			let _ = message::send(socket.as_fd(), &tell.encode(), &[descriptor.as_fd()]);
		}
	}

	/// Whether nobody is at the other end any more.
	pub fn has_hung_up(&self) -> bool {
		let Some(socket) = &self.socket else { return true };
		let mut one = [PollFd::new(socket, PollFlags::RDHUP)];
		poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count == 1)
	}

	/// The caller is gone: so is its clone, with what it has started in its group.
	pub fn hang_up(&mut self) {
		self.socket = None;
		self.request = None;
		self.listeners.clear();
		if let Some(clone) = &self.clone {
			clone.signal(libc::SIGKILL, true);
			clone.signal(libc::SIGKILL, false);
		}
	}

	/// A caller that is one job with its clone is stopped while that is, whoever stops and continues it.
	pub fn stop_caller(&mut self, stopped: bool) {
		let Some(clone) = &mut self.clone else { return };
		let before = std::mem::replace(&mut clone.stopped, stopped);
		if let Some(caller) = self.caller
			&& (stopped || before)
			&& self.job
			&& !self.has_hung_up()
		{
			process::kill(caller, if stopped { libc::SIGSTOP } else { libc::SIGCONT });
		}
	}
}

//! Signals that have been sent and not been taken.

use super::{
	frozen::{Frozen, INFO, Pending, Sent},
	raw::call,
	unfit::{Fit, Unfit, What},
};
use crate::sys::{self, Result};
use syscalls::Sysno;

const PTRACE_GETSIGINFO: usize = 0x4202;
const PTRACE_PEEKSIGINFO: usize = 0x4209;
const SHARED: u32 = 1;

impl Pending {
	fn push(&mut self, tid: i32, info: [u8; INFO]) -> Fit {
		let place = self.all.get_mut(self.count).ok_or(Unfit::new(What::Signals, tid))?;
		*place = Sent { tid, info };
		self.count += 1;
		Ok(())
	}
}

impl Sent {
	pub fn signal(&self) -> i32 {
		self.number(0)
	}

	/// The process that has sent it by a call that says so (`SI_USER`, `SI_QUEUE`, `SI_MESGQ`, `SI_TKILL`).
	fn sender(&self) -> Option<i32> {
		const CODE: usize = 8;
		[0, -1, -3, -6].contains(&self.number(CODE)).then(|| self.number(SENDER))
	}

	fn set_sender(&mut self, pid: i32) {
		self.info[SENDER..SENDER + 4].copy_from_slice(&pid.to_ne_bytes());
	}

	fn number(&self, at: usize) -> i32 {
		i32::from_ne_bytes(self.info[at..at + 4].try_into().unwrap_or_default())
	}
}

/// Where `si_pid` lies; and in place of the program's own number, which is another in each clone.
const SENDER: usize = 16;
const OWN: i32 = -1;

/// A thread has stopped with a signal that it was about to get.
pub fn taken(pending: &mut Pending, tid: i32) -> Fit {
	let mut info = [0u8; INFO];
	// SAFETY: the kernel writes one siginfo_t.
	unsafe { sys::ptrace(PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as usize)? };
	pending.push(tid, info)
}

/// Those that wait in the kernel.
pub fn look(frozen: &mut Frozen) -> Fit {
	let Frozen { threads, count, pid, pending, .. } = frozen;
	for thread in &threads[..*count] {
		peek(pending, thread.tid, false)?;
	}
	peek(pending, *pid, true)?;
	let own = pending.all[..pending.count].iter_mut().filter(|sent| sent.sender() == Some(*pid));
	own.for_each(|sent| sent.set_sender(OWN));
	Ok(())
}

fn peek(pending: &mut Pending, tid: i32, shared: bool) -> Fit {
	/// `struct ptrace_peeksiginfo_args`.
	#[repr(C)]
	struct Which {
		from: u64,
		flags: u32,
		count: i32,
	}
	for from in 0.. {
		let mut info = [0u8; INFO];
		let which = Which { from, flags: if shared { SHARED } else { 0 }, count: 1 };
		// SAFETY: the kernel reads one structure and writes one siginfo_t.
		let found = unsafe {
			call(
				Sysno::ptrace,
				[PTRACE_PEEKSIGINFO, tid as usize, (&raw const which) as usize, info.as_mut_ptr() as usize],
			)?
		};
		if found != 1 {
			break;
		}
		pending.push(if shared { 0 } else { tid }, info)?;
	}
	Ok(())
}

impl Pending {
	/// In a clone, before it has its own limits: the program may have lowered this since.
	pub fn lift_limit(&self) -> Result<()> {
		/// `RLIMIT_SIGPENDING`.
		const LIMIT: u32 = 11;
		if self.count == 0 {
			return Ok(());
		}
		let [_, hard] = sys::getrlimit(LIMIT)?;
		sys::setrlimit(LIMIT, [hard, hard])
	}

	/// In a clone: sends those that wait for the whole process, by its main thread.
	pub fn renew_of_process(&self) -> Result<()> {
		// SAFETY: the kernel reads one siginfo_t.
		self.each(0, |signal, info| unsafe { call(Sysno::rt_sigqueueinfo, [sys::getpid() as usize, signal, info]) })
	}

	/// In a clone: sends those that wait for a thread, by that thread. Nobody else may say that they come from where
	/// they came from.
	pub fn renew_of(&self, tid: i32) -> Result<()> {
		// SAFETY: as above.
		self.each(tid, |signal, info| unsafe {
			call(Sysno::rt_tgsigqueueinfo, [sys::getpid() as usize, sys::gettid() as usize, signal, info])
		})
	}

	fn each(&self, tid: i32, send: impl Fn(usize, usize) -> Result<usize>) -> Result<()> {
		for sent in self.all[..self.count].iter().filter(|sent| sent.tid == tid) {
			let mut sent = *sent;
			if sent.sender() == Some(OWN) {
				sent.set_sender(sys::getpid());
			}
			// EAGAIN: the user may have no more pending.
			send(sent.signal() as usize, sent.info.as_ptr() as usize)?;
		}
		Ok(())
	}
}

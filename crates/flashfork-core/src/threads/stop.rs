//! Stops every thread of a process but one, and lets them go again, by `ptrace(2)`, or by a signal
//! ([`crate::threads::stop_by_signal`]) where that is refused.
//!
//! Each stop seizes, interrupts and, at the end, detaches: between the stops nobody is traced, so that signals, exec
//! and exit go their ordinary way and a helper that dies leaves nothing behind. A stop ends when a whole list of
//! threads holds none that isn't stopped: a stopped thread starts no new one.

use super::{
	status,
	status::Condition,
	stop_by_signal::{Desk, Held, MAX_THREADS},
};
use crate::{
	never_seal::Reason,
	proc::{
		directory::for_each_entry,
		text::{ProcPath, decimal, read_file},
	},
	range::Range,
	sys::{self, Errno, PAGE, Result},
};

/// How long a thread may keep the others waiting in the middle of a stop, and how long it is waited for with all others
/// running, in nanoseconds.
const SHORT: u64 = 5_000_000;
const PATIENCE: u64 = 1_000_000_000;

const PTRACE_GETREGS: usize = 12;
const PTRACE_DETACH: usize = 17;
const PTRACE_SEIZE: usize = 0x4206;
const PTRACE_INTERRUPT: usize = 0x4207;
const PTRACE_EVENT_STOP: i32 = 128;
const WNOHANG: u32 = 1;
const WALL: u32 = 0x4000_0000;

/// A thread that is or was being stopped.
#[derive(Clone, Copy, Default)]
pub struct Thread {
	tid: i32,
	stopped: bool,
	/// The signal it was about to get when it stopped.
	signal: i32,
	/// Where it waits, when it was stopped by a signal.
	held: Held,
	stack: usize,
	pointer: usize,
	/// Address of its next instruction.
	next: usize,
}

/// The other threads of a process.
#[repr(C)]
pub struct Others {
	list: [u8; 16 * 1024],
	threads: [Thread; MAX_THREADS],
	count: usize,
	pid: i32,
	spared: i32,
	desk: Option<&'static Desk>,
	forbidden: bool,
}

impl Others {
	/// All threads of process `pid` but `spared`; with a desk they are stopped by signals.
	pub fn set(&mut self, pid: i32, spared: i32, desk: Option<&'static Desk>) {
		(self.pid, self.spared, self.count) = (pid, spared, 0);
		(self.desk, self.forbidden) = (desk, false);
	}

	/// Whether ptrace was refused though no debugger has the thread.
	pub fn ptrace_is_forbidden(&self) -> bool {
		self.forbidden
	}

	/// Whether threads are stopped by signals. They may still use their stacks then, and the kernel their control
	/// blocks: memory in which one [lives](Others::lives_in) must be left alone.
	pub fn use_their_stacks(&self) -> bool {
		self.desk.is_some()
	}

	/// Stops them all, or none and says why not.
	pub fn stop(&mut self) -> core::result::Result<(), Reason> {
		let deadline = sys::now_ns() + PATIENCE;
		loop {
			// Those that kept the others waiting last time are first waited for alone.
			if self.wait(deadline) && self.stop_all()? {
				return Ok(());
			}
			self.resume();
			if sys::now_ns() > deadline {
				return Err(Reason::ThreadUnstoppable);
			}
		}
	}

	/// Lets those go that are stopped. One that has yet to stop stays on the list.
	pub fn resume(&mut self) {
		let mut left = 0;
		for i in 0..self.count {
			let t = self.threads[i];
			if t.stopped {
				match self.desk {
					Some(desk) => desk.release(t.held),
					// SAFETY: a number is passed. A thread killed meanwhile needs no letting go.
					None => drop(unsafe { sys::ptrace(PTRACE_DETACH, t.tid, 0, t.signal as usize) }),
				}
			} else {
				self.threads[left] = t;
				left += 1;
			}
		}
		self.count = left;
	}

	/// Whether a thread uses memory in `range` as its stack, here and now, or as its control block. Such memory is
	/// written all the time: sealed it would be copied again at once. Where ptrace stopped it it would be correct:
	/// nothing in the kernel is on its way to a stopped thread's memory, and what the kernel writes later it writes by
	/// address.
	pub fn lives_in(&self, range: Range) -> bool {
		let near = |at: usize, below: usize, above: usize| {
			at.saturating_add(above * PAGE) > range.start && at.saturating_sub(below * PAGE) < range.end
		};
		self.threads[..self.count].iter().any(|t| near(t.stack, 64, 256) || near(t.pointer, 16, 2))
	}

	/// Whether a thread is about to execute an instruction in `range`.
	pub fn executes_in(&self, range: Range) -> bool {
		self.threads[..self.count].iter().any(|t| (range.start..range.end).contains(&t.next))
	}

	/// Calls `each` with the ids of all threads, the spared one too.
	pub fn for_each(&self, mut each: impl FnMut(i32)) {
		each(self.spared);
		self.threads[..self.count].iter().for_each(|t| each(t.tid));
	}

	/// False when one takes too long.
	fn stop_all(&mut self) -> core::result::Result<bool, Reason> {
		let limit = sys::now_ns() + SHORT;
		loop {
			let known = self.count;
			let new = self.seize_new()?;
			if !self.wait(limit) {
				return Ok(false);
			}
			// Whoever has ended meanwhile is off the list: look at the whole list once more. And it may have been cut
			// short, or miss what a thread started that was gone before it could be seized: the kernel's own count says
			// so.
			if !new && self.count == known && status::running(self.pid) == Some(self.count as u64 + 1) {
				return Ok(true);
			}
			if sys::now_ns() > limit {
				return Ok(false);
			}
		}
	}

	/// Seizes threads not on the list yet; whether there were any.
	fn seize_new(&mut self) -> core::result::Result<bool, Reason> {
		let path = ProcPath::of(self.pid).push(b"/task");
		let Others { list, threads, count, pid, spared, desk, forbidden } = self;
		let mut new = false;
		let found = for_each_entry(path.as_c(), list, |name| {
			let tid = decimal(name)? as i32;
			if tid == *spared || threads[..*count].iter().any(|t| t.tid == tid) {
				return None;
			}
			let seized = match desk {
				// The kernel's own threads take no signals, and those that have ended neither.
				Some(desk) => match Condition::of(*pid, tid) {
					Condition::Ended => return None,
					Condition::Kernels => return Some(Reason::ThreadUnstoppable),
					Condition::Ordinary => desk.call(*pid, tid),
				},
				None => seize(tid),
			};
			let held = match seized {
				Ok(held) => held,
				Err(Errno::ESRCH) => return None,
				Err(_) => match Condition::of(*pid, tid) {
					Condition::Ended => return None,
					Condition::Kernels => return Some(Reason::ThreadUnstoppable),
					Condition::Ordinary => {
						*forbidden = !status::is_traced(*pid, tid);
						return Some(Reason::ThreadTraced);
					}
				},
			};
			new = true;
			let Some(place) = threads.get_mut(*count) else { return Some(Reason::ThreadUnstoppable) };
			*place = Thread { tid, held, ..Thread::default() };
			*count += 1;
			None
		});
		match found.unwrap_or(Some(Reason::ThreadUnstoppable)) {
			None => Ok(new),
			Some(reason) => {
				self.wait(sys::now_ns() + SHORT);
				self.resume();
				Err(reason)
			}
		}
	}

	/// Waits until all on the list are stopped or gone; false when the time is up.
	fn wait(&mut self, limit: u64) -> bool {
		loop {
			let bell = self.desk.map_or(0, Desk::bell);
			let mut waiting = false;
			let mut left = 0;
			for i in 0..self.count {
				let mut t = self.threads[i];
				let stays = t.stopped
					|| match self.desk {
						Some(desk) => t.look_at(desk, self.pid),
						None => t.look(),
					};
				waiting |= stays && !t.stopped;
				if stays {
					self.threads[left] = t;
					left += 1;
				}
			}
			self.count = left;
			if !waiting {
				return true;
			}
			if sys::now_ns() > limit {
				return false;
			}
			match self.desk {
				Some(desk) => desk.sleep(bell, SHORT),
				None => sys::wait_for_children(SHORT),
			}
		}
	}
}

fn seize(tid: i32) -> Result<Held> {
	// SAFETY: numbers are passed.
	unsafe { sys::ptrace(PTRACE_SEIZE, tid, 0, 0).and_then(|()| sys::ptrace(PTRACE_INTERRUPT, tid, 0, 0)) }
		.map(|()| Held::default())
}

impl Thread {
	/// Notes whether it waits at the desk; false when it has ended.
	fn look_at(&mut self, desk: &Desk, pid: i32) -> bool {
		match desk.waits(self.held) {
			Some(waiting) => {
				self.stopped = true;
				(self.stack, self.pointer, self.next) = (waiting.stack, waiting.pointer, waiting.next);
				true
			}
			// A leader that has ended keeps its name.
			None if self.tid == pid => Condition::of(pid, pid) != Condition::Ended,
			None => sys::tgkill(pid, self.tid, 0) != Err(Errno::ESRCH),
		}
	}

	/// Notes whether it has stopped; false when it has ended.
	fn look(&mut self) -> bool {
		let (id, status) = match sys::wait(self.tid, WNOHANG | WALL) {
			Ok(told) => told,
			Err(Errno::ECHILD) => return false,
			// We can't know.
			Err(_) => return true,
		};
		if id == 0 {
			return true;
		}
		if status & 0xff != 0x7f {
			return false;
		}
		self.stopped = true;
		// Anything but our interrupt (or a SIGSTOP to the whole process) is a signal on its way: it goes on with it.
		self.signal = if status >> 16 == PTRACE_EVENT_STOP { 0 } else { status >> 8 & 0xff };
		let mut regs = [0usize; 27];
		// SAFETY: struct user_regs_struct is 27 words. A thread killed since has none, and lives nowhere.
		let _ = unsafe { sys::ptrace(PTRACE_GETREGS, self.tid, 0, regs.as_mut_ptr() as usize) };
		(self.stack, self.pointer, self.next) = (regs[19], regs[21], regs[16]);
		true
	}
}

/// Allows `helper` to trace this process where Yama would not (`ptrace_scope` 1); the program's own `PR_SET_PTRACER` is
/// lost there. Says whether that was done.
pub fn allow_tracer(helper: i32, buf: &mut [u8]) -> Result<bool> {
	let scope = match read_file(c"/proc/sys/kernel/yama/ptrace_scope", buf) {
		Ok(text) => decimal(text),
		Err(_) => None,
	};
	if scope != Some(1) {
		return Ok(false);
	}
	sys::set_ptracer(helper).map(|()| true)
}

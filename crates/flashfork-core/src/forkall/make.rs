//! Makes a clone.

use super::{
	frozen::Frozen,
	memory,
	raw::{at, call, into, numeric},
	renew,
	thread::{CLOSED, Gate, OPEN, STACK},
	timers,
};
use crate::{
	answers::exec,
	policy::POLICY,
	scratch,
	state::STATE,
	sys::{self, Errno, Result},
	threads::table,
};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// Where a clone is to be: descriptors of namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Place {
	/// Of processes, with an init.
	pub processes: i32,
	/// The clone's process in it: the template's, or a number that none of its threads has.
	pub pid: i32,
}

/// A clone that was made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
	/// Its process, as the maker sees it.
	pub pid: i32,
	/// A descriptor for it.
	pub descriptor: i32,
}

impl Frozen {
	/// Forks a clone, whose parent is the maker's. `None` in the clone, which has one thread, with all signals blocked,
	/// on the maker's stack.
	pub fn fork(&self, place: &Place) -> Result<Option<Made>> {
		const FLAGS: u32 = k::CLONE_PIDFD | k::CLONE_PARENT;
		let mut descriptor = -1i32;
		// struct clone_args as of Linux 5.5.
		let mut arguments = [0u64; 10];
		arguments[0] = u64::from(FLAGS);
		arguments[1] = into(&mut descriptor) as u64;
		arguments[8] = at(&place.pid) as u64;
		arguments[9] = 1;
		// SAFETY: the clone goes on with memory of its own, and calls nothing of libc.
		let made = unsafe {
			// It stays set: the next goes elsewhere, and the maker makes nothing else.
			go_to(place.processes, k::CLONE_NEWPID)?;
			call(Sysno::clone3, [arguments.as_ptr() as usize, size_of_val(&arguments)])?
		};
		if made > 0 {
			return Ok(Some(Made { pid: made as i32, descriptor }));
		}
		begin_anew();
		Ok(None)
	}

	/// Forks a clone into the maker's own namespaces, as its child, to see how it begins: for there the program, which
	/// has ended, has left its threads' numbers. With `apart` it is the first in its own namespace of processes: only
	/// there may the maker choose numbers that has its rights from a namespace of users. As [`Frozen::fork`].
	pub fn fork_probe(&self, apart: bool) -> Result<Option<i32>> {
		if apart {
			// All that changes is where the maker makes processes: the next goes elsewhere.
			numeric(Sysno::unshare, [k::CLONE_NEWPID as usize])?;
		}
		// SAFETY: without CLONE_VM this is a fork; the clone calls nothing of libc.
		let made = unsafe { call(Sysno::clone, [0; 5]) }?;
		if made > 0 {
			return Ok(Some(made as i32));
		}
		begin_anew();
		Ok(None)
	}

	/// In a clone, whose standard streams are its own: gives it descriptors and memory that it shares with no other.
	/// Nothing else stays open but `kept`, which gets another number, above all the program's.
	pub fn renew(&self, kept: &mut i32) -> Result<()> {
		let above = self.files.all[..self.files.count].last().map_or(2, |entry| entry.number.max(2)) + 1;
		*kept = sys::duplicate_above(*kept, above)?;
		renew::all(self, *kept)?;
		memory::renew(self)
	}

	/// In a clone: makes all threads but the main one, which wait, then timers and signals.
	pub fn make_threads(&'static self) -> Result<&'static Gate> {
		let main = self.main().ok_or(Errno::ESRCH)?;
		self.pending.lift_limit()?;
		let stacks = scratch::map(self.count * STACK + size_of::<Gate>())?;
		let gate = (stacks + self.count * STACK) as *mut Gate;
		// SAFETY: fresh memory with room for it, which is never unmapped; its length is a multiple of the alignment.
		let gate: &'static Gate = unsafe {
			gate.write(Gate {
				open: AtomicU32::new(CLOSED),
				waiting: AtomicU32::new(0),
				others: self.count as u32 - 1,
				drop: self.drops,
				nice: main.nice,
				policy: main.policy,
				cpus: main.cpus,
				speculation: main.speculation,
				pending: &self.pending,
			});
			&*gate
		};
		// The C library keeps the number of the main thread where the kernel would write its end.
		// SAFETY: memory of the main thread's, which was looked at (`look::threads`).
		unsafe { (main.clear_tid as *mut i32).write(sys::getpid()) };
		for (i, thread) in self.threads[..self.count].iter().enumerate() {
			if thread.tid != self.pid {
				// SAFETY: each has its own stack.
				unsafe { thread.make(stacks + (i + 1) * STACK, gate)? };
			}
		}
		self.handlers.call();
		timers::renew(self, self.pid)?;
		self.pending.renew_of_process()?;
		Ok(gate)
	}

	/// In a clone: makes the calling thread the main one, up to its registers, and waits until the others are what they
	/// were.
	pub fn become_main(&self, gate: &Gate) -> Result<()> {
		let main = self.main().ok_or(Errno::ESRCH)?;
		// SAFETY: the word is the main thread's own.
		let _ = unsafe { call(Sysno::set_tid_address, [main.clear_tid]) };
		// SAFETY: this is the thread made for it.
		unsafe { main.prepare(gate) };
		// None shall see another that isn't yet what it was.
		loop {
			match gate.waiting.load(SeqCst) {
				all if all == gate.others => break,
				some => sys::futex_wait(&gate.waiting, some),
			}
		}
		Ok(())
	}

	/// In a clone: lets its threads run, and goes on as the main one, which [`Frozen::become_main`] has made this one.
	pub fn run(&'static self, gate: &'static Gate) -> ! {
		let Some(main) = self.main() else { sys::exit(127) };
		gate.let_run(OPEN);
		// SAFETY: this is the thread made for it, and prepared.
		unsafe { main.go_on() }
	}
}

impl Gate {
	/// Lets a thread of this number run before all others.
	pub fn let_run_first(&self, tid: i32) {
		self.let_run(tid as u32);
	}

	fn let_run(&self, who: u32) {
		self.open.store(who, SeqCst);
		sys::futex_wake(&self.open);
	}
}

/// What the engine knows of the process that a clone was forked from.
fn begin_anew() {
	STATE.nobody_inside();
	table::begin_anew();
	exec::begin_anew();
	POLICY.forget();
}

/// Goes to a namespace (`setns(2)`), of the kind that this flag names; of processes: has children go there.
///
/// # Safety
/// Nothing of the calling process may count on the one it leaves.
pub unsafe fn go_to(namespace: i32, kind: u32) -> Result<()> {
	numeric(Sysno::setns, [namespace as usize, kind as usize]).map(drop)
}

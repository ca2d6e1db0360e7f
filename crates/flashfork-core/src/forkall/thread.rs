//! What is known of a thread, and how a clone makes it.

use super::{
	frozen::{CPUS, Pending, Thread},
	raw::{CloneArguments, at, call, into, start},
};
use crate::sys::{self, Result};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// What all threads of a clone have in common while they are made.
#[repr(C)]
pub struct Gate {
	/// Who may run: none ([`CLOSED`]), the thread of this number, all ([`OPEN`]).
	pub open: AtomicU32,
	/// How many wait, with everything that is theirs.
	pub waiting: AtomicU32,
	/// How many are to: all but the main one.
	pub others: u32,
	/// Whether they give up all capabilities.
	pub drop: bool,
	/// Nice value of the template's main thread: who had the same, and policy and CPUs, has the caller's.
	pub nice: i32,
	/// Its policy (`sched_setscheduler(2)`).
	pub policy: i32,
	/// Its CPUs.
	pub cpus: [u64; CPUS / 64],
	/// What its kinds of speculation may do: new threads have the same.
	pub speculation: [usize; 3],
	pub(super) pending: &'static Pending,
}

/// No thread may run.
pub const CLOSED: u32 = 0;
/// All may.
pub const OPEN: u32 = u32::MAX;

const PR_SET_NAME: usize = 15;
const PR_SET_SPECULATION_CTRL: usize = 53;
/// A thread may choose.
const PR_SPEC_PRCTL: usize = 1;
const ARCH_SET_GS: usize = 0x1001;
const GS_BASE: usize = 22;
const FS_BASE: usize = 21;

impl Thread {
	/// Its thread pointer.
	pub fn pointer(&self) -> usize {
		self.registers[FS_BASE]
	}

	/// Makes the calling thread, which must be the one, what this thread was, up to its registers.
	///
	/// # Safety
	/// In a clone, in a thread made for it.
	pub unsafe fn prepare(&self, gate: &Gate) {
		// SAFETY: what is registered lies in the clone's own memory, where the thread had it.
		unsafe {
			let _ = call(Sysno::set_robust_list, self.robust);
			if self.rseq[0] != 0 {
				let [area, len, signature] = self.rseq;
				let _ = call(Sysno::rseq, [area, len, 0, signature]);
			}
			let _ = call(Sysno::prctl, [PR_SET_NAME, at(&self.name)]);
			if self.registers[GS_BASE] != 0 {
				let _ = call(Sysno::arch_prctl, [ARCH_SET_GS, self.registers[GS_BASE]]);
			}
			let speculation = self.speculation.iter().zip(&gate.speculation).enumerate();
			for (which, (state, _)) in speculation.filter(|(_, (own, main))| own != main && **own > PR_SPEC_PRCTL) {
				let _ = call(Sysno::prctl, [PR_SET_SPECULATION_CTRL, which, state & !PR_SPEC_PRCTL]);
			}
			self.schedule(gate);
			if gate.pending.renew_of(self.tid).is_err() {
				sys::exit(127);
			}
			// It is refused to nobody; the program would only have what its template's helpers have.
			if gate.drop && drop_capabilities().is_err() {
				sys::exit(127);
			}
		}
	}

	/// Goes on where this thread stood.
	///
	/// # Safety
	/// As [`Thread::prepare`], which was called.
	pub unsafe fn go_on(&self) -> ! {
		// SAFETY: the frame was made of this thread's registers.
		unsafe { go_on(self.frame) }
	}

	/// What it had for itself. Where that may not be had it stays as the main thread's.
	unsafe fn schedule(&self, gate: &Gate) {
		const PRIO_PROCESS: usize = 0;
		// SAFETY: the calls read locals.
		unsafe {
			if self.policy != gate.policy {
				let _ = call(Sysno::sched_setscheduler, [0, self.policy as usize, at(&0u32)]);
			}
			if self.nice != gate.nice {
				let _ = call(Sysno::setpriority, [PRIO_PROCESS, 0, self.nice as isize as usize]);
			}
			if self.cpus != gate.cpus {
				let _ = call(Sysno::sched_setaffinity, [0, size_of_val(&self.cpus), at(&self.cpus)]);
			}
		}
	}

	/// Makes this thread in the calling process, with its number. It waits at the gate.
	///
	/// # Safety
	/// In a clone; `stack` is the upper end of a stack that nobody else uses.
	pub unsafe fn make(&'static self, stack: usize, gate: &'static Gate) -> Result<()> {
		const FLAGS: u32 = k::CLONE_VM
			| k::CLONE_FS
			| k::CLONE_FILES
			| k::CLONE_SIGHAND
			| k::CLONE_THREAD
			| k::CLONE_SYSVSEM
			| k::CLONE_SETTLS
			| k::CLONE_CHILD_CLEARTID;
		let number = self.tid;
		let mut arguments: CloneArguments = [0; _];
		arguments[0] = u64::from(FLAGS);
		arguments[2] = self.clear_tid as u64;
		arguments[5] = (stack - STACK) as u64;
		arguments[6] = STACK as u64;
		arguments[7] = self.pointer() as u64;
		arguments[8] = at(&number) as u64;
		arguments[9] = 1;
		// SAFETY: the stack is this thread's; `enter` gets what it takes.
		unsafe { start(&arguments, enter, [at(self), at(gate)]) }.map(drop)
	}
}

/// Bytes of the stack on which a thread waits at the gate.
pub const STACK: usize = 16 * 1024;

extern "C" fn enter(thread: usize, gate: usize) -> ! {
	// SAFETY: `make` has made this thread for it, and given both, which stay.
	let (thread, gate) = unsafe { (&*(thread as *const Thread), &*(gate as *const Gate)) };
	// SAFETY: as above.
	unsafe { thread.prepare(gate) };
	if gate.waiting.fetch_add(1, SeqCst) + 1 == gate.others {
		sys::futex_wake(&gate.waiting);
	}
	loop {
		match gate.open.load(SeqCst) {
			OPEN => break,
			one if one == thread.tid as u32 => break,
			other => sys::futex_wait(&gate.open, other),
		}
	}
	// SAFETY: as above.
	unsafe { thread.go_on() }
}

unsafe fn drop_capabilities() -> Result<()> {
	const VERSION_3: u32 = 0x2008_0522;
	let (mut header, none) = ([VERSION_3, 0], [0u32; 6]);
	// SAFETY: the kernel reads two structures.
	unsafe { call(Sysno::capset, [into(&mut header), at(&none)]) }.map(drop)
}

/// Goes on from a frame (`rt_sigreturn(2)`).
#[unsafe(naked)]
unsafe extern "C" fn go_on(frame: usize) -> ! {
	core::arch::naked_asm!("mov rsp, rdi", "mov eax, 15", "syscall", "ud2")
}

//! Has a program's main thread make the maker, from outside the program's memory.
//!
//! Whoever runs in a memory decides what every process does that has this memory. So the maker is no older than the
//! moment at which the program is ready, and has no other rights than the program has then: it is a child of its main
//! thread, with that thread's credentials, capabilities, filters and sandboxes. What is told from inside (the address
//! of a [`Trampoline`]) may be false: then the program does with its own rights what it could do anyway.

use super::{
	inject::inject_at,
	raw::{into, numeric},
	trampoline::Trampoline,
	unfit::{Fit, Unfit, What},
};
use crate::{
	sys::{self, Errno},
	threads::status::{self, Condition, Patience},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

const PTRACE_PEEKDATA: usize = 2;
const PTRACE_GETREGS: usize = 12;
const PTRACE_SETREGS: usize = 13;
const PTRACE_DETACH: usize = 17;
const PTRACE_SEIZE: usize = 0x4206;
const PTRACE_INTERRUPT: usize = 0x4207;
const PTRACE_GETSIGMASK: usize = 0x420a;
const PTRACE_SETSIGMASK: usize = 0x420b;
/// `PTRACE_O_TRACESYSGOOD` and `PTRACE_O_EXITKILL`.
const OPTIONS: usize = 1 | 1 << 20;
const PTRACE_EVENT_STOP: i32 = 128;
const WALL: u32 = 0x4000_0000;

/// A program that stands still, whose main thread the caller traces. It ends with the caller's thread.
pub struct Seized {
	pid: i32,
	registers: [usize; 27],
	signals: u64,
}

impl Seized {
	/// Stops a program by its number. The caller must be allowed to trace it (`ptrace(2)`).
	///
	/// # Errors
	/// What stands against it.
	pub fn new(pid: i32) -> Fit<Seized> {
		if status::is_traced(pid, pid) {
			return Err(Unfit::new(What::Traced, pid));
		}
		// Until the maker traces them all none of its threads goes on. A stop by ptrace alone would end in between, and
		// calls like poll(2) can't be made again as they were when they have gone on once.
		numeric(Sysno::kill, [pid as usize, k::SIGSTOP as usize])?;
		let mut patience = Patience::begin();
		while !status::is_stopped(pid) {
			if Condition::of(pid, pid) == Condition::Ended {
				// Its threads run on, perhaps.
				return Err(Unfit::new(What::MainEnded, pid));
			}
			if patience.is_over(pid, pid) {
				return Err(Unfit::new(What::Unstoppable, pid));
			}
			sys::sleep_ns(50_000);
		}
		let mut seized = Seized { pid, registers: [0; 27], signals: 0 };
		let all = u64::MAX;
		// SAFETY: numbers, and what each request reads or writes: locals.
		unsafe {
			sys::ptrace(PTRACE_SEIZE, pid, 0, OPTIONS).map_err(|e| Unfit::forbidden(b"ptrace", e))?;
			sys::ptrace(PTRACE_INTERRUPT, pid, 0, 0)?;
			let (_, status) = sys::wait(pid, WALL)?;
			if status & 0xff != 0x7f || status >> 16 != PTRACE_EVENT_STOP {
				return Err(Unfit::new(What::Unstoppable, pid));
			}
			sys::ptrace(PTRACE_GETREGS, pid, 0, into(&mut seized.registers))?;
			sys::ptrace(PTRACE_GETSIGMASK, pid, 8, into(&mut seized.signals))?;
			sys::ptrace(PTRACE_SETSIGMASK, pid, 8, (&raw const all) as usize)?;
		}
		Ok(seized)
	}

	/// Makes the maker, by the [`Trampoline`] at this address of the program's memory, and lets go of the program,
	/// which stands still. Gives the other end of the maker's socket, of type `SOCK_SEQPACKET`.
	///
	/// # Errors
	/// What stands against it.
	pub fn make_maker(self, trampoline: usize) -> Fit<i32> {
		const FLAGS: u32 = k::CLONE_VM | k::CLONE_SIGHAND | k::CLONE_PARENT | k::CLONE_UNTRACED;
		const AF_UNIX: usize = 1;
		const SOCK_SEQPACKET: usize = 5;
		const PR_SET_PTRACER: usize = 0x5961_6d61;
		let Seized { pid, registers, signals } = self;
		let at = match Trampoline::read(pid, trampoline) {
			Ok(at) if at.is_one() => at,
			Ok(_) | Err(Errno::EIO | Errno::EFAULT) => return Err(Unfit::new(What::Replaced, pid)),
			Err(e) => return Err(e.into()),
		};
		let made = |number, arguments| inject_at(at.instruction, pid, &registers, number, arguments);
		made(Sysno::socketpair, [AF_UNIX, SOCK_SEQPACKET | k::O_CLOEXEC as usize, 0, at.answers])?;
		let mut pair = [0i32; 2];
		// SAFETY: the kernel writes one word, a local.
		unsafe { sys::ptrace(PTRACE_PEEKDATA, pid, at.answers, into(&mut pair))? };
		let program = sys::pidfd_open(pid, pid)?;
		let line = sys::pidfd_getfd(program, pair[0]);
		sys::close(program);
		let line = line.map_err(|e| Unfit::forbidden(b"pidfd_getfd", e))?;
		let maker = made(Sysno::clone, [FLAGS as usize, at.stack, 0, 0])?;
		// The maker has its own.
		for fd in pair {
			made(Sysno::close, [fd as usize, 0, 0, 0])?;
		}
		match made(Sysno::prctl, [PR_SET_PTRACER, maker, 0, 0]) {
			// Without Yama there is nothing to allow.
			Ok(_) | Err(Errno::EINVAL) => {}
			Err(e) => return Err(e.into()),
		}
		// SAFETY: what it was stopped with.
		unsafe {
			sys::ptrace(PTRACE_SETREGS, pid, 0, (&raw const registers) as usize)?;
			sys::ptrace(PTRACE_SETSIGMASK, pid, 8, (&raw const signals) as usize)?;
			sys::ptrace(PTRACE_DETACH, pid, 0, 0)?;
		}
		Ok(line)
	}
}

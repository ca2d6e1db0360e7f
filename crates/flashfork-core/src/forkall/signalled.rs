//! Calls from which a signal was about to bring a thread back when it was stopped: in clones they return as they would
//! have, and the handler runs first (signal(7), "Interruption of system calls and library functions by signal
//! handlers").

use super::{
	frame::{self, register},
	frozen::{Frozen, Thread},
	raw::{call, into},
};
use crate::sys::{Errno, Result};
use syscalls::Sysno;

/// `struct sigaction` of the kernel's: handler, flags, restorer, mask.
type Action = [usize; 4];

/// Has clones' calls return. When frames are written and pending signals known. A signal that is for the whole process
/// becomes that of a thread which takes it.
pub fn look(frozen: &mut Frozen) -> Result<()> {
	let Frozen { threads, count, pending, pid, .. } = frozen;
	let threads = &threads[..*count];
	for sent in &mut pending.all[..pending.count] {
		let signal = sent.signal();
		let takes = |thread: &&Thread| (1..=64).contains(&signal) && thread.signals >> (signal - 1) & 1 == 0;
		let one = |tid: i32| threads.iter().find(|thread| thread.tid == tid).filter(takes);
		let taker = match sent.tid {
			// The kernel asks the main thread first (`complete_signal`, kernel/signal.c).
			0 => one(*pid).or_else(|| threads.iter().find(takes)),
			tid => one(tid),
		};
		let Some(taker) = taker else { continue };
		let action = action(signal)?;
		if !is_caught(&action) {
			continue;
		}
		sent.tid = taker.tid;
		if ends_call(taker, &action) {
			let interrupted = (-(Errno::EINTR.into_raw() as isize)) as usize;
			// SAFETY: the thread's own frame, which was written (`look::threads`).
			unsafe {
				frame::set(taker.frame, register::RAX, interrupted);
				frame::set(taker.frame, register::RIP, taker.registers[register::RIP]);
			}
		}
	}
	Ok(())
}

/// What the program has set; the maker has the same.
fn action(signal: i32) -> Result<Action> {
	let mut action = [0; 4];
	// SAFETY: the kernel writes a local of the right size, whose mask has 8 bytes.
	unsafe { call(Sysno::rt_sigaction, [signal as usize, 0, into(&mut action), 8]) }?;
	Ok(action)
}

/// By a function: neither `SIG_DFL` nor `SIG_IGN`.
fn is_caught([handler, ..]: &Action) -> bool {
	*handler > 1
}

/// Whether the call that a thread is in returns with `EINTR` behind this handler (`handle_signal`,
/// arch/x86/kernel/signal.c).
fn ends_call(thread: &Thread, [_, flags, ..]: &Action) -> bool {
	const SA_RESTART: usize = 0x1000_0000;
	const ERESTARTSYS: isize = -512;
	const ERESTARTNOINTR: isize = -513;
	let r = &thread.registers;
	let result = r[register::RAX];
	if (r[register::ORIG_RAX] as isize) < 0 || !frame::is_interrupted(result) {
		return false;
	}
	match result as isize {
		ERESTARTNOINTR => false,
		ERESTARTSYS => flags & SA_RESTART == 0,
		_ => true,
	}
}

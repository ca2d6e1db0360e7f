//! System calls that a stopped thread makes, for what only it can ask.

use crate::sys::{self, Errno, Result};
use syscalls::Sysno;

const PTRACE_GETREGS: usize = 12;
const PTRACE_SETREGS: usize = 13;
const PTRACE_SYSCALL: usize = 24;
const WALL: u32 = 0x4000_0000;
/// What a thread stops with at the begin and at the end of a call (`PTRACE_O_TRACESYSGOOD`).
const AT_CALL: i32 = 5 | 0x80;
const SIGILL: i32 = 4;
const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;

const RAX: usize = 10;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
/// Where arguments are in `struct user_regs_struct`: rdi, rsi, rdx, r10; and r8 and r9, which are 0: some calls look
/// whether what they don't use is.
const ARGUMENTS: [usize; 4] = [14, 13, 12, 7];
const REST: [usize; 2] = [9, 8];

/// Has a thread that is stopped, with all signals blocked, make a call; nothing of its memory is touched. What is left
/// of its registers is of no use: to go on it would have to be given its own.
pub fn inject(tid: i32, registers: &[usize; 27], number: Sysno, arguments: [usize; 4]) -> Result<usize> {
	inject_at(sys::instruction(), tid, registers, number, arguments)
}

/// The same, of whoever traces it, with a `syscall` instruction at this address of the thread's memory.
pub fn inject_at(
	instruction: usize,
	tid: i32,
	registers: &[usize; 27],
	number: Sysno,
	arguments: [usize; 4],
) -> Result<usize> {
	let mut now = *registers;
	now[RIP] = instruction;
	now[RAX] = number as usize;
	// In no call: the kernel has none to begin again.
	now[ORIG_RAX] = usize::MAX;
	for (place, argument) in ARGUMENTS.iter().zip(arguments) {
		now[*place] = argument;
	}
	for place in REST {
		now[place] = 0;
	}
	// SAFETY: struct user_regs_struct is 27 words. The thread executes one instruction, and is given other registers
	// before it goes on.
	unsafe {
		sys::ptrace(PTRACE_SETREGS, tid, 0, now.as_ptr() as usize)?;
		to_next_stop(tid)?;
		to_next_stop(tid)?;
		sys::ptrace(PTRACE_GETREGS, tid, 0, now.as_mut_ptr() as usize)?;
	}
	Errno::from_ret(now[RAX])
}

/// Lets it run to the begin or the end of its call.
fn to_next_stop(tid: i32) -> Result<()> {
	loop {
		// SAFETY: numbers are passed. A signal that it was about to get has been taken down.
		unsafe { sys::ptrace(PTRACE_SYSCALL, tid, 0, 0) }?;
		let (_, status) = sys::wait(tid, WALL)?;
		if status & 0xff != 0x7f {
			return Err(Errno::ESRCH);
		}
		match (status >> 8 & 0xff, status >> 16) {
			(AT_CALL, 0) => return Ok(()),
			// There is no such instruction: the program has told a false address.
			(SIGILL | SIGBUS | SIGSEGV, 0) => return Err(Errno::EFAULT),
			_ => {}
		}
	}
}

//! The instruction.

use syscalls::{Errno, Sysno};

pub type Result<T> = core::result::Result<T, Errno>;

/// The engine's one system call instruction, a few that end in a place of their own apart. Where the engine is linked
/// into a program with the C library, [`crate::calls`] tells it from the program's by the number, which isn't written
/// beside it.
#[unsafe(naked)]
unsafe extern "C" fn raw(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
	core::arch::naked_asm!(
		"mov r10, r8",
		"mov r8, r9",
		"mov r9, [rsp + 8]",
		"mov rax, rdi",
		"mov rdi, rsi",
		"mov rsi, rdx",
		"mov rdx, rcx",
		"syscall",
		"ret",
		// For crate::code.
		".ascii \"flashfork's call\"",
	)
}

/// Address of that instruction, for a thread of another process in this memory that is made to execute it.
pub fn instruction() -> usize {
	const SYSCALL: [u8; 2] = [0x0f, 0x05];
	let code = raw as *const () as *const u8;
	// SAFETY: the function's own code, which is longer than that.
	let code = unsafe { core::slice::from_raw_parts(code, 32) };
	let at = code.windows(2).position(|bytes| bytes == SYSCALL).unwrap_or(0);
	code.as_ptr() as usize + at
}

/// A system call as it is, with as many arguments as it has.
///
/// # Safety
/// As the call of this number.
pub unsafe fn call<const N: usize>(number: Sysno, given: [usize; N]) -> Result<usize> {
	let mut all = [0; 6];
	for (place, argument) in all.iter_mut().zip(given) {
		*place = argument;
	}
	let [a, b, c, d, e, f] = all;
	// SAFETY: as the caller says.
	Errno::from_ret(unsafe { raw(number as usize, a, b, c, d, e, f) })
}

/// A system call that takes numbers, none of them an address, and leaves memory alone.
pub(crate) fn numeric<const N: usize>(number: Sysno, given: [usize; N]) -> Result<usize> {
	// SAFETY: it touches no memory; of the callers none makes another one so.
	unsafe { call(number, given) }
}

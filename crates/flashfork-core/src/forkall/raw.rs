//! Threads and processes made past the C library, and addresses for the kernel.

pub use crate::sys::call;
pub(super) use crate::sys::numeric;

use crate::sys::{self, Result};
use syscalls::Sysno;

/// Arguments of `clone3(2)` (struct clone_args as of Linux 5.5).
pub type CloneArguments = [u64; 10];

/// Makes a thread or process with `clone3(2)` that shares this memory: it runs `run`, on the stack that the arguments
/// name. Gives its number.
///
/// # Safety
/// As the call; nobody else uses the stack, whose upper end is aligned to 16 bytes.
pub unsafe fn start(
	arguments: &CloneArguments,
	run: extern "C" fn(usize, usize) -> !,
	with: [usize; 2],
) -> Result<usize> {
	let result: isize;
	// SAFETY: in the caller only rax, rcx and r11 change. The other starts on the empty stack, which is aligned at the
	// call, and `run` does not return.
	unsafe {
		core::arch::asm!(
			"syscall",
			"test rax, rax",
			"jnz 2f",
			"xor ebp, ebp",
			"mov rdi, r12",
			"mov rsi, r13",
			"call r14",
			"ud2",
			"2:",
			inlateout("rax") Sysno::clone3 as isize => result,
			in("rdi") arguments.as_ptr(),
			in("rsi") size_of_val(arguments),
			in("r12") with[0],
			in("r13") with[1],
			in("r14") run,
			out("rcx") _,
			out("r11") _,
		);
	}
	if result < 0 { Err(sys::Errno::new(-result as i32)) } else { Ok(result as usize) }
}

/// Where code begins that is executed with the number of a call in `eax`: behind `mov eax, NUMBER` (5 bytes), by which
/// whoever looks through this code for calls ([`crate::code`], in another copy of the engine) can tell what it does. No
/// instruction has this address, or code would seem to be entered there with any number at all.
pub fn behind_number(code: usize) -> usize {
	code + core::hint::black_box(5)
}

/// Address of a value that the kernel reads or writes.
pub fn at<T>(value: &T) -> usize {
	core::ptr::from_ref(value) as usize
}

/// Address of a value that the kernel writes.
pub fn into<T>(value: &mut T) -> usize {
	core::ptr::from_mut(value) as usize
}

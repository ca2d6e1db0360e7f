//! The registers: what a function must preserve under the System V ABI, and the floating-point environment, lie on the
//! stack of the call that takes the snapshot; its stack pointer is all that is remembered.

use core::arch::naked_asm;

/// Bytes that [`capture`] keeps on the caller's stack, its return address included.
pub const FRAME: usize = 40 + 7 * 8;

/// Calls `f(arg, stack pointer)` on the stack that ends at `top`; returns 0, and again what [`resume`] is given.
///
/// # Safety
/// `top` is the upper end of a writable mapping large enough for `f`, used by nobody else meanwhile. `f` must not
/// unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn capture(top: usize, f: extern "C" fn(*mut u8, usize), arg: *mut u8) -> u64 {
	naked_asm!(
		"push rbp",
		"push rbx",
		"push r12",
		"push r13",
		"push r14",
		"push r15",
		"sub rsp, 40",
		"stmxcsr [rsp]",
		"fnstenv [rsp + 8]",
		"mov rbx, rsp",
		"mov rax, rsi",
		"mov rsi, rsp",
		"mov rsp, rdi",
		"and rsp, -16",
		"mov rdi, rdx",
		"call rax",
		"mov rsp, rbx",
		"xor eax, eax",
		"jmp {land}",
		land = sym land,
	)
}

/// Goes to where [`capture`] returns, with this value.
///
/// # Safety
/// The memory at `stack_pointer` and above is what it was when `capture` gave that pointer to its function.
#[unsafe(naked)]
pub unsafe extern "C" fn resume(stack_pointer: usize, value: u64) -> ! {
	naked_asm!("mov rsp, rdi", "mov rax, rsi", "jmp {land}", land = sym land)
}

/// The end of `capture`, with its stack pointer and the result in rax.
#[unsafe(naked)]
unsafe extern "C" fn land() {
	naked_asm!(
		"ldmxcsr [rsp]",
		"fldenv [rsp + 8]",
		"add rsp, 40",
		"pop r15",
		"pop r14",
		"pop r13",
		"pop r12",
		"pop rbx",
		"pop rbp",
		"ret",
	)
}

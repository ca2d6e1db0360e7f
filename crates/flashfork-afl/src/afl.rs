//! AFL's runtime, which afl-cc links into every program.

use libc::{c_int, c_uint};
use std::arch::naked_asm;

/// Whether AFL runs rounds of this process one after another. Elsewhere, as by hand, there is one.
pub fn is_persistent() -> bool {
	// What AFL's runtime itself goes by.
	std::env::var_os("__AFL_PERSISTENT").is_some()
}

/// AFL's own loop. The first call begins it; each later one counts a round less, and then stops this process until
/// there is an input, and returns 1; or returns 0 if none is left.
pub fn next(rounds: c_uint) -> c_int {
	// SAFETY: the program is linked with AFL's runtime; its loop may be called at any time.
	unsafe { persistent_loop(rounds) }
}

/// Goes to `__afl_persistent_loop`. Where that name is wrapped (`--wrap`), this library's own use of it would lead back
/// here; the function itself has another name then.
#[unsafe(naked)]
unsafe extern "C" fn persistent_loop(rounds: c_uint) -> c_int {
	naked_asm!(
		".weak __real___afl_persistent_loop",
		".weak __afl_persistent_loop",
		"mov rax, [rip + __real___afl_persistent_loop@GOTPCREL]",
		"test rax, rax",
		"jnz 2f",
		"mov rax, [rip + __afl_persistent_loop@GOTPCREL]",
		"2: jmp rax",
	)
}

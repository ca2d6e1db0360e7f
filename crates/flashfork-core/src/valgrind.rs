//! Whether valgrind executes this program, by its client request `RUNNING_ON_VALGRIND` (its manual, section 3.1).

use core::arch::asm;

/// `VG_USERREQ__RUNNING_ON_VALGRIND` of valgrind.h.
const RUNNING_ON_VALGRIND: u64 = 0x1001;

/// The processor is told to turn a register once round and to swap another with itself, which is nothing; valgrind
/// takes that for a question, and puts its answer into `rdx`.
pub fn runs_this() -> bool {
	let question = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
	let mut answer = 0_u64;
	// SAFETY: changes no register that is not named, and no memory.
	unsafe {
		asm!(
			"rol rdi, 3",
			"rol rdi, 13",
			"rol rdi, 61",
			"rol rdi, 51",
			"xchg rbx, rbx",
			in("rax") question.as_ptr(),
			inout("rdx") answer,
			out("rdi") _,
			options(nostack),
		);
	}
	answer != 0
}

#[cfg(test)]
mod tests {
	#[test]
	fn a_processor_executes_these_tests() {
		assert!(!super::runs_this());
	}
}

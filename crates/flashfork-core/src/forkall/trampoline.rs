//! By what the maker is made: plain data in the program's memory, at an address that the keeper is told.

use super::raw::into;
use crate::sys::{self, Result};

const PTRACE_PEEKDATA: usize = 2;

/// What the keeper finds in the program's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Trampoline {
	mark: u64,
	/// A `syscall` instruction, behind which a new process goes on as the maker.
	pub instruction: usize,
	/// Its stack.
	pub stack: usize,
	/// Where calls write to.
	pub answers: usize,
}

/// Tells it from the memory of another program, which this one has become.
const MARK: u64 = u64::from_ne_bytes(*b"trampoln");

impl Trampoline {
	/// By where a new process finds its instruction, its stack and room for answers.
	pub fn new(instruction: usize, stack: usize, answers: usize) -> Trampoline {
		Trampoline { mark: MARK, instruction, stack, answers }
	}

	/// Of a thread that is stopped.
	pub fn read(tid: i32, at: usize) -> Result<Trampoline> {
		let mut words = [0usize; 4];
		for (i, word) in words.iter_mut().enumerate() {
			// SAFETY: the kernel writes one word, a local.
			unsafe { sys::ptrace(PTRACE_PEEKDATA, tid, at.wrapping_add(i * size_of::<usize>()), into(word))? };
		}
		let [mark, instruction, stack, answers] = words;
		Ok(Trampoline { mark: mark as u64, instruction, stack, answers })
	}

	/// Whether it is one, and not something of another program's.
	pub fn is_one(&self) -> bool {
		self.mark == MARK
	}
}

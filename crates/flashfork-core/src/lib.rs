//! The engine of flashfork: moves a process's private anonymous memory, in place, into memfds mapped privately, so that
//! `fork(2)` has no page tables to copy.
//!
//! Why it works: fork skips the page tables of private file mappings that hold no anonymous page (`vma_needs_copy` in
//! mm/memory.c, there since Linux 2.6.14); the child faults them in from the file, and writes are still copied on
//! write.
//!
//! What it does not do: it never writes to the program's memory, never allocates from its heap, never calls libc, and
//! never leaves memory other than it was, whatever system call fails. What can't be sealed stays anonymous, and a plain
//! fork of it is correct. [`never_seal`] is the list of what is left alone and why.
//!
//! ARCHITECTURE.md has all rooms, a seal step by step, and what runs in which room.
#![cfg_attr(not(test), no_std)]

pub mod answers;
mod apart;
pub mod arena;
pub mod calls;
#[cfg(test)]
#[macro_use]
#[path = "../tests/common/child.rs"]
mod child;
pub mod code;
pub mod environment;
mod filter;
pub mod fork;
pub mod forkall;
pub mod inherited;
mod kernel_writers;
pub mod name;
pub mod never_seal;
pub mod odf;
mod outcome;
mod own_pages;
mod places;
mod policy;
pub mod proc;
mod range;
pub mod region;
mod report;
pub mod restartable;
mod scratch;
mod seal;
mod sealed;
mod session;
pub mod snapshot;
mod stack;
mod state;
pub mod stats;
pub mod survey;
mod sys;
pub mod threads;
mod unsealed;
mod valgrind;

pub use outcome::{Error, Outcome, Pages, Step};
pub use proc::vma::MEMFD_PREFIX;
pub use range::Range;
pub use report::Sealed;
pub use sys::call as system_call;
pub use syscalls::Errno;

use filter::trial;

/// Keeps a range out of every later seal; what of it is sealed becomes anonymous again. Whole pages are meant.
///
/// At most 64 ranges (`ENOSPC` after that).
pub fn exclude(addr: usize, len: usize) -> Result<(), Error> {
	let range = Range::pages_of(addr, len);
	state::STATE.exclude(range).map_err(|e| Error::System(Step::Begin, e))?;
	unseal(range).map(drop)
}

/// Seals what is eligible; memory sealed before and written since is sealed anew, and what is left of its mappings is
/// as in [`drop_refills`].
///
/// The calling thread must be the process's only one, unless [`threads::allow`] says otherwise; its signals wait until
/// the result is dropped. Nothing of the program's memory changes but what backs it. Where a chunk can't be sealed its
/// memory stays anonymous.
pub fn seal(pages: Pages) -> Sealed {
	seal_with(pages, true)
}

/// The same without the data of libraries. For templates: their clones go on with all the program, and what they write
/// to there would cost them more than their forks gain.
pub fn seal_template(pages: Pages) -> Sealed {
	seal_with(pages, false)
}

fn seal_with(pages: Pages, libraries: bool) -> Sealed {
	trial::prepare();
	let sealed = seal::seal(pages, libraries);
	if sealed.outcome.is_ok() {
		seal::refills::drop_left();
	}
	sealed
}

/// Makes the sealed memory within `range` anonymous again; returns how many bytes.
///
/// It needs as much free memory again as it turns back: clones, and the rest of a memfd, keep the sealed pages. With
/// threads, what one of them lives in, where they are stopped by signals, stays sealed. On an error the memory so far
/// is anonymous, the rest still sealed, and every byte is as it was.
pub fn unseal(range: Range) -> Result<u64, Error> {
	trial::prepare();
	seal::unseal::unseal(range)
}

/// Takes pages only read since they were sealed out of the page tables that a fork copies: they come back when they are
/// read again. Returns how many bytes. The calling thread must be the process's only one.
pub fn drop_refills() -> Result<u64, Error> {
	trial::prepare();
	seal::refills::drop_refills()
}

/// Whether a seal of much memory could put it into its own tmpfs, which is faster; an error says why not: `ENOSYS`
/// before Linux 6.12, `EOPNOTSUPP` where 2 MB pages of tmpfs are forbidden, `EACCES` under a filter of system calls, or
/// what the kernel said.
pub fn can_mount() -> core::result::Result<(), Errno> {
	seal::file::Mounted::try_to_make()
}

/// Whether this process, or one it was forked from, has sealed memory.
pub fn has_sealed() -> bool {
	state::STATE.sealed()
}

/// Tells the engine that another copy of it in this process seals memory (a library and the shim together).
pub fn note_another() {
	trial::prepare();
	state::STATE.note_another();
}

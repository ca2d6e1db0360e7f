//! Pages in pipes (`vmsplice(2)`): while one is there it is the memory itself, and shows what is written to it. Neither
//! descriptors nor the page map tell of it afterwards.
//!
//! So the process is not sealed from then on. Its clones are: after a fork neither parent nor clone writes to the pages
//! in a pipe.

use super::anonymous::for_good;
use crate::{
	state::STATE,
	sys::{self, Result},
};
use syscalls::Sysno;

/// Before pages may come into a pipe. `ENOMEM` when sealed memory can't be made anonymous.
pub fn before_splice() -> Result<()> {
	STATE.note_splice();
	for_good()
}

/// `vmsplice(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn vmsplice(args: [usize; 6]) -> Result<usize> {
	before_splice()?;
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::vmsplice, args) }
}

//! Writing into code mapped to be executed, without it being anything else for a moment.

use crate::{
	proc::text,
	sys::{self, PAGE, Result},
};

/// Writes to code.
///
/// First through `/proc/self/mem`, which asks for no right to write: that works where memory may never become writable
/// and executable, or executable later (`PR_SET_MDWE`, SELinux). Where that file can't be used, with the right to write
/// for a moment: other functions on the page may be executing.
pub struct Writer {
	file: Result<i32>,
}

impl Writer {
	/// Opens the file.
	pub fn open() -> Writer {
		Writer { file: text::open(c"/proc/thread-self/mem", sys::O_WRONLY) }
	}

	/// Replaces bytes of a mapping that is readable and executable.
	///
	/// # Safety
	/// No thread executes these bytes but at the start of an instruction that the new ones replace whole.
	pub unsafe fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
		// SAFETY: as the caller says.
		self.by_file(at, bytes).or_else(|_| unsafe { by_right(at, bytes) })
	}

	fn by_file(&self, at: usize, bytes: &[u8]) -> Result<()> {
		sys::pwrite_all(self.file?, bytes.as_ptr() as usize, bytes.len(), at as u64)
	}
}

impl Drop for Writer {
	fn drop(&mut self) {
		if let Ok(fd) = self.file {
			sys::close(fd);
		}
	}
}

unsafe fn by_right(at: usize, bytes: &[u8]) -> Result<()> {
	let start = at & !(PAGE - 1);
	let len = (at + bytes.len()).next_multiple_of(PAGE) - start;
	// SAFETY: the pages stay readable and executable; the caller answers for the bytes.
	unsafe {
		sys::mprotect(start, len, sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC)?;
		sys::copy_bytes(bytes.as_ptr() as usize, at, bytes.len());
		// Where that is refused the pages stay writable, as any program's own data are.
		let _ = sys::mprotect(start, len, sys::PROT_READ | sys::PROT_EXEC);
	}
	Ok(())
}

//! The ready point for languages whose only way to C is `syscall`: a number that no kernel knows.

use super::{files::Kind, template::CLONE, wait::wait};
use core::ffi::{CStr, c_char};
use flashfork_core::Errno;
use flashfork_warm::{
	CALL_ARGUMENT, CALL_FILE, CALL_IGNORES, CALL_MISSING, CALL_NAME, CALL_PROGRAM, CALL_READY, CALL_UNBLOCK,
	CALL_VARIABLE, ReadyAt,
};

/// Answers [`flashfork_warm::CALL`].
///
/// # Safety
/// The first word is what is called, and the others are what that asks for; a buffer has room for the bytes that are
/// said.
pub unsafe fn call([what, a, to, len, more]: [usize; 5]) -> Result<isize, Errno> {
	match what {
		CALL_READY => {
			let at = ReadyAt::new(a as u64).unwrap_or(ReadyAt::Call);
			if wait(at) { Ok(0) } else { Err(Errno::ENOSYS) }
		}
		// SAFETY: the caller's string ends with a NUL; one thread at the ready point.
		CALL_FILE | CALL_MISSING => unsafe {
			let kind = if what == CALL_FILE { Kind::File } else { Kind::Missing };
			if super::template::ORDER.get().is_some() {
				super::files::note(kind, CStr::from_ptr(a as *const c_char));
			}
			Ok(0)
		},
		// SAFETY: as the caller says; one thread.
		CALL_ARGUMENT | CALL_VARIABLE => unsafe {
			let given = CLONE.get().as_ref().ok_or(Errno::ENOSYS)?;
			let all = if what == CALL_ARGUMENT { given.arguments } else { given.variables };
			copy(*all.get(a).ok_or(Errno::ENOENT)?, to as *mut u8, len)
		},
		// SAFETY: the set is a valid one; one thread.
		CALL_UNBLOCK => unsafe {
			let given = CLONE.get().as_ref().ok_or(Errno::ENOSYS)?;
			libc::sigprocmask(libc::SIG_SETMASK, &raw const given.mask, core::ptr::null_mut());
			Ok(0)
		},
		// SAFETY: one thread.
		CALL_IGNORES => unsafe {
			let given = CLONE.get().as_ref().ok_or(Errno::ENOSYS)?;
			let bit = a.checked_sub(1).and_then(|bit| given.ignored.checked_shr(bit as u32)).ok_or(Errno::EINVAL)?;
			Ok((bit & 1) as isize)
		},
		// SAFETY: the caller's strings; one thread.
		CALL_PROGRAM => unsafe {
			CLONE.get().as_ref().ok_or(Errno::ENOSYS)?;
			super::perl::program(a as *const c_char, to as *const u8, len, more)
		},
		// SAFETY: the caller's string ends with a NUL; one thread.
		CALL_NAME => unsafe { super::perl::name(a as *const c_char) },
		_ => Err(Errno::ENOSYS),
	}
}

unsafe fn copy(string: *const c_char, to: *mut u8, room: usize) -> Result<isize, Errno> {
	// SAFETY: the caller's strings end with a NUL; the copy stays inside the buffer.
	unsafe {
		let bytes = CStr::from_ptr(string).to_bytes();
		if bytes.len() <= room {
			to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
		}
		Ok(bytes.len() as isize)
	}
}

//! A function's runtime client in a program with threads: the thread that connects says that the program is ready, and
//! returns in each clone with a connection of its own ([`crate::warm::source`]).

use super::{IN_CLONE, bound_capabilities, wait};
use crate::warm::{follow, source};
use core::{
	ffi::c_int,
	sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use flashfork_core::{
	Errno,
	forkall::{call, go_to},
};
use syscalls::Sysno;

/// `connect(2)` of the client's; `None` where this is no clone, and becomes none.
pub fn connect(fd: c_int) -> Option<c_int> {
	if IN_CLONE.load(SeqCst) == 0 {
		static NOTED: AtomicBool = AtomicBool::new(false);
		if !NOTED.swap(true, SeqCst) {
			// SAFETY: the program sets its variables before it asks for work.
			unsafe { follow::note_environment_when_ready() };
		}
		if !wait() {
			return None;
		}
	}
	// SAFETY: takes numbers.
	Some(unsafe { source::connect(fd) })
}

/// In a clone: goes to the namespace of users to which its mounts belong, and to one of System V objects of its own.
///
/// # Safety
/// Nothing of the process may count on those that it leaves.
pub unsafe fn enter(mounts: c_int) -> Result<(), Errno> {
	/// `ioctl_ns(2)`.
	const NS_GET_USERNS: usize = 0xb701;
	// SAFETY: takes numbers.
	unsafe {
		let users = call(Sysno::ioctl, [mounts as usize, NS_GET_USERNS])?;
		go_to(users as c_int, libc::CLONE_NEWUSER as u32)?;
		call(Sysno::close, [users])?;
		call(Sysno::unshare, [libc::CLONE_NEWIPC as usize])?;
		call(Sysno::prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0])?;
	}
	bound_capabilities();
	Ok(())
}

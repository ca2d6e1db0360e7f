//! A function's runtime client in a program with threads: the thread that connects says that the program is ready, and
//! returns in each clone with the connection that this was given as standard input. A client that connects once more
//! (Node's, to stream an answer) has the same one: it asks for one thing after the other.

use super::maker::open;
use super::{IN_CLONE, bound_capabilities, wait};
use crate::warm::runtime::put_in_place;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering::SeqCst};
use flashfork_core::Errno;
use flashfork_core::forkall::{call, go_to};
use syscalls::Sysno;

/// In clones: what the client gets.
static CONNECTION: AtomicI32 = AtomicI32::new(-1);

/// `connect(2)` of the client's; `None` where this is no clone, and becomes none.
pub fn connect(fd: c_int) -> Option<c_int> {
	if IN_CLONE.load(SeqCst) == 0 && !wait() {
		return None;
	}
	// SAFETY: takes numbers.
	Some(unsafe { put_in_place(CONNECTION.load(SeqCst), fd) })
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

/// In a clone that has the program's descriptors, and no other thread: its standard input is empty from here on.
pub fn take_connection() -> Result<(), Errno> {
	// SAFETY: takes numbers.
	unsafe {
		let connection = call(Sysno::fcntl, [0, libc::F_DUPFD_CLOEXEC as usize, 3])?;
		let empty = open(c"/dev/null", libc::O_RDONLY)? as usize;
		call(Sysno::dup3, [empty, 0, 0])?;
		call(Sysno::close, [empty])?;
		CONNECTION.store(connection as c_int, SeqCst);
	}
	Ok(())
}

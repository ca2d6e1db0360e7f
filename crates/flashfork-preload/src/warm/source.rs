//! Where the connections of a function's runtime client come from in a clone: a socket of Unix that it was given as
//! standard input. The server (`connections.rs` of flashfork-serve) passes the first through it without being asked,
//! and another one for each byte.

use super::message;
use super::runtime::put_in_place;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use flashfork_core::Errno;
use flashfork_core::forkall::call;
use syscalls::Sysno;

static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Its inode: a program that closes what it doesn't know may have something else there.
static INODE: AtomicU64 = AtomicU64::new(0);
/// Whether the first has been taken.
static ASKS: AtomicBool = AtomicBool::new(false);

/// In a clone that has one thread and the program's descriptors: its standard input is empty from here on.
pub fn take() -> Result<(), Errno> {
	// SAFETY: takes numbers, and a string with its NUL.
	unsafe {
		let socket = call(Sysno::fcntl, [0, libc::F_DUPFD_CLOEXEC as usize, 3])?;
		let flags = libc::O_RDONLY | libc::O_CLOEXEC;
		let empty = call(Sysno::openat, [libc::AT_FDCWD as usize, c"/dev/null".as_ptr() as usize, flags as usize])?;
		call(Sysno::dup3, [empty, 0, 0])?;
		call(Sysno::close, [empty])?;
		INODE.store(inode(socket as c_int)?, SeqCst);
		SOCKET.store(socket as c_int, SeqCst);
	}
	Ok(())
}

fn inode(fd: c_int) -> Result<u64, Errno> {
	// SAFETY: all zeros are a value of the structure, which the kernel fills in.
	unsafe {
		let mut facts: libc::stat = MaybeUninit::zeroed().assume_init();
		call(Sysno::fstat, [fd as usize, (&raw mut facts) as usize])?;
		Ok(facts.st_ino)
	}
}

/// Has `fd` be a connection. What `connect` returns.
///
/// # Safety
/// As [`put_in_place`].
pub unsafe fn connect(fd: c_int) -> c_int {
	let socket = SOCKET.load(SeqCst);
	// SAFETY: takes numbers, and a byte that can be read; the descriptor that came is nobody else's.
	unsafe {
		let is_there = inode(socket).is_ok_and(|inode| inode == INODE.load(SeqCst));
		let asked = is_there
			&& (!ASKS.swap(true, SeqCst) || libc::send(socket, c"c".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) == 1);
		let Some((_, [connection])) = asked.then(|| message::take(socket)).flatten() else {
			*libc::__errno_location() = libc::ECONNREFUSED;
			return -1;
		};
		let done = put_in_place(connection, fd);
		libc::close(connection);
		done
	}
}

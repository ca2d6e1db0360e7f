//! Where the connections of a function's runtime client come from in a clone: a socket of Unix that it was given as
//! standard input. The server (`connections.rs` of flashfork-serve) passes the first through it without being asked,
//! and another one for each byte; before that what the clone goes to its control group by, if it is to have one.

use super::{message, runtime::put_in_place};
use core::{
	ffi::c_int,
	mem::MaybeUninit,
	sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst},
};
use flashfork_core::{Errno, forkall::call};
use syscalls::Sysno;

static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Its inode: a program that closes what it doesn't know may have something else there.
static INODE: AtomicU64 = AtomicU64::new(0);
/// The first connection, before it is taken.
static FIRST: AtomicI32 = AtomicI32::new(-1);

/// In a clone that has one thread and the program's descriptors: its standard input is empty from here on, and it is in
/// its control group.
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
		let next = || message::take(socket as c_int).ok_or(Errno::ECONNRESET);
		let (mut is_group, [mut fd]) = next()?;
		if is_group {
			// `cgroup_procs_write()`: 0 is who writes.
			call(Sysno::write, [fd as usize, c"0".as_ptr() as usize, 1])?;
			call(Sysno::close, [fd as usize])?;
			(is_group, [fd]) = next()?;
		}
		if is_group {
			return Err(Errno::EPROTO);
		}
		FIRST.store(fd, SeqCst);
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
		let mut connection = FIRST.swap(-1, SeqCst);
		if connection < 0 {
			let is_there = inode(socket).is_ok_and(|inode| inode == INODE.load(SeqCst));
			let asked = is_there && libc::send(socket, c"c".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) == 1;
			let Some((false, [another])) = asked.then(|| message::take(socket)).flatten() else {
				*libc::__errno_location() = libc::ECONNREFUSED;
				return -1;
			};
			connection = another;
		}
		let done = put_in_place(connection, fd);
		libc::close(connection);
		done
	}
}

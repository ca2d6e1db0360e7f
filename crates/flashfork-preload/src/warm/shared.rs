//! What calls of a function would share: connections that it has opened by its ready point are cut in its clones, and
//! a function with what else would lead from one call to another can't be a template.

use core::{
	ffi::{CStr, c_char, c_int},
	mem::MaybeUninit,
	ptr::null_mut,
};

use super::template::Single;

/// Most connections that are cut.
const MOST: usize = 256;

/// Those of the template: their numbers, and inodes.
static CONNECTIONS: Single<[(c_int, libc::ino_t); MOST]> = Single::new([(-1, 0); MOST]);

/// In the process that becomes a template: notes its connections, and ends it with a line where it has more than can
/// be cut.
///
/// # Safety
/// The process has one thread.
pub unsafe fn note() {
	let (mut count, mut pairs) = (0, 0);
	// SAFETY: as the caller says; structures are locals.
	unsafe {
		if libc::waitid(libc::P_ALL, 0, null_mut(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) == 0 {
			refuse(
				c"a child process, which its calls would not have: wait for its end before, or start it in the handler",
				-1,
			);
		}
		if !crate::atfork::settle() {
			refuse(c"more than 64 handlers of pthread_atfork", -1);
		}
		each(|fd, facts| match facts.st_mode & libc::S_IFMT {
			libc::S_IFSOCK if is_own(fd) => {
				pairs += 1;
				// One pair is the runtime client's own.
				if pairs > 2 {
					refuse(SHARED[0], fd);
				}
			}
			libc::S_IFSOCK => match CONNECTIONS.get().get_mut(count) {
				Some(place) => {
					*place = (fd, facts.st_ino);
					count += 1;
				}
				None => refuse(c"more than 256 connections: open them in the handler", fd),
			},
			libc::S_IFIFO if fd > 2 && has_other_end(fd, facts.st_ino) => refuse(SHARED[1], fd),
			_ if is_epoll(fd) => refuse(SHARED[2], fd),
			_ => {}
		});
	}
}

/// What all calls would share, in words.
const SHARED: [&CStr; 3] = [
	c"a pair of sockets, which all calls would share: make it in the handler, as also event loops",
	c"a pipe, which all calls would share: make it in the handler, as also queues and event loops",
	c"an epoll instance, which all calls would share: make it in the handler, as also event loops",
];

/// In a clone: from each of these connections nothing comes any more, and nothing gets through.
///
/// # Safety
/// The process has one thread.
pub unsafe fn cut() {
	// SAFETY: takes numbers and structures that are locals; the descriptors are still those that were noted.
	unsafe {
		for (fd, inode) in CONNECTIONS.get().iter().copied().take_while(|(fd, _)| *fd >= 0) {
			let mut facts = MaybeUninit::<libc::stat>::zeroed().assume_init();
			// The engine's own are closed by now, or others.
			if libc::fstat(fd, &raw mut facts) != 0 || facts.st_ino != inode {
				continue;
			}
			let mut ends = [-1; 2];
			let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr());
			libc::close(ends[1]);
			if made != 0 || super::runtime::put_in_place(ends[0], fd) != 0 {
				libc::perror(c"flashfork: can't cut a connection of the template's".as_ptr());
				libc::_exit(126);
			}
			libc::close(ends[0]);
		}
	}
}

/// Whether it is one of a pair that this process has made.
unsafe fn is_own(socket: c_int) -> bool {
	// SAFETY: the kernel writes locals, as long as said.
	unsafe {
		let option = |which, value: *mut libc::c_void, size: usize| {
			let mut len = size as libc::socklen_t;
			libc::getsockopt(socket, libc::SOL_SOCKET, which, value, &raw mut len) == 0
		};
		let mut peer = MaybeUninit::<libc::ucred>::zeroed().assume_init();
		let (mut domain, mut listens): (c_int, c_int) = (0, 0);
		option(libc::SO_DOMAIN, (&raw mut domain).cast(), size_of::<c_int>())
			&& option(libc::SO_ACCEPTCONN, (&raw mut listens).cast(), size_of::<c_int>())
			&& option(libc::SO_PEERCRED, (&raw mut peer).cast(), size_of::<libc::ucred>())
			&& domain == libc::AF_UNIX
			&& listens == 0
			&& peer.pid == libc::getpid()
	}
}

unsafe fn has_other_end(pipe: c_int, inode: libc::ino_t) -> bool {
	let mut has = false;
	// SAFETY: as `note`.
	unsafe {
		let mode = libc::fcntl(pipe, libc::F_GETFL) & libc::O_ACCMODE;
		each(|fd, facts| {
			has |= facts.st_mode & libc::S_IFMT == libc::S_IFIFO
				&& facts.st_ino == inode
				&& libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE != mode;
		});
	}
	has
}

unsafe fn is_epoll(fd: c_int) -> bool {
	const NAME: &[u8] = b"anon_inode:[eventpoll]";
	let (mut path, mut name) = ([0 as c_char; 32], [0u8; NAME.len()]);
	// SAFETY: buffers as long as said; a format of one number.
	unsafe {
		libc::snprintf(path.as_mut_ptr(), path.len(), c"/proc/self/fd/%d".as_ptr(), fd);
		let len = libc::readlink(path.as_ptr(), name.as_mut_ptr().cast(), name.len());
		len == NAME.len() as isize && name == *NAME
	}
}

/// All descriptors of this process, and what they are of.
unsafe fn each(mut with: impl FnMut(c_int, &libc::stat)) {
	// SAFETY: libc's calls on a directory of its own, and structures that are locals.
	unsafe {
		let directory = libc::opendir(c"/proc/self/fd".as_ptr());
		if directory.is_null() {
			libc::perror(c"flashfork: /proc/self/fd".as_ptr());
			libc::_exit(1);
		}
		loop {
			let entry = libc::readdir(directory);
			if entry.is_null() {
				break;
			}
			let name = (&raw const (*entry).d_name).cast::<c_char>();
			let mut facts = MaybeUninit::<libc::stat>::zeroed().assume_init();
			let fd = libc::atoi(name);
			if *name != b'.' as c_char && fd != libc::dirfd(directory) && libc::fstat(fd, &raw mut facts) == 0 {
				with(fd, &facts);
			}
		}
		libc::closedir(directory);
	}
}

/// Ends this process with a line.
unsafe fn refuse(what: &CStr, fd: c_int) -> ! {
	let mut line = [0; 256];
	// SAFETY: strings with their NUL, the first a format of a string and a number; a buffer as long as said.
	unsafe {
		let format = c"flashfork: when it is warm, the function has %s (descriptor %d)\n";
		let format = if fd < 0 { c"flashfork: when it is warm, the function has %s\n" } else { format };
		let len = libc::snprintf(line.as_mut_ptr(), line.len(), format.as_ptr(), what.as_ptr(), fd);
		libc::write(2, line.as_ptr().cast(), (len as usize).min(line.len()));
		libc::_exit(1)
	}
}

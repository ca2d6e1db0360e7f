//! The standard streams, and what the warm-up has made of them: a library may keep copies (`dup(2)`), as Perl's Test2
//! does. Like the streams they are not the template's to keep, because whoever reads them waits for their end, and in a
//! clone they are the caller's.

use super::template::Single;
use core::{ffi::c_int, mem::MaybeUninit};

/// Copies that are known; a descriptor above is no library's.
const MOST: usize = 64;
const HIGHEST: c_int = 1024;

/// Of a file: its device and number.
type Identity = (libc::dev_t, libc::ino_t);

/// What the streams were when the program was started: it may have led them elsewhere since.
static AT_START: Single<[Option<Identity>; 3]> = Single::new([None; 3]);

/// A descriptor, whether programs that are started don't get it, and which stream it is a copy of.
#[derive(Clone, Copy)]
struct Copied {
	fd: c_int,
	flags: c_int,
	stream: usize,
}

static COPIES: Single<[Option<Copied>; MOST]> = Single::new([None; MOST]);

/// When the program is started.
///
/// # Safety
/// One thread.
pub unsafe fn note() {
	// SAFETY: no reference is in use.
	unsafe { *AT_START.get() = [0, 1, 2].map(identity) };
}

/// Whether they still lead where they did then. In clones they are the caller's.
///
/// # Safety
/// Nobody writes to what [`note`] does.
pub unsafe fn are_as_at_start() -> bool {
	// SAFETY: as the caller says.
	unsafe { *AT_START.get() == [0, 1, 2].map(identity) }
}

fn identity(fd: c_int) -> Option<Identity> {
	// SAFETY: the structure is a local, all zeros are a value of it.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		(libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
	}
}

/// The template lets go of the streams of `flashfork warm`, and of all copies; `/dev/null` is there instead.
///
/// # Safety
/// One thread, at the ready point.
pub unsafe fn let_go() -> bool {
	// SAFETY: plain calls; the descriptors below 3 are those that every process has.
	unsafe {
		let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
		if null < 0 {
			return false;
		}
		let mut count = 0;
		for fd in (3..HIGHEST).filter(|fd| *fd != null) {
			let flags = libc::fcntl(fd, libc::F_GETFD);
			// Where standard output and error are one, nobody knows which it is a copy of.
			let stream = if flags < 0 { None } else { [1, 2, 0].into_iter().find(|stream| is_copy(fd, *stream)) };
			let (Some(stream), Some(place)) = (stream, COPIES.get().get_mut(count)) else { continue };
			let flags = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
			if libc::dup3(null, fd, flags) == fd {
				*place = Some(Copied { fd, flags, stream });
				count += 1;
			}
		}
		let done = (0..3).all(|fd| libc::dup2(null, fd) == fd);
		if null > 2 {
			libc::close(null);
		}
		done
	}
}

/// Whether a descriptor is the same open file as a stream that is still what it was at the start. None is where the
/// kernel may not be asked (`kcmp(2)`).
unsafe fn is_copy(fd: c_int, stream: usize) -> bool {
	const KCMP_FILE: c_int = 0;
	let number = stream as c_int;
	// SAFETY: takes numbers; no reference is in use.
	unsafe {
		let pid = libc::getpid();
		AT_START.get()[stream].is_some_and(|at_start| identity(number) == Some(at_start))
			&& libc::syscall(
				libc::SYS_kcmp,
				pid,
				pid,
				KCMP_FILE,
				libc::c_ulong::from(fd as u32),
				number as libc::c_ulong,
			) == 0
	}
}

/// In a clone, which has the caller's streams: so have the copies.
///
/// # Safety
/// One thread.
pub unsafe fn take_over() {
	// SAFETY: plain calls on this process.
	unsafe {
		for copied in COPIES.get().iter().flatten() {
			libc::dup3(copied.stream as c_int, copied.fd, copied.flags);
		}
	}
}

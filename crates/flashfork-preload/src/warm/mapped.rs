//! What files a process has mapped, besides those that it had at the ready point.

use super::template::Single;
use core::ffi::CStr;
use flashfork_core::{Errno, forkall::call};
use syscalls::Sysno;

/// How many are known; in a template with more none is.
const MOST: usize = 1024;

struct Files {
	keys: [u64; MOST],
	count: usize,
	/// What [`unwritable`] was.
	pages: Option<u64>,
}

static FILES: Single<Files> = Single::new(Files { keys: [0; MOST], count: 0, pages: None });

/// What is read of the list. Not on the stack, which may be a small one where a process ends.
static BUFFER: Single<[u8; 4096]> = Single::new([0; 4096]);

/// A line of `/proc/self/maps` (`proc_pid_maps(5)`), as far as it has been read.
struct Line {
	field: u8,
	shared: bool,
	file: bool,
	/// Of device and inode.
	hash: u64,
	/// How much of [`MEMFD`] the path has begun with; more than its length for another.
	path: usize,
}

const NEW: Line = Line { field: 0, shared: false, file: false, hash: 0xcbf2_9ce4_8422_2325, path: 0 };
const MEMFD: &[u8] = b"/memfd:";

impl Line {
	fn read(&mut self, byte: u8) {
		match (self.field, byte) {
			(..5, b' ') => self.field += 1,
			(1, _) => self.shared = byte == b's',
			(3 | 4, _) => {
				self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
				self.file |= self.field == 4 && byte != b'0';
			}
			(5, b' ') if self.path == 0 => {}
			(5, _) if self.path < MEMFD.len() => {
				self.path = if MEMFD[self.path] == byte { self.path + 1 } else { usize::MAX };
			}
			_ => {}
		}
	}

	/// None for memory of the process's own: sealed memory, and a caller's request, are private mappings of files
	/// without a name.
	fn key(&self) -> Option<u64> {
		let own = !self.file || !self.shared && self.path == MEMFD.len();
		(!own).then_some(self.hash ^ u64::from(self.shared))
	}
}

/// Calls `each` for every mapping of a file, until that is false. False then, and where they can't be read.
fn all(mut each: impl FnMut(u64) -> bool) -> bool {
	let (mut line, mut good) = (NEW, true);
	let Ok(maps) = open(c"/proc/self/maps") else { return false };
	// SAFETY: no other reference: one thread is here, a maker, or the one that has begun the end.
	let buffer = unsafe { BUFFER.get() };
	let mut any = false;
	while good {
		let count = read(maps, buffer);
		if count == Ok(0) || count.is_err() {
			good = count.is_ok() && any;
			break;
		}
		any = true;
		for byte in &buffer[..count.unwrap_or(0)] {
			if *byte != b'\n' {
				line.read(*byte);
			} else if let Some(key) = core::mem::replace(&mut line, NEW).key() {
				good = good && each(key);
			}
		}
	}
	close(maps);
	good
}

// Calls of the kernel's: a maker calls nothing of libc.

fn open(path: &CStr) -> Result<usize, Errno> {
	let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
	// SAFETY: a string with its NUL.
	unsafe { call(Sysno::openat, [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags]) }
}

fn read(fd: usize, to: &mut [u8]) -> Result<usize, Errno> {
	// SAFETY: the buffer is as long as said.
	unsafe { call(Sysno::read, [fd, to.as_mut_ptr() as usize, to.len()]) }
}

fn close(fd: usize) {
	// SAFETY: the descriptor is this file's own.
	let _ = unsafe { call(Sysno::close, [fd]) };
}

/// Takes down which there are, at the ready point.
pub fn note() {
	// SAFETY: one thread, no other reference.
	let files = unsafe { FILES.get() };
	let noted = all(|key| {
		let (known, count) = (files.keys[..files.count].contains(&key), files.count);
		if !known && count < MOST {
			files.keys[count] = key;
			files.count += 1;
		}
		known || count < MOST
	});
	if !noted {
		files.count = 0;
	}
	files.pages = unwritable().filter(|_| noted);
}

/// Pages of all mappings but private, writable ones (`size` and `data` of `proc_pid_statm(5)`): a number that is had in
/// microseconds, where the list takes one for each line. What a program has of its own changes it seldom, a shared
/// mapping or a library always does.
fn unwritable() -> Option<u64> {
	let mut text = [0u8; 128];
	let statm = open(c"/proc/self/statm").ok()?;
	let count = read(statm, &mut text);
	close(statm);
	let mut fields = text.get(..count.ok()?)?.split(|b| *b == b' ').map(|digits| {
		digits.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b.checked_sub(b'0')?)))
	});
	fields.next()??.checked_sub(fields.nth(4)??)
}

/// Whether there are no others now, but for private, writable ones. False where that can't be known.
pub fn no_others() -> bool {
	// SAFETY: as above.
	let files = unsafe { FILES.get() };
	if files.pages.is_some() && files.pages == unwritable() {
		return true;
	}
	let (known, mut last) = (&files.keys[..files.count], 0);
	all(|key| {
		// Mappings of one file lie together, and those of many files in the order of then.
		let found = known[last..].iter().position(|k| *k == key).map(|i| i + last);
		let found = found.or_else(|| known.iter().position(|k| *k == key));
		last = found.unwrap_or(last);
		found.is_some()
	})
}

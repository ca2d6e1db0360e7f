//! What the template was made by, as far as it counts here: its first word, and the environment that it was warmed in.
//! flashfork-templates has written it (`recipe.rs` there): texts, each with a NUL.

use super::template::{Order, Single};
use core::{
	ffi::{CStr, c_char, c_int},
	ptr::null_mut,
};

/// Texts before the number of words: the shim, the directory, where and when it is ready, most clones, whether it is
/// made anew.
const BEFORE: usize = 6;

/// In a mapping that stays.
static TEXT: Single<&'static [u8]> = Single::new(&[]);

/// The environment alone, of a template with threads that wrappers have led to.
static ALONE: Single<Option<&'static [u8]>> = Single::new(None);

/// Maps it, where somebody wants to know.
///
/// # Safety
/// Before the program's own code runs.
pub unsafe fn note(order: &Order) {
	if !order.renews && !order.is_wrapped() {
		return;
	}
	// SAFETY: the file is the order's own, and nobody writes to it any more.
	if let Some(text) = unsafe { map(order.recipe) } {
		// SAFETY: as the caller says.
		unsafe { *TEXT.get() = text };
	}
}

/// Maps an environment passed on, and closes its file.
///
/// # Safety
/// As [`note`]; nobody writes to the file any more.
pub unsafe fn note_environment(file: c_int) {
	// SAFETY: as the caller says.
	unsafe {
		*ALONE.get() = map(file);
		libc::close(file);
	}
}

/// # Safety
/// Nobody writes to the file any more.
unsafe fn map(file: c_int) -> Option<&'static [u8]> {
	// SAFETY: a new mapping, which stays.
	unsafe {
		let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed().assume_init();
		if libc::fstat(file, &raw mut stat) != 0 || stat.st_size <= 0 {
			return None;
		}
		let len = stat.st_size as usize;
		let at = libc::mmap(null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file, 0);
		(at != libc::MAP_FAILED).then(|| core::slice::from_raw_parts(at.cast(), len))
	}
}

/// A file with the environment, for the program that this one becomes: the one passed on, or this program's as it was
/// started. -1 where there is none.
pub fn environment_file() -> c_int {
	// SAFETY: plain calls; the descriptors are this function's, the buffer a local.
	unsafe {
		let fd = libc::syscall(libc::SYS_memfd_create, c"flashfork-environment".as_ptr(), libc::MFD_CLOEXEC) as c_int;
		let write = |bytes: &[u8]| libc::write(fd, bytes.as_ptr().cast(), bytes.len()) == bytes.len() as isize;
		let written = if let Some(text) = *ALONE.get() {
			write(text)
		} else {
			let from = libc::open(c"/proc/self/environ".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
			let mut buffer = [0u8; 4096];
			let mut well = from >= 0;
			while well {
				match libc::read(from, buffer.as_mut_ptr().cast(), buffer.len()) {
					0 => break,
					n => well = n > 0 && write(&buffer[..n as usize]),
				}
			}
			libc::close(from);
			well
		};
		if written {
			return fd;
		}
		libc::close(fd);
		-1
	}
}

fn texts() -> impl Iterator<Item = &'static CStr> {
	// SAFETY: no other reference is in use.
	parts(unsafe { TEXT.get() })
}

fn parts(text: &'static [u8]) -> impl Iterator<Item = &'static CStr> {
	text.split_inclusive(|b| *b == 0).filter_map(|text| CStr::from_bytes_with_nul(text).ok())
}

/// How many words the command has; none where there is no recipe.
fn words() -> Option<usize> {
	texts()
		.nth(BEFORE)?
		.to_bytes()
		.iter()
		.try_fold(0usize, |n, b| n.checked_mul(10)?.checked_add(usize::from(b.checked_sub(b'0')?)))
}

pub fn is_there() -> bool {
	words().is_some()
}

/// By what name the program was looked for in `PATH`, if it was.
pub fn searched() -> Option<&'static CStr> {
	texts().nth(BEFORE + 1).filter(|word| !word.to_bytes().contains(&b'/'))
}

/// The environment. None where there is no recipe, and none was passed on.
pub fn environment() -> Option<impl Iterator<Item = &'static CStr>> {
	// SAFETY: as above.
	let (text, first) = match unsafe { (*ALONE.get(), *TEXT.get()) } {
		(Some(alone), _) => (alone, 0),
		(None, text) => (text, BEFORE + 1 + words()?),
	};
	Some(parts(text).skip(first))
}

/// The last value of a variable there; empty where it is not there.
pub fn variable(name: &[u8]) -> &'static [u8] {
	let value = |text: &'static CStr| text.to_bytes().strip_prefix(name)?.strip_prefix(b"=");
	environment().into_iter().flatten().filter_map(value).last().unwrap_or_default()
}

/// A string that C reads.
pub fn text(of: *const c_char) -> &'static [u8] {
	// SAFETY: a string of an environment, which lives while the program looks at it.
	if of.is_null() { b"" } else { unsafe { CStr::from_ptr(of) }.to_bytes() }
}

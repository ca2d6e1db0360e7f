//! Variables that an interpreter reads when it starts. A clone has its caller's, but nobody reads them any more: where
//! they are other than the template's were, that is told.

use super::{
	files::Path,
	recipe::{self, text},
	template::Single,
};
use crate::environment::variable;
use core::ffi::{CStr, c_char};
use flashfork_warm::variables::{ALL, LOCALE, PYTHON};

/// Those of this program, as it was started.
struct Started {
	names: &'static [&'static CStr],
	/// In memory of the C library's; null for one that is not there, or empty, which is the same.
	values: [*mut c_char; MOST],
}

const MOST: usize = PYTHON.len() + LOCALE.len();

static STARTED: Single<Option<Started>> = Single::new(None);

/// To be called before the interpreter starts.
pub fn note(names: &'static [&'static CStr]) {
	let mut values = [core::ptr::null_mut(); MOST];
	for (value, name) in values.iter_mut().zip(LOCALE.iter().chain(names)) {
		*value = copied(name);
	}
	// SAFETY: no reference is in use.
	unsafe { *STARTED.get() = Some(Started { names, values }) };
}

/// Tells the caller of a clone, on standard error, of variables that don't count.
pub fn tell(variables: &[*mut c_char]) {
	// SAFETY: no other reference is in use.
	let Some(started) = (unsafe { STARTED.get() }) else { return };
	let mut line = Line { bytes: [0; 640], len: 0 };
	line.add(b"flashfork: the template was started with other values of ");
	let begin = line.len;
	let asked = |name: &CStr| find(variables, name.to_bytes());
	// Other names of one locale are the same.
	let same_locale = locale(|i| asked(LOCALE[i])) == locale(|i| text(started.values[i]));
	for (i, (name, value)) in LOCALE.iter().chain(started.names).zip(started.values).enumerate() {
		if asked(name) != text(value) && !(same_locale && i < LOCALE.len()) {
			line.add(if line.len == begin { b"" } else { b", " });
			line.add(name.to_bytes());
		}
	}
	if line.len > begin {
		line.add(b", and those count; remove it and warm it with these, or once with --watch\n");
		// SAFETY: writes so many bytes; nobody could be told of a failure.
		let _ = unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
	}
}

const PATH: &CStr = c"PATH";

/// What of a caller's variables is not as the template was warmed with: how many, and the name of one.
pub fn others(variables: &[*mut c_char]) -> Option<(u64, &'static CStr)> {
	if !recipe::is_there() {
		return None;
	}
	let is_other = |name: &&CStr| find(variables, name.to_bytes()) != recipe::variable(name.to_bytes());
	let mut others = ALL.into_iter().flatten().copied().filter(is_other);
	let other_program = recipe::searched().is_some_and(|program| {
		let (was, is) = (recipe::variable(PATH.to_bytes()), find(variables, PATH.to_bytes()));
		was != is && program_in(was, program.to_bytes()) != program_in(is, program.to_bytes())
	});
	let first = others.next();
	let count = u64::from(first.is_some()) + others.count() as u64 + u64::from(other_program);
	Some((count, first.unwrap_or(PATH))).filter(|(count, _)| *count > 0)
}

/// The file that a name leads to.
fn program_in(path: &[u8], name: &[u8]) -> Option<(u64, u64)> {
	look_in(path, name).and_then(|path| super::files::file(path.as_ptr()))
}

/// Where a shell would find a program.
pub fn look_in(path: &[u8], name: &[u8]) -> Option<Path> {
	path.split(|b| *b == b':').find_map(|directory| {
		let here = if directory.is_empty() { b"." } else { directory };
		let path = Path::of(&[here, b"/", name])?;
		// SAFETY: a path that ends with a NUL.
		let runs = unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0;
		super::files::file(path.as_ptr()).filter(|_| runs).map(|_| path)
	})
}

/// That of characters: by the first variable that is set.
fn locale<'a>(value: impl Fn(usize) -> &'a [u8]) -> &'a [u8] {
	let value = (0..LOCALE.len()).map(value).find(|value| !value.is_empty());
	value.filter(|value| ![&b"C"[..], b"POSIX"].contains(value)).unwrap_or_default()
}

/// Null for one that is not there, or empty, which is the same.
fn copied(name: &CStr) -> *mut c_char {
	match variable(name) {
		// SAFETY: a string, which is copied because programs write over their environment.
		Some(now) if !now.is_empty() => unsafe { libc::strdup(now.as_ptr()) },
		_ => core::ptr::null_mut(),
	}
}

fn find<'a>(variables: &'a [*mut c_char], name: &[u8]) -> &'a [u8] {
	let mut values = variables.iter().take_while(|string| !string.is_null()).filter_map(|string| {
		// SAFETY: a string, which lives as long as the clone.
		unsafe { CStr::from_ptr(*string) }.to_bytes().strip_prefix(name)?.strip_prefix(b"=")
	});
	values.next().unwrap_or_default()
}

/// All names fit into it.
struct Line {
	bytes: [u8; 640],
	len: usize,
}

impl Line {
	fn add(&mut self, text: &[u8]) {
		if let Some(room) = self.bytes.get_mut(self.len..self.len + text.len()) {
			room.copy_from_slice(text);
			self.len += text.len();
		}
	}
}

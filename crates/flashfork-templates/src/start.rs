//! What comes with a request for a clone: a memfd, or a pipe.

use crate::error::Error;
use flashfork_warm::Start;
use rustix::{
	fs::MemfdFlags,
	pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
};
use std::{
	ffi::{CString, OsStr, OsString},
	fs::File,
	io::Write,
	os::unix::ffi::OsStrExt,
};

/// Arguments, or an environment, in their order. Of several variables of a name the first counts (`getenv(3)`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strings(pub Vec<OsString>);

impl Strings {
	pub fn push(&mut self, string: &OsStr) {
		self.0.push(string.to_owned());
	}

	fn find(&self, name: impl AsRef<OsStr>) -> Option<(usize, &OsStr)> {
		let name = name.as_ref().as_bytes();
		self.0.iter().enumerate().find_map(|(i, text)| {
			let value = text.as_bytes().strip_prefix(name)?.strip_prefix(b"=")?;
			Some((i, OsStr::from_bytes(value)))
		})
	}

	/// The value of a variable.
	pub fn variable(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
		self.find(name).map(|(_, value)| value)
	}

	/// In the place that it has.
	pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
		let text = [name.as_ref(), value.as_ref()].join(OsStr::new("="));
		match self.find(name) {
			Some((i, _)) => self.0[i] = text,
			None => self.0.push(text),
		}
	}

	pub fn remove(&mut self, name: &str) {
		while let Some((i, _)) = self.find(name) {
			self.0.remove(i);
		}
	}

	/// As C has them.
	pub fn with_nuls(&self) -> Result<Vec<CString>, Error> {
		let text = |text: &OsString| CString::new(text.as_bytes()).map_err(|_| Error::Nul(text.clone()));
		self.0.iter().map(text).collect()
	}
}

/// Writes the caller, arguments and environment into a memfd; or into a pipe where a limit on the size of files, which
/// goes for memfds too, leaves no room.
pub fn file(start: Start, arguments: &Strings, variables: &Strings) -> Result<File, Error> {
	let limit = start.limits[libc::RLIMIT_FSIZE as usize][0];
	let bytes = bytes(start, arguments, variables)?;
	if bytes.len() as u64 > limit {
		return pipe_of(&bytes).map_err(|source| Error::FileSize { kilobytes: bytes.len() >> 10, source });
	}
	let made = rustix::fs::memfd_create(c"flashfork-start", MemfdFlags::CLOEXEC);
	let mut file = File::from(made.map_err(|e| Error::Start(e.into()))?);
	file.write_all(&bytes).map_err(Error::Start)?;
	Ok(file)
}

/// The end to read of a pipe that holds these.
fn pipe_of(bytes: &[u8]) -> std::io::Result<File> {
	let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
	fcntl_setpipe_size(&theirs, bytes.len())?;
	File::from(theirs).write_all(bytes)?;
	Ok(File::from(ours))
}

fn bytes(start: Start, arguments: &Strings, variables: &Strings) -> Result<Vec<u8>, Error> {
	let [arguments, variables] = [arguments.with_nuls()?, variables.with_nuls()?];
	let counts = (arguments.len() as u64, variables.len() as u64);
	let at = size_of::<Start>() + (arguments.len() + variables.len() + 2) * 8;
	let (mut tables, mut texts) = (Vec::new(), Vec::new());
	for strings in [arguments, variables] {
		// Where each begins, and a zero.
		for string in strings {
			tables.extend(((at + texts.len()) as u64).to_ne_bytes());
			texts.extend(string.into_bytes_with_nul());
		}
		tables.extend([0; 8]);
	}
	// The last byte must be a NUL, also without strings.
	texts.push(0);
	let start = Start { len: (at + texts.len()) as u64, arguments: counts.0, variables: counts.1, ..start };
	Ok([head(&start), &tables, &texts].concat())
}

fn head(start: &Start) -> &[u8] {
	// SAFETY: a plain C structure of integers without padding (64-bit fields but for two of 32 bits side by side).
	unsafe { std::slice::from_raw_parts((&raw const *start).cast(), size_of::<Start>()) }
}

#[cfg(test)]
mod tests {
	use super::*;

	fn strings(all: &[&str]) -> Strings {
		Strings(all.iter().map(OsString::from).collect())
	}

	#[test]
	fn a_pipe_holds_what_a_file_may_not() {
		use std::io::Read;
		let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
		let mut found = Vec::new();
		pipe_of(&bytes).unwrap().read_to_end(&mut found).unwrap();
		assert!(found == bytes);
	}

	#[test]
	fn every_offset_leads_to_its_string() {
		let (arguments, variables) = (strings(&["a", "", "three"]), strings(&["X=1", "ODD"]));
		let bytes = bytes(crate::own::describe(Some(0)).unwrap(), &arguments, &variables).unwrap();
		let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
		let tables = size_of::<Start>();
		let found: Vec<_> = (0..7).map(|i| word(tables + i * 8)).collect();
		assert_eq!((found[3], found[6]), (0, 0), "a zero behind each table");
		let string = |at: usize| bytes[at..].split(|b| *b == 0).next().unwrap();
		let strings: Vec<_> = [0, 1, 2, 4, 5].into_iter().map(|i| string(found[i])).collect();
		assert_eq!(strings, [&b"a"[..], b"", b"three", b"X=1", b"ODD"]);
		assert_eq!((word(8), word(16), word(24), bytes.last()), (bytes.len(), 3, 2, Some(&0)));
	}

	#[test]
	fn a_nul_inside_a_string_is_refused() {
		let start = crate::own::describe(Some(0)).unwrap();
		let refused = file(start, &strings(&["fine", "a\0b"]), &strings(&[]));
		assert!(matches!(refused, Err(Error::Nul(string)) if string == "a\0b"));
		assert!(file(start, &strings(&[]), &strings(&[])).is_ok());
	}
}

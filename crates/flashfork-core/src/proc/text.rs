//! Reads small text files of /proc and /sys without allocating: lines, words, numbers.

use crate::sys::{self, Errno, Result};
use core::ffi::CStr;

/// Streams the lines of a file through a caller's buffer. A line longer than the buffer is an error (`E2BIG`).
pub struct Lines<'a> {
	fd: i32,
	buf: &'a mut [u8],
	start: usize,
	end: usize,
}

impl<'a> Lines<'a> {
	/// Opens a file for reading line by line.
	pub fn open(path: &CStr, buf: &'a mut [u8]) -> Result<Lines<'a>> {
		Ok(Lines { fd: open(path, sys::O_RDONLY)?, buf, start: 0, end: 0 })
	}

	/// The next line without its newline, or `None` at the end.
	pub fn next(&mut self) -> Result<Option<&[u8]>> {
		let mut searched = self.start;
		loop {
			if let Some(i) = self.buf[searched..self.end].iter().position(|&b| b == b'\n') {
				let line = self.start..searched + i;
				self.start = searched + i + 1;
				return Ok(Some(&self.buf[line]));
			}
			if self.start > 0 {
				self.buf.copy_within(self.start..self.end, 0);
				self.end -= self.start;
				self.start = 0;
			}
			searched = self.end;
			if self.end == self.buf.len() {
				return Err(Errno::E2BIG);
			}
			let n = sys::read(self.fd, &mut self.buf[self.end..])?;
			if n == 0 {
				let rest = 0..self.end;
				self.end = 0;
				return Ok((!rest.is_empty()).then(|| &self.buf[rest]));
			}
			self.end += n;
		}
	}
}

impl Drop for Lines<'_> {
	fn drop(&mut self) {
		sys::close(self.fd);
	}
}

/// The directory under `/proc` of the calling thread. `/proc/self` is that of the thread-group leader, whose maps,
/// descriptors and limits are empty, without an error, once it has ended by `pthread_exit(3)`.
const OWN: &[u8] = b"/proc/thread-self/";

/// Opens a file for the engine to read. What a thread's own directory lacks (`coredump_filter`; all of it where a
/// sandbox shows `/proc/self` only) is looked for in the process's.
pub fn open(path: &CStr, flags: u32) -> Result<i32> {
	match (sys::open(path, flags), path.to_bytes().strip_prefix(OWN)) {
		(Err(Errno::ENOENT), Some(name)) => {
			let of_process = ProcPath { text: [0; 64], len: 0 }.push(b"/proc/self/").push(name);
			sys::open(of_process.as_c(), flags)
		}
		(result, _) => result,
	}
}

/// A path under `/proc`, put together without allocating: `/proc/PID/task/TID/stat`.
pub struct ProcPath {
	text: [u8; 64],
	len: usize,
}

impl ProcPath {
	/// `/proc/PID`.
	pub fn of(pid: i32) -> ProcPath {
		ProcPath { text: [0; 64], len: 0 }.push(b"/proc/").number(pid)
	}

	/// `/proc/thread-self`.
	pub fn of_this_thread() -> ProcPath {
		ProcPath { text: [0; 64], len: 0 }.push(b"/proc/thread-self")
	}

	/// Adds text. What doesn't fit is left out, and the path names nothing then.
	pub fn push(mut self, part: &[u8]) -> ProcPath {
		// The last byte stays zero.
		if let Some(place) = self.text.get_mut(self.len..self.len + part.len()).filter(|_| self.len + part.len() < 64) {
			place.copy_from_slice(part);
			self.len += part.len();
		}
		self
	}

	/// Adds a number.
	pub fn number(self, n: i32) -> ProcPath {
		let mut digits = [0u8; 10];
		let mut at = digits.len();
		let mut n = n.unsigned_abs();
		loop {
			at -= 1;
			digits[at] = b'0' + (n % 10) as u8;
			n /= 10;
			if n == 0 {
				return self.push(&digits[at..]);
			}
		}
	}

	/// The path.
	pub fn as_c(&self) -> &CStr {
		CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
	}
}

/// Reads a whole small file into `buf`; what doesn't fit is left out.
pub fn read_file<'a>(path: &CStr, buf: &'a mut [u8]) -> Result<&'a [u8]> {
	let fd = open(path, sys::O_RDONLY)?;
	let result = read_whole(fd, buf);
	sys::close(fd);
	result
}

/// The same of an open file.
pub fn read_whole(fd: i32, buf: &mut [u8]) -> Result<&[u8]> {
	let mut n = 0;
	loop {
		match sys::read(fd, &mut buf[n..])? {
			0 => return Ok(&buf[..n]),
			more => n += more,
		}
	}
}

/// The words of a line, separated by blanks.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
	line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty())
}

/// A decimal number at the start of the text, after blanks; `None` when there is no digit or it doesn't fit.
pub fn decimal(text: &[u8]) -> Option<u64> {
	number(words(text).next()?, 10)
}

/// A whole word as a number in the given base (10 or 16); anything behind the digits is left out.
pub fn number(word: &[u8], base: u32) -> Option<u64> {
	let mut value = 0u64;
	let mut digits = 0;
	for &b in word {
		let Some(d) = (b as char).to_digit(base) else { break };
		value = value.checked_mul(u64::from(base))?.checked_add(u64::from(d))?;
		digits += 1;
	}
	(digits > 0).then_some(value)
}

/// The number behind `key` in a file of `key value` lines (`meminfo`, `memory.stat`), each as the file gives it.
pub fn field(text: &[u8], key: &[u8]) -> Option<u64> {
	text.split(|b| *b == b'\n')
		.find_map(|line| line.strip_prefix(key).filter(|rest| rest.starts_with(b" ") || rest.starts_with(b":")))
		.and_then(|rest| decimal(rest.strip_prefix(b":").unwrap_or(rest)))
}

#[cfg(test)]
mod tests;

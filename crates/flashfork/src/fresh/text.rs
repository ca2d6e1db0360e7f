//! Files of `/proc` read without allocation.

use rustix::{
	fs::{Mode, OFlags, open},
	io::{Result, read},
};
use std::ffi::CStr;

/// Calls `each` with every line. A line longer than 4,000 bytes is cut.
pub(crate) fn for_each_line(path: &CStr, mut each: impl FnMut(&[u8])) -> Result<()> {
	let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
	let mut buf = [0u8; 4000];
	let mut filled = 0;
	let mut cut = false;
	loop {
		let n = read(&file, &mut buf[filled..])?;
		if n == 0 {
			return Ok(());
		}
		filled += n;
		let mut from = 0;
		while let Some(len) = buf[from..filled].iter().position(|b| *b == b'\n') {
			if !cut {
				each(&buf[from..from + len]);
			}
			cut = false;
			from += len + 1;
		}
		buf.copy_within(from..filled, 0);
		filled -= from;
		if filled == buf.len() {
			if !cut {
				each(&buf);
			}
			(cut, filled) = (true, 0);
		}
	}
}

/// Writes a small file in one call.
pub(crate) fn write(path: &CStr, bytes: &[u8]) -> Result<()> {
	let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
	rustix::io::write(&file, bytes).map(drop)
}

/// The number in a line of `/proc/self/status`, for example of `b"VmPTE:"`.
pub(crate) fn status_field(key: &[u8]) -> Option<u64> {
	let mut found = None;
	for_each_line(c"/proc/self/status", |line| {
		if let Some(rest) = line.strip_prefix(key) {
			found = decimal(rest);
		}
	})
	.ok()?;
	found
}

/// The sum of a field, in bytes, over the lines of `/proc/self/smaps` about mappings that begin in `range`.
pub(crate) fn smaps_bytes(range: std::ops::Range<usize>, keys: &[&[u8]]) -> Result<u64> {
	let (mut inside, mut sum) = (false, 0);
	for_each_line(c"/proc/self/smaps", |line| {
		if let Some(m) = Mapping::parse(line) {
			inside = range.contains(&m.start);
		} else if inside {
			sum += keys.iter().filter_map(|key| decimal(line.strip_prefix(*key)?)).sum::<u64>() * 1024;
		}
	})?;
	Ok(sum)
}

/// The first decimal number of a text, blanks before it skipped.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
	let text = text.trim_ascii_start();
	let digits = text.iter().take_while(|b| b.is_ascii_digit());
	text.first()?
		.is_ascii_digit()
		.then(|| digits.fold(0, |n: u64, b| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0'))))
}

/// The first line of a mapping in maps or smaps.
pub(crate) struct Mapping<'a> {
	pub start: usize,
	pub end: usize,
	pub private: bool,
	pub name: &'a [u8],
}

impl Mapping<'_> {
	/// `7f00-8000 rw-p 00000000 00:00 0   [heap]`; `None` for any other line.
	pub(crate) fn parse(line: &[u8]) -> Option<Mapping<'_>> {
		let mut words = line.splitn(6, |b| *b == b' ');
		let mut addresses = words.next()?.splitn(2, |b| *b == b'-');
		let (start, end) = (hex(addresses.next()?)?, hex(addresses.next()?)?);
		let private = words.next()?.get(3) == Some(&b'p');
		let name = words.nth(3).unwrap_or(b"").trim_ascii();
		(start < end).then_some(Mapping { start, end, private, name })
	}
}

fn hex(digits: &[u8]) -> Option<usize> {
	if digits.is_empty() || digits.len() > 16 {
		return None;
	}
	digits.iter().try_fold(0, |n: usize, b| Some(n << 4 | (*b as char).to_digit(16)? as usize))
}

#[cfg(test)]
mod tests;

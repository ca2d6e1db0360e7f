//! Generators of random numbers that are linked into a program and notice no new process: Rust's `rand` from 0.9 on
//! (`ThreadRng`), which no longer counts forks. A program that has it is known by the name of its source file, which
//! messages of the compiler's have.

use crate::{range::Range, sys};

/// In the crate's directory.
const FILE: &[u8] = b"/src/rngs/thread.rs";
/// Most bytes of that directory's name.
const DIRECTORY: usize = 32;

/// Calls `each` with the name of each such crate whose file is named in a range, as far as that can be read. `chunk`:
/// room for copies of it.
pub fn find(range: Range, chunk: &mut [u8], mut each: impl FnMut(&[u8])) {
	let mut at = range.start;
	while at < range.end {
		let len = chunk.len().min(range.end - at);
		let bytes = &mut chunk[..len];
		if sys::read_own(at, bytes).is_err() {
			// Behind the end of a file.
			return;
		}
		search(bytes, &mut each);
		if len == range.end - at {
			return;
		}
		at += len - DIRECTORY - FILE.len();
	}
}

fn search(bytes: &[u8], each: &mut impl FnMut(&[u8])) {
	for (i, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
		if bytes[i..].starts_with(FILE) {
			let before = &bytes[i.saturating_sub(DIRECTORY)..i];
			let name = before.rsplit(|byte| *byte == b'/').next().unwrap_or(before);
			if is_one(name) {
				each(name);
			}
		}
	}
}

/// By the directory's name: `rand-0.9.2`, or `rand` where somebody keeps a copy.
fn is_one(name: &[u8]) -> bool {
	let Some(version) = name.strip_prefix(b"rand") else { return false };
	let counts = |minor: &u8| version.strip_prefix(&[b'-', b'0', b'.', *minor, b'.']).is_some();
	(version.is_empty() || version.starts_with(b"-")) && !b"345678".iter().any(counts)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_crate_is_known_by_its_source_file() {
		let text =
			b"\0/home/x/rand-0.8.5/src/rngs/thread.rs/x/rand-0.9.2/src/rngs/thread.rs/rand-0.10.4/src/rngs/thread.rs\
			/vendor/rand/src/rngs/thread.rs/brand/src/rngs/thread.rs/rand_core-0.9.0/src/rngs/thread.rs\0";
		let mut found = std::vec::Vec::new();
		for room in [4096, 64] {
			found.clear();
			let range = Range::new(text.as_ptr() as usize, text.as_ptr() as usize + text.len());
			find(range, &mut std::vec![0; room], |name| {
				found.push(std::string::String::from_utf8(name.to_vec()).unwrap())
			});
			found.dedup();
			assert_eq!(found, ["rand-0.9.2", "rand-0.10.4", "rand"], "{room}");
		}
	}
}

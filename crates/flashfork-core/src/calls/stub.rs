//! What a site jumps to: a few instructions on a page near the library, because a jump of five bytes reaches two
//! gigabytes.
//!
//! A stub executes what the jump has replaced and leads to [`super::enter`], with the address of its own `syscall`
//! instruction in rcx, which the kernel changes anyway. There the call goes on if nobody wants it: with the stack as it
//! was, so that `vfork` and `clone` may return twice. Two bytes further on the stub leads back, by way of
//! [`super::enter::after`].

use super::site::{JUMP, LINE, SYSCALL};
use crate::{code::memory::Memory, sys::PAGE};
use core::ops::Range;

/// Bytes of one stub at most.
const STUB: usize = LINE + 7 + 6 + SYSCALL.len() + 7 + 6;
/// Address of the entry, the words by which another copy of the engine knows the page, and the address of the way back.
const HEADER: usize = 32;
const WORDS: &[u8; 16] = b"flashfork calls1";

/// `lea offset(%rip),%rcx` and `jmp *offset(%rip)`, without their offsets.
const LOAD: [u8; 3] = [0x48, 0x8d, 0x0d];
const GO: [u8; 2] = [0xff, 0x25];

/// Where stubs lead: two functions of one copy of the engine.
#[derive(Clone, Copy)]
pub struct Ways {
	/// From a site.
	pub enter: usize,
	/// And back to it, after a call that the stub has made itself.
	pub back: usize,
}

/// A page of stubs as it is put together; it will lie at `at`.
pub struct Page {
	pub at: usize,
	pub bytes: [u8; PAGE],
	used: usize,
}

impl Page {
	/// An empty page.
	pub fn new(at: usize, ways: Ways) -> Page {
		let mut page = Page { at, bytes: [0xcc; PAGE], used: HEADER };
		page.bytes[..8].copy_from_slice(&ways.enter.to_ne_bytes());
		page.bytes[8..HEAD].copy_from_slice(WORDS);
		page.bytes[HEAD..HEADER].copy_from_slice(&ways.back.to_ne_bytes());
		page
	}

	/// Adds the stub of a site: `line` is what it executes, `next` the address behind its `syscall`. Returns the stub's
	/// address, or `None` when there is no room or the distance is too large.
	pub fn add(&mut self, line: &[u8], next: usize) -> Option<usize> {
		if self.used + STUB > PAGE || line.len() > LINE {
			return None;
		}
		let start = self.at + self.used;
		let call = start + line.len() + 13;
		self.put(line);
		self.put(&LOAD);
		self.put(&offset(start + line.len() + 7, call)?);
		self.put(&GO);
		self.put(&offset(call, self.at)?);
		self.put(&SYSCALL);
		let back = call + SYSCALL.len();
		self.put(&LOAD);
		self.put(&offset(back + 7, next)?);
		self.put(&GO);
		self.put(&offset(back + 13, self.at + HEAD)?);
		Some(start)
	}

	fn put(&mut self, bytes: &[u8]) {
		self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
		self.used += bytes.len();
	}
}

/// A jump from `at`.
pub fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
	let [a, b, c, d] = offset(at + JUMP, to)?;
	Some([0xe9, a, b, c, d])
}

fn offset(from: usize, to: usize) -> Option<[u8; 4]> {
	i32::try_from(to.wrapping_sub(from).cast_signed()).ok().map(i32::to_le_bytes)
}

/// Where the jump at the start of `code`, which lies at `at`, leads to.
pub fn target(code: &[u8], at: usize) -> Option<usize> {
	let offset = code.get(1..JUMP).filter(|_| code[0] == 0xe9)?.try_into().ok()?;
	Some((at + JUMP).wrapping_add_signed(i32::from_le_bytes(offset) as isize))
}

/// Bytes at the start of a page that tell whether it holds stubs.
pub const HEAD: usize = 24;

/// Whether a page that starts with these bytes holds stubs, of whatever copy of the engine.
pub fn is_page(bytes: &[u8]) -> bool {
	bytes.get(8..HEAD) == Some(WORDS)
}

/// The entry that the stubs of a page lead to.
pub fn entry(page: &[u8; PAGE]) -> usize {
	let mut word = [0; 8];
	word.copy_from_slice(&page[..8]);
	usize::from_ne_bytes(word)
}

/// What the stub at this place of its page executes in the site's stead.
pub fn line_of(page: &[u8; PAGE], start: usize) -> Option<Range<usize>> {
	let stub = page.get(start..)?;
	let len = (JUMP..=LINE).find(|len| {
		let rest = stub.get(*len..).unwrap_or_default();
		rest.starts_with(&LOAD) && rest.get(7..9) == Some(&GO) && rest.get(13..15) == Some(&SYSCALL)
	})?;
	Some(start..start + len)
}

/// Whether an address lies in a page of stubs.
pub fn is_stub(memory: &mut impl Memory, at: usize) -> bool {
	memory.bytes(at & !(PAGE - 1), PAGE).is_some_and(is_page)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_stub_is_read_as_it_was_written() {
		let mut page = Page::new(0x7000_0000, Ways { enter: 0x5555_5555_0000, back: 1 });
		let line = [0xb8, 28, 0, 0, 0, 0x48, 0x89, 0xf7];
		let first = page.add(&line, 0x7100_0010).unwrap();
		let second = page.add(&line[..5], 0x6fff_0000).unwrap();
		assert_eq!((first, entry(&page.bytes)), (0x7000_0000 + HEADER, 0x5555_5555_0000));
		assert!(is_page(&page.bytes));
		assert_eq!(line_of(&page.bytes, first - page.at).map(|r| &page.bytes[r]), Some(&line[..]));
		assert_eq!(line_of(&page.bytes, second - page.at).map(|r| &page.bytes[r]), Some(&line[..5]));
		assert_eq!(line_of(&page.bytes, second - page.at + 1), None);
		let jump = jump(0x7100_0000, first).unwrap();
		assert_eq!(target(&jump, 0x7100_0000), Some(first));
		assert_eq!(page.add(&line, 0x7000_0000 + (1 << 32)), None, "too far");
	}

	#[test]
	fn a_page_that_is_full_says_so() {
		let mut page = Page::new(0x7000_0000, Ways { enter: 1, back: 1 });
		let mut count = 0;
		while page.add(&[0x90; LINE], 0x7000_2000).is_some() {
			count += 1;
		}
		assert!((40..=64).contains(&count), "{count}");
	}
}

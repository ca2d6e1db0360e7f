//! The first page of a library: what an ELF file must say for the engine to take what is mapped behind it for its data
//! (elf(5)).

use crate::content::{PAGE, WORDS};

/// Pages of data behind it.
pub const DATA_PAGES: usize = 4;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PF_R: u64 = 4;
const PF_RW: u64 = 6;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// Where its parts are, in words.
const SEGMENTS: usize = 8;
const DYNAMIC: usize = SEGMENTS + 3 * 7;
const HASH: usize = DYNAMIC + 8;
const SYMBOLS: usize = HASH + 2;
const STRINGS: usize = SYMBOLS + 3;

/// Its words.
pub static FIRST_PAGE: [u64; WORDS] = words();

const fn words() -> [u64; WORDS] {
	let mut page = [0; WORDS];
	page[0] = u64::from_le_bytes(*b"\x7fELF\x02\x01\x01\0");
	// A shared object for x86-64, ELF version 1.
	page[2] = 3 | 62 << 16 | 1 << 32;
	page[4] = 8 * SEGMENTS as u64;
	// The header's length, a segment's, and how many there are.
	page[6] = 64 << 32 | 56 << 48;
	page[7] = 3;
	let data = (DATA_PAGES * PAGE) as u64;
	let segments = [
		(PT_LOAD | PF_R << 32, 0, PAGE as u64),
		(PT_LOAD | PF_RW << 32, PAGE as u64, data),
		(PT_DYNAMIC | PF_R << 32, 8 * DYNAMIC as u64, 64),
	];
	let mut i = 0;
	while i < segments.len() {
		let (kind, at, len) = segments[i];
		let head = SEGMENTS + 7 * i;
		page[head] = kind;
		// In the file, in memory twice; its length in both; the alignment.
		(page[head + 1], page[head + 2], page[head + 3]) = (at, at, at);
		(page[head + 4], page[head + 5], page[head + 6]) = (len, len, PAGE as u64);
		i += 1;
	}
	let dynamic = [(DT_HASH, HASH), (DT_STRTAB, STRINGS), (DT_SYMTAB, SYMBOLS)];
	i = 0;
	while i < dynamic.len() {
		page[DYNAMIC + 2 * i] = dynamic[i].0;
		page[DYNAMIC + 2 * i + 1] = 8 * dynamic[i].1 as u64;
		i += 1;
	}
	// One bucket and one symbol, which has no name.
	page[HASH] = 1 | 1 << 32;
	page
}

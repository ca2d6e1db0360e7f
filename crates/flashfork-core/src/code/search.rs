//! Finds the two bytes of a system call instruction, as fast as memory can be read.

use core::arch::x86_64::{
	__m128i, _MM_HINT_T0, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
	_mm_prefetch, _mm_set1_epi8,
};

/// `syscall`, `int 0x80`.
const INSTRUCTIONS: [[u8; 2]; 2] = [[0x0f, 0x05], [0xcd, 0x80]];
/// Bytes looked at in one round.
const ROUND: usize = 64;
/// The next page but a few lines: what hardware doesn't fetch ahead by itself.
const AHEAD: usize = 4096;

/// Writes the offsets of all matches that begin at `from` or behind into `found`. Gives how many, and up to which
/// offset the search came: less than all but the last byte when `found` is full.
pub fn matches(bytes: &[u8], from: usize, found: &mut [u32]) -> (usize, usize) {
	let (mut at, mut count) = (from, 0);
	let last = bytes.len().saturating_sub(1);
	while at < last {
		let end = (at + ROUND).min(last);
		if end - at < ROUND || round_has_match(bytes, at) {
			if found.len() - count < ROUND / 2 {
				return (count, at);
			}
			for i in at..end {
				if INSTRUCTIONS.iter().any(|two| bytes[i..i + 2] == *two) {
					found[count] = i as u32;
					count += 1;
				}
			}
		}
		at = end;
	}
	(count, last.max(from))
}

/// Whether a match begins in the 64 bytes at `at`; there must be 65.
fn round_has_match(bytes: &[u8], at: usize) -> bool {
	let place = bytes[at..=at + ROUND].as_ptr();
	// SAFETY: the slice above holds 65 bytes, and the last load ends at the 65th; SSE2 is part of x86-64, and a
	// prefetch reads nothing.
	unsafe {
		let has = |offset: usize| -> __m128i {
			let first = _mm_loadu_si128(place.add(offset).cast());
			let second = _mm_loadu_si128(place.add(offset + 1).cast());
			let one = |two: [u8; 2]| {
				_mm_and_si128(
					_mm_cmpeq_epi8(first, _mm_set1_epi8(two[0] as i8)),
					_mm_cmpeq_epi8(second, _mm_set1_epi8(two[1] as i8)),
				)
			};
			_mm_or_si128(one(INSTRUCTIONS[0]), one(INSTRUCTIONS[1]))
		};
		_mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(AHEAD).cast());
		_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(has(0), has(16)), _mm_or_si128(has(32), has(48)))) != 0
	}
}

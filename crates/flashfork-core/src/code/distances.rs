//! Tells which pieces of code can't lead to a few places, as fast as memory can be read.
//!
//! What leads somewhere in 4 bytes (a jump, a call, a `lea`) holds the distance from its end. From a short stretch of
//! code all distances to one place have the same upper half, or the next. So most code is told by looking at two of any
//! four bytes in a row, whatever the instructions are. Each byte is looked up by its two digits, in tables of one bit
//! for each place: the same for all places, and as many bytes at a time as a register has.

use crate::range::Range;
use core::arch::x86_64::{
	__cpuid, _MM_HINT_T0, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
	_mm_prefetch, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16,
};

/// Most places.
pub const PLACES: usize = 8;
/// Bytes looked at in one round.
pub const ROUND: usize = 64;
/// Bytes behind a round that what is looked for may reach to: a distance, or a constant of 8 bytes.
pub const BEHIND: usize = 8;
/// The next page but a few lines: what hardware doesn't fetch ahead by itself.
const AHEAD: usize = 4096;

/// Whether this processor looks up bytes in tables (`SSSE3`), as nearly all do. What can't be told without is looked
/// at more closely.
#[derive(Clone, Copy)]
pub struct Lookup(bool);

impl Lookup {
	/// It doesn't.
	#[cfg(test)]
	pub const NONE: Lookup = Lookup(false);

	/// Asks the processor.
	pub fn ask() -> Lookup {
		// Rust before 1.93 wants the block.
		#[allow(unused_unsafe)]
		// SAFETY: every x86-64 has this leaf.
		let features = unsafe { __cpuid(1) };
		Lookup(features.ecx & 1 << 9 != 0)
	}
}

/// The upper halves of what leads from one stretch of code to some places.
pub struct Distances {
	/// For each value of a digit a bit for each place: the lower digit of the lower byte of a half, the upper one, and
	/// those of the upper byte.
	digits: [[u8; 16]; 4],
	lookup: Lookup,
}

impl Distances {
	/// From code at `from` to places; where its addresses may be constants in it (`fixed`), those too.
	pub fn new(from: Range, places: &[Range], fixed: bool, lookup: Lookup) -> Distances {
		let mut all = Distances { digits: [[0; 16]; 4], lookup };
		for (i, place) in places.iter().enumerate() {
			let first = place.start.wrapping_sub(from.end + BEHIND).cast_signed();
			all.add(1 << i, first, place.end.wrapping_sub(from.start).cast_signed());
			if fixed {
				all.add(1 << i, place.start.cast_signed(), place.end.cast_signed());
			}
		}
		all
	}

	/// Adds the upper halves of numbers from one to another.
	fn add(&mut self, bit: u8, first: isize, last: isize) {
		let (first, last) = (first >> 16, last >> 16);
		let lower = if last - first < 0xff { first..=last } else { 0..=0xff };
		let upper = if last - first < 0xffff { first >> 8..=last >> 8 } else { 0..=0xff };
		for (values, tables) in [(lower, 0), (upper, 2)] {
			for value in values {
				self.digits[tables][value as usize & 15] |= bit;
				self.digits[tables + 1][value as usize >> 4 & 15] |= bit;
			}
		}
	}

	/// Looks at rounds from `at` on, one after the other, that begin before `end`. Stops behind the first in which 4
	/// bytes that lead to one of the places may begin directly behind one of its bytes: gives where it begins, and a
	/// bit for each such byte. There must be [`BEHIND`] bytes behind each.
	pub fn next(&self, bytes: &[u8], at: &mut usize, end: usize) -> Option<(usize, u64)> {
		let behind = if *at >= end {
			return None;
		} else if self.lookup.0 {
			// SAFETY: the processor has SSSE3.
			unsafe { self.look_up(bytes, at, end) }?
		} else {
			u64::MAX
		};
		*at += ROUND;
		Some((*at - ROUND, behind))
	}

	/// Goes to the next such round.
	#[target_feature(enable = "ssse3")]
	fn look_up(&self, bytes: &[u8], at: &mut usize, end: usize) -> Option<u64> {
		// SAFETY: each holds 16 bytes.
		let table = |n: usize| unsafe { _mm_loadu_si128(self.digits[n].as_ptr().cast()) };
		let (a, b, c, d) = (table(0), table(1), table(2), table(3));
		let (none, digit) = (_mm_setzero_si128(), _mm_set1_epi8(15));
		let lower = |bytes| _mm_and_si128(bytes, digit);
		let upper = |bytes| _mm_and_si128(_mm_srli_epi16::<4>(bytes), digit);
		while *at < end {
			let place = bytes[*at..*at + ROUND + BEHIND].as_ptr();
			_mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(AHEAD).cast());
			// No function of others gets a closure from here, which it would have to call: it lacks the feature.
			let block = |block: usize| {
				// SAFETY: the slice above holds 72 bytes, and the last load ends at the 68th.
				let load = |byte| unsafe { _mm_loadu_si128(place.add(block + byte).cast()) };
				// The lower byte of a half is 3 behind the byte that it counts for, the upper one 4.
				let (low, high) = (load(3), load(4));
				let low = _mm_and_si128(_mm_shuffle_epi8(a, lower(low)), _mm_shuffle_epi8(b, upper(low)));
				let high = _mm_and_si128(_mm_shuffle_epi8(c, lower(high)), _mm_shuffle_epi8(d, upper(high)));
				_mm_and_si128(low, high)
			};
			let [e, f, g, h] = [block(0), block(16), block(32), block(48)];
			let is_none = |block| u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(block, none)).cast_unsigned());
			if is_none(_mm_or_si128(_mm_or_si128(e, f), _mm_or_si128(g, h))) != 0xffff {
				return Some(!(is_none(e) | is_none(f) << 16 | is_none(g) << 32 | is_none(h) << 48));
			}
			*at += ROUND;
		}
		None
	}
}

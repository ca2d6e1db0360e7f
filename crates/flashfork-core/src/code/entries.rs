//! Ways into the middle of functions, from anywhere in an object.
//!
//! What a function's own instructions say holds only when it is entered at its beginning. All code of the object is
//! searched for jumps, calls and addresses, and all its data for addresses, that lead to the middle of those functions
//! whose system calls are harmless otherwise.

use super::{
	Code,
	distances::{BEHIND, Distances, Lookup, PLACES, ROUND},
	instruction::Instruction,
	is_instruction,
	memory::{Memory, WINDOW},
};
use crate::range::Range;

/// Most parts of one object in whose middle nothing may get.
const PARTS: usize = 2048;
const WAYS: usize = 4096;
/// Bits by which most addresses are told to be in none of the parts, and bytes that one stands for.
const BITS: usize = 1 << 16;
const GRAIN: usize = 64;
/// Most ways that one distance or constant may be.
const WAYS_OF_ONE: usize = 3;
/// Most found in one window before they are looked at more closely.
const FOUND: usize = 256;
/// Bytes of code within which few distances lead to one place.
const STRETCH: usize = 32 << 10;
/// Bytes of an instruction before the 4 looked for.
const BEFORE: usize = 7;
/// Places that are farther apart are told from each other, while there aren't too many.
const APART: usize = 64 << 10;

/// A way into the middle of a part.
#[derive(Clone, Copy)]
pub struct Way {
	/// Address of the instruction's last byte, or of the word in data.
	pub from: usize,
	/// Where it leads.
	pub to: usize,
}

/// What is searched for, and found. All zeros is a valid value.
pub struct Entries {
	bits: [u64; BITS / 64],
	parts: [Range; PARTS],
	count: usize,
	/// The few places that hold all parts, once they are searched for.
	places: [Range; PLACES],
	place_count: usize,
	ways: [Way; WAYS],
	way_count: usize,
}

/// More than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Why a search has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
	/// There is more than there is room for.
	Full,
	/// Something can't be read.
	Unreadable,
}

impl Entries {
	/// Begins anew.
	pub fn clear(&mut self) {
		self.bits.fill(0);
		(self.count, self.way_count) = (0, 0);
	}

	/// Adds a part. What leads to its first byte is none of the ways.
	pub fn add(&mut self, part: Range) -> Result<(), Full> {
		*self.parts.get_mut(self.count).ok_or(Full)? = part;
		self.count += 1;
		for grain in part.start / GRAIN..=part.end / GRAIN {
			self.bits[grain % BITS / 64] |= 1 << (grain % 64);
		}
		Ok(())
	}

	/// The parts, by address once they have been searched for.
	pub fn parts(&self) -> &[Range] {
		&self.parts[..self.count]
	}

	/// The ways that were found.
	pub fn ways(&self) -> &[Way] {
		&self.ways[..self.way_count]
	}

	/// The part into whose middle an address leads.
	fn part(&self, to: usize) -> Option<Range> {
		let grain = to / GRAIN;
		if self.bits[grain % BITS / 64] >> (grain % 64) & 1 == 0 {
			return None;
		}
		let behind = self.parts().partition_point(|part| part.start < to);
		self.parts().get(behind.checked_sub(1)?).copied().filter(|part| part.contains(to))
	}

	fn note(&mut self, way: Way) -> Result<(), Failed> {
		*self.ways.get_mut(self.way_count).ok_or(Failed::Full)? = way;
		self.way_count += 1;
		Ok(())
	}

	/// Sorts the parts, and makes few places of them.
	fn gather(&mut self) {
		self.parts[..self.count].sort_unstable_by_key(|part| part.start);
		let mut apart = APART;
		while !self.gather_within(apart) {
			apart *= 2;
		}
	}

	/// Makes one place of parts that are no farther apart than this. False: there are too many.
	fn gather_within(&mut self, apart: usize) -> bool {
		self.place_count = 0;
		for part in &self.parts[..self.count] {
			match self.places[..self.place_count].last_mut() {
				Some(last) if part.start <= last.end + apart => last.end = last.end.max(part.end),
				_ => {
					let Some(place) = self.places.get_mut(self.place_count) else { return false };
					*place = *part;
					self.place_count += 1;
				}
			}
		}
		true
	}

	/// Searches all code and data of an object.
	pub fn search(&mut self, memory: &mut impl Memory, code: &Code, lookup: Lookup) -> Result<(), Failed> {
		self.gather();
		for range in code.ranges {
			self.search_code(memory, *range, code, lookup)?;
		}
		// No loader writes into code: where it may lie anywhere, no address is in it.
		let constant = code.ranges.iter().filter(|_| code.fixed);
		for range in code.data.iter().chain(constant) {
			self.search_data(memory, *range)?;
		}
		Ok(())
	}

	fn search_code(
		&mut self,
		memory: &mut impl Memory,
		range: Range,
		code: &Code,
		lookup: Lookup,
	) -> Result<(), Failed> {
		let leads = |i: &Instruction| i.jumps().or(i.calls()).or(i.names()).is_some() || i.constant().is_some();
		let mut at = range.start;
		while at < range.end {
			let start = at.saturating_sub(BEFORE).max(range.start);
			let end = (start + WINDOW).min(range.end);
			let bytes = memory.bytes(start, end - start).ok_or(Failed::Unreadable)?;
			let window = Window { bytes, start, is_last: end == range.end, fixed: code.fixed };
			let mut found = Found { ways: [Way { from: 0, to: 0 }; FOUND], count: 0 };
			at = start + self.search_window(&window, at - start, lookup, &mut found);
			for way in &found.ways[..found.count] {
				if is_instruction(memory, code, way.from, leads) {
					self.note(*way)?;
				}
			}
		}
		Ok(())
	}

	/// Searches a window from an offset on. Gives up to where: farther than that.
	fn search_window(&self, window: &Window, from: usize, lookup: Lookup, found: &mut Found) -> usize {
		let len = window.bytes.len();
		// Whole rounds begin before this.
		let whole = (len + 1).saturating_sub(ROUND + BEHIND);
		let mut at = from;
		while at < whole {
			let end = (at + STRETCH).min(whole);
			let addresses = Range::new(window.start + at, window.start + at + STRETCH);
			let distances = Distances::new(addresses, &self.places[..self.place_count], window.fixed, lookup);
			while let Some((round, behind)) = distances.next(window.bytes, &mut at, end) {
				if !found.has_room() {
					return round;
				}
				self.look(window, round, behind, found);
			}
		}
		while window.is_last && at < len && found.has_room() {
			let count = ROUND.min(len - at);
			self.look(window, at, u64::MAX >> (ROUND - count), found);
			at += count;
		}
		at
	}

	/// Finds the ways whose 4 bytes begin directly behind those bytes of a round that have a bit each.
	fn look(&self, window: &Window, round: usize, mut behind: u64, found: &mut Found) {
		while behind != 0 {
			let at = round + behind.trailing_zeros() as usize + 1;
			behind &= behind - 1;
			let Some(four) = window.bytes.get(at..).and_then(|bytes| bytes.first_chunk()) else { return };
			if let Some(begin) = with_distance(window.bytes, at) {
				let to = (window.start + at + 4).wrapping_add_signed(i32::from_le_bytes(*four) as isize);
				// What a part does inside itself is known.
				if self.part(to).is_some_and(|part| !part.contains(window.start + begin)) {
					found.push(Way { from: window.start + at + 3, to });
				}
			}
			let long = window.bytes[at..].first_chunk().map(|eight| usize::from_le_bytes(*eight));
			for (len, value) in [(4, Some(u32::from_le_bytes(*four) as usize)), (8, long)] {
				let Some(to) = value.filter(|to| window.fixed && self.part(*to).is_some()) else { continue };
				if is_constant(window.bytes, at, len) {
					found.push(Way { from: window.start + at + len - 1, to });
				}
			}
		}
	}

	fn search_data(&mut self, memory: &mut impl Memory, range: Range) -> Result<(), Failed> {
		let (Some(first), Some(last)) = (self.parts().first(), self.parts().last()) else { return Ok(()) };
		let all = Range::new(first.start, last.end);
		let mut at = range.start.next_multiple_of(8);
		while at + 8 <= range.end {
			let end = (at + WINDOW).min(range.end);
			let bytes = memory.bytes(at, end - at).ok_or(Failed::Unreadable)?;
			for (i, word) in bytes.as_chunks().0.iter().enumerate() {
				let to = usize::from_le_bytes(*word);
				// One comparison, which nearly always comes out the same, so that processors foresee it.
				if to.wrapping_sub(all.start) < all.len() && self.part(to).is_some() {
					self.note(Way { from: at + 8 * i, to })?;
				}
			}
			at += (end - at) & !7;
		}
		Ok(())
	}
}

struct Window<'a> {
	bytes: &'a [u8],
	/// The address of the first.
	start: usize,
	/// Whether there is no code behind it.
	is_last: bool,
	/// Whether addresses may be constants in it.
	fixed: bool,
}

struct Found {
	ways: [Way; FOUND],
	count: usize,
}

impl Found {
	/// Whether there is room for what one round can hold.
	fn has_room(&self) -> bool {
		self.count + WAYS_OF_ONE * ROUND <= FOUND
	}

	fn push(&mut self, way: Way) {
		self.ways[self.count] = way;
		self.count += 1;
	}
}

/// Where the opcode begins of an instruction whose last 4 bytes, at `at`, are the distance from its end to where it
/// leads.
fn with_distance(code: &[u8], at: usize) -> Option<usize> {
	let last = code[at - 1];
	if matches!(last, 0xe8 | 0xe9) {
		return Some(at - 1);
	}
	let is = match code[at.checked_sub(2)?] {
		0x0f => matches!(last, 0x80..=0x8f),
		// lea
		0x8d => last & 0xc7 == 0x05,
		// xbegin
		0xc7 => last == 0xf8,
		_ => false,
	};
	is.then_some(at - 2)
}

/// Whether an instruction may have these last bytes as a constant.
fn is_constant(code: &[u8], at: usize, len: usize) -> bool {
	let ends = |i: &Instruction, begin: usize| begin + i.len == at + len && i.constant().is_some();
	(at.saturating_sub(BEFORE)..at).any(|begin| Instruction::decode(&code[begin..]).is_some_and(|i| ends(&i, begin)))
}

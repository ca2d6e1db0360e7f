//! Ways into the middle of functions, from anywhere in an object.
//!
//! What a function's own instructions say holds only when it is entered at its beginning. All code of the object is
//! searched for jumps, calls and addresses, and all its data for addresses, that lead to the middle of those functions
//! whose system calls are harmless otherwise.

use super::instruction::Instruction;
use super::memory::{Memory, WINDOW};
use super::{Code, is_instruction};
use crate::range::Range;
use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
};

/// Most parts of one object in whose middle nothing may get.
const PARTS: usize = 2048;
/// Most ways found.
const WAYS: usize = 4096;
/// Bits by which most addresses are told to be in none of the parts, and bytes that one stands for.
const BITS: usize = 1 << 16;
const GRAIN: usize = 64;
/// Most found in one window before they are looked at more closely.
const FOUND: usize = 256;
/// The last byte of a window at which an instruction is looked for is as far from its end.
const TAIL: usize = 32;

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

    /// Searches all code and data of an object.
    pub fn search(&mut self, memory: &mut impl Memory, code: &Code) -> Result<(), Failed> {
        self.parts[..self.count].sort_unstable_by_key(|part| part.start);
        for range in code.ranges {
            self.search_code(memory, *range, code)?;
        }
        // No loader writes into code: where it may lie anywhere, no address is in it.
        let constant = code.ranges.iter().filter(|_| code.fixed);
        for range in code.data.iter().chain(constant) {
            self.search_data(memory, *range)?;
        }
        Ok(())
    }

    fn search_code(&mut self, memory: &mut impl Memory, range: Range, code: &Code) -> Result<(), Failed> {
        let mut at = range.start;
        while at < range.end {
            let end = (at + WINDOW).min(range.end);
            let bytes = memory.bytes(at, end - at).ok_or(Failed::Unreadable)?;
            let mut found = Found { ways: [Way { from: 0, to: 0 }; FOUND], count: 0 };
            let leads = |i: &Instruction| i.jumps().or(i.calls()).or(i.names()).is_some() || i.constant().is_some();
            let searched = self.search_window(bytes, at, end == range.end, code.fixed, &mut found);
            for way in &found.ways[..found.count] {
                if is_instruction(memory, code, way.from, leads) {
                    self.note(*way)?;
                }
            }
            at += searched;
        }
        Ok(())
    }

    /// Gives how many bytes were searched: more than none.
    fn search_window(&self, bytes: &[u8], address: usize, is_last: bool, fixed: bool, found: &mut Found) -> usize {
        const ROUND: usize = 16;
        let mut at = 0;
        while at < bytes.len() {
            let left = bytes.len() - at;
            if left < TAIL && !is_last {
                return at;
            }
            if found.count > FOUND - ROUND {
                return at;
            }
            let mut mask = if left > ROUND && !fixed { branches(bytes, at) } else { (1 << left.min(ROUND)) - 1 };
            while mask != 0 {
                let offset = at + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let Some(way) = self.way(&bytes[offset..], address + offset, fixed) else { continue };
                found.ways[found.count] = way;
                found.count += 1;
            }
            at += left.min(ROUND);
        }
        bytes.len()
    }

    /// The way into a part's middle that an instruction with these bytes is.
    fn way(&self, bytes: &[u8], address: usize, fixed: bool) -> Option<Way> {
        let relative = |bytes: usize, distance: &[u8; 4]| {
            let to = address.wrapping_add(bytes).wrapping_add(i32::from_le_bytes(*distance) as usize);
            // What a part does inside itself is known.
            self.part(to).filter(|part| !part.contains(address)).map(|_| to)
        };
        let (len, to) = match *bytes {
            [0xe8 | 0xe9, a, b, c, d, ..] => (5, relative(5, &[a, b, c, d])),
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => (6, relative(6, &[a, b, c, d])),
            [0x8d, modrm, a, b, c, d, ..] if modrm & 0xc7 == 5 => (6, relative(6, &[a, b, c, d])),
            [0x68 | 0xb8..=0xbf | 0xc7, ..] if fixed => {
                let i = Instruction::decode(bytes)?;
                (i.len, i.constant().filter(|to| self.part(*to).is_some()))
            }
            _ => return None,
        };
        to.map(|to| Way { from: address + len - 1, to })
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
                if all.contains(to) && self.part(to).is_some() {
                    self.note(Way { from: at + 8 * i, to })?;
                }
            }
            at += (end - at) & !7;
        }
        Ok(())
    }
}

struct Found {
    ways: [Way; FOUND],
    count: usize,
}

/// At which of the 16 bytes at `at` a jump, call or `lea` with a distance of 4 bytes may have its opcode; there must be
/// 17.
fn branches(bytes: &[u8], at: usize) -> u32 {
    let place = bytes[at..=at + 16].as_ptr();
    // SAFETY: the slice above holds 17 bytes, and the last load ends at the 17th; SSE2 is part of x86-64.
    unsafe {
        let first: __m128i = _mm_loadu_si128(place.cast());
        let second = _mm_loadu_si128(place.add(1).cast());
        let is = |bytes, mask: u8, value: u8| {
            _mm_cmpeq_epi8(_mm_and_si128(bytes, _mm_set1_epi8(mask as i8)), _mm_set1_epi8(value as i8))
        };
        let near = is(first, 0xfe, 0xe8);
        let conditional = _mm_and_si128(is(first, 0xff, 0x0f), is(second, 0xf0, 0x80));
        let names = _mm_and_si128(is(first, 0xff, 0x8d), is(second, 0xc7, 0x05));
        _mm_movemask_epi8(_mm_or_si128(near, _mm_or_si128(conditional, names))).cast_unsigned()
    }
}

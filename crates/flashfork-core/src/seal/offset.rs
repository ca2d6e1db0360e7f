//! Where a run lies in its generation's memfd.
//!
//! Each run has a window of 4 TiB of its own and ends where the window does. A mapping that grows (`mremap`) beyond its
//! run goes on in the lower half of the next window, where nothing is: it reads zeros, and its offset tells that
//! nothing was sealed there. The top bits remember the advice of the original VMA. All this travels with the mapping
//! through every split, move and fork, and an unseal finds it in `/proc/thread-self/maps`.

use crate::{
	proc::vma::{Flags, Kind, Vma},
	range::Range,
	sys::HUGE,
};
use linux_raw_sys::general as k;

/// Length of every memfd: large enough that no mapping reaches the end.
pub const FILE_LEN: u64 = 3 << 61;

const WINDOW_SHIFT: u32 = 42;
/// Most bytes of a run, and of growth behind it.
const HALF: u64 = 1 << (WINDOW_SHIFT - 1);

/// Where the copies of a snapshot lie: in the window behind those of all runs, where one would be.
pub const COPIES: u64 = ((crate::arena::MAX_RUNS as u64 + 1) << WINDOW_SHIFT) + HALF;

const ADVICE_SHIFT: u32 = 57;
const ADVICES: [(&[u8; 2], u32); 4] =
	[(b"hg", k::MADV_HUGEPAGE), (b"nh", k::MADV_NOHUGEPAGE), (b"rr", k::MADV_RANDOM), (b"sr", k::MADV_SEQUENTIAL)];

/// Among the bits of advice: the mapping was made with `MAP_NORESERVE`, and what it grows by isn't charged either
/// (mmap(2)). Sealed memory itself always is such a mapping.
pub const UNRESERVED: u8 = 16;

/// Among the bits of advice: the data of a library ([`super::library`]), which is never [`UNRESERVED`].
pub const LIBRARY: u8 = 32;

/// The advice of a VMA as four bits.
fn advice_of_flags(flags: &Flags) -> u8 {
	(0..).zip(ADVICES).filter(|(_, (letters, _))| flags.has(letters)).map(|(bit, _)| 1 << bit).sum()
}

/// The advice that a sealed VMA had before.
pub fn advice_of_sealed(vma: &Vma) -> u8 {
	(vma.offset >> ADVICE_SHIFT) as u8 & 63
}

/// The advice that a VMA has whose flags are known: sealed memory has what it had before, but for what was asked for
/// since.
pub fn advice_of(vma: &Vma) -> u8 {
	let now = advice_of_flags(&vma.flags);
	if vma.kind != Kind::Sealed {
		return now | if vma.flags.has(b"nr") { UNRESERVED } else { 0 };
	}
	// Each of a pair takes the other away.
	let since = [0b0011, 0b1100].into_iter().filter(|pair| now & pair != 0).sum::<u8>();
	advice_of_sealed(vma) & !since | now
}

/// The `madvise` values for such bits.
pub fn advices(bits: u8) -> impl Iterator<Item = u32> {
	(0..4).zip(ADVICES).filter(move |(bit, _)| bits & (1 << bit) != 0).map(|(_, (_, advice))| advice)
}

/// The offset for a run, equal to its address modulo 2 MB so that huge pages fit. None for one that is too long for a
/// window.
pub const fn of_run(index: usize, advice: u8, run: Range) -> Option<u64> {
	if run.len() as u64 > HALF - HUGE as u64 {
		return None;
	}
	let latest = ((index as u64 + 1) << WINDOW_SHIFT) - run.len() as u64;
	let aligned = latest - (latest - run.start as u64 % HUGE as u64) % HUGE as u64;
	Some(((advice as u64) << ADVICE_SHIFT) + aligned)
}

/// What a mapping of a sealed memfd shows from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
	/// What was sealed, for so many bytes; at their end less than 2 MB may be growth.
	Run(u64),
	/// What it has grown by since, for so many bytes.
	Growth(u64),
}

/// See [`Shows`].
pub const fn shows(offset: u64) -> Shows {
	match offset % (1 << WINDOW_SHIFT) {
		at if at < HALF => Shows::Growth(HALF - at),
		at => Shows::Run((1 << WINDOW_SHIFT) - at),
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::arena::MAX_RUNS;

	#[test]
	fn offsets_stay_in_the_file_and_apart() {
		let of = |index, advice, start, len| of_run(index, advice, Range::new(start, start + len));
		let mut end = HALF;
		for (index, start, len) in
			[(0, 0, HUGE), (1, 0x1234_5000, 4096), (2, HUGE - 4096, 40 << 30), (3, HUGE, 3 * HUGE)]
		{
			let at = of(index, 0, start, len).unwrap();
			assert_eq!(at % HUGE as u64, (start % HUGE) as u64);
			assert!(at >= end, "no run lies in what the one before may grow by");
			assert!(matches!(shows(at), Shows::Run(n) if n >= len as u64 && n < (len + HUGE) as u64));
			assert!(matches!(shows(at + len as u64 - 1), Shows::Run(_)));
			let Shows::Run(rest) = shows(at) else { unreachable!() };
			assert_eq!(shows(at + rest), Shows::Growth(HALF));
			assert_eq!(shows(at + rest + 4096), Shows::Growth(HALF - 4096));
			end = at + rest + HALF;
		}
		let last = of(MAX_RUNS - 1, 31, 0, HUGE).unwrap();
		assert!(last + HALF + HUGE as u64 + (1 << 56) < FILE_LEN);
		const { assert!(COPIES + HALF < 1 << ADVICE_SHIFT) };
		assert!(of(MAX_RUNS - 1, 0, 0, HUGE).unwrap() + HALF < COPIES);
		assert_eq!(shows(COPIES), Shows::Run(HALF));
		assert_eq!(last >> ADVICE_SHIFT, 31);
		// What is a library's doesn't grow.
		let library = of(MAX_RUNS - 1, LIBRARY | 15, 0, HUGE).unwrap();
		assert!(library + HALF < FILE_LEN && library >> ADVICE_SHIFT == 47);
		assert_eq!(of(0, 0, 0, 1 << 41), None);
		let mut sealed = Vma::new(Range::new(0, HUGE), 1, b"/memfd:flashfork:0000000001 (deleted)", false);
		sealed.offset = of(0, 0b0101, 0, HUGE).unwrap();
		assert_eq!(advice_of(&sealed), 0b0101);
		sealed.flags.push(*b"nr");
		assert_eq!(advice_of(&sealed), 0b0101, "so is all sealed memory");
		sealed.flags.push(*b"nh");
		assert_eq!(advice_of(&sealed), 0b0110);
		assert_eq!(advices(0b101).collect::<Vec<_>>(), [k::MADV_HUGEPAGE, k::MADV_RANDOM]);
	}
}

//! The parent's memory: one private anonymous mapping filled with known words.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use super::Method;
use crate::prelude::*;

/// Bytes of a page as the experiment counts them.
pub const PAGE: usize = 4096;
/// Words (of 8 bytes) in a page.
pub const WORDS_PER_PAGE: usize = PAGE / 8;
const HUGE: usize = 2 << 20;

/// The memory of a worker. It is never unmapped: it ends with the process.
pub struct Region {
	base: NonNull<u64>,
	words: usize,
}

impl Region {
	/// Maps `size` bytes at a multiple of 2 MB, advises the kernel as `method` wants it and fills every word.
	pub fn filled(method: Method, size: u64) -> Result<Self> {
		let region = Self::mapped(method, size)?;
		for index in 0..region.words {
			region.write(index, word(index));
		}
		Ok(region)
	}

	/// The same, but touches nothing.
	pub fn mapped(method: Method, size: u64) -> Result<Self> {
		let size = usize::try_from(size).map_err(|_| unable!("{size} bytes can't be addressed"))?;
		let size = size.next_multiple_of(if method == Method::Hugetlb { HUGE } else { PAGE });
		if size == 0 {
			return Ok(Self { base: NonNull::dangling(), words: 0 });
		}
		let failed = |errno: rustix::io::Errno| {
			BenchError::system(format!("map {}", flashfork_terminal::size::show(size as u64)), errno)
		};
		// Such a mapping is aligned by the kernel, and a larger one would take a page more than there may be.
		let (length, flags) = match method {
			Method::Hugetlb => (size, MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB),
			_ => (size + HUGE, MapFlags::PRIVATE),
		};
		// SAFETY: a new mapping at an address of the kernel's choice.
		let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }
			.map_err(failed)?;
		let aligned = mapped.map_addr(|address| address.next_multiple_of(HUGE));
		let advice = match method {
			Method::Fork4k | Method::Odf => Some(Advice::LinuxNoHugepage),
			Method::ForkThp => Some(Advice::LinuxHugepage),
			// As an unsuspecting program has it; and huge as it is.
			Method::Seal | Method::Hugetlb => None,
		};
		if let Some(advice) = advice {
			// SAFETY: the range lies within the new mapping; these advices don't change contents.
			match unsafe { madvise(aligned, size, advice) } {
				// A kernel without transparent huge pages has nothing to advise about.
				Ok(()) | Err(rustix::io::Errno::INVAL) => {}
				Err(errno) => return Err(failed(errno)),
			}
		}
		let base = NonNull::new(aligned.cast::<u64>()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
		Ok(Self { base, words: size / 8 })
	}

	/// Address of the first byte.
	pub fn address(&self) -> u64 {
		self.base.as_ptr().addr() as u64
	}

	pub fn bytes(&self) -> u64 {
		self.words as u64 * 8
	}

	/// Length in pages of 4 KB.
	pub fn pages(&self) -> usize {
		self.words / WORDS_PER_PAGE
	}

	/// Reads the word `index`, in memory and not from what the compiler knows.
	#[inline]
	pub fn read(&self, index: usize) -> u64 {
		assert!(index < self.words);
		// SAFETY: within the mapping, aligned, initialised by the kernel at the latest.
		unsafe { self.base.add(index).read_volatile() }
	}

	/// Writes the word `index`. The region is only reached through raw pointers, so no reference is contradicted.
	#[inline]
	pub fn write(&self, index: usize, value: u64) {
		assert!(index < self.words);
		// SAFETY: within the mapping and aligned; the process has one thread.
		unsafe { self.base.add(index).write_volatile(value) }
	}

	/// Copies words from `first` on into `target`.
	pub fn copy_out(&self, first: usize, target: &mut [u64]) {
		assert!(first + target.len() <= self.words);
		// SAFETY: within the mapping and aligned; the target is memory of its own.
		unsafe { self.base.add(first).as_ptr().copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) }
	}

	/// Copies `source` over the words from `first` on.
	pub fn copy_in(&self, first: usize, source: &[u64]) {
		assert!(first + source.len() <= self.words);
		// SAFETY: within the mapping and aligned; the source is memory of its own; the process has one thread.
		unsafe { self.base.add(first).as_ptr().copy_from_nonoverlapping(source.as_ptr(), source.len()) }
	}

	/// Checks every word against what was filled in.
	pub fn verify(&self) -> Result {
		match (0..self.words).find(|&index| self.read(index) != word(index)) {
			None => Ok(()),
			Some(index) => Err(BenchError::Void(format!(
				"the parent's memory changed: byte {} of {} differs from what was written",
				index * 8,
				self.bytes()
			))),
		}
	}
}

/// The word at `index`: pseudo-random, no byte of it zero. Zero or compressible pages would flatter hypervisors and
/// swap.
///
/// The mixer is SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
/// 2014).
#[inline]
pub fn word(index: usize) -> u64 {
	mix(index as u64) | 0x0101_0101_0101_0101
}

/// A bijection of 64-bit numbers that scatters neighbours.
#[inline]
pub fn mix(number: u64) -> u64 {
	let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
	z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
	z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
	z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn no_byte_is_zero_and_pages_differ() {
		assert!((0..100_000).all(|index| word(index).to_ne_bytes().iter().all(|&byte| byte != 0)));
		let distinct: std::collections::HashSet<u64> = (0..100_000).map(word).collect();
		assert!(distinct.len() > 99_990);
	}

	#[test]
	fn a_changed_word_is_noticed() {
		let region = Region::filled(Method::Fork4k, 3 * PAGE as u64 - 1).unwrap();
		assert_eq!((region.pages(), region.bytes(), region.address() % HUGE as u64), (3, 3 * PAGE as u64, 0));
		region.verify().unwrap();
		region.write(1000, !word(1000));
		assert!(region.verify().unwrap_err().to_string().contains("byte 8000 of 12288"));
	}

	#[test]
	fn an_empty_region_is_no_mapping() {
		let region = Region::filled(Method::ForkThp, 0).unwrap();
		assert_eq!((region.pages(), region.bytes()), (0, 0));
		region.verify().unwrap();
	}
}

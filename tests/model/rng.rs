//! The random numbers of a run: the same for a seed for ever, whatever a library does, because seeds are kept in a
//! file.

/// SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, passes the usual tests, five lines.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
	pub fn new(seed: u64) -> Rng {
		Rng(seed)
	}

	pub fn next(&mut self) -> u64 {
		self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
		let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
		let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
		z ^ (z >> 31)
	}

	/// A number below `n`, which is not 0. The bias is of no importance here.
	pub fn below(&mut self, n: usize) -> usize {
		(self.next() % n as u64) as usize
	}

	/// A number in `low..=high`.
	pub fn between(&mut self, low: usize, high: usize) -> usize {
		low + self.below(high - low + 1)
	}

	/// True `percent` times in a hundred.
	pub fn chance(&mut self, percent: usize) -> bool {
		self.below(100) < percent
	}

	pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
		of[self.below(of.len())]
	}

	/// Puts the values in some order (Fisher and Yates).
	pub fn shuffle<T>(&mut self, values: &mut [T]) {
		for i in (1..values.len()).rev() {
			values.swap(i, self.below(i + 1));
		}
	}

	pub fn weighted<T: Copy>(&mut self, of: &[(usize, T)]) -> T {
		let mut at = self.below(of.iter().map(|(w, _)| w).sum());
		for (weight, value) in of {
			match at.checked_sub(*weight) {
				None => return *value,
				Some(rest) => at = rest,
			}
		}
		of[0].1
	}
}

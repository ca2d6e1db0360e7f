//! The numbers and words the rows are made of.

/// A small deterministic generator (splitmix64, Steele, Lea and Flood, OOPSLA 2014).
///
/// It is written out here, and not taken from a crate, because images of the database are kept between runs: the same
/// seed must give the same rows whatever versions of other crates a later build picks.
pub struct Random(u64);

impl Random {
	pub fn new(seed: u64) -> Self {
		Self(seed)
	}

	pub fn next(&mut self) -> u64 {
		self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
		let mut z = self.0;
		z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
		z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
		z ^ (z >> 31)
	}

	/// A number in `0..bound`; `bound` is at least 1. The bias of the multiplication is below 2^-32 for the bounds used
	/// here.
	pub fn below(&mut self, bound: u64) -> u64 {
		((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
	}

	pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
		choices[self.below(choices.len() as u64) as usize]
	}

	/// Replaces `text` by words up to a length drawn from `shortest..longest` bytes.
	pub fn sentence(&mut self, text: &mut String, shortest: u64, longest: u64) {
		const WORDS: [&str; 16] = [
			"amber", "boat", "cedar", "delta", "ember", "fjord", "grain", "harbour", "iris", "juniper", "kettle",
			"linen", "marble", "north", "olive", "pebble",
		];
		let length = (shortest + self.below(longest - shortest)) as usize;
		text.clear();
		let mut bits = 0;
		let mut left = 0;
		while text.len() < length {
			if left == 0 {
				bits = self.next();
				left = 16;
			}
			text.push_str(WORDS[(bits & 15) as usize]);
			text.push(' ');
			bits >>= 4;
			left -= 1;
		}
		text.truncate(length);
	}
}

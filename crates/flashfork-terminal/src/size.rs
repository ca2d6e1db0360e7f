//! Sizes in bytes, as people write them: `0`, `64M`, `1.7M`, `1G`.

use std::{fmt, str::FromStr};

/// A number of bytes written with an optional binary suffix `K`, `M`, `G` or `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A size that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size; write a number with an optional K, M, G or T, such as 64M, up to 1024T")]
pub struct SizeError(String);

/// No process can address more, and sums of so many bytes still fit.
const LARGEST: u64 = 1 << 50;

const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Size {
	type Err = SizeError;

	fn from_str(text: &str) -> Result<Self, SizeError> {
		let size = Self::any(text)?;
		if size.0 <= LARGEST { Ok(size) } else { Err(SizeError(text.to_owned())) }
	}
}

impl Size {
	/// A size, however large.
	fn any(text: &str) -> Result<Self, SizeError> {
		let wrong = || SizeError(text.to_owned());
		let upper = text.trim().to_ascii_uppercase();
		let (digits, shift) = SUFFIXES
			.iter()
			.find_map(|&(suffix, shift)| upper.strip_suffix(suffix).map(|digits| (digits, shift)))
			.unwrap_or((&upper, 0));
		let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
			true => digits.parse::<u64>().map_err(|_| wrong()),
			false => Err(wrong()),
		};
		let Some((whole, fraction)) = digits.split_once('.').filter(|_| shift > 0) else {
			return number(digits)?.checked_mul(1 << shift).map(Self).ok_or_else(wrong);
		};
		// Parts of a byte are dropped; more digits than this say nothing more about a size anybody has.
		let scale = 10_u64.checked_pow(fraction.len() as u32).filter(|&scale| scale <= 1_000_000).ok_or_else(wrong)?;
		let part = (number(fraction)? << shift) / scale;
		number(whole)?.checked_mul(1 << shift).and_then(|whole| whole.checked_add(part)).map(Self).ok_or_else(wrong)
	}
}

impl fmt::Display for Size {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		let suffix = SUFFIXES.iter().find(|&&(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
		match suffix {
			Some(&(letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
			None => write!(f, "{}", self.0),
		}
	}
}

/// `bytes` rounded for reading: "1.5 GB", "128 MB" (powers of 1024).
pub fn show(bytes: u64) -> String {
	let (value, unit) = [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")]
		.into_iter()
		.find(|&(shift, _)| bytes >> shift > 0)
		.map_or((bytes as f64, "bytes"), |(shift, unit)| {
			(bytes as f64 / f64::from(1u32 << (shift - 10)) / 1024.0, unit)
		});
	if value >= 10.0 || value.fract() < 0.05 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn reads_what_people_write() {
		for (text, bytes) in [
			("0", 0),
			("512", 512),
			("4k", 4096),
			("64M", 64 << 20),
			(" 1G ", 1 << 30),
			("2t", 2 << 40),
			("1.5G", 3 << 29),
			("1.7M", 1_782_579),
		] {
			assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
		}
	}

	#[test]
	fn refuses_what_is_not_a_size() {
		for text in [
			"",
			"M",
			"-1",
			"+1",
			"1.5",
			"1.G",
			".5G",
			"1.5.5G",
			"1.0000001G",
			"1GB",
			"1 G",
			"99999999999T",
			"1025T",
			"18446744073709551615",
			"18446744073709551616",
		] {
			assert!(text.parse::<Size>().is_err(), "{text}");
		}
	}

	#[test]
	fn shows_the_largest_exact_suffix() {
		for text in ["0", "1023", "4K", "64M", "1G", "1025M", "3T"] {
			assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
		}
	}

	#[test]
	fn rounds_for_reading() {
		assert_eq!(show(900), "900 bytes");
		assert_eq!(show(1 << 30), "1 GB");
		assert_eq!(show(3 << 29), "1.5 GB");
		assert_eq!(show(128 << 20), "128 MB");
	}
}

//! Values that the user gave in a list. One given twice is measured once: two cells with nothing to tell them apart say
//! nothing.

use std::{cmp::Ordering, ops::RangeBounds};

use crate::prelude::*;
use clap::builder::RangedI64ValueParser;
use flashfork_terminal::size::SizeError;
use strum::VariantArray;

/// For a command line: a whole number in this range.
pub fn count(range: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
	clap::value_parser!(u32).range(range)
}

/// For a command line: a size of which `is` holds; else it `is_not` what it should be.
pub fn size_that(text: &str, is: impl FnOnce(u64) -> bool, is_not: &str) -> Result<Size, String> {
	let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
	if is(size.0) { Ok(size) } else { Err(format!("{size} {is_not}")) }
}

/// Those that were asked for, each once; all if nothing was.
pub fn asked_of<T: All + PartialEq>(asked: Option<&[T]>) -> Vec<T> {
	T::all().filter(|one| asked.is_none_or(|asked| asked.contains(one))).collect()
}

/// Enums all of whose values are of use, in the order of their declaration, which is that of tables.
pub trait All: VariantArray + Copy {
	/// Each of them.
	fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
		Self::VARIANTS.iter().copied()
	}
}

impl<T: VariantArray + Copy> All for T {}

/// Each value once, in the order given.
pub fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
	let mut found = Vec::new();
	for value in values {
		if !found.contains(&value) {
			found.push(value);
		}
	}
	found
}

/// Each value once, ascending.
pub fn ascending<T: PartialOrd>(values: impl IntoIterator<Item = T>) -> Vec<T> {
	let mut values: Vec<T> = values.into_iter().collect();
	values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
	values.dedup();
	values
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_order_is_kept() {
		assert_eq!(each_once([4, 1, 4, 2, 1]), [4, 1, 2]);
	}
}

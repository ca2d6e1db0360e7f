//! The pages on which the engine keeps what it remembers: no seal takes them, and no restore puts them back
//! ([`crate::apart`]).

use crate::{
	answers::exec::LEAVING,
	code::remembered::CODE,
	name::DEVICE,
	policy::POLICY,
	proc::dump::BEFORE,
	range::Range,
	region::watch::WATCHED,
	seal::{
		dense::DENSE, file::REFUSED, generations::GENERATIONS, library::LIBRARIES, vetted::VETTED, witness::WITNESSES,
	},
	snapshot::current::{CURRENT, ONLY},
	stack::RESERVE,
	state::STATE,
	stats::STATS,
};

/// How many statics lie apart.
pub const COUNT: usize = 17;

/// All of them.
pub fn all() -> [Range; COUNT] {
	[
		STATE.pages(),
		CODE.pages(),
		DEVICE.pages(),
		GENERATIONS.pages(),
		POLICY.pages(),
		STATS.pages(),
		CURRENT.pages(),
		ONLY.pages(),
		RESERVE.pages(),
		LEAVING.pages(),
		BEFORE.pages(),
		WATCHED.pages(),
		VETTED.pages(),
		LIBRARIES.pages(),
		REFUSED.pages(),
		DENSE.pages(),
		WITNESSES.pages(),
	]
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::path::Path;

	/// Counts the lines of a folder's files that begin a static which lies apart.
	fn statics(folder: &Path) -> usize {
		let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
		let count = |path: std::path::PathBuf| match path.is_dir() {
			true => statics(&path),
			false => {
				let text = std::fs::read_to_string(path).unwrap();
				text.lines().filter(|line| line.starts_with("pub(crate) static ") && line.contains(": Apart<")).count()
			}
		};
		entries.map(count).sum()
	}

	#[test]
	fn every_static_that_lies_apart_is_listed() {
		let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
		assert_eq!(statics(&source), COUNT, "a static that is not in the list, or the other way round");
	}

	#[test]
	fn they_are_whole_pages_that_nobody_shares() {
		let all = all();
		for (i, range) in all.iter().enumerate() {
			assert!(!range.is_empty() && range.start % 4096 == 0 && range.end % 4096 == 0, "{range:?}");
			assert!(all[..i].iter().all(|other| other.intersect(*range).is_empty()));
		}
	}
}

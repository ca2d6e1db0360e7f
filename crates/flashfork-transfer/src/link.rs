//! Where links lead.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// Whether a link leads into the copy, from a directory of it that lies in `depth` others of it. No name may come
/// before a `..`: it could be a link itself, and what lies above the directory that it leads to is anywhere.
pub(crate) fn leads_inside(target: &OsStr, depth: usize) -> bool {
	let target = target.as_bytes();
	let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
	let ups = parts.clone().take_while(|part| *part == b"..").count();
	!target.starts_with(b"/") && ups <= depth && !parts.skip(ups).any(|part| part == b"..")
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn links_lead_inside_or_not() {
		for (target, depth, inside) in [
			("a", 0, true),
			("a/b", 0, true),
			("./a", 0, true),
			(".", 0, true),
			("../a", 1, true),
			("..", 0, false),
			("../a", 0, false),
			("../../a", 1, false),
			("./../a", 0, false),
			("a/..", 0, false),
			("../a/../../b", 1, false),
			("/", 3, false),
			("/a", 3, false),
			("//a", 3, false),
		] {
			assert_eq!(leads_inside(OsStr::new(target), depth), inside, "{target} at {depth}");
		}
	}
}

//! How much memory the sealed memfds of this process hold, mapped or not: the blocks of the files behind
//! `/proc/self/map_files`. The engine has closed its descriptors, so that there is no other way to them.

use flashfork_tests::Result;
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

/// Bytes by device and inode.
pub type Sizes = BTreeMap<(u64, u64), u64>;

/// Following these links takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (proc_pid_map_files(5)).
pub fn can_look() -> bool {
	let first = fs::read_dir("/proc/self/map_files").ok().and_then(|mut dir| dir.next()?.ok());
	first.is_some_and(|entry| fs::metadata(entry.path()).is_ok())
}

pub fn sizes() -> Result<Sizes> {
	let maps = fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
	let mut sizes = Sizes::new();
	for line in maps.lines().filter(|l| l.contains("/memfd:flashfork:")) {
		let range = line.split(' ').next().unwrap_or_default();
		// maps pads addresses with zeros, map_files doesn't.
		let name = range.split('-').map(|a| a.trim_start_matches('0')).collect::<Vec<_>>().join("-");
		let path = format!("/proc/self/map_files/{name}");
		let file = fs::metadata(&path).map_err(|e| format!("{path}: {e}"))?;
		sizes.insert((file.dev(), file.ino()), file.blocks() * 512);
	}
	Ok(sizes)
}

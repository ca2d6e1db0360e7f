//! The files that the program was made of: there are no clones any more when one has changed since.

use flashfork_warm::{Tell, Why};
use std::{
	collections::BTreeMap,
	os::unix::{ffi::OsStrExt, fs::MetadataExt},
	path::{Path, PathBuf},
};

/// What tells one content of a file from another.
type Kept = (u64, u64, u64, i64, i64);

/// Those that were mapped or open when its threads were stopped.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<PathBuf, Kept>);

/// Of the shim itself, which is part of no program.
const SHIM: &str = "libflashfork_preload.so";

impl Files {
	/// The program, its libraries, and what else of it is mapped and executed, of a process.
	pub fn of(pid: i32) -> Files {
		let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
		let executed = maps.lines().filter_map(|line| {
			let (_, rest) = line.split_once(' ')?;
			let path = rest.split_at_checked(rest.find('/')?)?.1;
			(rest.as_bytes().get(2) == Some(&b'x')).then(|| PathBuf::from(path))
		});
		let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
		// Archives of code: a jar is open while it is used.
		let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
		let archives =
			open.filter(|path| path.extension().is_some_and(|e| ["jar", "jmod", "zip"].iter().any(|k| e == *k)));
		let named = executed.chain(archives).filter(|path| !path.ends_with(SHIM));
		Files(named.filter_map(|path| look(&path).map(|kept| (path, kept))).collect())
	}

	/// What a caller is told in place of a clone, if any has changed. `renews`: whether he makes the template anew.
	pub fn told(&self, renews: bool) -> Option<Tell> {
		let mut changed = self.0.iter().filter(|(path, was)| look(path) != Some(**was)).map(|(path, _)| path);
		let first = changed.next()?;
		Some(Tell::stale(Why::File, renews, 1 + changed.count() as u64, first.as_os_str().as_bytes()))
	}

	/// How many.
	pub fn changed(&self) -> u64 {
		self.0.iter().filter(|(path, was)| look(path) != Some(**was)).count() as u64
	}
}

fn look(path: &Path) -> Option<Kept> {
	let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
	Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_programs_own_file_is_known_and_has_not_changed() {
		let files = Files::of(i32::try_from(std::process::id()).unwrap());
		assert!(files.0.contains_key(&std::env::current_exe().unwrap()), "{files:?}");
		assert!(files.changed() == 0 && files.told(false).is_none());
	}
}

//! Directories of packages that somebody still works in: they go when nobody does any more.

use crate::locked;
use std::{
	collections::BTreeMap,
	fs::remove_dir_all,
	path::{Path, PathBuf},
	sync::{Arc, Mutex},
};
use tracing::info;

/// Those in use: by how many, and whether they are to go then.
#[derive(Clone, Default)]
pub struct Leases(Arc<Mutex<BTreeMap<PathBuf, (usize, bool)>>>);

/// Of one of them, for as long as this is there.
pub struct Lease {
	leases: Leases,
	path: PathBuf,
}

impl Leases {
	pub fn take(&self, path: PathBuf) -> Lease {
		locked(&self.0).entry(path.clone()).or_default().0 += 1;
		Lease { leases: self.clone(), path }
	}

	/// Removes it: now, or when the last lease of it ends. One that stays, for want of rights or because the server
	/// ends, is removed at a later start.
	pub fn remove(&self, path: &Path) {
		match locked(&self.0).get_mut(path) {
			Some((_, goes)) => *goes = true,
			None => drop(remove_dir_all(path)),
		}
	}
}

/// Removes a directory not in the midst of what others wait for: it may have many files.
pub fn remove_soon(path: PathBuf) {
	let left = path.clone();
	let removing = std::thread::Builder::new().spawn(move || remove_dir_all(path));
	if let Err(e) = removing {
		info!("{} stays until the next start: {e}", left.display());
	}
}

impl Drop for Lease {
	fn drop(&mut self) {
		let mut all = locked(&self.leases.0);
		let Some((count, goes)) = all.get_mut(&self.path) else { return };
		*count -= 1;
		if *count > 0 {
			return;
		}
		let goes = *goes;
		all.remove(&self.path);
		let path = std::mem::take(&mut self.path);
		if goes {
			remove_soon(path);
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::fs::create_dir;

	#[test]
	fn a_directory_goes_with_the_last_who_works_in_it() {
		let place = tempfile::tempdir().unwrap();
		let [used, free] = ["used", "free"].map(|name| place.path().join(name));
		for path in [&used, &free] {
			create_dir(path).unwrap();
		}
		let leases = Leases::default();
		let two = [(); 2].map(|()| leases.take(used.clone()));
		for path in [&used, &free] {
			leases.remove(path);
		}
		assert!(used.exists() && !free.exists());
		let [one, other] = two;
		drop(one);
		assert!(used.exists());
		drop(other);
		while used.exists() {
			std::thread::yield_now();
		}
	}
}

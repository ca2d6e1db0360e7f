//! How much memory processes hold, the kernel's share included: a memory cgroup of their own where one can be made,
//! else what the machine no longer has.

use std::fs;

use crate::prelude::*;
use procfs::{Current, Meminfo, process::Process};

const COUNT: &str = "count the memory of clones";

pub enum Counter {
	/// What processes started from now on are charged with.
	Cgroup(Cgroup),
	/// Less of `MemAvailable`: others that take or give back memory meanwhile are counted too.
	MemAvailable,
}

/// A memory cgroup that this process is in until this value is dropped.
pub struct Cgroup {
	dir: PathBuf,
	usage: &'static str,
	/// Where this process was before.
	home: PathBuf,
}

impl Counter {
	/// The better one that can be had here.
	pub fn new() -> Self {
		Cgroup::enter().map_or(Self::MemAvailable, Self::Cgroup)
	}

	/// As records name it.
	pub fn name(&self) -> &'static str {
		match self {
			Self::Cgroup(_) => "their memory cgroup",
			Self::MemAvailable => "difference of MemAvailable",
		}
	}

	/// Bytes that are in use, from an unknown zero.
	pub fn used(&self) -> Result<f64> {
		match self {
			Self::Cgroup(group) => {
				let path = group.dir.join(group.usage);
				let text = fs::read_to_string(&path).or_cant(format_args!("read {}", path.display()))?;
				text.trim().parse().map_err(|_| unable!("{} is no number", path.display()))
			}
			Self::MemAvailable => {
				let free = Meminfo::current().or_cant(COUNT)?.mem_available;
				let free = free.ok_or_else(|| unable!("/proc/meminfo has no MemAvailable"))?;
				Ok(-(free as f64))
			}
		}
	}
}

impl Cgroup {
	/// Makes a cgroup and moves this process there; `None` where that is not allowed, or memory isn't counted.
	fn enter() -> Option<Self> {
		let own = fs::read_to_string("/proc/self/cgroup").ok()?;
		places(&own).into_iter().find_map(|(parent, home, usage)| {
			let dir = parent.join(format!("flashfork-bench-{}", std::process::id()));
			fs::create_dir(&dir).ok()?;
			let group = Self { dir, usage, home };
			// Dropped, and so removed, if either fails.
			(group.dir.join(usage).is_file() && move_to(&group.dir)).then_some(group)
		})
	}
}

impl Drop for Cgroup {
	fn drop(&mut self) {
		// A cgroup that can't be removed is empty at least.
		move_to(&self.home);
		let _ = fs::remove_dir(&self.dir);
	}
}

fn move_to(dir: &Path) -> bool {
	fs::write(dir.join("cgroup.procs"), std::process::id().to_string()).is_ok()
}

/// Where a cgroup may be made, where this process is, and the file with the count: from the text of
/// `/proc/self/cgroup`. With version 2 a cgroup beside the own one, because one with processes has no children that
/// count (cgroups(7)).
fn places(own: &str) -> Vec<(PathBuf, PathBuf, &'static str)> {
	let mut places = Vec::new();
	for line in own.lines() {
		let mut parts = line.splitn(3, ':').skip(1);
		let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
		let relative = path.trim_start_matches('/');
		if controllers.split(',').any(|controller| controller == "memory") {
			let home = Path::new("/sys/fs/cgroup/memory").join(relative);
			places.push((home.clone(), home, "memory.usage_in_bytes"));
		} else if controllers.is_empty() {
			let home = Path::new("/sys/fs/cgroup").join(relative);
			let parent =
				if relative.is_empty() { home.clone() } else { home.parent().map_or(home.clone(), Into::into) };
			places.push((parent, home, "memory.current"));
		}
	}
	places
}

/// The proportional share of memory that a process maps.
pub fn mapped(pid: u32) -> Result<u64> {
	let rollup = Process::new(pid.cast_signed()).and_then(|process| process.smaps_rollup()).or_cant(COUNT)?;
	Ok(rollup.memory_map_rollup.iter().filter_map(|map| map.extension.map.get("Pss")).sum())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_cgroup_is_made_where_memory_is_counted() {
		let first = |own| {
			let (parent, home, usage) = places(own).remove(0);
			(parent.display().to_string(), home.display().to_string(), usage)
		};
		let named = |a: &str, b: &str, usage| (a.to_owned(), b.to_owned(), usage);
		let v1 = "/sys/fs/cgroup/memory/a/b";
		assert_eq!(first("3:cpu:/\n2:hugetlb,memory:/a/b\n0::/\n"), named(v1, v1, "memory.usage_in_bytes"));
		let v2 = ("/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/user.slice/x.scope");
		assert_eq!(first("0::/user.slice/x.scope\n"), named(v2.0, v2.1, "memory.current"));
		assert_eq!(first("0::/\n"), named("/sys/fs/cgroup/", "/sys/fs/cgroup/", "memory.current"));
		assert!(places("nonsense").is_empty());
	}

	#[test]
	fn something_is_counted_and_nothing_is_left_behind() {
		let counter = Counter::new();
		counter.used().unwrap();
		assert!(mapped(std::process::id()).unwrap() > 0);
		if let Counter::Cgroup(group) = &counter {
			let dir = group.dir.clone();
			drop(counter);
			assert!(!dir.exists(), "{}", dir.display());
		}
	}
}

//! Control groups of shells, where the daemon was given one (`flashfork_cgroup`): each shell has its own, with the
//! memory that it was promised and no more. What the kernel holds for a VM is charged there too, and can be shown.
//! docs/VIRTUAL_MACHINES.md says who gives the daemon one.

use flashfork_cgroup::{Cgroups, write};
use flashfork_proto::shape::Shape;
use std::{
	fs::{self, read_to_string as read},
	io,
	path::{Path, PathBuf},
	process,
};

/// The daemon's name.
pub const NAME: &str = "flashfork-vmd";

/// Bytes of memory of a shell beside its guest's: the monitor, and KVM's own.
const MONITOR: u64 = 192 << 20;

/// Of a guest's memory, what page tables of monitor and guest take, and KVM's records of pages: eight bytes of 4,096
/// each, and some.
const RECORDS: u64 = 64;

/// Threads of a shell: one a vCPU, and three more.
const THREADS: u32 = 16;

/// A shell's. Removed when it is dropped, which is after the shell's end.
#[derive(Debug)]
pub struct Cgroup {
	path: PathBuf,
	shape: Shape,
}

impl Cgroup {
	/// One for process `pid`, which is to become a shell of `shape` and has no memory worth mentioning yet.
	///
	/// # Errors
	/// Those of the file system of cgroups.
	pub fn new(cgroups: &Cgroups, shape: Shape, pid: u32) -> io::Result<Self> {
		let cgroup = Self { path: cgroups.add(&pid.to_string())?, shape };
		write(&cgroup.path.join("pids.max"), &THREADS.to_string())?;
		cgroup.promise(0)?;
		write(&cgroup.path.join("cgroup.procs"), &pid.to_string())?;
		Ok(cgroup)
	}

	/// One that an earlier daemon has made.
	#[must_use]
	pub fn adopt(path: PathBuf, shape: Shape) -> Self {
		Self { path, shape }
	}

	/// Its directory.
	#[must_use]
	pub fn path(&self) -> &Path {
		&self.path
	}

	/// Limits the shell's memory to what its guest may have, of which `disk` bytes are what that may write to its disk.
	///
	/// # Errors
	/// Those of the file system of cgroups.
	pub fn promise(&self, disk: u64) -> io::Result<()> {
		let guest = self.shape.memory_bytes().saturating_add(disk);
		let limit = guest.saturating_add(guest / RECORDS).saturating_add(MONITOR);
		write(&self.path.join("memory.max"), &limit.to_string())
	}

	/// Bytes of memory that the shell has to itself, what KVM holds for it included; of a file's pages, which go when
	/// memory is short, none. None before Linux 5.18, whose kernel doesn't sum up its own.
	#[must_use]
	pub fn memory(&self) -> Option<u64> {
		let swapped = read(self.path.join("memory.swap.current")).ok().and_then(|text| text.trim().parse().ok());
		used(&read(self.path.join("memory.stat")).ok()?).map(|used| used + swapped.unwrap_or(0))
	}
}

/// Anonymous memory and the kernel's, of memory.stat.
fn used(stat: &str) -> Option<u64> {
	let field = |name: &str| {
		let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
		line.parse::<u64>().ok()
	};
	Some(field("anon")? + field("kernel")?)
}

impl Drop for Cgroup {
	fn drop(&mut self) {
		// Its process has ended. If it is there all the same, the next daemon removes it.
		let _ = fs::remove_dir(&self.path);
		// The last of an earlier daemon's.
		if let Some(base) = self.path.parent().filter(|base| !base.ends_with(format!("{NAME}-{}", process::id()))) {
			let _ = fs::remove_dir(base);
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_proto::shape::Pages;

	#[test]
	fn what_is_counted_is_a_shell_s_own_and_the_kernel_s() {
		assert_eq!(used("anon 4096\nfile 900\nkernel 700\nkernel_stack 90\nanon_thp 8\n"), Some(4796));
		assert_eq!(used("anon 4096\nfile 900\n"), None);
	}

	#[test]
	fn a_shell_s_limit_is_its_guest_and_some_more() {
		let dir = tempfile::tempdir().unwrap();
		let shape = Shape { memory_mib: 1024, vcpus: 1, pages: Pages::Small, disk: true, disk_slots: 0 };
		fs::write(dir.path().join("memory.max"), "").unwrap();
		let cgroup = Cgroup { path: dir.path().to_owned(), shape };
		cgroup.promise(1 << 30).unwrap();
		let limit: u64 = read(dir.path().join("memory.max")).unwrap().parse().unwrap();
		assert!((2 << 30..5 << 29).contains(&limit), "{limit}");
		std::mem::forget(cgroup);
	}
}

//! Control groups, where the server was given one: all processes of a call together have no more memory than theirs.
//!
//! A clone goes there when it has its caller, by a descriptor that it is given (`warm/source.rs` of
//! flashfork-preload): made ahead of a call it has time for that, which is milliseconds where nobody has moved lately.
//! One that would not go stays in its template's group, whose limit is for all such together.

use crate::locked;
use flashfork_cgroup::{Cgroups, write};
use std::{
	fs::{File, create_dir, read_to_string, remove_dir},
	io::{Error, ErrorKind, Result},
	os::fd::OwnedFd,
	path::{Path, PathBuf},
	sync::{
		Arc, Mutex,
		atomic::{AtomicU64, Ordering::Relaxed},
	},
};

/// Bytes that a call may have in /tmp, as with AWS, beside its memory.
const TEMPORARY: u64 = 512 << 20;
/// Bytes of the kernel's for a call's processes: stacks, mostly. Of a page table, those for each page of 4,096: two
/// levels.
const KERNEL: u64 = 16 << 20;
const TABLES: u64 = 4096 / 16;
/// Bytes that a clone takes before it has its caller.
const FRESH: u64 = 4 << 20;

/// Where processes are in a group. They may have a namespace of control groups of their own (`cgroup_namespaces(7)`),
/// in which what they are in is the root, as their user's: so that has no limits, and there is no room for more in it.
const INSIDE: &str = "in";

pub struct Groups {
	cgroups: Cgroups,
	made: AtomicU64,
	/// What could not be removed yet: processes there are about to end.
	left: Mutex<Vec<PathBuf>>,
}

/// Removed when it is dropped, after all in it were killed.
pub struct Group {
	groups: Arc<Groups>,
	path: PathBuf,
}

impl Groups {
	pub fn new(cgroups: Cgroups) -> Groups {
		Groups { cgroups, made: AtomicU64::default(), left: Mutex::default() }
	}

	/// One without limits.
	pub fn add(self: &Arc<Self>) -> Result<Group> {
		locked(&self.left).retain(|path| remove(path).is_err());
		let path = self.cgroups.add(&self.made.fetch_add(1, Relaxed).to_string())?;
		let group = Group { groups: self.clone(), path };
		write(&group.path.join("cgroup.max.descendants"), "1")?;
		create_dir(group.path.join(INSIDE))?;
		Ok(group)
	}

	/// One for a call that may have so many bytes, what is warmed among it.
	pub fn of_call(self: &Arc<Self>, bytes: u64) -> Result<Group> {
		let group = self.add()?;
		group.limit(of_call(bytes))?;
		Ok(group)
	}
}

fn remove(path: &Path) -> Result<()> {
	// It may have gone before.
	let _ = remove_dir(path.join(INSIDE));
	remove_dir(path)
}

/// Bytes that all in the group of a call may have.
fn of_call(bytes: u64) -> u64 {
	bytes + bytes / TABLES + TEMPORARY + KERNEL
}

impl Group {
	/// Limits it.
	fn limit(&self, bytes: u64) -> Result<()> {
		write(&self.path.join("memory.max"), &bytes.to_string())?;
		write(&self.path.join("memory.oom.group"), "1")?;
		match write(&self.path.join("memory.swap.max"), "0") {
			// The kernel doesn't count what is swapped.
			Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
			done => done,
		}
	}

	/// Limits a template's, which is warm, with so many clones at a time that have not gone to theirs yet: to what it
	/// has, what they take, and what one call may have, `memory` bytes beside what is warmed. Gives how much that is.
	pub fn limit_template(&self, memory: u64, clones: u64) -> Result<u64> {
		let now: u64 = read_to_string(self.path.join("memory.current"))?.trim().parse().map_err(Error::other)?;
		self.limit(now + of_call(now + memory) + clones * (now / TABLES + FRESH))?;
		Ok(now)
	}

	/// Whether something in it has not ended yet.
	pub fn is_populated(&self) -> bool {
		read_to_string(self.path.join("cgroup.events")).is_ok_and(|events| events.contains("populated 1"))
	}

	/// Has a process be in it, with all that it will start.
	pub fn put(&self, pid: u32) -> Result<()> {
		write(&self.path.join(INSIDE).join("cgroup.procs"), &pid.to_string())
	}

	/// What a process goes there by: it writes `0`.
	pub fn door(&self) -> Result<OwnedFd> {
		Ok(File::options().write(true).open(self.path.join(INSIDE).join("cgroup.procs"))?.into())
	}
}

impl Drop for Group {
	fn drop(&mut self) {
		if remove(&self.path).is_err() {
			locked(&self.groups.left).push(std::mem::take(&mut self.path));
		}
	}
}

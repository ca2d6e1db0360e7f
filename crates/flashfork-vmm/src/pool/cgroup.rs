//! Control groups of shells, where the daemon was given some (cgroup v2, Documentation/admin-guide/cgroup-v2.rst): each
//! shell has its own, with the memory that it was promised and no more. What the kernel holds for a VM is charged there
//! too, and can be shown.
//!
//! Nothing is asked of anybody: the daemon uses the cgroup it is in, if that is its own, or the root of all.
//! docs/VIRTUAL_MACHINES.md says who gives it one.

use flashfork_proto::shape::Shape;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fs, process};

/// What a shell is limited in.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Begins the names of cgroups made here; the daemon's process id follows.
const NAME: &str = "flashfork-vmd-";

/// Where the daemon itself is meanwhile: what has controllers for its children has no processes (cgroup v2's "no
/// internal process").
const OWN: &str = "flashfork-vmd";

/// Bytes of memory of a shell beside its guest's: the monitor, and KVM's own.
const MONITOR: u64 = 192 << 20;

/// Of a guest's memory, what page tables of monitor and guest take, and KVM's records of pages: eight bytes of 4,096
/// each, and some.
const RECORDS: u64 = 64;

/// Threads of a shell: one a vCPU, and three more.
const THREADS: u32 = 16;

/// The daemon's cgroup, below which shells have theirs. Removed when it is dropped.
#[derive(Debug)]
pub struct Cgroups {
	base: PathBuf,
	has_moved: bool,
}

/// A shell's. Removed when it is dropped, which is after the shell's end.
#[derive(Debug)]
pub struct Cgroup {
	path: PathBuf,
	shape: Shape,
}

impl Cgroups {
	/// Below the cgroup that this process is in.
	///
	/// # Errors
	/// Why there are none, in words.
	pub fn delegated() -> Result<Self, String> {
		let mounts = read(Path::new("/proc/self/mountinfo")).map_err(|e| e.to_string())?;
		let memberships = read(Path::new("/proc/self/cgroup")).map_err(|e| e.to_string())?;
		let own =
			own(&mounts, &memberships).ok_or("this host has no cgroup v2, or the daemon's cgroup is not in it")?;
		// Where systemd (DelegateSubgroup=), or an earlier daemon beside whose shells this one was started, has put it.
		let own = if own.ends_with(OWN) { own.parent().unwrap_or(&own) } else { &own };
		Self::below(own, process::id())
	}

	/// Below `own`, the cgroup of process `daemon`.
	fn below(own: &Path, daemon: u32) -> Result<Self, String> {
		let failed = |what: &str, e: io::Error| format!("{what} {}: {e}", own.display());
		let offered = read(&own.join("cgroup.controllers")).map_err(|e| failed("cannot read cgroup", e))?;
		if let Some(missing) = CONTROLLERS.iter().find(|name| !offered.split_whitespace().any(|there| there == **name))
		{
			return Err(format!("cgroup {} has no {missing} controller", own.display()));
		}
		remove_old(own);
		let has_moved = enable(own, daemon).map_err(|e| failed("not delegated: cgroup", e))?;
		let base = own.join(format!("{NAME}{daemon}"));
		fs::create_dir(&base).map_err(|e| failed("cannot make a cgroup in", e))?;
		let cgroups = Self { base, has_moved };
		write(&cgroups.base.join("cgroup.subtree_control"), "+memory +pids").map_err(|e| failed("cannot divide", e))?;
		Ok(cgroups)
	}

	/// Whether the daemon had to leave the cgroup that it was started in, where no other can be while there are shells.
	#[must_use]
	pub fn has_moved(&self) -> bool {
		self.has_moved
	}

	/// One for process `pid`, which is to become a shell of `shape` and has no memory worth mentioning yet.
	///
	/// # Errors
	/// Those of the file system of cgroups.
	pub fn add(&self, shape: Shape, pid: u32) -> io::Result<Cgroup> {
		let path = self.base.join(pid.to_string());
		fs::create_dir(&path)?;
		let cgroup = Cgroup { path, shape };
		write(&cgroup.path.join("pids.max"), &THREADS.to_string())?;
		cgroup.promise(0)?;
		write(&cgroup.path.join("cgroup.procs"), &pid.to_string())?;
		Ok(cgroup)
	}
}

impl Cgroup {
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
		let swapped = read(&self.path.join("memory.swap.current")).ok().and_then(|text| text.trim().parse().ok());
		used(&read(&self.path.join("memory.stat")).ok()?).map(|used| used + swapped.unwrap_or(0))
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
		if let Some(base) = self.path.parent().filter(|base| !base.ends_with(format!("{NAME}{}", process::id()))) {
			let _ = fs::remove_dir(base);
		}
	}
}

impl Drop for Cgroups {
	fn drop(&mut self) {
		let _ = fs::remove_dir(&self.base);
	}
}

/// The directory of the cgroup that a process with these files in /proc/PID is in: mountinfo and cgroup.
fn own(mounts: &str, memberships: &str) -> Option<PathBuf> {
	let membership = memberships.lines().find_map(|line| line.strip_prefix("0::"))?;
	// proc_pid_mountinfo(5): root in the file system, mount point, then options up to a dash and the type.
	mounts.lines().filter(|line| line.contains(" - cgroup2 ")).find_map(|line| {
		let mut fields = line.split(' ').skip(3);
		let (root, point) = (fields.next()?, fields.next()?);
		let below = Path::new(membership).strip_prefix(root).ok()?;
		Some(Path::new(point).join(below))
	})
}

/// Lets the cgroups in `own` have controllers; whether the daemon had to leave it for that.
fn enable(own: &Path, daemon: u32) -> io::Result<bool> {
	let control = own.join("cgroup.subtree_control");
	let enabled = read(&control)?;
	if CONTROLLERS.iter().all(|name| enabled.split_whitespace().any(|there| there == *name)) {
		return Ok(false);
	}
	let has_parent = own.join("cgroup.type").exists();
	// Only the root of all has no such file, and may have processes beside controllers.
	if has_parent {
		let processes = read(&own.join("cgroup.procs"))?;
		if processes.lines().any(|process| process != daemon.to_string()) {
			return Err(io::Error::other("other processes are in it"));
		}
		let leaf = own.join(OWN);
		fs::create_dir(&leaf).or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
		write(&leaf.join("cgroup.procs"), &daemon.to_string())?;
	}
	write(&control, "+memory +pids")?;
	Ok(has_parent)
}

/// Removes what daemons have left that were killed.
fn remove_old(own: &Path) {
	for entry in own.read_dir().into_iter().flatten().flatten() {
		let name = entry.file_name();
		let daemon = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
		if daemon.is_some_and(|daemon| !Path::new(&format!("/proc/{daemon}")).exists()) {
			for shell in entry.path().read_dir().into_iter().flatten().flatten() {
				// Fails for files, which go with their directory.
				let _ = fs::remove_dir(shell.path());
			}
			let _ = fs::remove_dir(entry.path());
		}
	}
}

fn read(path: &Path) -> io::Result<String> {
	fs::read_to_string(path)
}

/// cgroup files are written in one piece, and never made.
fn write(path: &Path, text: &str) -> io::Result<()> {
	fs::OpenOptions::new().write(true).open(path).and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_proto::shape::Pages;

	#[test]
	fn a_daemon_s_cgroup_is_found_below_its_mount() {
		let mounts = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
					  30 25 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
					  31 25 0:27 /box /run/cgroup rw - cgroup2 cgroup2 rw\n";
		let found = |membership: &str| own(mounts, membership);
		assert_eq!(found("0::/user.slice/x.scope\n"), Some("/sys/fs/cgroup/user.slice/x.scope".into()));
		assert_eq!(found("3:cpu:/\n0::/\n"), Some("/sys/fs/cgroup/".into()));
		assert_eq!(found("3:memory:/x\n"), None);
		assert_eq!(own("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n"), None);
	}

	#[test]
	fn what_is_counted_is_a_shell_s_own_and_the_kernel_s() {
		assert_eq!(used("anon 4096\nfile 900\nkernel 700\nkernel_stack 90\nanon_thp 8\n"), Some(4796));
		assert_eq!(used("anon 4096\nfile 900\n"), None);
	}

	#[test]
	fn a_cgroup_with_others_in_it_is_not_the_daemon_s() {
		let dir = tempfile::tempdir().unwrap();
		let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
		file("cgroup.controllers", "cpu pids\n");
		let refused = || Cgroups::below(dir.path(), 7).unwrap_err();
		assert!(refused().contains("no memory controller"), "{}", refused());
		file("cgroup.controllers", "cpu memory pids\n");
		file("cgroup.subtree_control", "cpu\n");
		file("cgroup.type", "domain\n");
		file("cgroup.procs", "7\n8\n");
		assert!(refused().contains("other processes"), "{}", refused());
	}

	#[test]
	fn a_shell_s_limit_is_its_guest_and_some_more() {
		let dir = tempfile::tempdir().unwrap();
		let shape = Shape { memory_mib: 1024, vcpus: 1, pages: Pages::Small, disk: true, disk_slots: 0 };
		fs::write(dir.path().join("memory.max"), "").unwrap();
		let cgroup = Cgroup { path: dir.path().to_owned(), shape };
		cgroup.promise(1 << 30).unwrap();
		let limit: u64 = read(&dir.path().join("memory.max")).unwrap().parse().unwrap();
		assert!((2 << 30..5 << 29).contains(&limit), "{limit}");
		std::mem::forget(cgroup);
	}
}

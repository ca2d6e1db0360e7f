//! The control group that a daemon is in, if that is its own, and those that it makes below (cgroup v2,
//! Documentation/admin-guide/cgroup-v2.rst). Nothing is asked of anybody: the daemon uses the one that it is in, if it
//! is alone there, or the root of all.

use std::{
	fs,
	io::{self, ErrorKind},
	os::unix::fs::chown,
	path::{Path, PathBuf},
	process,
};

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The daemon's, below which its own make theirs. Removed when it is dropped.
#[derive(Debug)]
pub struct Cgroups {
	base: PathBuf,
	has_moved: bool,
}

impl Cgroups {
	/// Below the cgroup that this process is in, for a daemon of this name. It begins the names of directories that
	/// are made there, and is that of the cgroup where the daemon itself is meanwhile: what has controllers for its
	/// children has no processes (cgroup v2's "no internal process").
	///
	/// # Errors
	/// Why there are none, in words.
	pub fn delegated(name: &str) -> Result<Self, String> {
		let mounts = read(Path::new("/proc/self/mountinfo")).map_err(|e| e.to_string())?;
		let memberships = read(Path::new("/proc/self/cgroup")).map_err(|e| e.to_string())?;
		let own =
			own(&mounts, &memberships).ok_or("this host has no cgroup v2, or the daemon's cgroup is not in it")?;
		Self::below(given(&own, name, is_marked), name, process::id())
	}

	/// Below `own`, the cgroup of process `daemon`.
	fn below(own: &Path, name: &str, daemon: u32) -> Result<Self, String> {
		let failed = |what: &str, e: io::Error| format!("{what} {}: {e}", own.display());
		let offered = read(&own.join("cgroup.controllers")).map_err(|e| failed("cannot read cgroup", e))?;
		if let Some(missing) = CONTROLLERS.iter().find(|name| !offered.split_whitespace().any(|there| there == **name))
		{
			return Err(format!("cgroup {} has no {missing} controller", own.display()));
		}
		remove_old(own, name);
		let has_moved = enable(own, name, daemon).map_err(|e| failed("not delegated: cgroup", e))?;
		let base = own.join(format!("{name}-{daemon}"));
		fs::create_dir(&base).map_err(|e| failed("cannot make a cgroup in", e))?;
		let cgroups = Self { base, has_moved };
		let enabled = write(&cgroups.base.join("cgroup.subtree_control"), "+memory +pids");
		enabled.map_err(|e| failed("cannot divide", e))?;
		Ok(cgroups)
	}

	/// Whether the daemon had to leave the cgroup that it was started in, where no other can be while there are some
	/// below.
	#[must_use]
	pub fn has_moved(&self) -> bool {
		self.has_moved
	}

	/// Has this process, which is to become this user, be below, too, so that it may move its own there as such.
	///
	/// # Errors
	/// Those of the file system of cgroups.
	pub fn give_to(&self, user: u32, group: u32) -> io::Result<()> {
		let daemon = self.add("daemon")?;
		write(&daemon.join("cgroup.procs"), &process::id().to_string())?;
		["", "cgroup.procs"].iter().try_for_each(|name| chown(self.base.join(name), Some(user), Some(group)))
	}

	/// Makes one.
	///
	/// # Errors
	/// Those of the file system of cgroups.
	pub fn add(&self, name: &str) -> io::Result<PathBuf> {
		let path = self.base.join(name);
		fs::create_dir(&path)?;
		Ok(path)
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

/// What systemd marks those with that it delegates (systemd.resource-control(5)), and a daemon those that it has made
/// for itself.
const DELEGATED: &str = "user.delegate";
const OWN: &str = "user.flashfork";

/// The one that a daemon of this name was given which is in `own`: that above it where systemd (DelegateSubgroup=), or
/// an earlier daemon beside whose processes this was started, has put it there. An administrator's may have that name.
fn given<'a>(own: &'a Path, name: &str, is_marked: impl Fn(&Path, &str) -> bool) -> &'a Path {
	let above =
		own.parent().filter(|above| own.ends_with(name) && (is_marked(own, OWN) || is_marked(above, DELEGATED)));
	above.unwrap_or(own)
}

fn is_marked(group: &Path, mark: &str) -> bool {
	rustix::fs::getxattr(group, mark, &mut [0u8; 8][..]).is_ok_and(|len| len > 0)
}

/// Lets the cgroups in `own` have controllers; whether the daemon had to leave it for that.
fn enable(own: &Path, name: &str, daemon: u32) -> io::Result<bool> {
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
		let leaf = own.join(name);
		fs::create_dir(&leaf).or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
		// Where the kernel is too old for that (Linux 5.7) nobody is started beside it.
		let _ = rustix::fs::setxattr(&leaf, OWN, b"1", rustix::fs::XattrFlags::empty());
		write(&leaf.join("cgroup.procs"), &daemon.to_string())?;
	}
	write(&control, "+memory +pids")?;
	Ok(has_parent)
}

/// Removes what daemons have left that were killed.
fn remove_old(own: &Path, name: &str) {
	for entry in own.read_dir().into_iter().flatten().flatten() {
		let found = entry.file_name();
		let daemon = found.to_str().and_then(|found| found.strip_prefix(name)?.strip_prefix('-')?.parse::<u32>().ok());
		let is_old = |daemon| daemon == process::id() || !Path::new(&format!("/proc/{daemon}")).exists();
		if daemon.is_some_and(is_old) {
			remove(&entry.path());
		}
	}
}

fn remove(group: &Path) {
	for below in group.read_dir().into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
		remove(&below.path());
	}
	let _ = fs::remove_dir(group);
}

fn read(path: &Path) -> io::Result<String> {
	fs::read_to_string(path)
}

/// Writes a file of a cgroup: in one piece, and none that isn't there.
///
/// # Errors
/// Those of the file system of cgroups.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
	fs::OpenOptions::new().write(true).open(path).and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
}

#[cfg(test)]
mod tests {
	use super::*;

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
	fn an_administrator_s_cgroup_of_a_daemon_s_name_is_not_left() {
		let own = Path::new("/sys/fs/cgroup/x/daemon");
		let above = Path::new("/sys/fs/cgroup/x");
		assert_eq!(given(own, "daemon", |_, _| false), own);
		assert_eq!(given(own, "daemon", |group, mark| (group, mark) == (above, DELEGATED)), above);
		assert_eq!(given(own, "daemon", |group, mark| (group, mark) == (own, OWN)), above);
		assert_eq!(given(above, "daemon", |_, _| true), above);
	}

	#[test]
	fn a_cgroup_with_others_in_it_is_not_the_daemon_s() {
		let dir = tempfile::tempdir().unwrap();
		let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
		file("cgroup.controllers", "cpu pids\n");
		let refused = || Cgroups::below(dir.path(), "daemon", 7).unwrap_err();
		assert!(refused().contains("no memory controller"), "{}", refused());
		file("cgroup.controllers", "cpu memory pids\n");
		file("cgroup.subtree_control", "cpu\n");
		file("cgroup.type", "domain\n");
		file("cgroup.procs", "7\n8\n");
		assert!(refused().contains("other processes"), "{}", refused());
	}
}

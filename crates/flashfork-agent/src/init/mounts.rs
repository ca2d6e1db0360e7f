//! The kernel's own file systems.

use std::{fs, io, os::unix::fs::symlink, path::Path};

use rustix::mount::{MountFlags, mount};

use crate::log;

/// Where, type, options.
type Entry = (&'static str, &'static str, &'static std::ffi::CStr);

/// What everything else needs.
const EARLY: [Entry; 4] = [
	("/proc", "proc", c""),
	("/sys", "sysfs", c""),
	("/dev", "devtmpfs", c"mode=0755"),
	("/run", "tmpfs", c"mode=0755"),
];

/// What programs expect; a kernel without one of them still makes a guest.
const LATE: [Entry; 3] = [
	("/dev/pts", "devpts", c"mode=0620,ptmxmode=0666"),
	("/dev/shm", "tmpfs", c"mode=1777"),
	("/sys/fs/cgroup", "cgroup2", c""),
];

const LINKS: [(&str, &str); 4] = [
	("/dev/fd", "/proc/self/fd"),
	("/dev/stdin", "/proc/self/fd/0"),
	("/dev/stdout", "/proc/self/fd/1"),
	("/dev/stderr", "/proc/self/fd/2"),
];

/// The file systems that move along to another root.
pub const MOVED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Mounts what everything else needs.
pub fn early() -> io::Result<()> {
	EARLY.iter().try_for_each(mount_entry)
}

/// Mounts the rest, below the root that stays.
pub fn late() {
	for entry in &LATE {
		if let Err(error) = mount_entry(entry) {
			log::line(&error.to_string());
		}
	}
	for (link, target) in LINKS {
		if !Path::new(link).exists()
			&& let Err(error) = symlink(target, link)
		{
			log::line(&format!("cannot create {link}: {error}"));
		}
	}
}

fn mount_entry((place, kind, data): &Entry) -> io::Result<()> {
	let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot mount {kind} on {place}: {error}"));
	fs::create_dir_all(place).map_err(explain)?;
	// Terminals are devices too.
	let devices = matches!(*kind, "devtmpfs" | "devpts");
	let flags = if devices { MountFlags::NOSUID } else { MountFlags::NOSUID | MountFlags::NODEV };
	match mount(*kind, *place, *kind, flags, *data) {
		// Mounted by the kernel or before.
		Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
		Err(errno) => Err(explain(errno.into())),
	}
}

//! A disk as root in place of the initramfs.

use std::{
	fs, io,
	os::unix::fs::MetadataExt,
	path::Path,
	thread,
	time::{Duration, Instant},
};

use rustix::{
	mount::{MountFlags, mount, mount_move},
	process::{chdir, chroot},
};

use super::{mounts::MOVED, options::Root};
use crate::log;

/// Where programs of the guest find the agent, whatever the root is.
const AGENT: &str = "/run/flashfork/agent";

/// Time that a disk has to appear.
const PATIENCE: Duration = Duration::from_secs(5);

/// Leaves a copy of this program at [`AGENT`], for images' own use of its signals.
pub fn keep_agent() {
	let copied = fs::create_dir_all("/run/flashfork").and_then(|()| fs::copy("/proc/self/exe", AGENT));
	if let Err(error) = copied {
		log::line(&format!("cannot copy the agent to {AGENT}: {error}"));
	}
}

/// Makes the disk the root and frees the initramfs's memory.
pub fn switch_to(root: &Root) -> Result<(), String> {
	wait_for(&root.device)?;
	mount_disk(root).map_err(|error| format!("cannot mount {}: {error}", root.device.display()))?;
	let old = fs::metadata("/").map_err(|error| error.to_string())?.dev();
	for place in MOVED {
		let target = format!("/newroot{place}");
		let moved = fs::create_dir_all(&target).and_then(|()| Ok(mount_move(place, &*target)?));
		moved.map_err(|error| format!("cannot move {place} to the new root: {error}"))?;
	}
	remove_all(Path::new("/"), old);
	let switched =
		chdir("/newroot").and_then(|()| mount_move(".", "/")).and_then(|()| chroot(".")).and_then(|()| chdir("/"));
	switched.map_err(|errno| format!("cannot switch to the new root: {errno}"))
}

fn wait_for(device: &Path) -> Result<(), String> {
	let start = Instant::now();
	while !device.exists() {
		if start.elapsed() > PATIENCE {
			return Err(format!("the disk {} does not appear", device.display()));
		}
		thread::sleep(Duration::from_millis(5));
	}
	Ok(())
}

fn mount_disk(root: &Root) -> io::Result<()> {
	fs::create_dir_all("/newroot")?;
	if !root.overlay {
		mount(&root.device, "/newroot", "ext4", MountFlags::empty(), None)?;
		return Ok(());
	}
	for place in ["/disk", "/writes"] {
		fs::create_dir_all(place)?;
	}
	mount(&root.device, "/disk", "ext4", MountFlags::RDONLY, None)?;
	mount("tmpfs", "/writes", "tmpfs", MountFlags::empty(), c"mode=0755")?;
	for place in ["/writes/upper", "/writes/work"] {
		fs::create_dir(place)?;
	}
	let layers = c"lowerdir=/disk,upperdir=/writes/upper,workdir=/writes/work";
	mount("overlay", "/newroot", "overlay", MountFlags::empty(), layers)?;
	Ok(())
}

/// Removes all below `directory` on `device`; what can't be removed only takes memory.
fn remove_all(directory: &Path, device: u64) {
	let Ok(entries) = fs::read_dir(directory) else {
		return;
	};
	for entry in entries.flatten() {
		let path = entry.path();
		let Ok(metadata) = fs::symlink_metadata(&path) else {
			continue;
		};
		if metadata.dev() != device {
			continue;
		}
		let removed = if metadata.is_dir() {
			remove_all(&path, device);
			fs::remove_dir(&path)
		} else {
			fs::remove_file(&path)
		};
		// A directory that something is mounted on stays.
		let _ = removed;
	}
}

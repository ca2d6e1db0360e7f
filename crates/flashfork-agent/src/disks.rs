//! Disks attached to a clone at its claim: waited for, and mounted where that was asked for.

use std::{
	fs::{self, File},
	io,
	os::fd::AsRawFd,
	path::Path,
	thread,
	time::{Duration, Instant},
};

use flashfork_proto::signal::AttachedDisk;
use rustix::{
	io::Errno,
	mount::{MountFlags, mount},
};

/// Time that the kernel may take to find out how large a disk has become.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked.
const AGAIN: Duration = Duration::from_micros(200);

/// linux/fs.h: makes a block device read-only.
const BLKROSET: libc::Ioctl = 0x125d;

/// Gives all of them to the guest.
pub fn attach(disks: &[AttachedDisk]) -> Result<(), String> {
	disks.iter().try_for_each(|disk| {
		let name = format!("vd{}", char::from(b'a'.saturating_add(disk.number)));
		one(disk, &name).map_err(|error| format!("the disk {name} can't be attached: {error}"))
	})
}

fn one(disk: &AttachedDisk, name: &str) -> Result<(), String> {
	wait_for(&Path::new("/sys/block").join(name).join("size"), disk.sectors)?;
	let device = Path::new("/dev").join(name);
	if disk.read_only {
		set_read_only(&device).map_err(|error| format!("it can't be made read-only: {error}"))?;
	}
	if disk.mount.is_empty() {
		return Ok(());
	}
	let at = |error: io::Error| format!("{}: {error}", disk.mount);
	fs::create_dir_all(&disk.mount).map_err(at)?;
	let known = fs::read_to_string("/proc/filesystems").map_err(|error| format!("/proc/filesystems: {error}"))?;
	let flags = if disk.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
	let mut why = Errno::INVAL;
	for kind in kinds(&known) {
		match mount(&device, &disk.mount, kind, flags, None) {
			Ok(()) => return Ok(()),
			// Another one.
			Err(Errno::INVAL) => {}
			Err(errno) => why = errno,
		}
	}
	if why == Errno::INVAL {
		return Err(format!("{}: it has no file system that this kernel knows", disk.mount));
	}
	Err(at(why.into()))
}

fn wait_for(size: &Path, sectors: u64) -> Result<(), String> {
	let start = Instant::now();
	loop {
		let found = fs::read_to_string(size).map_err(|error| format!("{}: {error}", size.display()))?;
		if found.trim().parse() == Ok(sectors) {
			return Ok(());
		}
		if start.elapsed() > PATIENCE {
			return Err(format!("it has {} sectors and not {sectors}", found.trim()));
		}
		thread::sleep(AGAIN);
	}
}

fn set_read_only(device: &Path) -> io::Result<()> {
	let (file, on) = (File::open(device)?, 1 as libc::c_int);
	// SAFETY: the descriptor is open, and the kernel reads one integer.
	let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKROSET, &raw const on) };
	if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Those of a kernel's file systems that are on disks, the likeliest first: others complain on the console.
fn kinds(known: &str) -> Vec<&str> {
	let mut kinds: Vec<_> = known.lines().filter(|line| !line.starts_with("nodev")).map(str::trim).collect();
	kinds.sort_by_key(|kind| *kind != "ext4");
	kinds
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn file_systems_of_disks_are_tried_and_ext4_first() {
		assert_eq!(kinds("nodev\tsysfs\n\text3\n\text4\nnodev\tproc\n\terofs\n"), ["ext4", "ext3", "erofs"]);
	}
}

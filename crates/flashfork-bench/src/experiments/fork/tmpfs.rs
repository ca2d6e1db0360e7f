//! A tmpfs with 2 MB pages that is mounted nowhere, into which memory is copied.

use std::{fs, os::fd::OwnedFd};

use crate::prelude::*;
use rustix::{
	fs::{Mode, OFlags, ftruncate, openat},
	io::{Errno, pwrite},
	mm::{MapFlags, ProtFlags, mmap},
	mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
	process::{getegid, geteuid},
	thread::{UnshareFlags, unshare_unsafe},
};

/// Bytes copied by a call: one page, which the kernel fills with zeros only where less is written.
const CHUNK: usize = 2 << 20;

pub struct Tmpfs(OwnedFd);

impl Tmpfs {
	/// Mounts one, where need be as root of its own user namespace, which this process is in from then on.
	pub fn mount() -> Result<Self> {
		match mount() {
			Err(Errno::PERM) => {
				become_root()?;
				mount()
			}
			mounted => mounted,
		}
		.map(Self)
		.or_cant("mount a tmpfs with huge=always")
	}

	/// Puts a copy of a region in its place, chunk by chunk.
	pub fn replace(&self, region: &Region) -> Result {
		let doing = "put memory into a tmpfs";
		let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
		let file = openat(&self.0, ".", flags, Mode::RUSR | Mode::WUSR).or_cant(doing)?;
		ftruncate(&file, region.bytes()).or_cant(doing)?;
		let mut offset = 0;
		while offset < region.bytes() {
			let len = CHUNK.min((region.bytes() - offset) as usize);
			let at = (region.address() + offset) as *mut u8;
			// SAFETY: within the region, which nobody writes to meanwhile: the process has one thread.
			let bytes = unsafe { std::slice::from_raw_parts(at, len) };
			if pwrite(&file, bytes, offset).or_cant(doing)? != len {
				return Err(unable!("the tmpfs is full"));
			}
			let (read_write, fixed) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
			// SAFETY: what takes the place of these bytes of the region holds the same.
			unsafe { mmap(at.cast(), len, read_write, fixed, &file, offset) }.or_cant(doing)?;
			offset += len as u64;
		}
		Ok(())
	}
}

fn mount() -> rustix::io::Result<OwnedFd> {
	let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
	// Not half of the machine's memory, as by default.
	fsconfig_set_string(&context, "size", "100%")?;
	fsconfig_set_string(&context, "huge", "always")?;
	fsconfig_create(&context)?;
	fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn become_root() -> Result {
	let (user, group) = (geteuid().as_raw(), getegid().as_raw());
	// SAFETY: the process has one thread, and opens nothing by a path that would be another there.
	unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }.or_cant("make a user namespace")?;
	for (file, text) in [
		("setgroups", "deny".to_owned()),
		("uid_map", format!("{user} {user} 1")),
		("gid_map", format!("{group} {group} 1")),
	] {
		fs::write(format!("/proc/self/{file}"), text).or_cant("map users of a user namespace")?;
	}
	Ok(())
}

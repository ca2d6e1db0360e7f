//! What a parent has besides its memory: open files and mappings.

use std::{fs::File, os::fd::OwnedFd, ptr};

use crate::prelude::*;
use rustix::{
	mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect},
	process::{Resource, Rlimit, getrlimit, setrlimit},
};

const PAGE: usize = 4096;

/// Opens `count` files, raising this process's own limit as far as needed.
pub fn open_files(count: u32) -> Result<Vec<OwnedFd>> {
	let limit = getrlimit(Resource::Nofile);
	// Some more than asked for: what the program itself has open.
	let wanted = u64::from(count) + 64;
	if limit.current.is_some_and(|current| current < wanted) {
		let raised = Rlimit { current: Some(wanted), maximum: limit.maximum.map(|maximum| maximum.max(wanted)) };
		setrlimit(Resource::Nofile, raised)
			.or_cant(format_args!("raise the limit of open files to {wanted} (RLIMIT_NOFILE)"))?;
	}
	let doing = format!("open {count} files");
	let null = File::open("/dev/null").or_cant(&doing)?;
	(0..count).map(|_| null.try_clone().map(OwnedFd::from).or_cant(&doing)).collect()
}

/// Makes `count` mappings of one touched page each, while the process lives.
pub fn map_pages(count: u32) -> Result {
	let doing = format!("make {count} mappings (vm.max_map_count limits them)");
	// Every second page of an area, made unwritable, is its own mapping, and so is the one before it.
	let pages = count as usize;
	if pages == 0 {
		return Ok(());
	}
	// SAFETY: a new mapping at an address of the kernel's choice.
	let area =
		unsafe { mmap_anonymous(ptr::null_mut(), pages * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }
			.or_cant(&doing)?;
	for page in 0..pages {
		// SAFETY: within the new mapping.
		unsafe { area.byte_add(page * PAGE).cast::<u64>().write_volatile(page as u64 + 1) };
	}
	for page in (1..pages).step_by(2) {
		// SAFETY: within the new mapping, which nobody else uses.
		unsafe { mprotect(area.byte_add(page * PAGE), PAGE, MprotectFlags::READ) }.or_cant(&doing)?;
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	fn mappings() -> usize {
		std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
	}

	#[test]
	fn so_many_files_and_mappings_are_there() {
		assert_eq!(open_files(100).unwrap().len(), 100);
		let before = mappings();
		map_pages(500).unwrap();
		// Neighbours may merge with the first or last; other tests map things at the same time.
		assert!(mappings() + 20 >= before + 500, "{before} {}", mappings());
	}
}

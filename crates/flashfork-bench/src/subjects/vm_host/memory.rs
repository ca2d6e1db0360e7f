//! The memory of templates: every page there, on pages of the size asked for.

use std::os::fd::{AsFd, OwnedFd};

use flashfork_proto::shape::Pages;
use flashfork_vmm::memory::{self, Reservation};
use procfs::process::Process;
use rustix::mm::{MapFlags, ProtFlags};

use super::vm;
use crate::prelude::*;

const HUGE: u64 = 2 << 20;
const CHUNK: usize = HUGE as usize;
const PAGE: usize = 4096;

/// What guest memory is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum MemoryPages {
	/// 4 KB pages.
	#[strum(serialize = "4k")]
	Small,
	/// 2 MB pages that the kernel makes of a memory file's 4 KB pages (`MADV_COLLAPSE`), whatever the machine's mode
	/// for shared memory; copies of them are 4 KB pages.
	Thp,
	/// 2 MB pages from the host's hugetlb pool; copies of them are such pages too.
	Hugetlb,
}

impl MemoryPages {
	pub fn of_shape(self) -> Pages {
		match self {
			Self::Small | Self::Thp => Pages::Small,
			Self::Hugetlb => Pages::Huge,
		}
	}
}

/// What this host can have guest memory of `bytes` made of, `copies` of it at a time, and why not of pages of its pool.
pub fn available(bytes: u64, copies: u64) -> Result<(Vec<MemoryPages>, Option<String>)> {
	let free =
		procfs::Current::current().map(|info: procfs::Meminfo| info.hugepages_free).or_cant("read /proc/meminfo")?;
	let (free, needed) = (free.unwrap_or(0), copies * bytes.div_ceil(HUGE));
	let mut pages = vec![MemoryPages::Small, MemoryPages::Thp];
	if free >= needed {
		pages.push(MemoryPages::Hugetlb);
		return Ok((pages, None));
	}
	let note = format!(
		"guests of {} need {needed} pages of 2 MB, and {free} are free; reserve them with `sysctl vm.nr_hugepages={needed}`",
		show(bytes)
	);
	Ok((pages, Some(note)))
}

/// A sealed copy of the memory file `ram`, of `bytes`, in which every page is there, and the share of it on 2 MB pages.
/// Pages of `ram` that are all zero, first megabyte apart, get noise if `noise`: nobody can store them for less than
/// they are.
pub fn resident(ram: &OwnedFd, bytes: u64, pages: MemoryPages, noise: bool) -> Result<(OwnedFd, f64)> {
	let length = usize::try_from(bytes).map_err(|_| vm(format!("{bytes} bytes can't be addressed")))?;
	let copy = memory::create("flashfork:bench", bytes, pages.of_shape()).map_err(vm)?;
	let mut mapping = Reservation::new(length).map_err(map_failed)?;
	mapping.fill(ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, copy.as_fd()).map_err(map_failed)?;
	let mut buffer = vec![0; CHUNK];
	let mut random = fastrand::Rng::with_seed(bytes);
	for offset in (0..length).step_by(CHUNK) {
		let chunk = &mut buffer[..CHUNK.min(length - offset)];
		read(ram, chunk, offset as u64)?;
		if noise {
			let first = if offset == 0 { 1 << 20 } else { 0 };
			let untouched = chunk.chunks_mut(PAGE).skip(first / PAGE).filter(|page| page.iter().all(|byte| *byte == 0));
			untouched.for_each(|page| random.fill(page));
		}
		// SAFETY: within the mapping, which is writable and nobody else's.
		unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), mapping.start().add(offset), chunk.len()) };
	}
	let huge_fraction = match pages {
		MemoryPages::Small => on_huge_pages(&mapping)?,
		MemoryPages::Thp => {
			collapse(&mapping)?;
			on_huge_pages(&mapping)?
		}
		MemoryPages::Hugetlb => 1.0,
	};
	drop(mapping);
	memory::seal(&copy).map_err(vm)?;
	Ok((copy, huge_fraction))
}

fn read(ram: &OwnedFd, chunk: &mut [u8], offset: u64) -> Result {
	let mut done = 0;
	while done < chunk.len() {
		match rustix::io::pread(ram, &mut chunk[done..], offset + done as u64) {
			Ok(0) => return Err(vm("a template's memory is shorter than its shape")),
			Ok(count) => done += count,
			Err(rustix::io::Errno::INTR) => {}
			Err(errno) => return Err(BenchError::system("read a template's memory", errno)),
		}
	}
	Ok(())
}

/// Makes 2 MB pages of a mapped memory file, as far as they can be had. `MADV_COLLAPSE`, Linux 6.1.
fn collapse(mapping: &Reservation) -> Result {
	for (advice, name) in [(libc::MADV_COLLAPSE, "MADV_COLLAPSE"), (libc::MADV_POPULATE_READ, "MADV_POPULATE_READ")] {
		// SAFETY: the range of our own mapping; neither advice changes what it holds.
		if unsafe { libc::madvise(mapping.start().cast(), mapping.length(), advice) } != 0 {
			let error = std::io::Error::last_os_error();
			// For want of unbroken memory, or forbidden: the share tells.
			let partly = [libc::EAGAIN, libc::ENOMEM, libc::EBUSY, libc::EINVAL];
			if !error.raw_os_error().is_some_and(|number| partly.contains(&number)) {
				return Err(BenchError::system(name, error));
			}
		}
	}
	Ok(())
}

/// The share on 2 MB pages of what is there of the memory file `ram`, of `bytes`.
pub fn huge_share(ram: &OwnedFd, bytes: u64, pages: MemoryPages) -> Result<f64> {
	if pages == MemoryPages::Hugetlb {
		return Ok(1.0);
	}
	let doing = "look at a template's memory";
	let mut mapping = Reservation::new(bytes as usize).map_err(map_failed)?;
	mapping.fill(ProtFlags::READ, MapFlags::SHARED, ram.as_fd()).map_err(map_failed)?;
	let mut at = 0;
	while at < bytes {
		at = match rustix::fs::seek(ram, rustix::fs::SeekFrom::Data(at)) {
			Err(rustix::io::Errno::NXIO) => break,
			other => other.or_cant(doing)?,
		};
		// SAFETY: within the mapping, which can be read. A page that is there is mapped by this, and no other made.
		unsafe { mapping.start().add(at as usize).read_volatile() };
		at = (at / HUGE + 1) * HUGE;
	}
	let there = rustix::fs::fstat(ram).or_cant(doing)?.st_blocks as f64 * 512.0;
	Ok(on_huge_pages(&mapping)? * bytes as f64 / there.max(1.0))
}

fn on_huge_pages(mapping: &Reservation) -> Result<f64> {
	let first = mapping.start() as u64;
	let maps = Process::myself().and_then(|process| process.smaps()).or_cant("read /proc/self/smaps")?;
	let own = maps.iter().filter(|map| map.address.0 >= first && map.address.1 <= first + mapping.length() as u64);
	let huge: u64 = own.filter_map(|map| map.extension.map.get("ShmemPmdMapped")).sum();
	Ok(huge as f64 / mapping.length() as f64)
}

fn map_failed(error: std::io::Error) -> BenchError {
	BenchError::system("map a template's memory", error)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_copy_has_every_page_and_what_was_written() {
		let bytes = 4 << 20;
		let ram = memory::create("flashfork:test", bytes, Pages::Small).unwrap();
		let written = [(0x1000, b"code"), (3 << 20, b"data")];
		for (offset, text) in written {
			rustix::io::pwrite(&ram, text, offset).unwrap();
		}
		for noise in [false, true] {
			let (copy, _) = resident(&ram, bytes, MemoryPages::Small, noise).unwrap();
			memory::check(&copy, bytes).unwrap();
			assert_eq!(rustix::fs::fstat(&copy).unwrap().st_blocks as u64 * 512, bytes);
			for (offset, text) in written {
				let mut found = [0; 4];
				rustix::io::pread(&copy, &mut found, offset).unwrap();
				assert_eq!(&found, text);
			}
			let mut last = [0; 64];
			rustix::io::pread(&copy, &mut last, bytes - 64).unwrap();
			assert_eq!(last != [0; 64], noise);
		}
	}
}

//! What a fresh child tries for real. Nothing here allocates or panics.

use crate::{
	fresh::{self, Results, text},
	memory::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap},
};
use flashfork_core::odf::{self, Unavailable};
use rustix::{
	fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
	io::Errno,
	process::{Resource, Rlimit, getrlimit, setrlimit},
	thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled},
};
use std::{
	os::fd::OwnedFd,
	ptr::null_mut,
	sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const HUGE: usize = 2 << 20;
/// Memory used to see whether fork copies page tables: eight of them.
pub(super) const REGION: usize = 16 << 20;

/// How one attempt ended: 0 not reached, 1 worked, 2 did nothing although no call failed, else 1000 plus errno.
pub(super) struct Attempt(AtomicU64);

impl Attempt {
	fn note(&self, result: Result<bool, Errno>) {
		let code = match result {
			Ok(true) => 1,
			Ok(false) => 2,
			Err(e) => 1000 + e.raw_os_error() as u64,
		};
		self.0.store(code, Relaxed);
	}

	pub(super) fn failed_with(&self, errno: Errno) -> bool {
		self.0.load(Relaxed) == 1000 + errno.raw_os_error() as u64
	}

	/// `Ok` when it worked, else why not.
	pub(super) fn outcome(&self) -> Result<(), String> {
		match self.0.load(Relaxed) {
			0 => Err("not tried: something it builds on failed".into()),
			1 => Ok(()),
			2 => Err("no call failed, but it had no effect".into()),
			code => Err(std::io::Error::from_raw_os_error(code as i32 - 1000).to_string()),
		}
	}
}

pub(super) struct Trial {
	/// A memfd that takes every seal.
	pub sealed_memfd: Attempt,
	/// A private writable mapping of it, written to without changing it.
	pub private_mapping: Attempt,
	/// Forks that leave out page tables of such a mapping.
	pub fork_skips: Attempt,
	/// Page-table bytes of a clone: with nothing, with plain memory, with sealed memory.
	pub tables: [AtomicU64; 3],
	/// `PR_SET_THP_DISABLE` not set, or lifted.
	pub thp_allowed: Attempt,
	/// Whether it was set.
	pub thp_was_disabled: AtomicU64,
	/// 2 MB pages in a memfd.
	pub huge_pages: Attempt,
	/// A tmpfs of one's own.
	pub own_mount: Attempt,
	/// Preparing pages without a fault each.
	pub populate: Attempt,
	/// Finding populated pages without reading a word for each.
	pub pagemap_scan: Attempt,
	/// Seeing the flags of every mapping.
	pub vm_flags: Attempt,
	/// Choosing what core dumps hold.
	pub core_dumps: Attempt,
	/// Forks on demand: `EPERM` where they are switched off.
	pub on_demand_fork: Attempt,
}

// SAFETY: made of atomics, for which all zeros are valid.
unsafe impl Results for Trial {}

/// Tries everything. Must run in a fresh child.
pub(super) fn run(t: &Trial) {
	let size = getrlimit(Resource::Fsize);
	// A soft limit is lifted by a seal too. Beyond the hard one a write fails with EFBIG, and would end the process.
	let _ = setrlimit(Resource::Fsize, Rlimit { current: size.maximum, ..size });
	// SAFETY: no handler.
	unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
	t.vm_flags.note(vm_flags());
	t.core_dumps.note(core_dumps());
	t.on_demand_fork.note(on_demand_fork());
	t.pagemap_scan.note(pagemap_scan());
	t.own_mount.note(flashfork_core::can_mount().map(|()| true).map_err(|e| Errno::from_raw_os_error(e.into_raw())));
	let disabled = transparent_huge_pages_are_disabled();
	t.thp_was_disabled.store(u64::from(disabled == Ok(true)), Relaxed);
	t.thp_allowed.note(match disabled {
		Ok(true) => disable_transparent_huge_pages(false).map(|()| true),
		other => other.map(|_| true),
	});
	let memfd = Memfd::new();
	t.sealed_memfd.note(memfd.as_ref().map(|_| true).map_err(|e| *e));
	let Ok(memfd) = memfd else { return };
	t.populate.note(memfd.populated);
	t.private_mapping.note(memfd.map_private().and_then(|at| memfd.keeps_its_bytes(at)));
	t.fork_skips.note(fork_skips(&memfd, &t.tables));
	t.huge_pages.note(huge_pages());
}

/// A memfd of [`REGION`] bytes, each page starting with its number plus one, sealed against every write.
struct Memfd {
	fd: OwnedFd,
	/// Whether `MADV_POPULATE_WRITE` filled it.
	populated: Result<bool, Errno>,
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Memfd {
	fn new() -> Result<Memfd, Errno> {
		let fd = memfd_create(c"flashfork-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
		ftruncate(&fd, REGION as u64)?;
		// SAFETY: our own fresh mapping, gone before the seals.
		let populated = unsafe {
			let at = mmap(null_mut(), REGION, READ_WRITE, MapFlags::SHARED, &fd, 0)?;
			let populated = madvise(at, REGION, Advice::LinuxPopulateWrite).map(|()| true);
			for page in 0..REGION / 4096 {
				at.cast::<u8>().add(page * 4096).cast::<u64>().write_volatile(page as u64 + 1);
			}
			munmap(at, REGION)?;
			populated
		};
		fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
		Ok(Memfd { fd, populated })
	}

	fn map_private(&self) -> Result<*mut u64, Errno> {
		let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
		// SAFETY: a fresh mapping.
		Ok(unsafe { mmap(null_mut(), REGION, READ_WRITE, flags, &self.fd, 0) }?.cast())
	}

	/// Whether a write to the mapping stays out of the memfd.
	fn keeps_its_bytes(&self, at: *mut u64) -> Result<bool, Errno> {
		let mut first = [0u8; 8];
		// SAFETY: the mapping is ours; nothing uses it afterwards.
		let wrote = unsafe {
			at.write_volatile(77);
			rustix::io::pread(&self.fd, &mut first, 0)?;
			let seen = at.read_volatile();
			munmap(at.cast(), REGION)?;
			seen == 77
		};
		Ok(wrote && u64::from_ne_bytes(first) == 1)
	}
}

/// Compares the page tables of three clones: without, with plain and with sealed memory.
fn fork_skips(memfd: &Memfd, tables: &[AtomicU64; 3]) -> Result<bool, Errno> {
	let [nothing, plain, sealed] = tables;
	tables_of_a_clone(nothing);
	// SAFETY: fresh mappings of our own; every page is touched, so that there are page tables to copy or to skip.
	unsafe {
		let at = mmap_anonymous(null_mut(), REGION, READ_WRITE, MapFlags::PRIVATE)?;
		// A huge page has no page table to copy.
		madvise(at, REGION, Advice::LinuxNoHugepage).or_else(|e| if e == Errno::INVAL { Ok(()) } else { Err(e) })?;
		for page in 0..REGION / 4096 {
			at.cast::<u8>().add(page * 4096).write_volatile(1);
		}
		tables_of_a_clone(plain);
		munmap(at, REGION)?;
		let at = memfd.map_private()?;
		for page in 0..REGION / 4096 {
			at.add(page * 512).read_volatile();
		}
		tables_of_a_clone(sealed);
	}
	let [nothing, plain, sealed] = [nothing, plain, sealed].map(|n| n.load(Relaxed));
	let copied = |with: u64| with.saturating_sub(nothing);
	Ok(nothing > 0 && copied(plain) >= REGION as u64 / 512 && copied(sealed) < copied(plain) / 4)
}

/// Leaves the page-table bytes of a clone in `into`; 0 when there was none.
fn tables_of_a_clone(into: &AtomicU64) {
	// SAFETY: the clone reads a file and ends.
	match unsafe { fresh::clone() } {
		Ok(0) => {
			into.store(text::status_field(b"VmPTE:").unwrap_or(0) * 1024, Relaxed);
			fresh::leave();
		}
		Ok(pid) => drop(fresh::wait(pid)),
		Err(_) => {}
	}
}

/// Makes a 2 MB page the way a seal does and looks for it in a private mapping.
fn huge_pages() -> Result<bool, Errno> {
	let fd = memfd_create(c"flashfork-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
	ftruncate(&fd, HUGE as u64)?;
	let fixed = MapFlags::FIXED;
	// SAFETY: all addresses lie in the first mapping, which is ours and at least 2 MB from an aligned address on.
	unsafe {
		let reserved = mmap_anonymous(null_mut(), 2 * HUGE, ProtFlags::empty(), MapFlags::PRIVATE)?;
		let at = reserved.add(reserved.align_offset(HUGE));
		mmap(at, HUGE, READ_WRITE, MapFlags::SHARED | fixed, &fd, 0)?;
		at.cast::<u8>().write_volatile(1);
		// Transient refusals are retried as a seal does: another CPU held a page (madvise(2)).
		if libc::madvise(at, HUGE, libc::MADV_COLLAPSE) == -1 && libc::madvise(at, HUGE, libc::MADV_COLLAPSE) == -1 {
			return Err(last_errno());
		}
		mmap(at, HUGE, READ_WRITE, MapFlags::PRIVATE | fixed, &fd, 0)?;
		at.cast::<u8>().read_volatile();
		let range = at as usize..at as usize + 1;
		Ok(text::smaps_bytes(range, &[b"FilePmdMapped:", b"ShmemPmdMapped:"])? >= HUGE as u64)
	}
}

/// `PAGEMAP_SCAN` over one page (`ioctl_pagemap_scan(2)`, Linux 6.7).
fn pagemap_scan() -> Result<bool, Errno> {
	const PAGEMAP_SCAN: u32 = 0xc060_6610;
	let file = rustix::fs::open(c"/proc/self/pagemap", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
	let here = [1u8; 1];
	let page = here.as_ptr() as u64 & !4095;
	let mut region = [0u64; 3];
	// struct pm_scan_arg: size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
	// category_anyof_mask, return_mask. Bit 3 is PAGE_IS_PRESENT.
	let mut arg = [96, 0, page, page + 4096, 0, region.as_mut_ptr() as u64, 1, 0, 0, 0, 1 << 3, 1 << 3];
	// SAFETY: the argument is the kernel's struct and points to one region of our own.
	let found = unsafe {
		use std::os::fd::AsRawFd;
		libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(PAGEMAP_SCAN), arg.as_mut_ptr())
	};
	match found {
		-1 => Err(last_errno()),
		n => Ok(n == 1),
	}
}

fn last_errno() -> Errno {
	Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Asks for forks on demand, for this child alone, and for plain ones again: `EPERM` where they are switched off.
fn on_demand_fork() -> Result<bool, Errno> {
	odf::enable().and_then(|()| odf::disable()).map(|()| true).map_err(|why| match why {
		Unavailable::NoKernel => Errno::INVAL,
		Unavailable::SwitchedOff => Errno::PERM,
		Unavailable::Failed(errno) => Errno::from_raw_os_error(errno.into_raw()),
	})
}

fn vm_flags() -> Result<bool, Errno> {
	let mut seen = false;
	text::for_each_line(c"/proc/self/smaps", |line| seen |= line.starts_with(b"VmFlags: rd"))?;
	Ok(seen)
}

/// Asks for private file memory in core dumps (`core(5)`), and looks whether it was taken.
fn core_dumps() -> Result<bool, Errno> {
	text::write(c"/proc/self/coredump_filter", b"0x37")?;
	let mut taken = false;
	text::for_each_line(c"/proc/self/coredump_filter", |line| taken = line.ends_with(b"37"))?;
	Ok(taken)
}

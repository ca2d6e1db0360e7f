//! The measurements. Nothing here allocates or panics: it runs in a fresh child.

use super::sheet::{Kind, Sheet};
use crate::{
	fresh::{self, text},
	memory::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap},
};
use flashfork_core::{Errno, Error, Pages, Step, never_seal::Reason, odf, seal};
use rustix::{
	fs::{MemfdFlags, ftruncate, memfd_create},
	time::{ClockId, clock_gettime},
};
use std::{ptr::null_mut, sync::atomic::Ordering::Relaxed};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const SIZES: [usize; 3] = [4 << 20, 16 << 20, 64 << 20];
/// Mappings made to see what one costs.
const VMAS: usize = 256;
/// Samples of each fork, of a clone's writes and of each seal. The least counts: whatever else the machine does only
/// adds.
const FORKS: Samples = Samples { most: 21, enough: 5 };
const WRITES: Samples = Samples { most: 9, enough: 3 };
const SEALS: usize = 2;
/// How a clone writes: regions, and pages in each.
const WRITTEN: [(usize, usize); 3] = [(32, 1), (8, 64), (2, 512)];

/// Measures everything. Must run in a fresh child.
pub(super) fn run(sheet: &Sheet) {
	fresh::pin_to_one_cpu();
	if let Err(e) = all(sheet) {
		sheet.fail(e);
	}
}

fn all(sheet: &Sheet) -> Result<(), Error> {
	// Inherited from the caller; without on-demand fork there is nothing to switch off.
	let _ = odf::disable();
	// What the caller left behind is sealed once, so that it counts in no figure below.
	seal(Pages::Auto).outcome?;
	forks(sheet, [1, 0, 0, 0, 0, 0, 0])?;
	vmas(sheet)?;
	for size in SIZES {
		plain(sheet, size)?;
		huge(sheet, size)?;
		seals(sheet, size, Pages::Small, Kind::SealSmall)?.unmap();
		let region = seals(sheet, size, Pages::Auto, Kind::Seal)?;
		forks(sheet, [1, 0, 0, 0, 0, 0, 0])?;
		if size == SIZES[2] {
			writes(sheet, Kind::WriteSeal, &region)?;
			dirty(sheet, &region)?;
		}
		region.unmap();
	}
	Ok(())
}

/// Anonymous memory aligned to 2 MB, every page populated.
struct Region {
	mapping: *mut u8,
	start: *mut u8,
	len: usize,
}

impl Region {
	fn new(len: usize, advice: Option<Advice>) -> Result<Region, Error> {
		// SAFETY: our own fresh mapping, large enough from the aligned address on.
		unsafe {
			let prot = ProtFlags::READ | ProtFlags::WRITE;
			let mapping = mmap_anonymous(null_mut(), len + HUGE, prot, MapFlags::PRIVATE).map_err(system)?.cast::<u8>();
			let start = mapping.add(mapping.align_offset(HUGE));
			if let Some(advice) = advice {
				// A kernel without huge pages refuses, and has none to ask for or forbid.
				let _ = madvise(start.cast(), len, advice);
			}
			let region = Region { mapping, start, len };
			if madvise(start.cast(), len, Advice::LinuxPopulateWrite).is_err() {
				(0..len / PAGE).for_each(|page| region.write(page));
			}
			Ok(region)
		}
	}

	fn write(&self, page: usize) {
		// SAFETY: callers stay below the length.
		unsafe { self.start.add(page * PAGE).write_volatile(page as u8 | 1) };
	}

	fn huge_bytes(&self) -> Result<usize, Error> {
		// The advice may have split the mapping: all that begins in it counts.
		let range = self.mapping as usize..self.start as usize + self.len;
		Ok(text::smaps_bytes(range, &[b"AnonHugePages:"]).map_err(system)? as usize)
	}

	fn unmap(self) {
		// SAFETY: the last use. A failure would leak the memory until the child's end.
		let _ = unsafe { munmap(self.mapping.cast(), self.len + HUGE) };
	}
}

fn system(errno: rustix::io::Errno) -> Error {
	Error::System(Step::Begin, Errno::new(errno.raw_os_error()))
}

/// Forks of 4 KB pages, plain and, where they are to be had, on demand.
fn plain(sheet: &Sheet, size: usize) -> Result<(), Error> {
	let region = Region::new(size, Some(Advice::LinuxNoHugepage))?;
	forks(sheet, [1, (size / PAGE) as u64, 0, 0, 0, 0, 0])?;
	if size == SIZES[2] {
		writes(sheet, Kind::WriteFork, &region)?;
	}
	if odf::enable().is_ok() {
		forks(sheet, [1, 0, 0, 0, 0, 0, (size / HUGE) as u64])?;
		if size == SIZES[2] {
			writes(sheet, Kind::WriteOdf, &region)?;
		}
		// The kernel has just said yes; it never refuses to switch off.
		let _ = odf::disable();
	}
	region.unmap();
	Ok(())
}

fn huge(sheet: &Sheet, size: usize) -> Result<(), Error> {
	let region = Region::new(size, Some(Advice::LinuxHugepage))?;
	let got = region.huge_bytes()?;
	if got >= size / 4 * 3 {
		forks(sheet, [1, ((size - got) / PAGE) as u64, (got / HUGE) as u64, 0, 0, 0, 0])?;
		if size == SIZES[2] {
			writes(sheet, Kind::WriteForkThp, &region)?;
		}
	}
	region.unmap();
	Ok(())
}

/// Seals memory of this size some times over; returns the last one, sealed.
fn seals(sheet: &Sheet, size: usize, pages: Pages, kind: Kind) -> Result<Region, Error> {
	let (mut region, mut least) = sealed(size, pages)?;
	for _ in 1..SEALS {
		region.unmap();
		let (next, ns) = sealed(size, pages)?;
		(region, least) = (next, least.min(ns));
	}
	sheet.push(kind, &[1, size as u64], [least; 2]);
	Ok(region)
}

/// Seals fresh memory; returns it with the nanoseconds that took.
fn sealed(size: usize, pages: Pages) -> Result<(Region, u64), Error> {
	let region = Region::new(size, None)?;
	let sealed = seal(pages);
	let outcome = sealed.outcome?;
	if outcome.sealed < size as u64 {
		let at = region.start as usize;
		let record = sealed.records().iter().find(|r| r.range.start <= at && at < r.range.end);
		return Err(Error::Refused(record.and_then(|r| r.reason).unwrap_or(Reason::CopyFailed)));
	}
	Ok((region, outcome.elapsed_ns))
}

/// Forks after some pages of sealed memory were written: one in each region, then a few regions whole.
fn dirty(sheet: &Sheet, region: &Region) -> Result<(), Error> {
	let regions = region.len / HUGE;
	let each = HUGE / PAGE;
	for r in 0..regions {
		region.write(r * each + 99);
	}
	forks(sheet, [1, 0, 0, 0, regions as u64, regions as u64, 0])?;
	let whole = regions / 4;
	for page in 0..whole * each {
		region.write(page);
	}
	forks(sheet, [1, 0, 0, 0, regions as u64, (whole * each + regions - whole) as u64, 0])
}

fn vmas(sheet: &Sheet) -> Result<(), Error> {
	let len = VMAS * PAGE;
	// SAFETY: our own fresh mapping; the protection of pages nobody uses may change.
	unsafe {
		let memfd = memfd_create(c"flashfork-calibrate", MemfdFlags::CLOEXEC).map_err(system)?;
		ftruncate(&memfd, len as u64).map_err(system)?;
		let at = mmap(null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &memfd, 0).map_err(system)?;
		for page in (0..VMAS).step_by(2) {
			mprotect(at.cast::<u8>().add(page * PAGE).cast(), PAGE, MprotectFlags::empty()).map_err(system)?;
		}
		forks(sheet, [1, 0, 0, VMAS as u64, 0, 0, 0])?;
		munmap(at, len).map_err(system)
	}
}

#[derive(Clone, Copy)]
struct Samples {
	most: usize,
	/// After this many no more than [`PATIENCE`] is spent.
	enough: usize,
}

/// Nanoseconds after which a busy machine gets no more samples of one thing than needed.
const PATIENCE: u64 = 30_000_000;

impl Samples {
	/// Takes samples; the least of each of two costs.
	fn least(self, mut sample: impl FnMut() -> Result<[u64; 2], Error>) -> Result<[u64; 2], Error> {
		let start = now();
		let mut least = [u64::MAX; 2];
		for n in 0..self.most {
			if n >= self.enough && now() - start > PATIENCE {
				break;
			}
			let [a, b] = sample()?;
			least = [least[0].min(a), least[1].min(b)];
		}
		Ok(least)
	}
}

fn forks(sheet: &Sheet, amounts: [u64; 7]) -> Result<(), Error> {
	let least = FORKS.least(|| {
		let start = now();
		// SAFETY: the clone only ends.
		let pid = match unsafe { fresh::clone() } {
			Ok(0) => fresh::leave(),
			other => other.map_err(|e| no_clone(&e))?,
		};
		let call = now() - start;
		fresh::wait(pid);
		Ok([call, now() - start])
	})?;
	sheet.push(Kind::Fork, &amounts, least);
	Ok(())
}

fn writes(sheet: &Sheet, kind: Kind, region: &Region) -> Result<(), Error> {
	for (regions, pages) in WRITTEN {
		let least = WRITES.least(|| {
			// SAFETY: the clone writes its own memory, leaves a number and ends.
			match unsafe { fresh::clone() } {
				Ok(0) => {
					let start = now();
					for r in 0..regions {
						(0..pages).for_each(|p| region.write(r * (HUGE / PAGE) + p));
					}
					sheet.clone_ns.store(now() - start, Relaxed);
					fresh::leave();
				}
				other => fresh::wait(other.map_err(|e| no_clone(&e))?),
			};
			Ok([sheet.clone_ns.load(Relaxed); 2])
		})?;
		sheet.push(kind, &[regions as u64, (regions * pages) as u64], least);
	}
	Ok(())
}

fn no_clone(e: &std::io::Error) -> Error {
	Error::System(Step::Begin, Errno::new(e.raw_os_error().unwrap_or(libc::EIO)))
}

/// Nanoseconds on a clock that never jumps.
fn now() -> u64 {
	let t = clock_gettime(ClockId::Monotonic);
	t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

//! Taking a private mapping back to its files by copying: pages that were written stay, and get the files' content.
//!
//! A page of such a mapping differs from the file's only if it is a copy of this process's own. That holds whoever
//! wrote: the guest, a device's thread, or the kernel for KVM, since none of them gets at a page for writing before
//! this process's page table has a copy. So no write needs to be noticed and no page protected; the page table is asked
//! which pages are copies, while nobody writes. Those that have been copied back stay mapped, here and in KVM: whoever
//! writes them again has no fault.

use super::{Layered, Reservation, Watch, pagemap::PAGE};
use rustix::mm::{MapFlags, ProtFlags};
use std::{io, ops::Range, time::Duration};

/// Most pages that are kept: 64 MB, which a clone holds from one rollback to the next.
const MOST: usize = 16 << 10;

/// Pages that are compared or copied in the time that it takes to fault one in again, here and in KVM, or less.
const FAULT: usize = 8;

/// Faults that dropping everything costs anyhow.
const ANYHOW: usize = 32;

/// Rollbacks in a row that don't pay before all is dropped: one that was disturbed says nothing.
const VAIN: u32 = 4;

/// Takes memory back. Whoever does so once pays nothing for it: the first time all is dropped.
#[derive(Debug, Default)]
pub struct Undo {
	/// All has been dropped once.
	begun: bool,
	/// The files, mapped for reading, once they were needed.
	source: Option<Reservation>,
	/// Rollbacks of late that didn't pay.
	vain: u32,
	/// Room for what is found.
	runs: Vec<Range<usize>>,
}

impl Undo {
	/// Makes `memory`, of which all is mapped privately from `template` and which nobody writes, what that is; it is
	/// always the same.
	///
	/// Gives `false` if that can't be done, or dropping all copies is cheaper: whatever then has been copied, all are
	/// to be dropped.
	pub(super) fn copy_back(&mut self, memory: &Reservation, watch: &Watch, template: &Layered) -> bool {
		let pays =
			std::mem::replace(&mut self.begun, true) && self.try_copy_back(memory, watch, template).unwrap_or(false);
		if !pays {
			self.vain = 0;
		}
		pays
	}

	fn try_copy_back(&mut self, memory: &Reservation, watch: &Watch, template: &Layered) -> io::Result<bool> {
		let Self { source, runs, .. } = self;
		runs.clear();
		let (start, begun, mut found) = (memory.start() as usize, cpu_time(), 0);
		watch.copies(start..start + memory.length(), |run| {
			found += run.len() / PAGE;
			if found <= MOST {
				runs.push(run);
			}
		})?;
		if found > MOST {
			return Ok(false);
		}
		let looked = cpu_time();
		let source = match source {
			Some(source) => source,
			none => none.insert(read_only(memory.length(), template)?),
		};
		let mut written = 0;
		for page in runs.iter().flat_map(|run| run.clone().step_by(PAGE)) {
			// SAFETY: pages of a mapping that may be written and which nobody else uses now, and of one that may be
			// read, which is apart from it, as long, and never changes. Both live longer than this.
			written += usize::from(unsafe { put_back(source.start().add(page - start), page as *mut u8) });
		}
		let copying = cpu_time().saturating_sub(looked);
		self.vain = if pays(found, written, looked.saturating_sub(begun), copying) { 0 } else { self.vain + 1 };
		Ok(self.vain < VAIN)
	}
}

/// Whether to keep `found` pages, of which so many had been written since the last time: pages that aren't written any
/// more are in the way each time, and so are those that were only read, when pages are looked for. It took so long to
/// look for them, and to compare and copy all.
fn pays(found: usize, written: usize, looking: Duration, copying: Duration) -> bool {
	let faults = written.max(ANYHOW);
	found - written <= FAULT * faults && looking * found as u32 <= copying * (FAULT * faults) as u32
}

/// Of this thread: what others do meanwhile doesn't count.
fn cpu_time() -> Duration {
	let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: writes its own structure. (Not by `rustix`, which first asks for the process's auxiliary vector, and a
	// shell's filter ends it for that.)
	unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
	Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Makes the page at `to` what the one at `from` is; whether it was something else.
///
/// # Safety
/// Both are whole pages, of which one may be read and the other read and written, and nobody writes to them.
unsafe fn put_back(from: *const u8, to: *mut u8) -> bool {
	// SAFETY: as the caller says.
	unsafe {
		let differs = libc::memcmp(from.cast(), to.cast(), PAGE) != 0;
		if differs {
			from.copy_to_nonoverlapping(to, PAGE);
		}
		differs
	}
}

/// `template`, to be read. Privately, because a sealed file can't be mapped shared by every kernel, though it is never
/// written.
fn read_only(length: usize, template: &Layered) -> io::Result<Reservation> {
	let mut source = Reservation::new(length)?;
	source.fill_with(ProtFlags::READ, MapFlags::PRIVATE | MapFlags::NORESERVE, template.ranges())?;
	Ok(source)
}

#[cfg(test)]
mod tests;

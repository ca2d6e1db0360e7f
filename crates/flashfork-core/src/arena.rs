//! The scratch memory of one seal: an own stack, text and page-map buffers, the plan, the report. One mapping, made
//! before and removed after, so that nothing here touches the program's memory.

use crate::{
	code,
	never_seal::Reason,
	outcome::Purpose,
	proc::scan::Region,
	range::Range,
	scratch,
	seal::{generations::Identity, library::Seen},
	sys::{self, Errno, Result},
};
use linux_raw_sys::general as k;

/// A run of whole pages that is going to be sealed.
#[derive(Clone, Copy, Default)]
pub struct Run {
	/// Addresses.
	pub range: Range,
	/// Protection to give the new mapping.
	pub prot: u32,
	/// The advice of the VMA ([`crate::seal::offset`]).
	pub advice: u8,
	/// Index of the VMA's record.
	pub record: u32,
	/// Whether it was sealed before and written since.
	pub resealed: bool,
	/// Which file its sealed memory lies in, where that is asked for.
	pub file: Identity,
	/// Whether nothing was sealed here: a sealed mapping has grown by it.
	pub growth: bool,
	/// Whether it is to lie on huge pages once it is anonymous.
	pub huge: bool,
	/// Bytes inside that hold no page today and will be zeros in the memfd.
	pub filled: usize,
	/// Whether all its pages were in memory when it was planned, so that reading them can't fail: none is swapped out,
	/// a guard, or known to be bad.
	pub present: bool,
}

/// What became of one VMA.
#[derive(Clone, Copy)]
pub struct VmaRecord {
	/// Addresses.
	pub range: Range,
	/// `PROT_*`.
	pub prot: u32,
	/// The kernel's name, cut at 32 bytes, zero-padded.
	pub name: [u8; 32],
	/// Bytes sealed by this call.
	pub sealed: u64,
	/// Bytes that were sealed already and stay so.
	pub kept: u64,
	/// Why (the rest of) it was not sealed.
	pub reason: Option<Reason>,
}

/// Most runs one seal makes: each may be its own VMA, and a process has 65,530 by default.
pub const MAX_RUNS: usize = 16 * 1024;
/// Most VMAs reported one by one; all are counted.
pub const MAX_RECORDS: usize = 16 * 1024;
/// Most excluded ranges: the program's own, the engine's, and twice those that a snapshot keeps.
pub const MAX_HOLES: usize = 256;

/// Roomy: code that is not optimised takes many times as much as code that is.
const STACK: usize = 1024 * 1024;
/// Of that, for who waits for the thread that does the work.
const WAITS: usize = 128 * 1024;

/// See the module.
#[repr(C, align(4096))]
pub struct Arena {
	stack: [u8; STACK],
	/// For text files.
	pub text: [u8; 64 * 1024],
	/// For small text files read while `text` is in use.
	pub small: [u8; 16 * 1024],
	/// For code.
	pub window: [u8; code::memory::WINDOW],
	/// For the file whose code is being looked at.
	pub(crate) object: code::mapped::Object,
	/// For the page map.
	pub regions: [Region; 2048],
	/// The plan.
	pub runs: [Run; MAX_RUNS],
	/// How many runs there are.
	pub run_count: usize,
	/// The report.
	pub records: [VmaRecord; MAX_RECORDS],
	/// How many records there are.
	pub record_count: usize,
	/// Whether blocks of sealed memory of which more than a quarter was written stay as they are, or as
	/// [`crate::seal::dense`] has made them: they will be written again.
	pub leave_dense: bool,
	/// Whether small runs are sealed, too, because the program itself will write no more.
	pub small_runs: bool,
	/// Whether the data of libraries is sealed, too.
	pub libraries: bool,
	/// What the plan has seen of them.
	pub seen: Seen,
	/// Whether sealed memory is made anonymous, and nothing is sealed.
	pub unseals: bool,
	/// Whether nobody but who works here uses the program's memory: asked before, for a thread of the engine's counts.
	pub alone: bool,
	/// Of a program whose threads stand still for good, seen from another process in its memory: the addresses of their
	/// next instructions.
	pub stopped: Option<&'static [usize]>,
	/// When not 0: only memory that isn't sealed, and of it at most so many bytes.
	pub most: usize,
	/// When not 0: after that nothing more is sealed but the first chunk ([`sys::now_ns`]).
	pub late_at: u64,
	/// When not 0: only what lies in the files of this generation, all of it.
	pub only: u64,
	/// Ranges that must not be sealed.
	pub holes: [Range; MAX_HOLES],
	/// How many.
	pub hole_count: usize,
}

impl Arena {
	/// Maps an arena, all zeros. Memory is used only where it is touched.
	pub fn map() -> Result<&'static mut Arena> {
		let at = scratch::map(size_of::<Arena>())?;
		// SAFETY: a fresh mapping of the right size; all-zero bytes are a valid Arena (integers, None, empty ranges).
		Ok(unsafe { &mut *(at as *mut Arena) })
	}

	/// A clone that another thread makes meanwhile doesn't get it.
	pub fn keep_from_clones(&self) {
		let own = self.range();
		// SAFETY: nothing is discarded. Where it is refused a clone keeps addresses, nearly all untouched.
		let _ = unsafe { sys::madvise(own.start, own.len(), k::MADV_DONTFORK) };
	}

	/// Gives the arena's memory back.
	pub fn unmap(&'static mut self) {
		let at = &raw mut *self as usize;
		// SAFETY: this was the only reference, and it ends here. A failure would leak the mapping, no more.
		let _ = unsafe { sys::munmap(at, size_of::<Arena>()) };
	}

	/// What it is used for.
	pub fn purpose(&self) -> Purpose {
		if self.unseals { Purpose::Unseal } else { Purpose::Seal }
	}

	/// The addresses it covers.
	pub fn range(&self) -> Range {
		let at = &raw const *self as usize;
		Range::new(at, at + size_of::<Arena>())
	}

	/// Upper end of its stack.
	pub fn stack_top(&self) -> usize {
		&raw const self.stack as usize + STACK
	}

	/// The same for a thread that does the work while who asked for it waits, close to the upper end.
	pub fn thread_stack_top(&self) -> usize {
		self.stack_top() - WAITS
	}

	/// Adds a run to the plan.
	pub fn push_run(&mut self, run: Run) -> Result<()> {
		*self.runs.get_mut(self.run_count).ok_or(Errno::E2BIG)? = run;
		self.run_count += 1;
		Ok(())
	}

	/// Bytes of the plan's runs.
	pub fn planned(&self) -> usize {
		self.runs[..self.run_count].iter().map(|run| run.range.len()).sum()
	}

	/// Adds a record; returns its index. Past the last place all VMAs share the last record.
	pub fn push_record(&mut self, record: VmaRecord) -> u32 {
		let i = self.record_count.min(MAX_RECORDS - 1);
		self.records[i] = record;
		self.record_count = i + 1;
		i as u32
	}

	/// Adds a range that must not be sealed.
	pub fn push_hole(&mut self, hole: Range) -> Result<()> {
		*self.holes.get_mut(self.hole_count).ok_or(Errno::E2BIG)? = hole;
		self.hole_count += 1;
		Ok(())
	}
}

//! Seal, fork, unseal: the calls a program makes.

use crate::{SealError, allocator};
use flashfork_core::{self as core, never_seal::Reason};
use std::{fmt, time::Duration};

pub use flashfork_core::{Pages, threads::Threads};

/// How to seal.
#[derive(Clone, Debug, Default)]
pub struct SealOptions {
	/// Which pages the sealed memory is made of.
	pub pages: Pages,
	/// The caller vouches that no runtime in this process (Go) relies on `MADV_DONTNEED` giving zeros, and asks for it
	/// by system calls of its own. The file with such calls must be among `trust`, too.
	pub trust_allocator: bool,
	/// What to do about other threads. What is set here holds for later calls of [`unseal`] too.
	pub threads: Threads,
	/// Files that the caller answers for: code in them makes system calls of its own, but none that discards, moves or
	/// grows sealed memory. Once trusted they stay so.
	pub trust: Vec<std::path::PathBuf>,
}

/// What a seal did; displayed in one line, and by `{:#}` with a line for each VMA.
#[derive(Clone, Debug)]
pub struct SealReport {
	/// Bytes sealed by this call.
	pub sealed_bytes: u64,
	/// Of these, bytes on 2 MB pages.
	pub huge_bytes: u64,
	/// Of these, bytes that held no page before.
	pub filled_bytes: u64,
	/// Time the call took; signals waited meanwhile.
	pub elapsed: Duration,
	/// Most extra memory held at any moment, in bytes.
	pub peak_extra_bytes: u64,
	/// Whether the files that the memory lies in refuse every later write (`F_SEAL_WRITE`, or a read-only mount).
	pub write_sealed: bool,
	/// Number of this seal in the process, from 1; 0 when there was nothing to seal.
	pub generation: u32,
	/// What other threads noticed; all zeros in a process without any.
	pub pauses: Pauses,
	/// Why the seal ended before everything planned was done: what came up among threads that went on running.
	pub cut_short: Option<Reason>,
	/// What became of every VMA.
	pub vmas: Vec<VmaReport>,
}

/// How other threads were stopped for a seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
	/// How often: once for each step of 2 MB, and once before.
	pub count: u32,
	/// Time of all.
	pub total: Duration,
	/// Time of the longest.
	pub longest: Duration,
}

/// What became of one VMA; displayed in one line.
#[derive(Clone, Debug)]
pub struct VmaReport {
	/// Addresses.
	pub range: std::ops::Range<usize>,
	/// The kernel's name for it, cut at 32 bytes; empty for plain anonymous memory.
	pub name: String,
	/// Bytes sealed by this call.
	pub sealed_bytes: u64,
	/// Bytes sealed before, and still.
	pub kept_bytes: u64,
	/// Why it, or the rest of it, was not sealed; of a VMA that was sealed, why a part is left, as [`Reason::Excluded`]
	/// where the engine's own data lie in it. `None` too for memory that was never written.
	pub reason: Option<Reason>,
}

/// Seals the process's private anonymous memory where that is safe and pays; called again it seals what was written
/// since (a reseal: a new generation, at most eight at a time).
///
/// Sealing 1 GB takes a few tenths of a second and at most 128 MB of extra memory; after that a fork costs what it
/// costs for a process without that memory, until the process writes. The process must have one thread, or allow
/// [`Threads::Stop`].
pub fn seal(options: &SealOptions) -> Result<SealReport, SealError> {
	if !options.trust_allocator
		&& !allocator::shim_is_loaded()
		&& let Some(name) = allocator::relies_on_dontneed()
	{
		return Err(SealError::Allocator(name));
	}
	allocator::tell_core();
	for path in &options.trust {
		crate::code::trust(path).map_err(|source| SealError::System { step: "find a file to trust", source })?;
	}
	// Nothing between the seal and the copy of its report may allocate: the report lies outside the heap for that.
	core::threads::allow(options.threads);
	let sealed = core::seal(options.pages);
	let done = sealed.outcome?;
	allocator::tell_shim();
	Ok(SealReport {
		sealed_bytes: done.sealed,
		huge_bytes: done.huge,
		filled_bytes: done.filled,
		elapsed: Duration::from_nanos(done.elapsed_ns),
		peak_extra_bytes: done.peak_extra,
		write_sealed: done.write_sealed,
		generation: done.generation,
		pauses: Pauses {
			count: done.pauses,
			total: Duration::from_nanos(done.paused_ns),
			longest: Duration::from_nanos(done.longest_pause_ns),
		},
		cut_short: done.cut_short,
		vmas: sealed.records().iter().map(VmaReport::new).collect(),
	})
}

impl VmaReport {
	fn new(r: &core::arena::VmaRecord) -> VmaReport {
		let end = r.name.iter().position(|b| *b == 0).unwrap_or(r.name.len());
		VmaReport {
			range: r.range.start..r.range.end,
			name: String::from_utf8_lossy(&r.name[..end]).into_owned(),
			sealed_bytes: r.sealed,
			kept_bytes: r.kept,
			reason: r.reason,
		}
	}
}

impl fmt::Display for SealReport {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		let mb = |bytes: u64| bytes >> 20;
		write!(
			f,
			"{} MB sealed in {:.1?}, {} MB of them on 2 MB pages",
			mb(self.sealed_bytes),
			self.elapsed,
			mb(self.huge_bytes)
		)?;
		write!(
			f,
			"; {} MB held no page before; at most {} MB of extra memory",
			mb(self.filled_bytes),
			mb(self.peak_extra_bytes)
		)?;
		if self.pauses.count > 0 {
			write!(f, "; threads stopped {} times, {:.1?} at most", self.pauses.count, self.pauses.longest)?;
		}
		if let Some(reason) = self.cut_short {
			write!(f, "; ended early: {}", reason.row().what)?;
		}
		if f.alternate() {
			self.vmas.iter().try_for_each(|vma| write!(f, "\n{vma}"))?;
		}
		Ok(())
	}
}

impl fmt::Display for VmaReport {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		let sealed = self.sealed_bytes + self.kept_bytes;
		write!(f, "{:x}-{:x}", self.range.start, self.range.end)?;
		if !self.name.is_empty() {
			write!(f, " {}", self.name)?;
		}
		match self.reason.map(Reason::row) {
			None if sealed == 0 => write!(f, ": never written"),
			None => write!(f, ": {} KB sealed", sealed >> 10),
			Some(row) if sealed == 0 => write!(f, ": left: {}", row.what),
			Some(row) => write!(f, ": {} KB sealed; of the rest, left: {}", sealed >> 10, row.what),
		}
	}
}

/// Makes all sealed memory anonymous again; returns how many bytes. Needs as much free memory.
pub fn unseal() -> Result<u64, SealError> {
	Ok(core::unseal(core::Range::ALL)?)
}

/// Keeps the pages of `len` bytes at `addr` out of every seal; what of them is sealed becomes anonymous again.
///
/// For secrets, and for memory that is written all the time. At most 64 ranges ([`SealError::TooManyExcluded`]).
pub fn exclude(addr: *const u8, len: usize) -> Result<(), SealError> {
	core::exclude(addr as usize, len).map_err(|e| match e {
		core::Error::System(core::Step::Begin, core::Errno::ENOSPC) => SealError::TooManyExcluded,
		other => SealError::from(other),
	})?;
	// The shim seals by itself, and has its own list.
	if allocator::exclude_in_shim(addr, len) { Ok(()) } else { Err(SealError::TooManyExcluded) }
}

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
	/// The caller; the clone's process id.
	Parent(i32),
	/// The clone.
	Child,
}

/// `fork(2)`, counted in [`stats`]. It seals nothing: call [`seal`] when the program is warm.
///
/// # Safety
/// As `fork`: in a process with several threads the child may only call async-signal-safe functions.
pub unsafe fn fork() -> std::io::Result<Forked> {
	// SAFETY: the caller answers for what the child does.
	match core::fork::fork(|| unsafe { libc::fork() }, crate::clock::nanoseconds) {
		0 => Ok(Forked::Child),
		pid if pid > 0 => Ok(Forked::Parent(pid)),
		_ => Err(std::io::Error::last_os_error()),
	}
}

/// Forks counted in this process, and in the clones it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
	/// Forks before the first seal.
	pub plain_forks: u64,
	/// Time these took in the parent, summed.
	pub plain_fork_time: Duration,
	/// Forks after the first seal.
	pub sealed_forks: u64,
	/// Time these took in the parent, summed.
	pub sealed_fork_time: Duration,
	/// Forks with [`odf`](crate::odf) enabled, sealed or not; not among the others.
	pub on_demand_forks: u64,
	/// Time these took in the parent, summed.
	pub on_demand_fork_time: Duration,
}

/// How many forks [`fork`] made and how long they took.
pub fn stats() -> Stats {
	use std::sync::atomic::Ordering::Relaxed;
	let s = core::stats::current();
	Stats {
		plain_forks: s.plain.count.load(Relaxed),
		plain_fork_time: Duration::from_nanos(s.plain.ns.load(Relaxed)),
		sealed_forks: s.sealed.count.load(Relaxed),
		sealed_fork_time: Duration::from_nanos(s.sealed.ns.load(Relaxed)),
		on_demand_forks: s.on_demand.count.load(Relaxed),
		on_demand_fork_time: Duration::from_nanos(s.on_demand.ns.load(Relaxed)),
	}
}

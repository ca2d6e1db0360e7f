//! Counters of one process, or of a tree of processes when they lie in shared memory.

use crate::{
	apart::Apart,
	code::remembered::{CODE, Culprit},
	name::{Name, device},
	never_seal::{Reason, Scope},
	outcome::{Error, Outcome},
	report::Sealed,
};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// How many times something happened and how long it took in all.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Timed {
	/// Times.
	pub count: AtomicU64,
	/// Nanoseconds, summed.
	pub ns: AtomicU64,
}

impl Timed {
	pub(crate) const fn new() -> Timed {
		Timed { count: AtomicU64::new(0), ns: AtomicU64::new(0) }
	}

	pub(crate) fn add(&self, count: u64, ns: u64) {
		self.count.fetch_add(count, Relaxed);
		self.ns.fetch_add(ns, Relaxed);
	}

	pub(crate) fn take(&self) -> (u64, u64) {
		(self.count.swap(0, Relaxed), self.ns.swap(0, Relaxed))
	}
}

/// What kind of process forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
	/// One that had sealed nothing.
	Plain,
	/// One that had sealed memory.
	Sealed,
	/// One that had asked the kernel to fork on demand, sealed or not.
	OnDemand,
}

/// The counters. The layout is the file format behind `FLASHFORK_STATS`: plain 64-bit words, the first one says which.
#[repr(C)]
#[derive(Debug)]
pub struct Stats {
	/// [`Stats::MAGIC`].
	pub magic: AtomicU64,
	/// Programs started with the shim that count here.
	pub programs: AtomicU64,
	/// Forks of processes that had sealed nothing.
	pub plain: Timed,
	/// Of these, forks of processes that sealed later: what the sealed ones compare with.
	pub before: Timed,
	/// Forks of processes that had sealed memory.
	pub sealed: Timed,
	/// Forks of processes that had asked the kernel to fork on demand; not among the others.
	pub on_demand: Timed,
	/// Seals that sealed something.
	pub seals: Timed,
	/// Times that the threads of a process were stopped for a step of a seal.
	pub pauses: Timed,
	/// The longest of these, in nanoseconds.
	pub longest_pause: AtomicU64,
	/// Bytes sealed, over all seals.
	pub sealed_bytes: AtomicU64,
	/// Of these, on 2 MB pages.
	pub huge_bytes: AtomicU64,
	/// Of these, not populated before.
	pub filled_bytes: AtomicU64,
	/// Largest amount sealed by one seal, or by the seals of one process that together make one.
	pub largest_seal: AtomicU64,
	/// Attempts that failed with an error of the system, and the last one: step × 65,536 + errno.
	pub errors: AtomicU64,
	/// See `errors`.
	pub last_error: AtomicU64,
	/// By reason: processes refused; VMAs left out by the largest seal so far.
	pub refused: [AtomicU64; Reason::COUNT],
	/// The first file that a process was refused for.
	pub culprit: Culprit,
	/// The first device or object that one was refused for, as far as it has a name.
	pub device: Name,
}

impl Stats {
	/// Marks a statistics file of this version ("flashfk" and a version byte).
	pub const MAGIC: u64 = u64::from_le_bytes(*b"flashfk\x05");

	/// All zeros.
	pub const fn new() -> Stats {
		// SAFETY: all of it is atomics, of which zeros are a value.
		let mut stats: Stats = unsafe { core::mem::zeroed() };
		stats.magic = AtomicU64::new(Self::MAGIC);
		stats
	}

	/// Notes a fork as the parent saw it.
	pub fn fork(&self, kind: Kind, ns: u64) {
		match kind {
			Kind::Plain => &self.plain,
			Kind::Sealed => &self.sealed,
			Kind::OnDemand => &self.on_demand,
		}
		.add(1, ns);
	}

	/// Notes what a seal did.
	pub fn seal(&self, seal: &Sealed) {
		match &seal.outcome {
			Ok(outcome) => self.sealed_some(seal, outcome),
			Err(Error::Refused(reason)) => {
				self.refuse(*reason);
				match reason {
					Reason::SystemCalls => self.culprit.note(&CODE.culprit),
					Reason::Driver if self.device.is_empty() => self.device.copy(device()),
					_ => {}
				}
			}
			Err(Error::Busy) => {}
			Err(Error::System(step, errno)) => {
				self.errors.fetch_add(1, Relaxed);
				self.last_error.store((*step as u64) << 16 | errno.into_raw() as u64, Relaxed);
			}
		}
	}

	/// Notes that the process was refused.
	pub fn refuse(&self, reason: Reason) {
		self.refused[reason as usize].fetch_add(1, Relaxed);
	}

	fn sealed_some(&self, seal: &Sealed, o: &Outcome) {
		self.pauses.add(o.pauses.into(), o.paused_ns);
		self.longest_pause.fetch_max(o.longest_pause_ns, Relaxed);
		if let Some(reason) = o.cut_short {
			self.refused[reason as usize].fetch_add(1, Relaxed);
		}
		if o.sealed > 0 {
			self.seals.add(1, o.elapsed_ns);
			self.sealed_bytes.fetch_add(o.sealed, Relaxed);
			self.huge_bytes.fetch_add(o.huge, Relaxed);
			self.filled_bytes.fetch_add(o.filled, Relaxed);
		}
		if self.largest_seal.fetch_max(o.sealed, Relaxed) > o.sealed {
			return;
		}
		for (row, count) in crate::never_seal::TABLE.iter().zip(&self.refused) {
			if row.scope == Scope::Vma {
				let n = seal.records().iter().filter(|r| r.reason == Some(row.reason)).count();
				count.store(n as u64, Relaxed);
			}
		}
	}
}

impl Default for Stats {
	fn default() -> Stats {
		Stats::new()
	}
}

pub(crate) struct Counters {
	own: Stats,
	shared: AtomicPtr<Stats>,
}

pub(crate) static STATS: Apart<Counters> =
	Apart::new(Counters { own: Stats::new(), shared: AtomicPtr::new(core::ptr::null_mut()) });

/// The counters forks and seals are added to.
pub fn current() -> &'static Stats {
	let shared = STATS.shared.load(Relaxed);
	if shared.is_null() {
		return &STATS.own;
	}
	// SAFETY: [`share`] was given memory that stays mapped for good; all fields are atomics.
	unsafe { &*shared }
}

/// Counts in memory shared with other processes from now on.
///
/// # Safety
/// `stats` must be aligned, stay mapped and writable for the life of the process and all its clones, and hold nothing
/// but a `Stats`.
pub unsafe fn share(stats: *mut Stats) {
	STATS.shared.store(stats, Relaxed);
}

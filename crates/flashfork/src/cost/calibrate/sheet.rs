//! What the measuring child writes down and the parent reads.

use super::super::{CostError, fit::Sample};
use crate::{fresh::Results, never_seal::TABLE};
use flashfork_core as core;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
	/// A fork and its cycle; amounts as in [`super::ForkPrices`].
	Fork = 1,
	/// A clone's writes; amounts are regions and pages.
	WriteFork,
	/// As before.
	WriteForkThp,
	/// As before.
	WriteSeal,
	/// As before.
	WriteOdf,
	/// A seal; amounts are 1 and bytes.
	Seal,
	/// As before, on 4 KB pages.
	SealSmall,
}

struct Row {
	kind: AtomicU64,
	amounts: [AtomicU64; 7],
	costs: [AtomicU64; 2],
}

pub(super) struct Sheet {
	count: AtomicU64,
	rows: [Row; 40],
	/// 0 none, 1 to 999 a reason plus one, from 1000 an errno.
	failure: AtomicU64,
	/// A clone's own time, on its way to the process that measures.
	pub clone_ns: AtomicU64,
}

// SAFETY: made of atomics, for which all zeros are valid.
unsafe impl Results for Sheet {}

impl Sheet {
	/// Adds a row; `costs` are nanoseconds of the fork and its cycle, or one cost twice.
	pub(super) fn push(&self, kind: Kind, amounts: &[u64], costs: [u64; 2]) {
		let Some(row) = self.rows.get(self.count.load(Relaxed) as usize) else { return };
		row.kind.store(kind as u64, Relaxed);
		row.amounts.iter().zip(amounts).for_each(|(place, n)| place.store(*n, Relaxed));
		row.costs.iter().zip(costs).for_each(|(place, ns)| place.store(ns.max(1), Relaxed));
		self.count.fetch_add(1, Relaxed);
	}

	/// Notes what makes measuring pointless.
	pub(super) fn fail(&self, error: core::Error) {
		let code = match error {
			core::Error::Refused(reason) => reason as u64 + 1,
			core::Error::Busy => 1000 + libc::EBUSY as u64,
			core::Error::System(_, errno) => 1000 + errno.into_raw() as u64,
		};
		self.failure.store(code, Relaxed);
	}

	/// What the child noted, if anything.
	pub(super) fn failure(&self) -> Result<(), CostError> {
		match self.failure.load(Relaxed) {
			0 => Ok(()),
			code @ 1000.. => Err(CostError::Child(std::io::Error::from_raw_os_error(code as i32 - 1000).to_string())),
			code => match TABLE.get(code as usize - 1) {
				Some(row) => Err(CostError::Refused(row.reason)),
				None => Err(CostError::Child("the child left nonsense".into())),
			},
		}
	}

	/// The rows of one kind, with the first of their costs.
	pub(super) fn samples<const N: usize>(&self, kind: Kind) -> Vec<Sample<N>> {
		self.costed(kind, 0)
	}

	/// The rows about forks: with the cost of the call, and with that of the cycle.
	pub(super) fn forks(&self) -> [Vec<Sample<7>>; 2] {
		[0, 1].map(|which| self.costed(Kind::Fork, which))
	}

	fn costed<const N: usize>(&self, kind: Kind, which: usize) -> Vec<Sample<N>> {
		let rows = self.rows.iter().filter(|row| row.kind.load(Relaxed) == kind as u64);
		rows.map(|row| Sample {
			amounts: std::array::from_fn(|i| row.amounts[i].load(Relaxed) as f64),
			cost: row.costs[which].load(Relaxed) as f64,
		})
		.collect()
	}
}

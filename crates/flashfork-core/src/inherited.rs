//! Attributes that a program has of whoever started it, and that a clone has of its template instead: it takes its
//! caller's. What the program has set while it was warmed stays while caller and template have the same.

use crate::{
	proc::{dump, text},
	sys::{self, Errno, Result, call, numeric},
};
use core::ops::Range;
use linux_raw_sys::prctl;
use syscalls::Sysno;

/// Of the calling thread, and the filter of its process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
	/// The first version of `struct sched_attr` (`sched_setattr(2)`), without the nice value; zeros where the kernel
	/// doesn't tell.
	pub scheduling: [u64; 6],
	/// `ioprio_get(2)`; -1 where the kernel doesn't tell.
	pub io_priority: i32,
	/// `personality(2)`.
	pub personality: u32,
	/// `/proc/self/coredump_filter`, as it is while nothing is sealed; [`UNKNOWN`] where there is none.
	pub dump_filter: u32,
	/// 1 under `no_new_privs` (`prctl(2)`), else 0.
	pub no_new_privs: u32,
	/// `PR_GET_MDWE` (0 for one that isn't inherited), secure bits, `PR_GET_THP_DISABLE`, timer slack (`prctl(2)`).
	pub prctl: [u64; 4],
}

/// Of [`Inherited::prctl`]: which call asks, and which sets.
const PRCTL: [(u32, u32); 4] = [
	(prctl::PR_GET_MDWE, prctl::PR_SET_MDWE),
	(prctl::PR_GET_SECUREBITS, prctl::PR_SET_SECUREBITS),
	(prctl::PR_GET_THP_DISABLE, prctl::PR_SET_THP_DISABLE),
	(prctl::PR_GET_TIMERSLACK, prctl::PR_SET_TIMERSLACK),
];

/// See [`Inherited::dump_filter`].
pub const UNKNOWN: u32 = u32::MAX;

/// What a clone could not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
	/// The scheduling policy.
	Scheduling,
	/// The I/O priority.
	IoPriority,
	/// The personality.
	Personality,
	/// The filter of core dumps.
	DumpFilter,
	/// To be without `no_new_privs`, which nobody can give up.
	NoNewPrivs,
	/// One of [`Inherited::prctl`].
	Prctl,
}

/// Words of a `struct sched_attr`; the lower half of the third is the nice value, its upper half the priority.
const SCHEDULING: usize = 6;
const NICE_WORD: usize = 2;
const NICE: u64 = 0xffff_ffff;

impl Inherited {
	/// Asks the kernel.
	#[must_use]
	pub fn look() -> Inherited {
		let mut scheduling = [0; SCHEDULING];
		let into = scheduling.as_mut_ptr() as usize;
		let ask = |(get, _)| {
			// What the kernel doesn't know nobody has.
			let value = numeric(Sysno::prctl, [get as usize, 0, 0, 0]).unwrap_or(0) as u64;
			if get == prctl::PR_GET_MDWE && value != 1 { 0 } else { value }
		};
		// SAFETY: the kernel writes as many bytes as said to a local; the others take numbers.
		unsafe {
			if call(Sysno::sched_getattr, [0, into, size_of_val(&scheduling), 0]).is_err() {
				scheduling = [0; SCHEDULING];
			}
			scheduling[NICE_WORD] &= !NICE;
			Inherited {
				scheduling,
				io_priority: call(Sysno::ioprio_get, [THIS_THREAD, 0, 0, 0]).map_or(-1, |priority| priority as i32),
				personality: call(Sysno::personality, [ONLY_ASK, 0, 0, 0]).unwrap_or(0) as u32,
				dump_filter: dump::inherited().unwrap_or(UNKNOWN),
				no_new_privs: call(Sysno::prctl, [GET_NO_NEW_PRIVS, 0, 0, 0]).unwrap_or(0) as u32,
				prctl: PRCTL.map(ask),
			}
		}
	}

	/// Gives the calling thread and its process what is its caller's (`self`) and was not its template's (`before`).
	///
	/// # Errors
	/// What could not be taken, and why.
	pub fn take(&self, before: &Inherited) -> core::result::Result<(), (Attribute, Errno)> {
		let of = |attribute| move |e| (attribute, e);
		// SAFETY: the kernel reads a local; the others take numbers.
		unsafe {
			if self.scheduling != before.scheduling {
				self.schedule().map_err(of(Attribute::Scheduling))?;
			}
			if self.io_priority != before.io_priority && self.io_priority >= 0 {
				let wanted = [THIS_THREAD, 0, self.io_priority as usize, 0];
				call(Sysno::ioprio_set, wanted).map_err(of(Attribute::IoPriority))?;
			}
			if self.personality != before.personality {
				let wanted = [self.personality as usize, 0, 0, 0];
				call(Sysno::personality, wanted).map_err(of(Attribute::Personality))?;
			}
			if self.dump_filter != before.dump_filter && self.dump_filter != UNKNOWN {
				dump::take(self.dump_filter.into()).map_err(of(Attribute::DumpFilter))?;
			}
		}
		self.take_prctl(before, 2..4)?;
		self.take_privileges(before)
	}

	/// Secure bits alone: in its own namespace of users a program has none, and no use for them.
	///
	/// # Errors
	/// As [`Inherited::take`].
	pub fn take_secure_bits(&self, before: &Inherited) -> core::result::Result<(), (Attribute, Errno)> {
		self.take_prctl(before, 1..2)
	}

	fn take_prctl(&self, before: &Inherited, which: Range<usize>) -> core::result::Result<(), (Attribute, Errno)> {
		for n in which.filter(|n| self.prctl[*n] != before.prctl[*n]) {
			let (_, option) = PRCTL[n];
			let value = self.prctl[n] as usize;
			// With huge pages flags come behind what they are about.
			let [value, flags] = if option == prctl::PR_SET_THP_DISABLE { [value & 1, value & !1] } else { [value, 0] };
			numeric(Sysno::prctl, [option as usize, value, flags, 0]).map_err(|e| (Attribute::Prctl, e))?;
		}
		Ok(())
	}

	/// `no_new_privs` and `PR_SET_MDWE` alone: whatever else the program has of its own, nobody is to get more rights
	/// by it than its caller may.
	///
	/// # Errors
	/// As [`Inherited::take`].
	pub fn take_privileges(&self, before: &Inherited) -> core::result::Result<(), (Attribute, Errno)> {
		self.take_prctl(before, 0..1)?;
		match (before.no_new_privs, self.no_new_privs) {
			(was, wanted) if was == wanted => Ok(()),
			(0, _) => {
				numeric(Sysno::prctl, [SET_NO_NEW_PRIVS, 1, 0, 0]).map(drop).map_err(|e| (Attribute::NoNewPrivs, e))
			}
			_ => Err((Attribute::NoNewPrivs, Errno::EPERM)),
		}
	}

	unsafe fn schedule(&self) -> Result<()> {
		let mut now = [0u64; SCHEDULING];
		let mut wanted = self.scheduling;
		let at = |words: &[u64; SCHEDULING]| words.as_ptr() as usize;
		// SAFETY: the kernel writes and reads as many bytes as said of locals.
		unsafe {
			call(Sysno::sched_getattr, [0, now.as_mut_ptr() as usize, size_of_val(&now), 0])?;
			wanted[NICE_WORD] |= now[NICE_WORD] & NICE;
			call(Sysno::sched_setattr, [0, at(&wanted), 0, 0]).map(drop)
		}
	}
}

/// The parent of a process, as `/proc` has it; `None` where that doesn't show the process.
#[must_use]
pub fn parent_of(pid: i32) -> Option<i32> {
	// It stands in the first lines.
	let mut start = [0; 512];
	let path = text::ProcPath::of(pid).push(b"/status");
	text::field(text::read_file(path.as_c(), &mut start).ok()?, b"PPid").map(|parent| parent as i32)
}

/// The parent of this process, whatever other answer `getppid` of a library gives.
#[must_use]
pub fn own_parent() -> i32 {
	sys::getppid()
}

const ONLY_ASK: usize = 0xffff_ffff;
/// `IOPRIO_WHO_PROCESS`.
const THIS_THREAD: usize = 1;
const SET_NO_NEW_PRIVS: usize = linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS as usize;
const GET_NO_NEW_PRIVS: usize = linux_raw_sys::prctl::PR_GET_NO_NEW_PRIVS as usize;

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_alike_is_not_touched_and_no_new_privs_is_given_up_by_nobody() {
		let own = Inherited::look();
		assert_eq!(own.scheduling[0] as u32 as usize, size_of_val(&own.scheduling), "{own:x?}");
		assert_eq!(own.take(&own), Ok(()));
		assert_eq!(Inherited::look(), own);
		let (with, without) = (Inherited { no_new_privs: 1, ..own }, Inherited { no_new_privs: 0, ..own });
		assert_eq!(without.take(&with), Err((Attribute::NoNewPrivs, Errno::EPERM)));
		assert_eq!(without.take_privileges(&with), Err((Attribute::NoNewPrivs, Errno::EPERM)));
	}
}

//! The calling process, as the policy asks about it.

use super::{Process, UNTOLD};
use crate::{
	outcome::Purpose,
	proc::text::{decimal, words},
	seal::{generations::Memfds, vain},
	state::STATE,
	sys,
	threads::{
		self,
		errand::{self, Who},
		table,
	},
};

/// See the module.
pub struct Own;

impl Process for Own {
	fn holds_sealed(&self) -> bool {
		STATE.holds_sealed()
	}

	fn anonymous(&self) -> u64 {
		anonymous_memory().unwrap_or(0)
	}

	fn last_generation(&self) -> u64 {
		// Another copy of the engine counts its own.
		if STATE.is_beside_another() { UNTOLD } else { STATE.last_generation() }
	}

	fn written(&self, after: u64) -> Option<u64> {
		if after == UNTOLD { Some(0) } else { vain::written(after) }
	}

	fn discarded(&self) -> u64 {
		STATE.discarded()
	}

	fn memfds(&self, after: u64) -> Option<Memfds> {
		if after == UNTOLD { Some(Memfds::default()) } else { vain::memfds(after) }
	}
}

/// Bytes of resident memory that no file holds. Where others use the table of descriptors, and no seal will be made
/// while they do: at most so many.
fn anonymous_memory() -> Option<u64> {
	let is_own = table::is_own();
	if STATE.is_sandboxed() || is_own && table::is_known_own() {
		return counted();
	}
	if !is_own && (table::may_be_shared() || !threads::may_stop(Purpose::Seal)) {
		return Some(sys::most_resident());
	}
	let mut found = None;
	errand::run(Who::Thread, || {
		found = counted();
		Ok(())
	})
	.ok()?;
	found
}

/// The same, by `/proc/thread-self/statm`.
fn counted() -> Option<u64> {
	let mut buf = [0; 128];
	let text = table::read_file(c"/proc/thread-self/statm", &mut buf).ok()?;
	let mut numbers = words(text).skip(1).filter_map(decimal);
	let (resident, shared) = (numbers.next()?, numbers.next()?);
	Some(resident.saturating_sub(shared) * sys::PAGE as u64)
}

/// The looks that are taken around a fork, for nothing ([`crate::answers::sandbox`]).
pub fn measure() {
	let _ = (sys::minor_faults(), counted(), anonymous_memory(), vain::written(1), vain::memfds(1));
}

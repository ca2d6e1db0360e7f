//! What a seal does about other threads.
//!
//! docs/THREADS.md says why a process with threads is refused unless its owner says otherwise, and what threads can
//! see. With threads allowed a helper does the work ([`crate::threads::helper`]). It stops all threads
//! ([`crate::threads::stop`]) for 2 MB at a time, by a signal where ptrace is refused
//! ([`crate::threads::stop_by_signal`]), looks again at everything that may have changed since the plan
//! ([`crate::threads::pauses`]), copies, remaps, and lets them go.

pub(crate) mod alone;
pub(crate) mod errand;
pub(crate) mod exclusive;
mod helper;
pub(crate) mod pauses;
pub(crate) mod status;
mod stop;
pub(crate) mod stop_by_signal;
pub(crate) mod table;

use crate::{outcome::Purpose, state::STATE};

/// What to do about the process's other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Threads {
	/// Refuse to seal while there are any.
	#[default]
	Refuse = 0,
	/// Stop them for each step of 2 MB: by `ptrace(2)`, and where that is refused by a signal, which more calls notice.
	Stop = 1,
}

/// Sets it for all later seals and unseals of this process, and of its clones.
pub fn allow(threads: Threads) {
	STATE.set_threads(threads as u8);
}

/// What is set.
pub fn allowed() -> Threads {
	if STATE.threads() == Threads::Stop as u8 { Threads::Stop } else { Threads::Refuse }
}

/// Has threads stopped for unseals until the guard is dropped, whatever is set: for one without which a call of the
/// program's would fail or mean something else.
pub(crate) fn force() -> Forced {
	STATE.force(1);
	Forced(())
}

/// Whether they may be stopped for this.
pub(crate) fn may_stop(purpose: Purpose) -> bool {
	allowed() == Threads::Stop || purpose == Purpose::Unseal && STATE.is_forced()
}

pub(crate) struct Forced(());

impl Drop for Forced {
	fn drop(&mut self) {
		STATE.force(-1);
	}
}

/// To be called once when the program starts: from then on [`exec`] knows a child of `vfork(2)`.
pub fn begin() {
	STATE.know_process();
}

/// Tells where glibc keeps `__libc_single_threaded`: by that it is known before the first seal whether others use the
/// table of descriptors, when a filter might end the program for any question.
///
/// # Safety
/// It stays there while the process lives.
pub unsafe fn know_single_threaded(word: *mut u8) {
	table::know_single_threaded(word);
}

/// Runs `real`, one of libc's exec functions. Where threads are being stopped by signals it first waits for the end of
/// the seal: a signal on its way to this thread would end the new program, which has no handler for it.
pub fn exec<T>(real: impl FnOnce() -> T) -> T {
	let counted = stop_by_signal::before_exec();
	let failed = real();
	if counted {
		stop_by_signal::after_exec();
	}
	failed
}

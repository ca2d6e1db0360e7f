//! What a child under a filter tries: all that the engine does.

use super::{ALLOWED, NAMELESS, UNTRIED, end_in_silence, know_trial};
use crate::{
	answers::{advise, exec},
	never_seal::Reason,
	outcome::Error,
	policy::own,
	proc::directory,
	range::Range,
	seal::{What, refills::drop_refills, seal_for_policy, unseal::unseal},
	state::STATE,
	sys::{self, Errno, HUGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE},
	threads::{
		self, Threads,
		errand::{self, Who},
	},
};
use core::sync::atomic::Ordering::SeqCst;
use linux_raw_sys::general as k;

const TRIAL: usize = 2 * HUGE;

/// To be called by every way into the engine: from then on it can be tried.
pub fn prepare() {
	know_trial(try_everything);
}

/// In the child: every call that the engine makes around forks, in a seal and after it.
fn try_everything() -> ! {
	if !sys::knows_itself() {
		sys::exit(NAMELESS);
	}
	STATE.sandbox.store(ALLOWED, SeqCst);
	end_in_silence();
	if threads::allowed() == Threads::Stop {
		// Another thread may become another program meanwhile. A helper makes these calls too.
		let _ = sys::die_with_parent();
		let _ = sys::leave_group();
	}
	let mut buf = [0; 4096];
	// What stands in the way of the program's own seal may be gone by then.
	let _ = directory::for_each_descriptor(&mut buf, sys::close);
	own::measure();
	let _ = sys::reading_implies_executing();
	// As calls on sealed memory do where there are threads; where it fails they do without.
	let _ = errand::run(Who::Thread, || Ok(()));
	// As whoever waits for such a thread may have to.
	sys::give_way();
	let _ = errand::run(Who::Process, || Ok(()));
	let flags = MAP_PRIVATE | MAP_ANONYMOUS;
	// SAFETY: a fresh mapping of the child's own.
	let at = unsafe { sys::mmap(0, TRIAL, PROT_READ | PROT_WRITE, flags, -1, 0) }.unwrap_or_else(|e| failed(e));
	for page in (at..at + TRIAL).step_by(PAGE) {
		// SAFETY: inside it.
		unsafe { (page as *mut u8).write_volatile(1) };
	}
	let sealed = seal_for_policy(What::AllButDense(0));
	match sealed.outcome {
		Ok(outcome) if outcome.sealed > 0 => {}
		// A filter's doing, most likely, and met again.
		Ok(_) if sealed.records().iter().any(|r| r.reason == Some(Reason::CopyFailed)) => sys::exit(1),
		Ok(_) => failed(Errno::ENOMEM),
		Err(Error::System(_, e)) => failed(e),
		Err(Error::Busy) => failed(Errno::EBUSY),
		Err(Error::Refused(_)) => sys::exit(1),
	}
	// As the look at code does from the second seal on, when files are known.
	let _ = sys::status_at(k::AT_FDCWD, c"/");
	exec::rehearse();
	// SAFETY: the child's own memory.
	unsafe { (at as *mut u8).write_volatile(2) };
	for page in (at..at + TRIAL).step_by(PAGE) {
		// SAFETY: inside it.
		unsafe { (page as *const u8).read_volatile() };
	}
	let _ = drop_refills();
	// SAFETY: the child's own memory.
	unsafe { advise::madvise(at, HUGE, k::MADV_DONTNEED) }.unwrap_or_else(|e| failed(e));
	match unseal(Range::ALL) {
		Ok(_) => sys::exit(0),
		Err(Error::System(_, e)) => failed(e),
		Err(_) => failed(Errno::EBUSY),
	}
}

/// Ends the child where it can't go on.
fn failed(e: Errno) -> ! {
	sys::exit(UNTRIED + e.into_raw())
}

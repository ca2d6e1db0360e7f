//! Seccomp filters (seccomp(2)) that were there before the program started, because containers, services and browsers
//! put them in place and they last over exec.
//!
//! A filter that refuses a call does no harm: every call of the engine may fail. One that ends the process for it would
//! make a seal end the program. Nobody can read a filter, so where there is one a seal is tried in a child first, once:
//! what ends the child would have ended the program. What a filter means that the program sets itself:
//! [`crate::answers::sandbox`].

pub(crate) mod trial;

use crate::{
	never_seal::Reason,
	outcome::{Error, Step},
	proc::text::field,
	stack::roomy,
	state::STATE,
	sys::{self, Errno},
	threads::{
		errand::{self, Who},
		table,
	},
};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use linux_raw_sys::general as k;

pub const ALLOWED: u8 = 1;
pub const FORBIDDEN: u8 = 2;

/// Whether this process is under a filter. An error where nobody can tell: no seal is made without /proc.
pub(crate) fn is_filtered() -> Result<bool, Errno> {
	let mut buf = [0; 4096];
	let status = table::read_file(c"/proc/thread-self/status", &mut buf)?;
	field(status, b"Seccomp").map(|mode| mode != 0).ok_or(Errno::EINVAL)
}

/// Whether there was none when the program began.
static BEGAN_UNFILTERED: AtomicBool = AtomicBool::new(false);

/// [`is_filtered`], when the program begins: nobody else uses its table of descriptors, because execve(2) gives it one
/// of its own.
pub(crate) fn is_filtered_at_start() -> Result<bool, Errno> {
	let filtered = is_filtered();
	BEGAN_UNFILTERED.store(filtered == Ok(false), SeqCst);
	filtered
}

/// [`is_filtered`], asked by a thread with its own table: beside threads, and where no filter was there when the
/// program began and none has been seen since, so that nobody forbids to make one.
fn is_filtered_now() -> Result<bool, Errno> {
	let who = match (table::libc_knows_threads(), BEGAN_UNFILTERED.load(SeqCst) && !STATE.is_sandboxed()) {
		(true, _) => Who::Reader,
		(false, true) => Who::ThreadWithCopy,
		(false, false) => return is_filtered(),
	};
	let mut found = Err(Errno::EAGAIN);
	let asked = errand::run(who, || {
		found = is_filtered();
		Ok(())
	});
	if asked.is_ok() { found } else { is_filtered() }
}

/// The exit code of a child that isn't told its number. By that whoever takes the engine is known, so nobody could.
pub(crate) const NAMELESS: i32 = 2;

/// That of a child in which a call failed, so that it didn't come to all others, is this and the error's number.
const UNTRIED: i32 = 64;

/// What the child does: everything that the engine can. All of that begins with the question of this module, so it is
/// known here by its address only.
static TRIAL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Tells what the child does.
pub(super) fn know_trial(try_everything: fn() -> !) {
	let trial = try_everything as *mut ();
	// A page that is not written needs no copy in a clone.
	if TRIAL.load(SeqCst) != trial {
		TRIAL.store(trial, SeqCst);
	}
}

/// Whether a filter, if any, lets the engine work. Asked once a program, and before the engine makes any other call.
pub(crate) fn allows() -> core::result::Result<(), Error> {
	let allowed = match STATE.sandbox.load(SeqCst) {
		ALLOWED => Some(true),
		FORBIDDEN => Some(false),
		_ => {
			let found = roomy(|| match is_filtered_now() {
				Ok(true) => survives(),
				Ok(false) => Ok(Some(true)),
				Err(e) => Err(Error::System(Step::Look, e)),
			})?;
			if let Some(allowed) = found {
				STATE.sandbox.store(if allowed { ALLOWED } else { FORBIDDEN }, SeqCst);
			}
			found
		}
	};
	// Where the child was refused for another reason, a seal is refused for the same.
	if allowed == Some(false) { Err(Error::Refused(Reason::SeccompFilter)) } else { Ok(()) }
}

/// Whether a child lives through a seal; none when that was refused. Where it could not be tried to the end nobody
/// knows what a seal would meet, so there is none: [`Error::Busy`] where no child could be made or somebody killed it,
/// who is no filter (those end a process by `SIGSYS`), and the next seal tries again; [`Error::System`] where a call
/// failed.
fn survives() -> core::result::Result<Option<bool>, Error> {
	let trial = TRIAL.load(SeqCst);
	if trial.is_null() {
		// Every way into the engine prepares it (`trial::prepare`), but for tests of single functions. One that forgot
		// it must not seal untried.
		return Ok(if cfg!(test) { None } else { Some(false) });
	}
	// SAFETY: what `know_trial` has stored there.
	try_in_child(unsafe { core::mem::transmute::<*mut (), fn() -> !>(trial) })
}

/// Whether a filter that lets the engine work, if any, lets more be done: what `rehearse` does in a child. No where
/// that can't be told.
pub(crate) fn allows_also(rehearse: fn() -> !) -> bool {
	roomy(|| match is_filtered_now() {
		Ok(true) => try_in_child(rehearse) == Ok(Some(true)),
		unfiltered => unfiltered.is_ok(),
	})
}

/// Whether a child lives through it; see [`survives`].
fn try_in_child(rehearse: fn() -> !) -> core::result::Result<Option<bool>, Error> {
	const WCLONE: u32 = 0x8000_0000;
	const SIGKILL: u32 = 9;
	// It tells nobody when it ends, and only who asks for such children waits for it.
	// SAFETY: the child makes system calls and ends.
	let child = match unsafe { sys::fork_in_silence() } {
		Ok(0) => rehearse(),
		Ok(child) => child,
		Err(_) => return Err(Error::Busy),
	};
	match sys::wait(child, WCLONE) {
		Ok((_, 0)) => Ok(Some(true)),
		Ok((_, status)) if status as u32 & 0x7f == SIGKILL => Err(Error::Busy),
		Ok((_, status)) if status & 0x7f != 0 || status == NAMELESS << 8 => Ok(Some(false)),
		Ok((_, status)) if status > UNTRIED << 8 => {
			Err(Error::System(Step::Begin, Errno::new((status >> 8) - UNTRIED)))
		}
		Ok(_) => Ok(None),
		Err(_) => Err(Error::Busy),
	}
}

/// In a child: no handler of the program's, and no core file, tells how a filter ends it.
pub fn end_in_silence() {
	const SIGSYS: i32 = 31;
	let _ = sys::action(SIGSYS, Some(&sys::Action::default()));
	let _ = sys::setrlimit(k::RLIMIT_CORE, [1, 1]);
}

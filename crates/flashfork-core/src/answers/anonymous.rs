//! Makes memory anonymous because a call of the program's is about to need it so, and keeps it so until the call is
//! made.

use crate::{
	never_seal::Reason,
	outcome::{Error, Purpose},
	range::Range,
	seal::{library::LIBRARIES, unseal::unseal},
	sealed::{given_up_holds_file, holds_library, holds_sealed},
	stack::roomy,
	state::{Inside, STATE},
	sys::{self, Errno, Result},
	threads::{self, Threads, alone},
};

/// What a call needs anonymous memory for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
	/// It works on sealed memory too, only less well.
	Better,
	/// It fails or means something else on sealed memory: threads are stopped whatever was asked for, and waited for.
	Must,
}

/// Prepares a range for a call. Nobody seals it again before the guard is dropped.
pub(crate) fn make_anonymous(range: Range, inside: Inside<'static>, need: Need) -> Result<Inside<'static>> {
	let _forced = (need == Need::Must).then(threads::force);
	roomy(|| be_anonymous(range, inside, need))
}

fn be_anonymous(range: Range, mut inside: Inside<'static>, need: Need) -> Result<Inside<'static>> {
	if need == Need::Better && holds_sealed(range) && beside_others() {
		return Err(Errno::EINVAL);
	}
	let mut patience = Patience::for_need(need);
	while holds_sealed(range) {
		// The unseal would wait for ourselves.
		drop(inside);
		let done = unseal(range);
		inside = STATE.inside();
		match done {
			// It can stay as it is only where a thread lives in it, and goes on living there.
			Ok(0) if holds_sealed(range) => return Err(Errno::EINVAL),
			Ok(_) => {}
			Err(e) if patience.is_for(e) => {}
			Err(_) => return Err(Errno::EINVAL),
		}
	}
	Ok(inside)
}

/// Has the data of libraries in a range be its files' again, for a call that means something else there than on other
/// memory. Nobody seals it again before the guard is dropped. `EAGAIN` where that can't be done,
/// or the file wasn't to be had before. `given_up`: the call is a discard.
pub(crate) fn give_files_back(range: Range, inside: Inside<'static>, given_up: bool) -> Result<Inside<'static>> {
	if LIBRARIES.is_lost(range) {
		return Err(Errno::EAGAIN);
	}
	let mut inside = Some(inside);
	LIBRARIES
		.for_each_in(range, |part| {
			// What was a library's may be other memory by now.
			if given_up && !given_up_holds_file(part) {
				return Ok(());
			}
			if holds_library(part) {
				// Sealed it is still known for what it is; anonymous it would have to be told from what comes there.
				LIBRARIES.is_to_be_had(part)?;
			}
			let kept = inside.take().unwrap_or_else(|| STATE.inside());
			inside = Some(make_anonymous(part, kept, Need::Must)?);
			Ok(())
		})
		.map_err(|_| Errno::EAGAIN)?;
	Ok(inside.unwrap_or_else(|| STATE.inside()))
}

/// Makes a call that gives memory a property (`mlock(2)`, `pkey_mprotect(2)`, `mseal(2)`): it works on sealed memory
/// too, only less well. Where that can't be made anonymous it is remembered that a discard must carry the property
/// over.
pub(crate) fn give_property<T>(addr: usize, len: usize, call: impl FnOnce() -> T) -> T {
	let range = Range::pages_of(addr, len);
	let _quiet = STATE.quiet();
	// Where threads may be stopped for a seal, one may come between this and the call.
	if !make_ready(range) || threads::allowed() == Threads::Stop {
		STATE.marked.add(range);
	}
	// One planned meanwhile hears of it when it is done, and before it can go on.
	let _inside = STATE.inside();
	let result = call();
	STATE.properties_change();
	result
}

/// The same for all memory (`mlockall(2)`).
pub(crate) fn give_all_property<T>(call: impl FnOnce() -> T) -> T {
	give_property(0, usize::MAX, call)
}

/// Makes all memory anonymous, before something that must find it so. Threads are stopped for it whatever was asked
/// for: the alternative is a wrong byte. `ENOMEM` where it can't be done.
pub(crate) fn for_good() -> Result<()> {
	if STATE.holds_sealed() { roomy(turn_back) } else { Ok(()) }
}

fn turn_back() -> Result<()> {
	let _forced = threads::force();
	let mut patience = Patience::for_need(Need::Must);
	while let Err(e) = unseal(Range::ALL)
		&& patience.is_for(e)
	{}
	if holds_sealed(Range::ALL) { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// How often an unseal is tried that a call of the program's needs.
pub(crate) struct Patience {
	busy: usize,
	unstoppable: usize,
	shared: usize,
}

impl Patience {
	pub fn for_need(need: Need) -> Patience {
		match need {
			Need::Must => Patience { busy: 20_000, unstoppable: 30, shared: 4000 },
			Need::Better => Patience { busy: 5000, unstoppable: 0, shared: 0 },
		}
	}

	/// Whether it may go better the next time, which this waits for.
	pub fn is_for(&mut self, error: Error) -> bool {
		if matches!(error, Error::Refused(_)) && is_vforked() {
			return false;
		}
		let left = match error {
			// Milliseconds until another thread's seal is over.
			Error::Busy => {
				sys::pause_briefly();
				&mut self.busy
			}
			// A second each, in which a busy machine hasn't let a thread run so that it could stop.
			Error::Refused(Reason::ThreadUnstoppable) => &mut self.unstoppable,
			// Milliseconds until a child of vfork has started its program.
			Error::Refused(Reason::Threads) => {
				if self.shared > 0 {
					sys::pause_briefly();
				}
				&mut self.shared
			}
			_ => return false,
		};
		*left = left.saturating_sub(1);
		*left > 0
	}
}

/// Whether this is a child of vfork(2), for which its parent waits: while it uses the parent's memory that doesn't go
/// on.
fn is_vforked() -> bool {
	let asks = !STATE.is_known_process() && !STATE.is_sandboxed();
	asks && sys::same_memory(sys::getpid(), sys::getppid())
}

/// Whether the range holds no sealed memory any more.
fn make_ready(range: Range) -> bool {
	!STATE.holds_sealed() || roomy(|| be_ready(range))
}

/// Whether others run in this memory that may not be stopped: an unseal would wait some milliseconds for them to go. A
/// main thread that has ended, which the kernel counts, is none; but in a sandbox, which might end the program for the
/// question, it counts.
fn beside_others() -> bool {
	!threads::may_stop(Purpose::Unseal)
		&& sys::unshare_memory() == Err(Errno::EINVAL)
		&& (STATE.is_sandboxed() || alone::alone_now(&mut [0; 1024]) != Ok(true))
}

fn be_ready(range: Range) -> bool {
	if beside_others() {
		let _inside = STATE.inside();
		return !holds_sealed(range);
	}
	let mut patience = Patience::for_need(Need::Better);
	while STATE.holds_sealed() {
		match unseal(range) {
			Ok(_) => return true,
			Err(e) if patience.is_for(e) => {}
			Err(_) => {
				let _inside = STATE.inside();
				return !holds_sealed(range);
			}
		}
	}
	true
}

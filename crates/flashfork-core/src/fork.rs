//! The fork path: what happens around a program's own fork.
//!
//! It runs in the async-signal context of other people's programs: it reads a clock, adds to counters and, when the
//! policy says so, seals. It never allocates, parses configuration or calibrates.

pub use crate::policy::Engine;
use crate::{
	answers::exec,
	filter::{self, trial},
	odf::{self, Unavailable},
	outcome::{Error, Step},
	policy::{Act, POLICY, Process, own::Own},
	region::watch::WATCHED,
	report::Sealed,
	seal::{What, generations::GENERATIONS, refills::drop_for_policy, seal_for_policy, unseal::unseal_for_policy},
	state::STATE,
	stats::{self, Kind},
	sys,
	threads::{self, table},
};
use core::sync::atomic::Ordering::Relaxed;

/// Sets how clones are made, when the program begins; before that every fork is plain. `at_once`: seal before the first
/// fork even under [`Engine::Auto`] (a fork server, whose warm-up is over when it first forks).
///
/// [`Engine::Odf`], and [`Engine::Auto`] too, ask the kernel to fork on demand. [`Engine::Auto`] takes a no for an
/// answer and goes on with seals; for [`Engine::Odf`] it is an error, and forks are plain. An administrator has to
/// switch on-demand fork on, so where it is on it is wanted.
pub fn configure(engine: Engine, at_once: bool) -> Result<(), Unavailable> {
	trial::prepare();
	let filtered = filter::is_filtered_at_start();
	POLICY.set_at_once(at_once);
	POLICY.set(if engine == Engine::Odf { Engine::Fork } else { engine });
	match engine {
		Engine::Odf => odf::enable(),
		// A filter might end the program for a call that it doesn't know.
		Engine::Auto if filtered == Ok(true) => Ok(()),
		// Whatever stands against it: a seal does without.
		Engine::Auto => odf::enable().or(Ok(())),
		Engine::Fork | Engine::Seal => Ok(()),
	}
}

/// Has later forks of this process seal nothing. Explicit seals go on as before, and so do forks on demand.
pub fn stop() {
	POLICY.stop_sealing();
}

/// Whether forks are to be plain: nothing is to be sealed.
pub fn is_plain() -> bool {
	POLICY.is(Engine::Fork)
}

/// Forks through `real`, which must be libc's `fork` or `_Fork`, sealing first when the policy says so. Returns what
/// `real` returned. `clock` gives nanoseconds: libc's own, which makes no system call that a sandbox might forbid.
/// Where the program mustn't read the time at all (`PR_SET_TSC`) forks are not timed, and the policy, which lives on
/// that, seals nothing any more.
pub fn fork(real: impl FnOnce() -> i32, clock: impl Fn() -> u64) -> i32 {
	let policy = &*POLICY;
	let timed = STATE.has_clock();
	if !timed {
		stop();
	}
	let mut may_prepare = policy.seals();
	if may_prepare && let Err(error) = filter::allows() {
		may_prepare = false;
		stats::current().seal(&Sealed::not(error));
		// What can't be read now may be read later.
		if !matches!(error, Error::Busy | Error::System(Step::Look, _)) {
			stop();
		}
	}
	// Not where a filter may end the program for the question.
	let minor_faults = || if may_prepare { sys::minor_faults() } else { 0 };
	let faults = policy.count_faults(minor_faults);
	if may_prepare {
		prepare(faults);
	}
	let kind = match STATE.holds_sealed() {
		_ if policy.is(Engine::Odf) => Kind::OnDemand,
		true => Kind::Sealed,
		false => Kind::Plain,
	};
	let start = if timed { clock() } else { 0 };
	let pid = real();
	if pid > 0 {
		WATCHED.note_fork();
		let ns = if timed { clock().saturating_sub(start) } else { 0 };
		stats::current().fork(kind, ns);
		policy.note(kind == Kind::Sealed, ns, faults);
		// Not the faults of the seal.
		policy.count_faults(minor_faults);
	} else if pid == 0 {
		STATE.nobody_inside();
		table::begin_anew();
		exec::begin_anew();
		WATCHED.leave_all();
		GENERATIONS.begin_in_clone();
		policy.forget();
	}
	pid
}

/// What the policy says comes before a fork. It looks at /proc, and seals in scratch memory: a handler must not see its
/// descriptors, let its own child have them, or jump away from them.
fn prepare(faults: u64) {
	let mask = sys::block_signals();
	let act = POLICY.next(&Own, faults);
	match act {
		Act::Fork => {}
		Act::Seal => carry_out(act, What::AllButDense(POLICY.lost())),
		Act::Dense(ns) => carry_out(act, What::Dense(ns)),
		Act::Buy(most) => carry_out(act, What::New(most)),
		Act::Renew => carry_out(act, What::MostWritten(POLICY.others())),
		Act::DropRefills(from) => match drop_for_policy(from) {
			Err(Error::Busy) => {}
			dropped => POLICY.dropped(dropped.ok().as_ref()),
		},
		Act::Unseal { at_once } => make_anonymous(at_once),
	}
	// Where too much exists in vain nothing waits for the next fork.
	while POLICY.renews_at_once() {
		carry_out(Act::Renew, What::MostWritten(POLICY.others()));
	}
	if act == Act::Renew && POLICY.unseals_at_once() {
		make_anonymous(true);
	}
	if let Ok(mask) = mask {
		sys::restore_signals(mask);
	}
}

/// What can't be made anonymous stays sealed, and correct. When another thread has the engine it is for a later fork.
fn make_anonymous(at_once: bool) {
	// Rather than that too much memory exists twice while there are threads.
	let _forced = at_once.then(threads::force);
	let others = POLICY.others();
	let is_left = || STATE.holds_sealed() && Own.memfds(others).is_none_or(|memfds| memfds.bytes > 0);
	match unseal_for_policy(at_once, others) {
		Err(Error::Busy) => {}
		Ok(outcome) if outcome.late => POLICY.unseals(),
		Ok(_) if !is_left() => POLICY.unsealed(),
		_ => POLICY.unseal_failed(),
	}
}

fn carry_out(act: Act, what: What) {
	let sealed = seal_for_policy(what);
	stats::current().seal(&sealed);
	let outcome = sealed.outcome;
	drop(sealed);
	let outcome = match outcome {
		Err(Error::Busy) => return POLICY.busy(act),
		Err(Error::Refused(reason)) if reason.may_pass() => return POLICY.put_off(act),
		outcome => outcome.ok(),
	};
	let (count, ns) = POLICY.sealed(act, outcome.as_ref(), &Own);
	stats::current().before.add(count, ns);
	stats::current().largest_seal.fetch_max(POLICY.bought(), Relaxed);
}

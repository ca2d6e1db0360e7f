//! When a program's forks seal, renew and unseal. `docs/POLICY.md` says on what ground.
//!
//! Decisions only: [`crate::fork`] asks before each fork, carries out, and reports what it took. That keeps the rule
//! free of system calls, so that tests can run it against a model of their costs.

mod always;
mod auto;
mod forecast;
#[cfg(test)]
mod model;
pub(crate) mod own;
mod refills;

use crate::{
	apart::Apart,
	outcome::Outcome,
	seal::{generations::Memfds, refills::Dropped},
	stats::Timed,
};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// How clones are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Engine {
	/// Fork on demand where the kernel can; elsewhere seal, part by part, what the time lost in forks would have paid
	/// for (`docs/POLICY.md`), within 1.5 times the memory of a plain process.
	#[default]
	Auto = 0,
	/// Plain forks only.
	Fork = 1,
	/// Seal before the first fork, whatever memory that takes.
	Seal = 2,
	/// The kernel shares page tables ([`crate::odf`]); nothing is sealed but on request.
	Odf = 3,
}

/// Nanoseconds that a fork of a sealed process takes, at most.
const SEALED_FORK_NS: u64 = 60_000;

/// What the policy asks about the process it decides for.
pub(crate) trait Process {
	fn holds_sealed(&self) -> bool;
	/// Bytes of resident memory that no file holds; 0 when nobody can tell.
	fn anonymous(&self) -> u64;
	/// The number of the last generation that there is: others than this policy have made those up to it.
	/// [`UNTOLD`] where they can't be told from its own.
	fn last_generation(&self) -> u64;
	/// Bytes of sealed memory written since, in generations after this one and in those that no other process has:
	/// these exist twice. Slow; none when nobody can tell now.
	fn written(&self, after: u64) -> Option<u64>;
	/// Bytes of sealed memory that the program has discarded, ever.
	fn discarded(&self) -> u64;
	/// What is in the memfds of the same; none when nobody can tell now.
	fn memfds(&self, after: u64) -> Option<Memfds>;
}

/// See [`Process::last_generation`]. No generation comes after it.
const UNTOLD: u64 = u64::MAX;

/// What to do before a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
	Fork,
	/// Seal everything, and anew what was written since, sparsely written blocks only.
	Seal,
	/// Make densely written blocks of sealed memory anonymous, on huge pages, for about so many nanoseconds.
	Dense(u64),
	/// Seal so many bytes of what is not sealed yet, into their own generation.
	Buy(u64),
	/// Seal anew the generation of which most was written.
	Renew,
	/// Make everything anonymous again: at once, or as much as a fork may wait for.
	Unseal {
		/// Whatever the fork waits.
		at_once: bool,
	},
	/// Drop what reads have put into page tables that forks copy, from an address on, as far as there is time.
	DropRefills(usize),
}

pub(crate) static POLICY: Apart<Policy> = Apart::new(Policy::new());

/// The policy of a process, and what it has seen of it. Several threads may fork at a time: what they see then may be
/// counted in the wrong place, which can make a decision worse, not wrong.
pub(crate) struct Policy {
	engine: AtomicU8,
	at_once: AtomicU8,
	always: always::Always,
	auto: auto::Auto,
	refills: refills::Refills,
	/// Forks of this process before it sealed anything.
	plain: Timed,
	/// Page faults of this process up to its last fork.
	faults: Num,
}

impl Policy {
	pub const fn new() -> Policy {
		Policy {
			engine: AtomicU8::new(Engine::Fork as u8),
			at_once: AtomicU8::new(0),
			always: always::Always::new(),
			auto: auto::Auto::new(),
			refills: refills::Refills::new(),
			plain: Timed::new(),
			faults: Num::new(0),
		}
	}

	pub fn set(&self, engine: Engine) {
		self.engine.store(engine as u8, Relaxed);
	}

	/// Whether the first fork seals, even under [`Engine::Auto`].
	pub fn set_at_once(&self, at_once: bool) {
		self.at_once.store(u8::from(at_once), Relaxed);
	}

	pub fn is(&self, engine: Engine) -> bool {
		self.engine.load(Relaxed) == engine as u8
	}

	/// Has later forks seal nothing. Forks on demand go on.
	pub fn stop_sealing(&self) {
		if !self.is(Engine::Odf) {
			self.set(Engine::Fork);
		}
	}

	/// Whether forks may seal.
	pub fn seals(&self) -> bool {
		self.is(Engine::Seal) || self.is(Engine::Auto)
	}

	/// Whether somebody asked for a seal, which then is not weighed.
	fn is_asked_for(&self) -> bool {
		self.is(Engine::Seal) || self.is(Engine::Auto) && self.at_once.load(Relaxed) != 0
	}

	/// Whether faults and time are weighed.
	pub fn weighs(&self) -> bool {
		self.is(Engine::Auto) && !self.is_asked_for()
	}

	/// Page faults since the last call. Only `auto` counts them: others make no system call here.
	pub fn count_faults(&self, now: impl Fn() -> u64) -> u64 {
		if !self.weighs() {
			return 0;
		}
		let now = now();
		let before = self.faults.swap(now);
		if before == 0 { 0 } else { now.saturating_sub(before) }
	}

	/// What to do before a fork; `faults` came since the one before.
	pub fn next(&self, process: &impl Process, faults: u64) -> Act {
		let refills = self.refills.are_due();
		let act = if self.is_asked_for() {
			self.always.next()
		} else if self.weighs() {
			self.auto.next(process, faults, refills.is_some())
		} else {
			return Act::Fork;
		};
		match refills {
			Some(from) if act == Act::Fork => Act::DropRefills(from as usize),
			_ => act,
		}
	}

	/// Nanoseconds that forks have lost since the last seal, under the engine `seal`.
	pub fn lost(&self) -> u64 {
		self.always.lost()
	}

	/// Refills were dropped; none when they could not be.
	pub fn dropped(&self, dropped: Option<&Dropped>) {
		let Some(dropped) = dropped else { return self.refills.put_off() };
		self.refills.dropped(dropped);
		if self.weighs() {
			self.auto.pay(dropped.ns);
		}
	}

	/// A step that seals was made, or not. Gives the forks that took place before this process sealed anything.
	pub fn sealed(&self, step: Act, outcome: Option<&Outcome>, process: &impl Process) -> (u64, u64) {
		if matches!(step, Act::Dense(_)) {
			self.always.swept(outcome);
		}
		let outcome = outcome.filter(|outcome| outcome.sealed > 0);
		match step {
			Act::Dense(_) => {}
			Act::Seal => self.always.sealed(outcome),
			_ => self.auto.sealed(step, outcome, process),
		}
		if outcome.is_some() { self.plain.take() } else { (0, 0) }
	}

	/// Whether a generation is to be sealed anew before this same fork.
	pub fn renews_at_once(&self) -> bool {
		self.weighs() && self.auto.renews_at_once()
	}

	/// Whether too much exists in vain that couldn't be sealed anew, and so is made anonymous before this same fork.
	pub fn unseals_at_once(&self) -> bool {
		self.weighs() && self.auto.unseals_at_once()
	}

	/// A step that seals could not be made, because another thread has the engine: it is for the next fork.
	pub fn busy(&self, step: Act) {
		if step == Act::Renew {
			self.auto.give_back();
		}
	}

	/// A step that seals could not be made for a reason that may pass.
	pub fn put_off(&self, step: Act) {
		match step {
			Act::Dense(_) => self.always.swept(None),
			Act::Seal => self.always.sealed(None),
			_ => self.auto.put_off(step),
		}
	}

	/// The last generation that others have made: what the policy seals anew or makes anonymous comes after it, or no
	/// other process has it.
	pub fn others(&self) -> u64 {
		self.auto.others()
	}

	/// Bytes sealed part by part.
	pub fn bought(&self) -> u64 {
		self.auto.bought()
	}

	/// Memory is anonymous again.
	pub fn unsealed(&self) {
		self.auto.unsealed();
	}

	/// Some memory is anonymous again; the rest is for the next forks.
	pub fn unseals(&self) {
		self.auto.unseals();
	}

	/// Memory could not be made anonymous again, or not all of it.
	pub fn unseal_failed(&self) {
		self.auto.unseal_failed();
	}

	/// A fork took `ns`, with memory sealed or not; `faults` as told to [`Policy::next`].
	pub fn note(&self, sealed: bool, ns: u64, faults: u64) {
		if sealed {
			self.refills.note(ns);
		} else {
			self.plain.add(1, ns);
		}
		if self.is_asked_for() {
			self.always.note(sealed, ns);
		} else if self.weighs() {
			self.auto.note(ns, faults);
		}
	}

	/// A clone starts anew. What its parent sealed it does not judge.
	pub fn forget(&self) {
		self.plain.take();
		self.faults.set(0);
		self.always.forget();
		self.auto.begin_in_clone();
		self.refills.forget();
	}
}

/// A number several threads may use.
struct Num(AtomicU64);

impl Num {
	const fn new(value: u64) -> Num {
		Num(AtomicU64::new(value))
	}

	fn get(&self) -> u64 {
		self.0.load(Relaxed)
	}

	fn set(&self, value: u64) {
		self.0.store(value, Relaxed);
	}

	fn swap(&self, value: u64) -> u64 {
		self.0.swap(value, Relaxed)
	}

	fn add(&self, value: u64) {
		self.0.fetch_add(value, Relaxed);
	}

	/// Takes one away; false when there was none.
	fn take_one(&self) -> bool {
		self.0.fetch_update(Relaxed, Relaxed, |value| value.checked_sub(1)).is_ok()
	}
}

#[cfg(test)]
mod tests;

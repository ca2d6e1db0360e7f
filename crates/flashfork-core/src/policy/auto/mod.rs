//! The engine `auto`.
//!
//! Time lost in plain forks is the rent, and the seal is bought part by part as rent is paid; docs/POLICY.md has the
//! rules.
//!
//! The decisions are here; what they rest on is in [`observation`] (what forks and memory have shown), [`ledger`] (what
//! was lost, paid and had) and [`hold`] (what has failed).

mod hold;
mod ledger;
mod observation;
#[cfg(test)]
mod tests;

use super::{
	Act, Num, Process, UNTOLD,
	forecast::{Memory, ONE_IN, THERE_AND_BACK, page_ns},
};
use crate::{outcome::Outcome, sys::PAGE};
use hold::Hold;
use ledger::Ledger;
use observation::{FEW, LOOK_EVERY, Observation};

/// Cycles after a seal in which pages that are ever the same have been written, and during which those that come then
/// are counted.
const SETTLED: u64 = 2;
const WATCHED: u64 = 4;
/// At its first fork a clone looks what others have left to it, before clones of its own have that too, if so much of
/// it may exist twice.
const LEAST_LEFT: u64 = 4 << 20;

/// What comes of weighing the first part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weighed {
	/// Too little rent was paid.
	NotYet,
	/// No seal would gain.
	InVain,
	/// It is due; `doubtful`: whether a seal gains it will have to tell.
	Due { doubtful: bool },
}

pub(super) struct Auto {
	ledger: Ledger,
	seen: Observation,
	/// The last generation that somebody else had sealed before: the process this one is a clone of, or the program.
	/// None of these is undone or sealed anew while another process has it, too.
	others: Num,
	/// Whether part of it is anonymous again, and the rest is to be.
	unseals: Num,
	/// After what couldn't be sealed just then, or not anew, and what couldn't be made anonymous.
	no_seal: Hold,
	no_renewal: Hold,
	no_unseal: Hold,
}

impl Auto {
	pub const fn new() -> Auto {
		Auto {
			ledger: Ledger::new(),
			seen: Observation::new(),
			others: Num::new(0),
			unseals: Num::new(0),
			no_seal: Hold::new(),
			no_renewal: Hold::new(),
			no_unseal: Hold::new(),
		}
	}

	/// What to do before a fork; `faults` came since the one before. `cheaper`: forks may be long for a reason that
	/// costs less to end than sealing anew.
	pub fn next(&self, process: &impl Process, faults: u64, cheaper: bool) -> Act {
		if self.ledger.sealed.get() == 0 {
			return self.next_plain(process, faults);
		}
		if !process.holds_sealed() {
			// Somebody else made it anonymous.
			self.begin_anew();
			return Act::Fork;
		}
		if self.no_unseal.holds() {
			self.seen.fresh.set(faults);
			return Act::Fork;
		}
		match self.next_sealed(process, faults, cheaper) {
			Act::Unseal { .. } | Act::Renew if self.others.get() == UNTOLD => {
				self.unsealed();
				Act::Fork
			}
			// Never a renewal: memory may exist twice.
			Act::Buy(_) if self.no_seal.holds() => Act::Fork,
			act => act,
		}
	}

	fn next_plain(&self, process: &impl Process, faults: u64) -> Act {
		let fork = self.seen.forks_ns.get() / THERE_AND_BACK / self.seen.cycles.get().max(1);
		let looks = self.seen.cycles.get() % LOOK_EVERY == 1;
		if looks {
			self.seen.look_at_plain_memory(process, fork);
		}
		let asks = match self.seen.cycles.get() {
			0 => process.holds_sealed() && process.anonymous() >= LEAST_LEFT,
			_ => looks || faults >= FEW && self.seen.held.get() > 0,
		};
		if asks && self.is_left_with_too_much(process) && !self.no_unseal.holds() {
			return Act::Unseal { at_once: true };
		}
		let mut weighed = self.weigh_first(fork);
		if weighed != Weighed::NotYet && !looks {
			// Memory may have come since.
			self.seen.look_at_plain_memory(process, fork);
			weighed = self.weigh_first(fork);
		}
		match weighed {
			Weighed::NotYet => Act::Fork,
			Weighed::InVain => {
				// What the program does may change: pay rent anew.
				self.ledger.rent.set(0);
				self.seen.changed();
				Act::Fork
			}
			Weighed::Due { doubtful } => {
				self.seen.plain.set(self.seen.cycles_ns.get() / self.seen.cycles.get());
				self.seen.plain_fork.set(fork);
				self.ledger.plain_rent.set(self.ledger.rent.get());
				self.others.set(if process.holds_sealed() { process.last_generation() } else { 0 });
				Act::Buy(self.ledger.first(self.seen.whole.get(), doubtful))
			}
		}
	}

	/// In a process that has sealed nothing itself: whether too much of what others had sealed, and have no more,
	/// exists in vain.
	fn is_left_with_too_much(&self, process: &impl Process) -> bool {
		let last = process.last_generation();
		if !process.holds_sealed() || last == UNTOLD {
			return false;
		}
		self.seen.look_at_memfds(process, last);
		let (held, gone) = (self.seen.held.get(), self.seen.gone.get());
		if held == 0 {
			return false;
		}
		let (anonymous, filled) = (process.anonymous(), self.ledger.filled_of(held));
		let is_too_much = |written: u64| {
			let all = held + anonymous.saturating_sub(written);
			is_too_much(written + gone, all.saturating_sub(gone), filled)
		};
		let written = is_too_much(anonymous).then(|| process.written(last)).flatten();
		if written.is_none_or(|written| !is_too_much(written)) {
			return false;
		}
		self.others.set(last);
		true
	}

	/// Whether the first part is due, by what is known of the memory; a fork takes `fork`.
	fn weigh_first(&self, fork: u64) -> Weighed {
		let (cycles, whole, rent) = (self.seen.cycles.get(), self.seen.whole.get(), self.ledger.rent.get());
		if cycles == 0 || whole == 0 || rent < self.ledger.due_at_first(whole, false) {
			return Weighed::NotYet;
		}
		let (plain, faults) = (self.seen.cycles_ns.get() / cycles, self.seen.faults.get() / cycles);
		self.seen.page.set(page_ns(fork.saturating_sub(self.seen.floor.get()), whole));
		let (memory, gains) = (self.memory(), |cycle| cycle < nine_tenths(plain));
		let doubtful = !gains(memory.cycle(0, faults));
		match () {
			() if !gains(memory.cycle(faults, 0)) => Weighed::InVain,
			() if rent < self.ledger.due_at_first(whole, doubtful) => Weighed::NotYet,
			() => Weighed::Due { doubtful },
		}
	}

	fn next_sealed(&self, process: &impl Process, faults: u64, cheaper: bool) -> Act {
		let (plain, cycles, others) = (self.seen.plain.get(), self.seen.cycles.get(), self.others.get());
		let mut written = self.seen.look(process, faults, others, |vain| self.is_too_much(vain));
		let come = self.seen.held.get().saturating_sub(self.ledger.sealed.get());
		if others != 0 && come > 0 {
			// Others had it, and have it no more.
			self.ledger.adopt(come);
			written = self.seen.weigh(process, others, process.anonymous());
		}
		let sealed = self.ledger.sealed.get();
		let at_once = self.is_too_much(written);
		if self.unseals.get() != 0 {
			return Act::Unseal { at_once };
		}
		if self.ledger.round.take_one() {
			return Act::Renew;
		}
		let price = self.ledger.price_of(sealed);
		let pays = self.seen.cycles_ns.get() + price < plain * cycles;
		if at_once {
			// What can't be sealed anew just now, because of a thread, can be made anonymous all the same.
			let renews = pays && !self.no_renewal.holds();
			return if renews { self.renew_all(at_once) } else { Act::Unseal { at_once } };
		}
		if self.seen.regret.get() > price / 4 * 3 {
			return Act::Unseal { at_once };
		}
		if cycles == 0 {
			return Act::Fork;
		}
		let now = self.seen.last_forks.iter().map(Num::get).min().unwrap_or(0);
		if !self.ledger.is_complete() {
			if sealed > self.seen.whole.get() / 4 {
				// What is sealed by now tells what all will bring.
				let gain = self.seen.plain_fork.get().saturating_sub(now / THERE_AND_BACK);
				let all = gain.saturating_mul(self.seen.whole.get() >> 12) / (sealed >> 12).max(1);
				self.seen.floor.set(self.seen.floor.get().min(self.seen.plain_fork.get().saturating_sub(all)));
			}
			let Some(bytes) = self.ledger.next(self.seen.whole.get()) else { return Act::Fork };
			return match self.would_gain(process, cycles) {
				Some(true) => Act::Buy(bytes),
				Some(false) => Act::Unseal { at_once },
				None => Act::Fork,
			};
		}
		// A machine is replaced when it costs more than it did on average, its price included.
		let costly = cycles >= 4 && (now * cycles).saturating_sub(self.seen.forks_ns.get()) >= price;
		if costly && !cheaper && self.seen.cycles_ns.get() / cycles < nine_tenths(plain) {
			return self.renew_all(at_once);
		}
		Act::Fork
	}

	/// Whether more of the seal would be worth it, by what writes do to the sealed part; none while that isn't known.
	fn would_gain(&self, process: &impl Process, cycles: u64) -> Option<bool> {
		let (memory, faults) = (self.memory(), self.seen.faults.get() / cycles);
		let gains = |cycle| cycle < nine_tenths(self.seen.plain.get());
		if gains(memory.cycle(0, faults)) {
			return Some(true);
		}
		if cycles < SETTLED {
			return None;
		}
		if self.seen.shown.get() == 0 {
			let counted = self.seen.counted.get();
			if counted == 0 {
				self.seen.written.set(process.written(self.others.get())?);
				self.seen.counted.set(cycles);
				return None;
			}
			if cycles < counted + WATCHED {
				return None;
			}
			let fresh =
				process.written(self.others.get())?.saturating_sub(self.seen.written.get()) / (cycles - counted);
			let of_all =
				u128::from(fresh) * u128::from(self.seen.whole.get()) / u128::from(self.ledger.sealed.get().max(1));
			self.seen.shown.set(of_all as u64 / PAGE as u64 + 1);
		}
		let fresh = self.seen.shown.get().saturating_sub(1).min(faults);
		Some(gains(memory.cycle(faults.saturating_sub(fresh), fresh)))
	}

	/// All memory, as far as it is known what it takes to seal it.
	fn memory(&self) -> Memory {
		self.seen.memory(self.ledger.price_of(self.seen.whole.get()))
	}

	/// Seals all generations anew, one before each fork from this one on. Memory that came since follows. `at_once`:
	/// too much exists in vain.
	fn renew_all(&self, at_once: bool) -> Act {
		let parts = self.ledger.parts.get();
		if self.seen.own.get() > self.ledger.sealed.get() / 4 && self.ledger.is_complete() && !self.ledger.resume() {
			return Act::Unseal { at_once };
		}
		self.ledger.round.set(parts.saturating_sub(1));
		Act::Renew
	}

	/// Whether so many bytes are too many to exist in vain: twice, or for nobody.
	fn is_too_much(&self, vain: u64) -> bool {
		let filled = self.ledger.filled.get();
		let sealed = match self.seen.held.get() {
			0 => self.ledger.sealed.get(),
			// Memfds of which nothing is mapped any more went without a word.
			held => self.ledger.sealed.get().min(held),
		};
		is_too_much(vain, (sealed + self.seen.own.get()).saturating_sub(self.seen.gone.get()), filled)
	}

	/// A fork took `ns`, and `faults` came in the cycle that ends with it.
	pub fn note(&self, ns: u64, faults: u64) {
		let holds = self.ledger.sealed.get() > 0;
		let lost = self.seen.note(ns, faults, holds);
		self.ledger.rent.add(lost);
		if holds {
			self.ledger.plain_rent.add(self.seen.lost_plainly());
		}
	}

	/// So many nanoseconds went into shorter forks, besides seals.
	pub fn pay(&self, ns: u64) {
		self.seen.pay(ns);
	}

	pub fn sealed(&self, act: Act, outcome: Option<&Outcome>, process: &impl Process) {
		match outcome {
			Some(outcome) => {
				self.ledger.forget_old_prices(self.seen.whole.get());
				self.no_seal.end();
				self.no_renewal.end();
				self.ledger.pay(outcome);
				if let Act::Buy(most) = act {
					self.ledger.sealed.add(outcome.sealed);
					self.ledger.filled.add(outcome.filled);
					self.ledger.parts.add(1);
					if outcome.sealed < most / 4 && !outcome.late {
						self.ledger.complete();
					}
					self.seen.sealed(process, outcome.sealed.saturating_sub(outcome.filled));
					// What cycles take on average goes on, but for the first part and the last.
					return if self.ledger.parts.get() == 1 || self.ledger.is_complete() {
						self.seen.changed()
					};
				}
				if let Some(memfds) = process.memfds(self.others.get()) {
					// What was given back went with the memfd that was replaced, and so did the holes of blocks in it.
					let before = self.ledger.sealed.swap(memfds.bytes).max(1);
					let filled = u128::from(self.ledger.filled.get()) * u128::from(memfds.bytes) / u128::from(before);
					self.ledger.filled.set(self.ledger.filled.get().min(filled as u64));
				}
				self.seen.weigh(process, self.others.get(), process.anonymous());
			}
			None if act == Act::Renew => self.renews_no_more(),
			// There is no more to be had.
			None if self.ledger.parts.get() > 0 => self.ledger.complete(),
			None => {
				self.ledger.regrets.add(1);
				self.ledger.rent.set(0);
			}
		}
		self.seen.changed();
	}

	/// After a step that seals: whether too much exists in vain still, and there is more to be sealed anew.
	pub fn renews_at_once(&self) -> bool {
		self.is_too_much(self.seen.vain.get()) && self.ledger.round.take_one()
	}

	/// After a renewal that could not be: whether too much exists in vain.
	pub fn unseals_at_once(&self) -> bool {
		self.no_renewal.is_begun() && self.others.get() != UNTOLD && self.is_too_much(self.seen.vain.get())
	}

	/// A generation was not sealed anew: it is still to be, but not before this fork.
	pub fn give_back(&self) {
		self.seen.vain.set(0);
		self.ledger.round.add(1);
	}

	/// What was asked for can't be had just now.
	pub fn put_off(&self, act: Act) {
		if act != Act::Renew && self.ledger.parts.get() > 0 {
			return self.no_seal.begin();
		}
		if act == Act::Renew {
			self.renews_no_more();
		} else {
			// More rent is due.
			self.ledger.regrets.add(1);
			self.ledger.rent.set(0);
		}
		self.seen.changed();
	}

	/// For now. Should too much exist twice by then, that is to be undone.
	fn renews_no_more(&self) {
		self.ledger.round.set(0);
		self.no_renewal.begin();
	}

	/// Some of it is still sealed, because a fork had waited for long.
	pub fn unseals(&self) {
		self.unseals.set(1);
	}

	/// Some of it, or all, is still sealed, and stays so for now.
	pub fn unseal_failed(&self) {
		self.no_unseal.begin();
	}

	/// See [`super::Policy::others`].
	pub fn others(&self) -> u64 {
		self.others.get()
	}

	pub fn bought(&self) -> u64 {
		self.ledger.sealed.get()
	}

	pub fn unsealed(&self) {
		self.ledger.regrets.add(1);
		self.begin_anew();
	}

	/// In a clone. What its parent sealed it does not judge.
	pub fn begin_in_clone(&self) {
		self.ledger.inherit();
		self.begin_anew();
	}

	/// When memory is no longer what it was.
	fn begin_anew(&self) {
		self.ledger.begin_anew();
		self.seen.begin_anew();
		self.others.set(0);
		self.unseals.set(0);
		self.no_seal.end();
		self.no_renewal.end();
		self.no_unseal.end();
		self.seen.changed();
	}
}

/// Whether so many bytes in vain are too many beside `all` others, of which so many held no page before.
fn is_too_much(vain: u64, all: u64, filled: u64) -> bool {
	vain + filled > all.saturating_sub(filled) / ONE_IN
}

/// A gain of less than a tenth is not worth a change.
fn nine_tenths(ns: u64) -> u64 {
	ns / 10 * 9
}

use super::*;
use crate::seal::generations::Memfds;
use core::cell::Cell;

const GB: u64 = 1 << 30;
/// What gains nothing may go when forks have time for it.
const BIT_BY_BIT: Act = Act::Unseal { at_once: false };

#[derive(Default)]
struct Mock {
	holds: Cell<bool>,
	anonymous: Cell<u64>,
	written: Cell<u64>,
	discarded: Cell<u64>,
	memfds: Cell<Memfds>,
	/// The same of generations that others have made, up to the last of them.
	last: Cell<u64>,
	others_written: Cell<u64>,
	others: Cell<Memfds>,
	alone: Cell<bool>,
}

impl Mock {
	/// Whether generations after this one, and what no other process has, are all.
	fn has_all(&self, after: u64) -> bool {
		after < self.last.get() || after != UNTOLD && self.alone.get()
	}
}

impl Process for Mock {
	fn holds_sealed(&self) -> bool {
		self.holds.get()
	}
	fn anonymous(&self) -> u64 {
		self.anonymous.get()
	}
	fn last_generation(&self) -> u64 {
		self.last.get()
	}
	fn written(&self, after: u64) -> Option<u64> {
		Some(self.written.get() + if self.has_all(after) { self.others_written.get() } else { 0 })
	}
	fn discarded(&self) -> u64 {
		self.discarded.get()
	}
	fn memfds(&self, after: u64) -> Option<Memfds> {
		let (own, others) =
			(self.memfds.get(), if self.has_all(after) { self.others.get() } else { Memfds::default() });
		Some(Memfds { bytes: own.bytes + others.bytes, gone: own.gone + others.gone })
	}
}

/// Cycles until something is to be done.
fn cycles(a: &Auto, process: &Mock, ns: u64, faults: u64, most: u64) -> (u64, Act) {
	for cycle in 0..most {
		let act = a.next(process, faults, false);
		if act != Act::Fork {
			return (cycle, act);
		}
		a.note(ns, faults);
	}
	(most, Act::Fork)
}

/// A seal of so many bytes took so long in all, and in the memory itself.
fn taken(bytes: u64, ns: u64, sealing: u64) -> Outcome {
	Outcome { sealed: bytes, elapsed_ns: ns, sealing_ns: sealing, ..Outcome::default() }
}

fn seal(a: &Auto, process: &Mock, act: Act, bytes: u64) {
	process.holds.set(true);
	process.anonymous.set(process.anonymous.get().saturating_sub(bytes));
	if act != Act::Renew {
		let Memfds { bytes: before, gone } = process.memfds.get();
		process.memfds.set(Memfds { bytes: before + bytes, gone });
	}
	let outcome = taken(bytes, bytes / 2, bytes / 2);
	a.sealed(act, Some(&outcome), process);
}

/// Nothing is sealed yet of a GB.
fn plain() -> (Auto, Mock) {
	let process = Mock::default();
	process.anonymous.set(GB);
	(Auto::new(), process)
}

fn all_bought() -> (Auto, Mock) {
	let (a, process) = plain();
	let mut left = GB;
	while left > 0 {
		let (_, act) = cycles(&a, &process, 20_000_000, 0, 1000);
		let Act::Buy(most) = act else { panic!("{act:?}") };
		// In 20 ms, at the speed guessed first and then shown.
		let rate = if left == GB { 0.35 } else { 0.5 };
		assert!(most > 0 && most as f64 * rate <= 20e6, "{most}");
		let bytes = most.min(left);
		left -= bytes;
		seal(&a, &process, act, bytes);
	}
	a.sealed(Act::Buy(GB), None, &process);
	(a, process)
}

/// All is plain memory again.
fn undone(a: &Auto, process: &Mock) {
	a.unsealed();
	process.holds.set(false);
	process.anonymous.set(GB);
}

/// So much of what was sealed is there in vain.
fn gone(process: &Mock, bytes: u64) {
	process.discarded.set(bytes);
	process.memfds.set(Memfds { bytes: GB, gone: bytes });
}

#[test]
fn rent_buys_part_by_part_and_no_fork_waits_long_for_one() {
	let (a, process) = all_bought();
	assert_eq!(process.anonymous.get(), 0);
	assert!(a.bought() >= GB);
	assert_eq!(cycles(&a, &process, 60_000, 0, 10_000), (10_000, Act::Fork), "and that is that");
}

#[test]
fn a_part_that_time_has_cut_short_is_not_the_last() {
	let (a, process) = plain();
	for _ in 0..5 {
		let (_, act) = cycles(&a, &process, 20_000_000, 0, 10_000);
		assert!(matches!(act, Act::Buy(_)), "{act:?}");
		process.holds.set(true);
		a.sealed(act, Some(&Outcome { late: true, ..taken(2 << 20, 20_000_000, 20_000_000) }), &process);
	}
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 10_000);
	a.sealed(act, Some(&taken(1 << 20, 20_000_000, 20_000_000)), &process);
	assert!(a.ledger.is_complete(), "there was no more");
}

#[test]
fn what_the_first_part_takes_to_look_at_everything_is_no_price() {
	let (a, process) = plain();
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 1000);
	process.holds.set(true);
	a.sealed(act, Some(&taken(8 << 20, 100_000_000, 2_000_000)), &process);
	assert_eq!(a.ledger.price_of(GB) >> 20, 256_000_000 >> 20);
}

#[test]
fn memory_that_was_given_back_exists_in_vain() {
	// Discarded through the engine, which is seen at once; and unmapped, which is seen before long. Filled again or
	// not.
	for (discarded, within) in [(GB / 2, 1), (0, LOOK_EVERY)] {
		for filled_again in [0, GB / 2] {
			let (a, process) = all_bought();
			process.discarded.set(discarded);
			process.memfds.set(Memfds { bytes: GB, gone: GB / 2 });
			process.anonymous.set(filled_again);
			let (waited, act) = cycles(&a, &process, 60_000, 0, 1_000);
			assert!(waited <= within && matches!(act, Act::Renew | Act::Unseal { .. }), "{act:?} after {waited}");
		}
	}
	let (a, process) = all_bought();
	gone(&process, GB / 16);
	process.anonymous.set(GB / 16);
	assert_eq!(cycles(&a, &process, 60_000, 0, 1_000).1, Act::Fork, "a little may");
}

#[test]
fn memory_of_memfds_that_went_as_a_whole_counts_no_more() {
	let (a, process) = all_bought();
	process.memfds.set(Memfds { bytes: GB / 4, gone: GB / 8 });
	let (waited, act) = cycles(&a, &process, 60_000, 0, 1_000);
	assert!(waited <= LOOK_EVERY && matches!(act, Act::Renew | Act::Unseal { .. }), "{act:?} after {waited}");
}

#[test]
fn a_renewal_brings_down_what_counts_as_sealed() {
	let (a, process) = all_bought();
	process.discarded.set(1);
	process.memfds.set(Memfds { bytes: GB, gone: GB / 2 });
	(0..100).for_each(|_| a.note(60_000, 0));
	assert_eq!(a.next(&process, 0, false), Act::Renew, "sealed memory pays");
	process.memfds.set(Memfds { bytes: GB / 2, gone: 0 });
	seal(&a, &process, Act::Renew, GB / 2);
	assert_eq!(a.ledger.sealed.get(), GB / 2);
	assert!(!a.is_too_much(GB / 8) && a.is_too_much(GB / 5));
	assert!(!a.renews_at_once(), "the rest can wait");
	process.memfds.set(Memfds { bytes: GB / 2, gone: GB / 3 });
	seal(&a, &process, Act::Renew, GB / 8);
	assert!(a.renews_at_once());
}

#[test]
fn what_grows_dear_is_sealed_anew_and_what_stays_dear_is_not() {
	let (a, process) = all_bought();
	assert_eq!(cycles(&a, &process, 5_000_000, 0, 1_000).1, Act::Fork, "it was dear from the first cycle on");
	a.seen.changed();
	let mut renewed = 0;
	for cycle in 1..1_000 {
		let act = a.next(&process, 0, false);
		if act == Act::Renew {
			renewed += 1;
			seal(&a, &process, act, GB / 5);
		}
		assert!(matches!(act, Act::Fork | Act::Renew), "{act:?}");
		a.note(60_000 + 50_000 * cycle, 0);
		if renewed == a.ledger.parts.get() {
			return;
		}
	}
	panic!("renewed {renewed} times");
}

#[test]
fn sealing_anew_waits_while_something_cheaper_may_do() {
	let (a, process) = all_bought();
	cycles(&a, &process, 60_000, 0, 100);
	for _ in 0..100 {
		assert_eq!(a.next(&process, 0, true), Act::Fork);
		a.note(10_000_000, 0);
	}
	let (a, process) = all_bought();
	cycles(&a, &process, 60_000, 0, 100);
	assert_eq!(cycles(&a, &process, 10_000_000, 0, 100).1, Act::Renew);
}

#[test]
fn what_loses_is_undone_and_bought_later_for_more() {
	let (a, process) = all_bought();
	let (lost, act) = cycles(&a, &process, 30_000_000, 0, 1_000);
	assert_eq!(act, BIT_BY_BIT);
	assert!((15..25).contains(&lost), "half a second by 20 ms a cycle: {lost}");
	undone(&a, &process);
	let (waited, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
	assert!(matches!(act, Act::Buy(_)) && (10..20).contains(&waited), "{waited} {act:?}");
}

#[test]
fn memory_that_exists_twice_ends_it_and_memory_that_came_does_not() {
	let (a, process) = all_bought();
	process.anonymous.set(GB / 2);
	assert_eq!(a.next(&process, 1_000, false), Act::Fork, "the program has taken memory");
	a.note(60_000, 1_000);
	process.anonymous.set(GB);
	assert_eq!(a.next(&process, 1_000, false), Act::Fork, "as much again");
	process.written.set(GB * 3 / 4);
	process.anonymous.set(GB * 7 / 4);
	a.note(60_000, 1_000);
	assert_eq!(
		a.next(&process, 1_000, false),
		Act::Unseal { at_once: true },
		"sealed anew after three cycles, it would not pay"
	);
}

#[test]
fn what_writes_would_eat_up_is_not_bought() {
	let (a, process) = plain();
	assert_eq!(cycles(&a, &process, 400_000, 5_000, 10_000).1, Act::Fork);
	let a = Auto::new();
	let (doubtful, act) = cycles(&a, &process, 1_000_000, 100, 10_000);
	assert_eq!(act, Act::Buy(8 << 20), "a small part, to see which pages are written");
	let b = Auto::new();
	let (sure, _) = cycles(&b, &process, 1_000_000, 0, 10_000);
	assert!(doubtful > sure, "it may have to be given back: {doubtful} {sure}");
	seal(&a, &process, act, 8 << 20);
	undone(&a, &process);
	let (again, act) = cycles(&a, &process, 1_000_000, 100, 10_000);
	assert!(matches!(act, Act::Buy(_)) && again > 20 * doubtful, "it had to be: {again} {act:?}");
}

/// A look reads /proc, which takes as long as a short fork.
#[test]
fn plain_memory_is_looked_at_now_and_then() {
	struct Looked(Mock, Cell<u64>);
	impl Process for Looked {
		fn holds_sealed(&self) -> bool {
			false
		}
		fn anonymous(&self) -> u64 {
			self.1.set(self.1.get() + 1);
			self.0.anonymous()
		}
		fn last_generation(&self) -> u64 {
			0
		}
		fn written(&self, _: u64) -> Option<u64> {
			None
		}
		fn discarded(&self) -> u64 {
			0
		}
		fn memfds(&self, _: u64) -> Option<Memfds> {
			None
		}
	}
	let (a, process) = (Auto::new(), Looked(Mock::default(), Cell::new(0)));
	process.0.anonymous.set(GB);
	// Once a part was given back, the next is due when many forks have been long.
	a.unsealed();
	for faults in [0, 100] {
		process.1.set(0);
		for _ in 0..100 {
			assert_eq!(a.next(&process, faults, false), Act::Fork);
			a.note(100_000, faults);
		}
		assert!(process.1.get() <= 100 / LOOK_EVERY + 2, "{faults}: {} looks", process.1.get());
	}
}

/// A clone with a GB that others have sealed, and one of its own, of which it has sealed a part.
fn clone_of_sealed(last: u64) -> (Auto, Mock) {
	let (a, process) = plain();
	process.holds.set(true);
	process.last.set(last);
	process.others.set(Memfds { bytes: GB, gone: 0 });
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
	seal(&a, &process, act, GB / 16);
	(a, process)
}

#[test]
fn what_a_clone_has_sealed_itself_is_undone_and_what_others_have_is_not() {
	let (a, process) = clone_of_sealed(3);
	// What it writes of theirs is its own.
	process.others_written.set(GB);
	process.anonymous.set(2 * GB);
	a.note(1_000_000, 1_000);
	assert!(!matches!(a.next(&process, 1_000, false), Act::Unseal { .. } | Act::Renew));
	for _ in 0..1_000 {
		match a.next(&process, 0, false) {
			act @ Act::Buy(_) => a.sealed(act, None, &process),
			Act::Unseal { at_once: false } => break,
			act => assert_eq!(act, Act::Fork),
		}
		a.note(90_000_000, 0);
	}
	assert_eq!(a.others(), 3, "what is undone comes after it");
	a.unsealed();
	assert_eq!((a.bought(), a.others()), (0, 0));
}

#[test]
fn what_others_have_sealed_is_undone_when_nobody_else_has_it_and_too_much_of_it_exists_in_vain() {
	let (a, process) = clone_of_sealed(3);
	process.others_written.set(GB);
	process.anonymous.set(2 * GB);
	let looked = |process: &Mock| {
		(0..=LOOK_EVERY)
			.map(|_| {
				a.note(1_000_000, 0);
				a.next(process, 0, false)
			})
			.any(|act| matches!(act, Act::Unseal { at_once: true } | Act::Renew))
	};
	assert!(!looked(&process) && a.others() == 3);
	process.alone.set(true);
	assert!(looked(&process));
	// One that seals nothing itself.
	let (a, process) = (Auto::new(), Mock::default());
	process.holds.set(true);
	process.last.set(3);
	process.others.set(Memfds { bytes: GB, gone: 0 });
	process.anonymous.set(GB / 4);
	process.others_written.set(GB / 4);
	process.alone.set(true);
	assert_eq!(cycles(&a, &process, 60_000, 100, 100), (100, Act::Fork));
	process.anonymous.set(GB / 2);
	process.others_written.set(GB / 2);
	process.alone.set(false);
	assert_eq!(cycles(&a, &process, 60_000, 100, 100), (100, Act::Fork), "another process has it, too");
	process.alone.set(true);
	let (within, act) = cycles(&a, &process, 60_000, 100, 100);
	assert!(within <= LOOK_EVERY && act == Act::Unseal { at_once: true }, "{within} {act:?}");
	a.unseal_failed();
	assert_eq!(cycles(&a, &process, 60_000, 100, 100), (4, Act::Unseal { at_once: true }), "not in each fork");
	process.last.set(UNTOLD);
	assert_eq!(cycles(&a, &process, 60_000, 100, 100), (100, Act::Fork));
}

#[test]
fn what_others_have_sealed_is_not_undone_where_it_can_not_be_told() {
	let (a, process) = clone_of_sealed(UNTOLD);
	process.alone.set(true);
	for _ in 0..200 {
		match a.next(&process, 0, false) {
			Act::Fork => {}
			act @ Act::Buy(_) => a.sealed(act, None, &process),
			act => panic!("{act:?}"),
		}
		a.note(90_000_000, 0);
	}
}

#[test]
fn what_can_not_be_undone_is_not_forgotten_and_tried_ever_less_often() {
	let (a, process) = all_bought();
	let sealed = a.bought();
	assert_eq!(cycles(&a, &process, 30_000_000, 0, 1_000).1, BIT_BY_BIT);
	for forks in [4, 8, 16] {
		a.unseal_failed();
		assert_eq!(cycles(&a, &process, 30_000_000, 0, 1_000), (forks, BIT_BY_BIT));
		assert_eq!(a.bought(), sealed);
	}
	a.unsealed();
	assert_eq!(a.bought(), 0);
}

#[test]
fn an_unseal_goes_on_in_the_next_forks_and_at_once_when_too_much_exists_in_vain() {
	let (a, process) = all_bought();
	assert_eq!(cycles(&a, &process, 30_000_000, 0, 1_000).1, BIT_BY_BIT);
	for _ in 0..3 {
		a.unseals();
		// Short forks by now change nothing.
		a.note(60_000, 0);
		assert_eq!(a.next(&process, 0, false), BIT_BY_BIT);
	}
	gone(&process, GB / 2);
	assert_eq!(a.next(&process, 0, false), Act::Unseal { at_once: true });
	undone(&a, &process);
	assert!(matches!(cycles(&a, &process, 20_000_000, 0, 1_000).1, Act::Buy(_)), "it begins anew");
}

/// On a busy machine the first part was given back at once, and the next cost four times as much.
#[test]
fn a_fork_that_others_have_kept_waiting_undoes_nothing() {
	let (a, process) = plain();
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
	seal(&a, &process, act, GB / 128);
	for ns in [19_000_000, 19_000_000, 500_000_000, 19_000_000, 19_000_000, 19_000_000] {
		let act = a.next(&process, 0, false);
		assert!(!matches!(act, Act::Unseal { .. }), "{act:?}");
		a.note(ns, 0);
	}
	// When each takes longer it is the seal.
	let seen = (0..20).any(|_| {
		a.note(60_000_000, 0);
		matches!(a.next(&process, 0, false), Act::Unseal { .. })
	});
	assert!(seen);
}

#[test]
fn a_part_that_can_not_be_had_now_is_asked_for_again() {
	let (a, process) = plain();
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
	seal(&a, &process, act, GB / 16);
	let (_, part) = cycles(&a, &process, 20_000_000, 0, 1_000);
	assert!(matches!(part, Act::Buy(_)), "{part:?}");
	for forks in [4, 8] {
		a.put_off(part);
		assert_eq!(cycles(&a, &process, 20_000_000, 0, 1_000), (forks, part));
	}
	seal(&a, &process, part, GB / 4);
	assert_eq!(a.ledger.parts.get(), 2);
}

#[test]
fn a_renewal_that_had_to_wait_is_still_to_be_made() {
	let (a, process) = all_bought();
	a.ledger.round.set(2);
	assert_eq!(a.next(&process, 0, false), Act::Renew);
	a.give_back();
	assert_eq!(a.ledger.round.get(), 2, "another thread had the engine");
	assert_eq!(a.next(&process, 0, false), Act::Renew);
	a.put_off(Act::Renew);
	assert_eq!(a.next(&process, 0, false), Act::Fork, "nothing forces it");
	a.ledger.round.set(2);
	process.written.set(GB / 2);
	process.anonymous.set(GB / 2);
	assert_eq!(a.next(&process, 1_000, false), Act::Renew);
	a.put_off(Act::Renew);
	assert_eq!(a.next(&process, 1_000, false), Act::Unseal { at_once: true }, "too much exists twice");
}

#[test]
fn memory_that_came_is_seen_before_the_first_part_is_bought() {
	let (a, process) = (Auto::new(), Mock::default());
	process.anonymous.set(GB / 16);
	assert_eq!(cycles(&a, &process, 1_000_000, 0, 2), (2, Act::Fork));
	process.anonymous.set(GB);
	let (_, act) = cycles(&a, &process, 20_000_000, 0, 100);
	assert!(matches!(act, Act::Buy(bytes) if bytes >= 8 << 20), "{act:?}");
}

#[test]
fn what_can_not_be_had_is_asked_for_ever_less_often() {
	let (a, process) = plain();
	let mut before = 0;
	for _ in 0..4 {
		let (waited, act) = cycles(&a, &process, 20_000_000, 0, 100_000);
		assert!(matches!(act, Act::Buy(_)) && waited > 2 * before, "{waited} after {before}");
		before = waited;
		a.sealed(act, None, &process);
	}
}

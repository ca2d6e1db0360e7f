//! When refills are dropped ([`crate::seal::refills`]), whatever the engine.
//!
//! Rent again: what forks have taken longer than they need to since refills were last dropped, against what dropping
//! and reading again take. It is due when both are equal, so that it never costs more than twice what would have been
//! best. What forks need is what the first ones have shown after the last time, written pages included. Where dropping
//! has not paid, because forks are long for another reason or everything is read again at once, twice as much is due
//! the next time.

use super::forecast::THERE_AND_BACK;
use super::{Num, SEALED_FORK_NS};
use crate::seal::refills::Dropped;
use crate::sys::PAGE;

/// What dropping and reading again are taken to cost until it was done, in nanoseconds.
const GUESS_NS: u64 = 5_000_000;
/// What a page costs that is read again: a fault brings back sixteen.
const READ_NS: u64 = 110;
/// What a page can have cost a fork: it may have been long for another reason.
const FORK_NS: u64 = 100;
const MOST_DOUBTS: u64 = 20;

/// See the module. Nanoseconds.
pub(super) struct Refills {
    /// The shortest fork since refills were last dropped.
    best: Num,
    /// What forks and clones' ends lost since then, and what they gained beside the last one before.
    lost: Num,
    gained: Num,
    /// The latest fork, and the last one before refills were dropped.
    latest: Num,
    before: Num,
    /// What a fork can gain by what was dropped.
    most: Num,
    /// What dropping and reading again take.
    price: Num,
    /// Where to go on with what time has cut short, and what it has come to so far.
    at: Num,
    bytes: Num,
    spent: Num,
    /// How often in a row that has not paid.
    doubts: Num,
}

impl Refills {
    pub const fn new() -> Refills {
        Refills {
            best: Num::new(SEALED_FORK_NS),
            lost: Num::new(0),
            gained: Num::new(0),
            latest: Num::new(0),
            before: Num::new(0),
            most: Num::new(0),
            price: Num::new(GUESS_NS),
            at: Num::new(0),
            bytes: Num::new(0),
            spent: Num::new(0),
            doubts: Num::new(0),
        }
    }

    /// From which address on refills are to be dropped now, if they are.
    pub fn are_due(&self) -> Option<u64> {
        let due = self.at.get() != 0 || self.lost.get() >= self.price.get() << self.doubts.get();
        due.then(|| self.at.get())
    }

    /// A fork of sealed memory took `ns`.
    pub fn note(&self, ns: u64) {
        self.latest.set(ns);
        self.best.set(self.best.get().min(ns));
        self.lost.add(THERE_AND_BACK * (ns - self.best.get().min(ns)));
        self.gained.add(THERE_AND_BACK * self.before.get().saturating_sub(ns).min(self.most.get()));
    }

    /// They were dropped, or some of them.
    pub fn dropped(&self, dropped: &Dropped) {
        self.bytes.add(dropped.bytes);
        self.spent.add(dropped.ns);
        self.at.set(dropped.next as u64);
        if dropped.next != 0 {
            return;
        }
        let paid = self.before.get() == 0 || self.gained.get() >= self.price.get();
        let pages = self.bytes.get() / PAGE as u64;
        self.price.set(self.spent.get() + pages * READ_NS);
        self.most.set(pages * FORK_NS);
        self.begin(paid);
    }

    /// They could not be.
    pub fn put_off(&self) {
        self.begin(false);
    }

    fn begin(&self, paid: bool) {
        self.doubts.set(if paid { 0 } else { (self.doubts.get() + 1).min(MOST_DOUBTS) });
        self.before.set(self.latest.get());
        self.best.set(u64::MAX);
        for number in [&self.lost, &self.gained, &self.at, &self.bytes, &self.spent] {
            number.set(0);
        }
    }

    /// In a clone, which begins with the page tables of its parent.
    pub fn forget(&self) {
        self.begin(true);
        self.doubts.set(0);
        self.best.set(SEALED_FORK_NS);
        self.before.set(0);
        self.price.set(GUESS_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u64 = 1_000_000;
    const LONG: u64 = 30_000_000;
    /// 1 GB of refills.
    const ALL: Dropped = Dropped { bytes: 1 << 30, ns: 6_000_000, next: 0 };
    const NONE: Dropped = Dropped { bytes: 0, ns: 1_000_000, next: 0 };

    /// Forks until it is due.
    fn forks(refills: &Refills, most: u64, ns: impl Fn(u64) -> u64) -> u64 {
        (0..most)
            .find(|fork| {
                refills.are_due().is_some() || {
                    refills.note(ns(*fork));
                    false
                }
            })
            .unwrap_or(most)
    }

    #[test]
    fn what_was_read_once_is_dropped_once() {
        let refills = Refills::new();
        assert_eq!(forks(&refills, 100, |_| SEALED_FORK_NS), 100);
        assert_eq!(forks(&refills, 100, |_| LONG), 1);
        refills.dropped(&ALL);
        assert_eq!(forks(&refills, 10_000, |_| SHORT), 10_000, "what is left are written pages");
    }

    #[test]
    fn what_is_read_again_before_each_fork_is_dropped_as_long_as_that_pays() {
        let refills = Refills::new();
        for _ in 0..100 {
            assert!(forks(&refills, 100, |fork| if fork == 0 { SHORT } else { LONG }) <= 2);
            refills.dropped(&ALL);
        }
        let (refills, mut dropped) = (Refills::new(), 0);
        // All of it costs 35 ms, and a fork that has none of it gains 20.
        for _ in 0..1_000 {
            if refills.are_due().is_some() {
                refills.dropped(&ALL);
                refills.note(SHORT);
                dropped += 1;
            }
            refills.note(SHORT + 10_000_000);
        }
        assert!((2..12).contains(&dropped), "{dropped}");
    }

    #[test]
    fn forks_that_are_long_for_another_reason_are_looked_into_ever_less_often() {
        let (refills, mut looks) = (Refills::new(), 0);
        for fork in 0..10_000 {
            if refills.are_due().is_some() {
                refills.dropped(&NONE);
                looks += 1;
            }
            // On a busy machine.
            refills.note(SHORT + fork * 7_919 % 500_000);
        }
        assert!((1..16).contains(&looks), "{looks}");
    }

    #[test]
    fn what_time_has_cut_short_goes_on_at_the_next_fork() {
        let refills = Refills::new();
        assert_eq!(forks(&refills, 100, |_| LONG), 1);
        refills.dropped(&Dropped { next: PAGE, ..ALL });
        assert_eq!(refills.are_due(), Some(PAGE as u64));
        refills.dropped(&ALL);
        assert_eq!(refills.price.get(), 2 * (ALL.ns + ALL.bytes / PAGE as u64 * READ_NS));
        assert_eq!(refills.are_due(), None);
        assert_eq!(forks(&refills, 100, |fork| if fork == 0 { SHORT } else { LONG }), 3);
        refills.put_off();
        assert_eq!(refills.are_due(), None);
    }
}

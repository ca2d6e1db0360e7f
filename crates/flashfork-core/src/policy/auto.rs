//! The engine `auto`.
//!
//! Nobody knows how many forks are to come, so time lost in plain forks is the rent, and a seal is bought when enough of it was
//! paid. It is bought in five parts, each in a generation of its own: a small one first, which tells what writes do to it, and the
//! rest in quarters as more rent is paid. Thus no number of forks makes it pay much more than one and a half times the best in
//! hindsight, no fork waits for more than a quarter of a seal (unless memory has come since), and what exists twice while a part
//! is replaced is a quarter too. Unsealing is one step.

use super::forecast::{COPY_NS, FAULT_NS, Memory, ONE_IN, THERE_AND_BACK, page_ns};
use super::{Act, Num, Process, SEALED_FORK_NS};
use crate::outcome::Outcome;
use crate::sys::{HUGE, PAGE};

/// The parts, in 64ths of all memory, and the rent due before each, in thousandths of the price of all. With
/// these the time paid is at most 1.7 times the best in hindsight, whenever forks end (least where all five moments are equal).
const PARTS: [u64; 5] = [4, 15, 15, 15, 15];
const RENT: [u64; 5] = [250, 400, 565, 655, 695];
/// Later parts are memory that came after; with more it all begins anew, in five generations.
const MOST_PARTS: u64 = 7;
/// No part is smaller.
const LEAST: u64 = 4 << 20;

/// What a seal costs until one was measured, in nanoseconds per MB (0.5 s per GB).
const GUESS_NS_PER_MB: u64 = 500_000;
/// What 2 MB of memory cost a plain fork at least, in nanoseconds. The rest of a fork, or the sealed fork of slow hosts, is what no
/// seal will take away.
const HUGE_PAGE_NS: u64 = 200;
/// How much more rent is due where only writes to ever the same pages would leave a gain, and after each regret.
const DOUBT: u64 = 4;

/// Cycles after a seal in which pages that are ever the same have been written, and during which those that come then are counted.
const SETTLED: u64 = 2;
const WATCHED: u64 = 4;
/// Faults of a cycle that are too few to look how many of them were new pages; but every so many cycles it is looked.
const FEW: u64 = 16;
const LOOK_EVERY: u64 = 16;

/// What failed is not tried again before so many forks, twice as many each time.
struct Hold {
    failures: Num,
    left: Num,
}

impl Hold {
    const FIRST: u64 = 4;
    const MOST_DOUBLINGS: u64 = 10;

    const fn new() -> Hold {
        Hold { failures: Num::new(0), left: Num::new(0) }
    }

    fn begin(&self) {
        self.left.set(Self::FIRST << self.failures.get().min(Self::MOST_DOUBLINGS));
        self.failures.add(1);
    }

    /// Whether this fork has to do without. Counts it.
    fn holds(&self) -> bool {
        self.left.take_one()
    }

    fn end(&self) {
        self.failures.set(0);
        self.left.set(0);
    }
}

/// See the module.
pub(super) struct Auto {
    /// Nanoseconds lost in forks since there was last nothing bought.
    rent: Num,
    /// How often what was bought had to be given back, or could not be had.
    regrets: Num,
    /// Parts bought, and generations of them still to be sealed anew, one a fork.
    parts: Num,
    round: Num,
    /// What seals took so far, in nanoseconds, for so many bytes.
    paid: Num,
    paid_for: Num,
    /// Bytes of memory when it was last looked at without any sealed, bytes sealed, and of these, bytes that held no page before.
    whole: Num,
    sealed: Num,
    filled: Num,
    /// Bytes in memfds that are mapped no more, and what the program had discarded when that was last asked.
    gone: Num,
    discarded: Num,
    /// Bytes that existed in vain when they were last counted exactly.
    vain: Num,
    /// What a cycle took before anything was sealed, what a page costs a fork, and what a fork takes without any.
    plain: Num,
    page: Num,
    floor: Num,
    /// What a fork took before anything was sealed.
    plain_fork: Num,
    /// Anonymous memory that is no copy of sealed memory, and at the last look.
    own: Num,
    anonymous: Num,
    /// Pages written afresh in the cycle that ends with this fork.
    fresh: Num,
    /// Whether memory was sealed before by somebody else: the process this one is a clone of, or the program. Then nothing is
    /// undone or sealed anew, because that would be too.
    others: Num,
    /// Since memory last changed: cycles, their time, that of their forks, their faults, and by how much they were longer than
    /// plain ones in all.
    cycles: Num,
    cycles_ns: Num,
    forks_ns: Num,
    faults: Num,
    regret: Num,
    /// The forks of the last four cycles.
    last_forks: [Num; 4],
    /// After how many cycles of the first part it was counted what was written, and how many bytes that were.
    counted: Num,
    written: Num,
    /// Pages of all memory that a cycle writes afresh, as the first part shows, and one; 0 until then.
    shown: Num,
    /// After what couldn't be sealed just then, and what couldn't be made anonymous.
    no_seal: Hold,
    no_unseal: Hold,
}

impl Auto {
    pub const fn new() -> Auto {
        Auto {
            rent: Num::new(0),
            regrets: Num::new(0),
            parts: Num::new(0),
            round: Num::new(0),
            paid: Num::new(0),
            paid_for: Num::new(0),
            whole: Num::new(0),
            sealed: Num::new(0),
            filled: Num::new(0),
            gone: Num::new(0),
            discarded: Num::new(0),
            vain: Num::new(0),
            plain: Num::new(0),
            page: Num::new(0),
            floor: Num::new(SEALED_FORK_NS),
            plain_fork: Num::new(0),
            own: Num::new(0),
            anonymous: Num::new(0),
            fresh: Num::new(0),
            others: Num::new(0),
            cycles: Num::new(0),
            cycles_ns: Num::new(0),
            forks_ns: Num::new(0),
            faults: Num::new(0),
            regret: Num::new(0),
            last_forks: [const { Num::new(0) }; 4],
            counted: Num::new(0),
            written: Num::new(0),
            shown: Num::new(0),
            no_seal: Hold::new(),
            no_unseal: Hold::new(),
        }
    }

    pub fn next(&self, process: &impl Process, faults: u64) -> Act {
        if self.sealed.get() == 0 {
            return self.next_plain(process);
        }
        if !process.holds_sealed() {
            // Somebody else made it anonymous.
            self.begin_anew();
            return Act::Fork;
        }
        if self.no_unseal.holds() {
            self.fresh.set(faults);
            return Act::Fork;
        }
        match self.next_sealed(process, faults) {
            Act::Unseal | Act::Renew if self.others.get() != 0 => {
                self.unsealed();
                Act::Fork
            }
            // Never a renewal: memory may exist twice.
            Act::Buy(_) if self.no_seal.holds() => Act::Fork,
            act => act,
        }
    }

    fn next_plain(&self, process: &impl Process) -> Act {
        let cycles = self.cycles.get();
        let fork = self.forks_ns.get() / THERE_AND_BACK / cycles.max(1);
        let look = || {
            self.whole.set(process.anonymous());
            self.floor.set(SEALED_FORK_NS.min(fork.saturating_sub(self.whole.get() / HUGE as u64 * HUGE_PAGE_NS)));
        };
        let due = || {
            let due = RENT[0] * (self.price_of(self.whole.get()) / 1000);
            due.saturating_mul(DOUBT.pow(self.regrets.get().min(16) as u32))
        };
        let is_early = || cycles == 0 || self.whole.get() == 0 || self.rent.get() < due();
        let looked = cycles % LOOK_EVERY == 1;
        if looked {
            look();
        }
        if is_early() {
            return Act::Fork;
        }
        if !looked {
            // Memory may have come since.
            look();
            if is_early() {
                return Act::Fork;
            }
        }
        let due = due();
        let (plain, faults) = (self.cycles_ns.get() / cycles, self.faults.get() / cycles);
        self.page.set(page_ns(fork.saturating_sub(self.floor.get()), self.whole.get()));
        let (memory, gains) = (self.memory(), |cycle| cycle < nine_tenths(plain));
        if !gains(memory.cycle(faults, 0)) {
            // What the program does may change: pay rent anew.
            self.rent.set(0);
            self.changed();
            return Act::Fork;
        }
        if gains(memory.cycle(0, faults)) || self.rent.get() >= due.saturating_mul(DOUBT) {
            self.plain.set(plain);
            self.plain_fork.set(fork);
            self.others.set(u64::from(process.holds_sealed()));
            return self.buy();
        }
        Act::Fork
    }

    fn next_sealed(&self, process: &impl Process, faults: u64) -> Act {
        let (sealed, plain, cycles) = (self.sealed.get(), self.plain.get(), self.cycles.get());
        let written = self.look(process, faults);
        if self.round.take_one() {
            return Act::Renew;
        }
        let price = self.price_of(sealed);
        let pays = self.cycles_ns.get() + price < plain * cycles;
        if self.is_too_much(written) {
            return if pays { self.renew_all() } else { Act::Unseal };
        }
        if self.regret.get() > price / 4 * 3 {
            return Act::Unseal;
        }
        if cycles < SETTLED {
            return Act::Fork;
        }
        let now = self.last_forks.iter().map(Num::get).min().unwrap_or(0);
        let parts = self.parts.get() as usize;
        if parts < PARTS.len() {
            if parts > 1 {
                // What is sealed by now tells what all will bring.
                let gain = self.plain_fork.get().saturating_sub(now / THERE_AND_BACK);
                let all = gain.saturating_mul(self.whole.get() >> 12) / (sealed >> 12).max(1);
                self.floor.set(self.floor.get().min(self.plain_fork.get().saturating_sub(all)));
            }
            if self.rent.get() < RENT[parts] * (self.price_of(self.whole.get()) / 1000) {
                return Act::Fork;
            }
            return match self.would_gain(process, cycles) {
                Some(true) => self.buy(),
                Some(false) => Act::Unseal,
                None => Act::Fork,
            };
        }
        // A machine is replaced when it costs more than it did on average, its price included.
        let costly = cycles >= 4 && (now * cycles).saturating_sub(self.forks_ns.get()) >= price;
        if costly && self.cycles_ns.get() / cycles < nine_tenths(plain) {
            return self.renew_all();
        }
        Act::Fork
    }

    /// Whether more of the seal would be worth it, by what writes do to the sealed part; none as long as that isn't known.
    fn would_gain(&self, process: &impl Process, cycles: u64) -> Option<bool> {
        let (memory, faults) = (self.memory(), self.faults.get() / cycles);
        let gains = |cycle| cycle < nine_tenths(self.plain.get());
        if gains(memory.cycle(0, faults)) {
            return Some(true);
        }
        if self.shown.get() == 0 {
            let counted = self.counted.get();
            if counted == 0 {
                self.written.set(process.written()?);
                self.counted.set(cycles);
                return None;
            }
            if cycles < counted + WATCHED {
                return None;
            }
            let fresh = process.written()?.saturating_sub(self.written.get()) / (cycles - counted);
            let of_all = u128::from(fresh) * u128::from(self.whole.get()) / u128::from(self.sealed.get().max(1));
            self.shown.set(of_all as u64 / PAGE as u64 + 1);
        }
        let fresh = self.shown.get().saturating_sub(1).min(faults);
        Some(gains(memory.cycle(faults.saturating_sub(fresh), fresh)))
    }

    fn memory(&self) -> Memory {
        let bytes = self.whole.get();
        Memory { bytes, price: self.price_of(bytes), fork_ns: self.floor.get(), page_ns: self.page.get() }
    }

    /// What sealing so many bytes takes.
    fn price_of(&self, bytes: u64) -> u64 {
        let rate = self.paid.get().checked_div(self.paid_for.get() >> 20).unwrap_or(GUESS_NS_PER_MB);
        ((bytes >> 10) * rate) >> 10
    }

    fn buy(&self) -> Act {
        match self.parts.get() as usize {
            part if part < PARTS.len() - 1 => {
                let bytes = self.whole.get() / 64 * PARTS[part];
                Act::Buy((bytes & !(HUGE as u64 - 1)).max(LEAST))
            }
            _ => Act::Buy(u64::MAX),
        }
    }

    /// Seals all generations anew, one before each fork from this one on. Memory that came since goes first.
    fn renew_all(&self) -> Act {
        let parts = self.parts.get();
        let grown = self.own.get() > self.sealed.get() / 4;
        if grown && parts >= MOST_PARTS {
            return Act::Unseal;
        }
        if grown {
            self.round.set(parts);
            return Act::Buy(u64::MAX);
        }
        self.round.set(parts.saturating_sub(1));
        Act::Renew
    }

    /// Looks how many of the pages that were written since the last fork were written for the first time since the seal. Gives
    /// the bytes that exist in vain now, 0 where it wasn't worth a look.
    fn look(&self, process: &impl Process, faults: u64) -> u64 {
        let discarded = process.discarded();
        let regularly = self.cycles.get().is_multiple_of(LOOK_EVERY);
        let discards = self.discarded.swap(discarded) != discarded;
        if faults < FEW && !regularly && !discards {
            self.fresh.set(faults);
            return self.gone.get();
        }
        if regularly || discards {
            self.look_at_memfds(process);
        }
        let now = process.anonymous();
        let grown = now.saturating_sub(self.anonymous.swap(now)) / PAGE as u64;
        self.fresh.set(grown.min(faults));
        let vain = now.saturating_sub(self.own.get()) + self.gone.get();
        if !self.is_too_much(vain) {
            return vain;
        }
        // Or the program has taken memory. The exact number takes a while, so it is asked for only here.
        self.weigh(process, now)
    }

    /// Whether so many bytes are too many to exist in vain: twice, or for nobody.
    fn is_too_much(&self, vain: u64) -> bool {
        let filled = self.filled.get();
        vain + filled > (self.sealed.get() + self.own.get()).saturating_sub(filled + self.gone.get()) / ONE_IN
    }

    /// Asks how much of the memfds is still mapped.
    fn look_at_memfds(&self, process: &impl Process) {
        if let Some(memfds) = process.memfds() {
            self.gone.set(memfds.gone);
        }
    }

    /// Tells memory that exists in vain from the process's own; gives the former.
    fn weigh(&self, process: &impl Process, anonymous: u64) -> u64 {
        self.anonymous.set(anonymous);
        let Some(written) = process.written() else {
            self.own.set(self.own.get().min(anonymous));
            return self.gone.get();
        };
        self.own.set(anonymous.saturating_sub(written));
        self.look_at_memfds(process);
        self.vain.set(written + self.gone.get());
        self.vain.get()
    }

    pub fn note(&self, ns: u64, faults: u64) {
        let fork = THERE_AND_BACK * ns;
        let mut cycle = fork + FAULT_NS * faults;
        let place = (self.cycles.get() % 4) as usize;
        if self.sealed.get() > 0 {
            cycle += COPY_NS * self.fresh.get();
            self.regret.set((self.regret.get() + cycle).saturating_sub(self.plain.get()));
        }
        self.last_forks[place].set(fork);
        self.rent.add(THERE_AND_BACK * ns.saturating_sub(self.floor.get()));
        self.cycles.add(1);
        self.cycles_ns.add(cycle);
        self.forks_ns.add(fork);
        self.faults.add(faults);
    }

    pub fn sealed(&self, act: Act, outcome: Option<&Outcome>, process: &impl Process) {
        match outcome {
            Some(outcome) => {
                if self.paid_for.get() > 4 * self.whole.get() {
                    // What it took long ago counts less.
                    self.paid.set(self.paid.get() / 2);
                    self.paid_for.set(self.paid_for.get() / 2);
                }
                self.no_seal.end();
                self.paid.add(outcome.elapsed_ns);
                self.paid_for.add(outcome.sealed);
                if act != Act::Renew {
                    self.sealed.add(outcome.sealed);
                    self.filled.add(outcome.filled);
                    self.parts.add(1);
                } else if let Some(memfds) = process.memfds().filter(|_| self.others.get() == 0) {
                    // What was given back went with the memfd that was replaced, and so did the holes of blocks in it.
                    let before = self.sealed.swap(memfds.bytes).max(1);
                    let filled = u128::from(self.filled.get()) * u128::from(memfds.bytes) / u128::from(before);
                    self.filled.set(self.filled.get().min(filled as u64));
                }
                self.weigh(process, process.anonymous());
            }
            None if act == Act::Renew => {}
            // There is no more to be had.
            None if self.parts.get() > 0 => self.parts.set(self.parts.get().max(PARTS.len() as u64)),
            None => {
                self.regrets.add(1);
                self.rent.set(0);
            }
        }
        self.changed();
    }

    /// After a step that seals: whether too much exists in vain still, and there is more to be sealed anew.
    pub fn renews_at_once(&self) -> bool {
        self.is_too_much(self.vain.get()) && self.round.take_one()
    }

    /// A generation was not sealed anew: it is still to be, but not before this fork.
    pub fn give_back(&self) {
        self.vain.set(0);
        self.round.add(1);
    }

    /// What was asked for can't be had just now.
    pub fn put_off(&self, act: Act) {
        if act != Act::Renew && self.parts.get() > 0 {
            return self.no_seal.begin();
        }
        if act == Act::Renew {
            // Should too much exist twice by now, that is to be undone.
            self.round.set(0);
        } else {
            // More rent is due.
            self.regrets.add(1);
            self.rent.set(0);
        }
        self.changed();
    }

    /// Some of it, or all, is still sealed.
    pub fn unseal_failed(&self) {
        self.no_unseal.begin();
    }

    pub fn bought(&self) -> u64 {
        self.sealed.get()
    }

    pub fn unsealed(&self) {
        self.regrets.add(1);
        self.begin_anew();
    }

    /// In a clone, and when memory is no longer what it was.
    pub fn begin_anew(&self) {
        for number in
            [&self.rent, &self.parts, &self.round, &self.sealed, &self.filled, &self.gone, &self.whole, &self.shown]
        {
            number.set(0);
        }
        self.no_seal.end();
        self.no_unseal.end();
        self.changed();
    }

    /// Averages begin anew.
    fn changed(&self) {
        for number in [&self.cycles, &self.cycles_ns, &self.forks_ns, &self.faults, &self.regret, &self.counted] {
            number.set(0);
        }
    }
}

/// A gain of less than a tenth is not worth a change.
fn nine_tenths(ns: u64) -> u64 {
    ns / 10 * 9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::generations::Memfds;
    use core::cell::Cell;

    const GB: u64 = 1 << 30;

    #[derive(Default)]
    struct Mock {
        holds: Cell<bool>,
        anonymous: Cell<u64>,
        written: Cell<u64>,
        discarded: Cell<u64>,
        memfds: Cell<Memfds>,
    }

    impl Process for Mock {
        fn holds_sealed(&self) -> bool {
            self.holds.get()
        }
        fn anonymous(&self) -> u64 {
            self.anonymous.get()
        }
        fn written(&self) -> Option<u64> {
            Some(self.written.get())
        }
        fn discarded(&self) -> u64 {
            self.discarded.get()
        }
        fn memfds(&self) -> Option<Memfds> {
            Some(self.memfds.get())
        }
    }

    /// Cycles until something is to be done.
    fn cycles(a: &Auto, process: &Mock, ns: u64, faults: u64, most: u64) -> (u64, Act) {
        for cycle in 0..most {
            let act = a.next(process, faults);
            if act != Act::Fork {
                return (cycle, act);
            }
            a.note(ns, faults);
        }
        (most, Act::Fork)
    }

    fn seal(a: &Auto, process: &Mock, act: Act, bytes: u64) {
        process.holds.set(true);
        process.anonymous.set(process.anonymous.get().saturating_sub(bytes));
        if act != Act::Renew {
            let Memfds { bytes: before, gone } = process.memfds.get();
            process.memfds.set(Memfds { bytes: before + bytes, gone });
        }
        let outcome = Outcome { sealed: bytes, elapsed_ns: bytes / 2, ..Outcome::default() };
        a.sealed(act, Some(&outcome), process);
    }

    fn all_bought() -> (Auto, Mock) {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB);
        let mut left = GB;
        for part in PARTS {
            let (_, act) = cycles(&a, &process, 20_000_000, 0, 1000);
            let Act::Buy(most) = act else { panic!("{act:?}") };
            assert!(most == GB / 64 * part || part == 15 && most == u64::MAX, "{most}");
            let bytes = most.min(left);
            left -= bytes;
            seal(&a, &process, act, bytes);
        }
        (a, process)
    }

    #[test]
    fn rent_buys_part_by_part_and_the_last_part_is_the_rest() {
        let (a, process) = all_bought();
        assert_eq!(process.anonymous.get(), 0);
        assert!(a.bought() >= GB);
        assert_eq!(cycles(&a, &process, 60_000, 0, 10_000), (10_000, Act::Fork), "and that is that");
    }

    #[test]
    fn memory_that_was_given_back_exists_in_vain() {
        // Discarded through the engine, which is seen at once; and unmapped, which is seen before long. Filled again or not.
        for (discarded, within) in [(GB / 2, 1), (0, LOOK_EVERY)] {
            for filled_again in [0, GB / 2] {
                let (a, process) = all_bought();
                process.discarded.set(discarded);
                process.memfds.set(Memfds { bytes: GB, gone: GB / 2 });
                process.anonymous.set(filled_again);
                let (waited, act) = cycles(&a, &process, 60_000, 0, 1_000);
                assert!(waited <= within && matches!(act, Act::Renew | Act::Unseal), "{act:?} after {waited}");
            }
        }
        let (a, process) = all_bought();
        process.discarded.set(GB / 16);
        process.memfds.set(Memfds { bytes: GB, gone: GB / 16 });
        process.anonymous.set(GB / 16);
        assert_eq!(cycles(&a, &process, 60_000, 0, 1_000).1, Act::Fork, "a little may");
    }

    #[test]
    fn a_renewal_brings_down_what_counts_as_sealed() {
        let (a, process) = all_bought();
        process.discarded.set(1);
        process.memfds.set(Memfds { bytes: GB, gone: GB / 2 });
        (0..100).for_each(|_| a.note(60_000, 0));
        assert_eq!(a.next(&process, 0), Act::Renew, "sealed memory pays");
        process.memfds.set(Memfds { bytes: GB / 2, gone: 0 });
        seal(&a, &process, Act::Renew, GB / 2);
        assert_eq!(a.sealed.get(), GB / 2);
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
        a.changed();
        let mut renewed = 0;
        for cycle in 1..1_000 {
            let act = a.next(&process, 0);
            if act == Act::Renew {
                renewed += 1;
                seal(&a, &process, act, GB / 5);
            }
            assert!(matches!(act, Act::Fork | Act::Renew), "{act:?}");
            a.note(60_000 + 50_000 * cycle, 0);
            if renewed == PARTS.len() {
                return;
            }
        }
        panic!("renewed {renewed} times");
    }

    #[test]
    fn what_loses_is_undone_and_bought_later_for_more() {
        let (a, process) = all_bought();
        let (lost, act) = cycles(&a, &process, 30_000_000, 0, 1_000);
        assert_eq!(act, Act::Unseal);
        assert!((15..25).contains(&lost), "half a second by 20 ms a cycle: {lost}");
        a.unsealed();
        process.holds.set(false);
        process.anonymous.set(GB);
        let (waited, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
        assert!(matches!(act, Act::Buy(_)) && (10..20).contains(&waited), "{waited} {act:?}");
    }

    #[test]
    fn memory_that_exists_twice_ends_it_and_memory_that_came_does_not() {
        let (a, process) = all_bought();
        process.anonymous.set(GB / 2);
        assert_eq!(a.next(&process, 1_000), Act::Fork, "the program has taken memory");
        a.note(60_000, 1_000);
        process.anonymous.set(GB);
        assert_eq!(a.next(&process, 1_000), Act::Fork, "as much again");
        process.written.set(GB * 3 / 4);
        process.anonymous.set(GB * 7 / 4);
        a.note(60_000, 1_000);
        assert_eq!(a.next(&process, 1_000), Act::Unseal, "sealed anew after three cycles, it would not pay");
    }

    #[test]
    fn what_writes_would_eat_up_is_not_bought() {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB);
        assert_eq!(cycles(&a, &process, 400_000, 5_000, 10_000).1, Act::Fork);
        let a = Auto::new();
        let (doubtful, act) = cycles(&a, &process, 20_000_000, 26_000, 10_000);
        assert!(matches!(act, Act::Buy(_)), "a small part, to see which pages are written: {act:?}");
        let a = Auto::new();
        let (sure, _) = cycles(&a, &process, 20_000_000, 0, 10_000);
        assert!(doubtful > 3 * sure, "{doubtful} {sure}");
    }

    #[test]
    fn what_others_sealed_is_not_undone() {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB);
        process.holds.set(true);
        let (_, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
        seal(&a, &process, act, GB / 16);
        for _ in 0..200 {
            match a.next(&process, 0) {
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
        assert_eq!(cycles(&a, &process, 30_000_000, 0, 1_000).1, Act::Unseal);
        for forks in [4, 8, 16] {
            a.unseal_failed();
            assert_eq!(cycles(&a, &process, 30_000_000, 0, 1_000), (forks, Act::Unseal));
            assert_eq!(a.bought(), sealed);
        }
        a.unsealed();
        assert_eq!(a.bought(), 0);
    }

    #[test]
    fn a_part_that_can_not_be_had_now_is_asked_for_again() {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB);
        let (_, act) = cycles(&a, &process, 20_000_000, 0, 1_000);
        seal(&a, &process, act, GB / 16);
        let (_, part) = cycles(&a, &process, 20_000_000, 0, 1_000);
        assert!(matches!(part, Act::Buy(_)), "{part:?}");
        for forks in [4, 8] {
            a.put_off(part);
            assert_eq!(cycles(&a, &process, 20_000_000, 0, 1_000), (forks, part));
        }
        seal(&a, &process, part, GB / 4);
        assert_eq!(a.parts.get(), 2);
    }

    #[test]
    fn a_renewal_that_had_to_wait_is_still_to_be_made() {
        let (a, process) = all_bought();
        a.round.set(2);
        assert_eq!(a.next(&process, 0), Act::Renew);
        a.give_back();
        assert_eq!(a.round.get(), 2, "another thread had the engine");
        assert_eq!(a.next(&process, 0), Act::Renew);
        a.put_off(Act::Renew);
        assert_eq!(a.next(&process, 0), Act::Fork, "nothing forces it");
        a.round.set(2);
        process.written.set(GB / 2);
        process.anonymous.set(GB / 2);
        assert_eq!(a.next(&process, 1_000), Act::Renew);
        a.put_off(Act::Renew);
        assert_eq!(a.next(&process, 1_000), Act::Unseal, "too much exists twice");
    }

    #[test]
    fn memory_that_came_is_seen_before_the_first_part_is_bought() {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB / 16);
        assert_eq!(cycles(&a, &process, 1_000_000, 0, 2), (2, Act::Fork));
        process.anonymous.set(GB);
        let (_, act) = cycles(&a, &process, 20_000_000, 0, 100);
        assert_eq!(act, Act::Buy(GB / 16));
    }

    #[test]
    fn what_can_not_be_had_is_asked_for_ever_less_often() {
        let (a, process) = (Auto::new(), Mock::default());
        process.anonymous.set(GB);
        let mut before = 0;
        for _ in 0..4 {
            let (waited, act) = cycles(&a, &process, 20_000_000, 0, 100_000);
            assert!(matches!(act, Act::Buy(_)) && waited > 2 * before, "{waited} after {before}");
            before = waited;
            a.sealed(act, None, &process);
        }
    }
}

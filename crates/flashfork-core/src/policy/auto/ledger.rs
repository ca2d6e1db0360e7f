//! What was lost and paid so far, what was had for it, and what the rest costs.

use crate::outcome::Outcome;
use crate::policy::Num;
use crate::sys::HUGE;

/// As long as nobody knows whether the seal will pay for itself, what was lost and paid is at most so many hundredths
/// of what plain forks alone would have cost. With parts as small as one likes no factor below 1.58 (Karp's e/(e-1))
/// would ever buy all of it; a larger one pays a little more at once and loses less later.
const MOST_PAID: u64 = 170;
/// Nanoseconds that a fork waits for a part: twenty milliseconds are promised, and a machine may be busy.
const WAIT_NS: u64 = 17_000_000;
/// What sealing takes until some was sealed, in nanoseconds per MB (0.35 s per GB), and what the first part takes
/// besides, because it looks at everything.
const GUESS_NS_PER_MB: u64 = 350_000;
const FIRST_LOOK_NS: u64 = 1_000_000;
/// The first part, of which nobody knows how long it takes: an eighth of the memory, within these bounds.
const FIRST: (u64, u64) = (4 << 20, 8 << 20);
/// Each part takes a millisecond for itself, and is a mapping, which a fork copies in half a microsecond: no more than
/// so many but for the wait's sake, and for the wait's sake no more than so many. Nor are parts smaller than the first.
const PARTS: u64 = 4;
const MOST_PARTS: u64 = 128;
/// How much more rent is due where only writes to ever the same pages would leave a gain, and after each regret.
const DOUBT: u64 = 4;

/// See the module.
pub struct Ledger {
    /// Nanoseconds lost in forks since there was last nothing bought; and what plain forks would have lost.
    pub rent: Num,
    /// See `rent`.
    pub plain_rent: Num,
    /// How often what was bought had to be given back, or could not be had.
    pub regrets: Num,
    /// Parts bought, and generations of them still to be sealed anew, one a fork.
    pub parts: Num,
    /// See `parts`.
    pub round: Num,
    /// 1 when there is no more to be had.
    complete: Num,
    /// What parts took since there was last nothing bought, and bytes of the largest one.
    spent: Num,
    largest: Num,
    /// What sealing took so far, in nanoseconds, for so many bytes; and nanoseconds per MB of the latest two parts.
    paid: Num,
    paid_for: Num,
    latest: [Num; 2],
    /// Bytes sealed, and of these, bytes that held no page before.
    pub sealed: Num,
    /// See `sealed`.
    pub filled: Num,
}

impl Ledger {
    pub const fn new() -> Ledger {
        Ledger {
            rent: Num::new(0),
            plain_rent: Num::new(0),
            regrets: Num::new(0),
            parts: Num::new(0),
            round: Num::new(0),
            complete: Num::new(0),
            spent: Num::new(0),
            largest: Num::new(0),
            paid: Num::new(0),
            paid_for: Num::new(0),
            latest: [const { Num::new(0) }; 2],
            sealed: Num::new(0),
            filled: Num::new(0),
        }
    }

    /// Nanoseconds that sealing a MB takes.
    fn rate(&self) -> u64 {
        self.paid.get().checked_div(self.paid_for.get() >> 20).unwrap_or(GUESS_NS_PER_MB).max(1)
    }

    /// What sealing so many bytes takes.
    pub fn price_of(&self, bytes: u64) -> u64 {
        ((bytes >> 10) * self.rate()) >> 10
    }

    /// The rent due before the first part of so many bytes is bought; `doubtful`: where only a look at that part will
    /// tell whether it gains.
    pub fn due_at_first(&self, whole: u64, doubtful: bool) -> u64 {
        let doubts = self.regrets.get().min(16) + u64::from(doubtful);
        if doubts > 0 {
            return (self.price_of(whole) / DOUBT).saturating_mul(DOUBT.pow(doubts as u32));
        }
        (self.price_of(self.first(whole)) + FIRST_LOOK_NS) * 100 / (MOST_PAID - 100)
    }

    /// Bytes of the first part.
    pub fn first(&self, whole: u64) -> u64 {
        whole_blocks((whole / 8).clamp(FIRST.0, FIRST.1))
    }

    /// Bytes of the next part, if one is due.
    pub fn next(&self, whole: u64) -> Option<u64> {
        if self.is_complete() {
            return None;
        }
        let rate = self.latest[0].get().max(self.latest[1].get()).max(1);
        let bearable = ((WAIT_NS << 20) / rate).min(4 * self.largest.get()).max(whole / MOST_PARTS).max(HUGE as u64);
        if self.plain_rent.get() >= self.price_of(whole) {
            // It has paid for itself, had it been bought at once.
            return Some(whole_blocks(bearable.max(FIRST.0)));
        }
        let paid = self.rent.get() + self.spent.get();
        let allowed = (self.plain_rent.get() / 100 * MOST_PAID).saturating_sub(paid);
        let bytes = ((allowed << 10) / rate) << 10;
        (bytes >= (whole / PARTS).max(FIRST.1).min(bearable).max(FIRST.0))
            .then(|| whole_blocks(bytes.min(bearable.max(FIRST.0))))
    }

    /// Whether there is no more to be had.
    pub fn is_complete(&self) -> bool {
        self.complete.get() != 0
    }

    /// There is no more to be had.
    pub fn complete(&self) {
        self.complete.set(1);
    }

    /// Memory has come, and all of it is to be sealed, part by part; whether that can be.
    pub fn resume(&self) -> bool {
        self.complete.set(0);
        self.plain_rent.set(u64::MAX >> 8);
        self.parts.get() < MOST_PARTS
    }

    /// What seals took long ago counts less.
    pub fn forget_old_prices(&self, whole: u64) {
        if self.paid_for.get() > 4 * whole {
            self.paid.set(self.paid.get() / 2);
            self.paid_for.set(self.paid_for.get() / 2);
        }
    }

    /// A part was sealed, for the first time or anew.
    pub fn pay(&self, outcome: &Outcome) {
        // The first has looked at everything, which no other has to.
        let first = self.parts.get() == 0;
        let ns = if first { outcome.sealing_ns } else { outcome.elapsed_ns };
        self.paid.add(ns);
        self.paid_for.add(outcome.sealed);
        // On a busy machine it is mostly waits, which are the same for a small part.
        let wait = ns.min(2 * outcome.sealing_cpu_ns);
        self.latest[1].set(self.latest[0].swap(wait / (outcome.sealed >> 20).max(1)));
        self.spent.add(outcome.elapsed_ns);
        self.largest.set(self.largest.get().max(outcome.sealed));
    }

    /// Nothing is bought, and no rent was paid.
    pub fn begin_anew(&self) {
        let numbers = [&self.rent, &self.plain_rent, &self.parts, &self.round, &self.complete, &self.spent];
        for number in numbers.into_iter().chain([&self.largest, &self.sealed, &self.filled]) {
            number.set(0);
        }
    }
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes & !(HUGE as u64 - 1)
}

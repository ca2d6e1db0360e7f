//! What was lost and paid so far, what was had for it, and what the rest costs.

use crate::outcome::Outcome;
use crate::policy::{Act, Num};
use crate::sys::HUGE;

/// The parts, in 64ths of all memory, and the rent due before each, in thousandths of the price of all. With these the
/// time paid is at most 1.7 times the best in hindsight, whenever forks end (least where all five moments are equal).
pub const PARTS: [u64; 5] = [4, 15, 15, 15, 15];
const RENT: [u64; 5] = [250, 400, 565, 655, 695];
/// Later parts are memory that came after; with more it all begins anew, in five generations.
pub const MOST_PARTS: u64 = 7;
/// No part is smaller.
const LEAST: u64 = 4 << 20;
/// What a seal costs until one was measured, in nanoseconds per MB (0.5 s per GB).
const GUESS_NS_PER_MB: u64 = 500_000;
/// How much more rent is due where only writes to ever the same pages would leave a gain, and after each regret.
pub const DOUBT: u64 = 4;

/// See the module.
pub struct Ledger {
    /// Nanoseconds lost in forks since there was last nothing bought.
    pub rent: Num,
    /// How often what was bought had to be given back, or could not be had.
    pub regrets: Num,
    /// Parts bought, and generations of them still to be sealed anew, one a fork.
    pub parts: Num,
    /// See `parts`.
    pub round: Num,
    /// What seals took so far, in nanoseconds, for so many bytes.
    paid: Num,
    paid_for: Num,
    /// Bytes sealed, and of these, bytes that held no page before.
    pub sealed: Num,
    /// See `sealed`.
    pub filled: Num,
}

impl Ledger {
    pub const fn new() -> Ledger {
        Ledger {
            rent: Num::new(0),
            regrets: Num::new(0),
            parts: Num::new(0),
            round: Num::new(0),
            paid: Num::new(0),
            paid_for: Num::new(0),
            sealed: Num::new(0),
            filled: Num::new(0),
        }
    }

    /// What sealing so many bytes takes.
    pub fn price_of(&self, bytes: u64) -> u64 {
        let rate = self.paid.get().checked_div(self.paid_for.get() >> 20).unwrap_or(GUESS_NS_PER_MB);
        ((bytes >> 10) * rate) >> 10
    }

    /// The rent due before the first part of so many bytes is bought.
    pub fn due_at_first(&self, whole: u64) -> u64 {
        self.due_for(0, whole).saturating_mul(DOUBT.pow(self.regrets.get().min(16) as u32))
    }

    /// The rent due before another part is bought.
    pub fn due_for(&self, part: usize, whole: u64) -> u64 {
        RENT[part] * (self.price_of(whole) / 1000)
    }

    /// What seals took long ago counts less.
    pub fn forget_old_prices(&self, whole: u64) {
        if self.paid_for.get() > 4 * whole {
            self.paid.set(self.paid.get() / 2);
            self.paid_for.set(self.paid_for.get() / 2);
        }
    }

    /// A seal was made.
    pub fn pay(&self, outcome: &Outcome) {
        self.paid.add(outcome.elapsed_ns);
        self.paid_for.add(outcome.sealed);
    }

    /// Buys the next part of so many bytes.
    pub fn buy(&self, whole: u64) -> Act {
        match self.parts.get() as usize {
            part if part < PARTS.len() - 1 => {
                let bytes = whole / 64 * PARTS[part];
                Act::Buy((bytes & !(HUGE as u64 - 1)).max(LEAST))
            }
            _ => Act::Buy(u64::MAX),
        }
    }

    /// Nothing is bought, and no rent was paid.
    pub fn begin_anew(&self) {
        for number in [&self.rent, &self.parts, &self.round, &self.sealed, &self.filled] {
            number.set(0);
        }
    }
}

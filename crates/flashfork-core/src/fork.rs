//! The fork path: what happens around a program's own fork.
//!
//! It runs in the async-signal context of other people's programs: it reads a clock, adds to counters and, when the policy says so,
//! seals. It never allocates, parses configuration or calibrates.

use crate::odf::{self, Unavailable};
use crate::range::Range;
use crate::seal::{Pages, Wait, seal_waiting};
use crate::state::STATE;
use crate::stats::{Kind, Stats, Timed};
use crate::sys;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How clones are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Engine {
    /// Fork on demand where the kernel can; elsewhere seal once the time lost in forks would have paid for it.
    #[default]
    Auto = 0,
    /// Plain forks only.
    Fork = 1,
    /// Seal before the first fork.
    Seal = 2,
    /// The kernel shares page tables ([`crate::odf`]); nothing is sealed but on request.
    Odf = 3,
}

/// What a seal costs until one was measured, in nanoseconds per KB (1 s per GB), and what a sealed fork takes.
const SEAL_NS_PER_KB: u64 = 1000;
const SEALED_FORK_NS: u64 = 60_000;

/// After how many forks of sealed memory `auto` looks whether the seal was worth it.
const TRIAL: u64 = 16;

/// State of the policy: buy when the rent paid equals the price (the ski-rental rule), then see whether it was worth it.
///
/// `auto` seals once. When forks of the sealed memory take more than half as long as before, because the program writes too
/// much between them, it makes the memory anonymous again and leaves it at that. [`Engine::Seal`] stays sealed, and seals
/// anew what was written since: each time it must have lost twice as much as for the one before.
pub(crate) struct Policy {
    engine: AtomicU8,
    at_once: AtomicU8,
    /// Nanoseconds that forks took beyond what a sealed fork takes, since the last seal.
    lost: AtomicU64,
    /// Shortest fork since the last seal.
    best: AtomicU64,
    attempts: AtomicU32,
    /// Nanoseconds of the longest seal.
    price: AtomicU64,
    /// Forks of this process before it sealed anything.
    plain: Timed,
    /// What these took on average; 0 when there were none, and in clones.
    plain_mean: AtomicU64,
    /// Forks since the seal, or since the last look.
    trial: Timed,
}

impl Policy {
    pub(crate) const fn new() -> Policy {
        Policy {
            engine: AtomicU8::new(Engine::Fork as u8),
            at_once: AtomicU8::new(0),
            lost: AtomicU64::new(0),
            best: AtomicU64::new(SEALED_FORK_NS),
            attempts: AtomicU32::new(0),
            price: AtomicU64::new(0),
            plain: Timed::new(),
            plain_mean: AtomicU64::new(0),
            trial: Timed::new(),
        }
    }

    fn engine(&self) -> u8 {
        self.engine.load(Relaxed)
    }

    fn wants_seal(&self) -> bool {
        if [Engine::Fork as u8, Engine::Odf as u8].contains(&self.engine()) {
            return false;
        }
        let attempts = self.attempts.load(Relaxed);
        if attempts == 0 && (self.engine() == Engine::Seal as u8 || self.at_once.load(Relaxed) != 0) {
            return true;
        }
        let lost = self.lost.load(Relaxed);
        let sealed_once = self.price.load(Relaxed) != 0;
        if lost < SEALED_FORK_NS || sealed_once && self.engine() == Engine::Auto as u8 {
            return false;
        }
        let price = match self.price.load(Relaxed) {
            0 => sys::peak_rss() / 1024 * SEAL_NS_PER_KB,
            measured => measured,
        };
        lost >= price.saturating_mul(1 << attempts.min(20))
    }

    fn seal(&self) {
        let sealed = seal_waiting(Pages::Auto, Wait::No);
        stats().seal(&sealed);
        self.attempts.fetch_add(1, Relaxed);
        self.lost.store(0, Relaxed);
        if let Ok(outcome) = sealed.outcome
            && outcome.sealed > 0
        {
            self.price.fetch_max(outcome.elapsed_ns, Relaxed);
            let (count, ns) = self.plain.take();
            stats().before.add(count, ns);
            self.plain_mean.store(ns.checked_div(count).unwrap_or(0), Relaxed);
            self.trial.take();
        }
    }

    fn note(&self, sealed: bool, ns: u64) {
        let best = if sealed { self.best.fetch_min(ns, Relaxed).min(ns) } else { SEALED_FORK_NS };
        self.lost.fetch_add(ns.saturating_sub(best), Relaxed);
        if sealed {
            self.trial.add(1, ns);
        } else {
            self.plain.add(1, ns);
        }
    }

    /// Whether the seal has not been worth it.
    fn regrets(&self) -> bool {
        let plain = self.plain_mean.load(Relaxed);
        let auto = self.engine() == Engine::Auto as u8;
        if !auto || plain == 0 || self.trial.count.load(Relaxed) < TRIAL {
            return false;
        }
        let (count, ns) = self.trial.take();
        ns / count > plain / 2
    }

    /// A clone starts anew.
    fn forget(&self) {
        STATE.nobody_inside();
        self.lost.store(0, Relaxed);
        self.plain.take();
        self.plain_mean.store(0, Relaxed);
    }
}

/// Sets how clones are made; before the first call every fork is plain. `at_once`: seal before the first fork even under
/// [`Engine::Auto`] (a fork server, whose warm-up is over when it first forks).
///
/// [`Engine::Odf`], and [`Engine::Auto`] too, ask the kernel to fork on demand. [`Engine::Auto`] takes a no for an answer and
/// goes on with seals; for [`Engine::Odf`] it is an error, and forks are plain. An administrator has to switch on-demand fork on,
/// so where it is on it is wanted; it needs no seal, and works for processes that can't be sealed.
pub fn configure(engine: Engine, at_once: bool) -> Result<(), Unavailable> {
    STATE.policy.at_once.store(u8::from(at_once), Relaxed);
    set_engine(if engine == Engine::Odf { Engine::Fork } else { engine });
    match engine {
        Engine::Odf => odf::enable(),
        // Whatever stands against it: a seal does without.
        Engine::Auto => odf::enable().or(Ok(())),
        Engine::Fork | Engine::Seal => Ok(()),
    }
}

pub(crate) fn set_engine(engine: Engine) {
    STATE.policy.engine.store(engine as u8, Relaxed);
}

/// Has later forks of this process seal nothing. Explicit seals go on as before, and so do forks on demand.
pub fn stop() {
    if STATE.policy.engine() != Engine::Odf as u8 {
        set_engine(Engine::Fork);
    }
}

/// Forks through `real`, which must be libc's `fork` or `_Fork`, sealing first when the policy says so. Returns what `real`
/// returned. `clock` gives nanoseconds: libc's own, which makes no system call that a sandbox might forbid.
pub fn fork(real: impl FnOnce() -> i32, clock: impl Fn() -> u64) -> i32 {
    let policy = &STATE.policy;
    if policy.wants_seal() {
        policy.seal();
    } else if policy.regrets() {
        stop();
        // What can't be made anonymous again stays sealed, and correct.
        let _ = crate::unseal(Range::ALL);
    }
    let kind = match STATE.holds_sealed() {
        _ if policy.engine() == Engine::Odf as u8 => Kind::OnDemand,
        true => Kind::Sealed,
        false => Kind::Plain,
    };
    let start = clock();
    let pid = real();
    if pid > 0 {
        let ns = clock().saturating_sub(start);
        stats().fork(kind, ns);
        policy.note(kind == Kind::Sealed, ns);
    } else if pid == 0 {
        policy.forget();
    }
    pid
}

/// The counters forks and seals are added to.
pub fn stats() -> &'static Stats {
    let shared = STATE.shared_stats.load(Relaxed);
    if shared.is_null() {
        return &STATE.own_stats;
    }
    // SAFETY: `share_stats` was given memory that stays mapped for good; all fields are atomics.
    unsafe { &*shared }
}

/// Counts in memory shared with other processes from now on.
///
/// # Safety
/// `stats` must be aligned, stay mapped and writable for the life of the process and all its clones, and hold nothing but a
/// `Stats`.
pub unsafe fn share_stats(stats: *mut Stats) {
    STATE.shared_stats.store(stats, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_buys_when_the_rent_equals_the_price() {
        let p = Policy::new();
        assert!(!p.wants_seal(), "plain until configured");
        p.engine.store(Engine::Auto as u8, Relaxed);
        let price = sys::peak_rss() / 1024 * SEAL_NS_PER_KB;
        p.note(false, price / 2);
        assert!(!p.wants_seal());
        p.note(false, price);
        assert!(p.wants_seal());
        p.price.store(1, Relaxed);
        assert!(!p.wants_seal(), "auto seals once");
        p.engine.store(Engine::Seal as u8, Relaxed);
        p.attempts.store(1, Relaxed);
        assert!(p.wants_seal());
        p.forget();
        p.note(true, 30_000);
        assert_eq!(p.lost.load(Relaxed), 0, "the best sealed fork is what others are measured against");
        p.note(true, 130_000);
        assert_eq!(p.lost.load(Relaxed), 100_000);
    }

    #[test]
    fn auto_regrets_a_seal_that_did_not_halve_its_forks() {
        let p = Policy::new();
        p.engine.store(Engine::Auto as u8, Relaxed);
        p.plain_mean.store(1000, Relaxed);
        for _ in 1..TRIAL {
            p.note(true, 501);
            assert!(!p.regrets(), "too early");
        }
        p.note(true, 501);
        assert!(p.regrets());
        (0..TRIAL).for_each(|_| p.note(true, 500));
        assert!(!p.regrets(), "it was worth it");
        p.forget();
        (0..TRIAL).for_each(|_| p.note(true, 5000));
        assert!(!p.regrets(), "a clone does not judge its parent's seal");
    }

    #[test]
    fn seal_engine_and_fork_servers_seal_at_once_and_only_once() {
        let p = Policy::new();
        p.engine.store(Engine::Seal as u8, Relaxed);
        assert!(p.wants_seal());
        p.attempts.store(1, Relaxed);
        assert!(!p.wants_seal());
        let p = Policy::new();
        p.engine.store(Engine::Auto as u8, Relaxed);
        p.at_once.store(1, Relaxed);
        assert!(p.wants_seal());
        for never in [Engine::Fork, Engine::Odf] {
            p.engine.store(never as u8, Relaxed);
            assert!(!p.wants_seal());
        }
    }
}

//! The fork path: what happens around a program's own fork.
//!
//! It runs in the async-signal context of other people's programs: it reads a clock, adds to counters and, when the policy says so,
//! seals. It never allocates, parses configuration or calibrates.

use crate::odf::{self, Unavailable};
use crate::range::Range;
use crate::seal::seal_for_policy;
use crate::state::STATE;
use crate::stats::{Kind, Stats, Timed};
use crate::sys;
use crate::text::{decimal, read_file, words};
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

/// What a page fault takes between two forks, in nanoseconds: of a page that is this process's alone again, and of a sealed one,
/// which is copied; and what the fork after takes longer for a page table that came into being, and for a page in it
/// (`docs/POLICY.md`). Constants: nothing may be calibrated in a program's fork.
const FAULT_NS: u64 = 700;
const SEALED_FAULT_NS: u64 = 1_800;
const TABLE_NS: u64 = 2_000;
const PAGE_NS: u64 = 25;

/// After how many forks of sealed memory `auto` looks whether the seal was worth it.
const TRIAL: u64 = 16;

/// State of the policy: buy when the rent paid equals the price (the ski-rental rule), then see whether it was worth it.
///
/// What counts is a cycle: a fork, and the page faults up to the next one. `auto` does not seal when the faults it has seen would
/// cost more than the forks would gain. Once sealed, it adds up what cycles take longer than they took before; when that is half of
/// what a seal costs, or when more than half of the sealed memory has been written and so exists twice, it makes the memory
/// anonymous again. It may seal anew later, for four times the rent. [`Engine::Seal`] stays sealed. Both seal anew what was written
/// since, sparsely written blocks only: each time forks must have lost twice as much as for the one before.
pub(crate) struct Policy {
    engine: AtomicU8,
    at_once: AtomicU8,
    /// Nanoseconds that forks took beyond what a sealed fork takes, since the last seal.
    lost: AtomicU64,
    /// Shortest fork since the last seal.
    best: AtomicU64,
    attempts: AtomicU32,
    /// Times that `auto` has made memory anonymous again.
    regretted: AtomicU32,
    /// Nanoseconds of the longest seal.
    price: AtomicU64,
    /// Forks of this process before it sealed anything.
    plain: Timed,
    /// Cycles of memory as it is now, sealed or not.
    cycles: Timed,
    /// What a cycle took on average before the seal; 0 when there was none, and in clones.
    plain_cycle: AtomicU64,
    /// Page faults of these cycles, and of this process up to its last fork.
    faults: AtomicU64,
    faults_before: AtomicU64,
    /// Nanoseconds that cycles of sealed memory took longer.
    regret: AtomicU64,
    /// Bytes sealed, and anonymous memory right after that.
    sealed_bytes: AtomicU64,
    anonymous: AtomicU64,
}

impl Policy {
    pub(crate) const fn new() -> Policy {
        Policy {
            engine: AtomicU8::new(Engine::Fork as u8),
            at_once: AtomicU8::new(0),
            lost: AtomicU64::new(0),
            best: AtomicU64::new(SEALED_FORK_NS),
            attempts: AtomicU32::new(0),
            regretted: AtomicU32::new(0),
            price: AtomicU64::new(0),
            plain: Timed::new(),
            cycles: Timed::new(),
            plain_cycle: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            faults_before: AtomicU64::new(0),
            regret: AtomicU64::new(0),
            sealed_bytes: AtomicU64::new(0),
            anonymous: AtomicU64::new(0),
        }
    }

    fn engine(&self) -> u8 {
        self.engine.load(Relaxed)
    }

    fn is_auto(&self) -> bool {
        self.engine() == Engine::Auto as u8
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
        if lost < SEALED_FORK_NS {
            return false;
        }
        let price = match self.price.load(Relaxed) {
            0 => sys::peak_rss() / 1024 * SEAL_NS_PER_KB,
            measured => measured,
        };
        let times = (attempts + self.regretted.load(Relaxed)).min(20);
        if lost < price.saturating_mul(1 << times) {
            return false;
        }
        if self.is_auto() && !self.holds() && !self.would_gain() {
            // What the program does may change: pay rent anew.
            self.lost.store(0, Relaxed);
            self.start_over();
            return false;
        }
        true
    }

    /// Whether there is memory that the policy has sealed.
    fn holds(&self) -> bool {
        self.sealed_bytes.load(Relaxed) != 0 && STATE.holds_sealed()
    }

    /// Whether a cycle would take less if memory were sealed, as far as its page faults tell.
    fn would_gain(&self) -> bool {
        let (count, ns) = (self.cycles.count.load(Relaxed), self.cycles.ns.load(Relaxed));
        let Some(now) = ns.checked_div(count) else { return true };
        let faults = self.faults.load(Relaxed) / count;
        let tables = faults.min(sys::peak_rss() >> 21);
        SEALED_FORK_NS + faults * (SEALED_FAULT_NS + PAGE_NS) + tables * TABLE_NS < now / 10 * 9
    }

    /// The averages of cycles begin anew.
    fn start_over(&self) {
        self.cycles.take();
        self.faults.store(0, Relaxed);
    }

    fn seal(&self) {
        let resealed = self.holds();
        let sealed = seal_for_policy();
        stats().seal(&sealed);
        self.attempts.fetch_add(1, Relaxed);
        self.lost.store(0, Relaxed);
        if let Ok(outcome) = sealed.outcome
            && outcome.sealed > 0
        {
            self.price.fetch_max(outcome.elapsed_ns, Relaxed);
            let (count, ns) = self.plain.take();
            stats().before.add(count, ns);
            let (count, ns) = self.cycles.take();
            if resealed {
                self.sealed_bytes.fetch_max(outcome.sealed, Relaxed);
            } else {
                self.plain_cycle.store(ns.checked_div(count).unwrap_or(0), Relaxed);
                self.sealed_bytes.store(outcome.sealed, Relaxed);
            }
            self.regret.store(0, Relaxed);
            self.anonymous.store(anonymous_memory().unwrap_or(0), Relaxed);
            self.start_over();
        }
    }

    fn note(&self, sealed: bool, ns: u64, faults: u64) {
        let best = if sealed { self.best.fetch_min(ns, Relaxed).min(ns) } else { SEALED_FORK_NS };
        self.lost.fetch_add(ns.saturating_sub(best), Relaxed);
        if !sealed {
            self.plain.add(1, ns);
        }
        self.cycles.add(1, ns + faults * if sealed { SEALED_FAULT_NS } else { FAULT_NS });
        self.faults.fetch_add(faults, Relaxed);
    }

    /// Whether the seal has not been worth it.
    fn regrets(&self) -> bool {
        let plain = self.plain_cycle.load(Relaxed);
        if !self.is_auto() || plain == 0 || !self.holds() || self.cycles.count.load(Relaxed) < TRIAL {
            return false;
        }
        let (count, ns) = self.cycles.take();
        self.faults.store(0, Relaxed);
        let regret =
            self.regret.fetch_add(ns.saturating_sub(plain * count), Relaxed) + ns.saturating_sub(plain * count);
        regret > self.price.load(Relaxed) / 2 || self.exists_twice()
    }

    /// Whether more than half of what was sealed has been written since: those pages are in the memfd and in memory.
    fn exists_twice(&self) -> bool {
        let more = anonymous_memory().unwrap_or(0).saturating_sub(self.anonymous.load(Relaxed));
        more > self.sealed_bytes.load(Relaxed) / 2
    }

    /// Makes memory anonymous again. What can't be stays sealed, and correct.
    fn unseal(&self) {
        self.regretted.fetch_add(1, Relaxed);
        let _ = crate::unseal(Range::ALL);
        self.lost.store(0, Relaxed);
        self.regret.store(0, Relaxed);
        self.start_over();
    }

    /// Page faults since the last fork. Only `auto` counts them: others make no system call here.
    fn count_faults(&self) -> u64 {
        if !self.is_auto() {
            return 0;
        }
        let now = sys::minor_faults();
        let before = self.faults_before.swap(now, Relaxed);
        if before == 0 { 0 } else { now.saturating_sub(before) }
    }

    /// A clone starts anew.
    fn forget(&self) {
        STATE.nobody_inside();
        self.lost.store(0, Relaxed);
        self.plain.take();
        self.start_over();
        self.plain_cycle.store(0, Relaxed);
        self.faults_before.store(0, Relaxed);
    }
}

/// Bytes of resident memory that no file holds (`/proc/self/statm`).
fn anonymous_memory() -> Option<u64> {
    let mut buf = [0; 128];
    let text = read_file(c"/proc/self/statm", &mut buf).ok()?;
    let mut numbers = words(text).skip(1).filter_map(decimal);
    let (resident, shared) = (numbers.next()?, numbers.next()?);
    Some(resident.saturating_sub(shared) * sys::PAGE as u64)
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
    let faults = policy.count_faults();
    if policy.regrets() {
        policy.unseal();
    } else if policy.wants_seal() {
        policy.seal();
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
        policy.note(kind == Kind::Sealed, ns, faults);
        // Not the faults of the seal.
        policy.count_faults();
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

    fn auto() -> Policy {
        let p = Policy::new();
        p.engine.store(Engine::Auto as u8, Relaxed);
        p
    }

    #[test]
    fn auto_buys_when_the_rent_equals_the_price() {
        let p = Policy::new();
        assert!(!p.wants_seal(), "plain until configured");
        let p = auto();
        let price = sys::peak_rss() / 1024 * SEAL_NS_PER_KB;
        p.note(false, price / 2, 0);
        assert!(!p.wants_seal());
        p.note(false, price, 0);
        assert!(p.wants_seal());
        p.price.store(price, Relaxed);
        p.regretted.store(2, Relaxed);
        assert!(!p.wants_seal(), "after a regret the rent is higher");
        p.note(false, 3 * price, 0);
        assert!(p.wants_seal());
        p.forget();
        p.note(true, 30_000, 0);
        assert_eq!(p.lost.load(Relaxed), 0, "the best sealed fork is what others are measured against");
        p.note(true, 130_000, 0);
        assert_eq!(p.lost.load(Relaxed), 100_000);
    }

    #[test]
    fn auto_does_not_buy_what_page_faults_would_eat_up() {
        let p = auto();
        p.price.store(1_000_000, Relaxed);
        // 10 ms forks, 20,000 pages written between two of them.
        p.note(false, 10_000_000, 20_000);
        assert!(!p.wants_seal());
        assert_eq!(p.lost.load(Relaxed), 0, "and pays rent anew");
        p.note(false, 10_000_000, 1_000);
        assert!(p.wants_seal());
    }

    #[test]
    fn a_look_back_weighs_whole_cycles() {
        let p = auto();
        let cycles = |p: &Policy, ns, faults| (0..TRIAL).for_each(|_| p.note(true, ns, faults));
        STATE.set_sealed();
        p.plain_cycle.store(1_000_000, Relaxed);
        p.price.store(8_000_000, Relaxed);
        p.sealed_bytes.store(u64::MAX, Relaxed);
        cycles(&p, 500_000, 200);
        assert!(!p.regrets(), "it was worth it");
        cycles(&p, 500_000, 300);
        assert!(!p.regrets(), "it loses 40 us a cycle, far less than another change would cost");
        cycles(&p, 500_000, 500);
        assert!(p.regrets(), "400 us a cycle");
        p.forget();
        cycles(&p, 5_000_000, 0);
        assert!(!p.regrets(), "a clone does not judge its parent's seal");
    }

    #[test]
    fn memory_that_exists_twice_is_made_anonymous() {
        let p = auto();
        p.sealed_bytes.store(1 << 40, Relaxed);
        assert!(!p.exists_twice());
        p.sealed_bytes.store(4096, Relaxed);
        assert!(p.exists_twice(), "this test's own memory is more");
    }

    #[test]
    fn seal_engine_and_fork_servers_seal_at_once_and_only_once() {
        let p = Policy::new();
        p.engine.store(Engine::Seal as u8, Relaxed);
        assert!(p.wants_seal());
        p.attempts.store(1, Relaxed);
        assert!(!p.wants_seal());
        let p = auto();
        p.at_once.store(1, Relaxed);
        assert!(p.wants_seal());
        for never in [Engine::Fork, Engine::Odf] {
            p.engine.store(never as u8, Relaxed);
            assert!(!p.wants_seal());
        }
    }
}

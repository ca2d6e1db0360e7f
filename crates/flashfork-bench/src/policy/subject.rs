//! One run: a fresh parent that writes and forks.

use std::time::{Duration, Instant};

use flashfork_core::fork::{Engine, configure};
use serde::{Deserialize, Serialize};

use crate::fork::{Method, Region};
use crate::worker::Subject;
use crate::{BenchError, parent};

/// Words in a page.
const WORDS: usize = 512;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Who {
    /// Nobody: plain forks.
    Fork,
    /// Sealed before the first fork, and anew as the engine `seal` does.
    Seal,
    /// The policy.
    Auto,
}

impl Who {
    pub(crate) const ALL: [Self; 3] = [Self::Fork, Self::Seal, Self::Auto];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fork => "fork",
            Self::Seal => "seal",
            Self::Auto => "auto",
        }
    }
}

/// What to prepare.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub who: Who,
    pub thp: bool,
    pub size: u64,
    pub cpu: usize,
}

/// A request: cycles that write so many pages each, with the time taken at each of `marks`, ascending.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub pages: usize,
    pub marks: Vec<usize>,
    /// No further mark is waited for after so many milliseconds.
    pub budget: u64,
}

/// A parent.
#[derive(Debug)]
pub(crate) struct PolicySubject {
    region: Region,
    who: Who,
}

impl Subject for PolicySubject {
    const NAME: &'static str = "policy";
    type Spec = Spec;
    type Ready = ();
    type Ask = Ask;
    /// Microseconds from the first cycle to each mark that was reached.
    type Reply = Vec<f64>;

    fn prepare(spec: Spec) -> Result<(Self, ()), BenchError> {
        let method = if spec.thp { Method::ForkThp } else { Method::Fork4k };
        let region = parent::Spec { method, size: spec.size, cpu: spec.cpu }.fill()?;
        Ok((Self { region, who: spec.who }, ()))
    }

    fn answer(&mut self, ask: Ask) -> Result<Vec<f64>, BenchError> {
        let engine = match self.who {
            Who::Fork => Engine::Fork,
            Who::Seal => Engine::Seal,
            Who::Auto => Engine::Auto,
        };
        configure(engine, false).map_err(|e| BenchError::Unable(format!("engine {engine:?}: {e:?}")))?;
        let mut random = fastrand::Rng::with_seed(1);
        let mut taken = Vec::new();
        let begin = Instant::now();
        for cycle in 1..=ask.marks.last().copied().unwrap_or(0) {
            for _ in 0..ask.pages {
                let at = random.usize(..self.region.pages()) * WORDS;
                // What is there already: the check at the end stays simple, and a write is a write.
                self.region.write(at, self.region.read(at));
            }
            clone_that_ends()?;
            if ask.marks.contains(&cycle) {
                taken.push(begin.elapsed().as_secs_f64() * 1e6);
                if begin.elapsed() > Duration::from_millis(ask.budget) {
                    break;
                }
            }
        }
        self.region.verify()?;
        Ok(taken)
    }
}

/// A fork whose child ends at once.
fn clone_that_ends() -> Result<(), BenchError> {
    let failed = |what: &str| BenchError::Unable(format!("{what}: {}", std::io::Error::last_os_error()));
    // SAFETY: the child ends at once, by a call that is async-signal-safe.
    let pid = flashfork_core::fork::fork(|| unsafe { libc::fork() }, clock);
    match pid {
        // SAFETY: ends the child without the parent's exit handlers.
        0 => unsafe { libc::_exit(0) },
        pid if pid < 0 => Err(failed("fork")),
        pid => {
            let mut status = 0;
            // SAFETY: waits for our own child.
            match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
                ended if ended == pid && status == 0 => Ok(()),
                _ => Err(failed(&format!("a clone ended with status {status:#x}"))),
            }
        }
    }
}

fn clock() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one struct timespec to a local; with this clock it can't fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

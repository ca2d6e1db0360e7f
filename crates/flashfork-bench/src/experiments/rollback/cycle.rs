//! The worker whose region goes back, or which forks instead, after each input's accesses.

use std::time::Instant;

use flashfork_core::Pages;
use flashfork_core::region::{Region, Way};
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use super::{Measure, unable};
use crate::subjects::engine::{self, Side};
use crate::subjects::{Method, PAGE};
use flashfork_measure::sampling::Visit;
use flashfork_measure::worker::Subject;
use flashfork_measure::{BenchError, pin};

/// Pages read and pages written in a cycle.
const READ: usize = 25;
const WRITTEN: usize = 25;
/// Pages that are accessed again and again, where accesses are hot. Reads go to those behind them, too.
const HOT: usize = 64;
const NEAR: usize = 8;
/// Cycles of a visit, and those before them that aren't counted: caches are full of the other workers' data.
const CYCLES: usize = 60;
const UNCOUNTED: usize = 4;

/// How one input's writes are kept from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kept {
    /// The region drops them.
    Dropping,
    /// It copies them back.
    Copying,
    /// Whichever it finds cheaper.
    Automatic,
    /// A clone makes them.
    Fork,
}

impl Kept {
    pub(crate) const ALL: [Kept; 4] = [Kept::Dropping, Kept::Copying, Kept::Automatic, Kept::Fork];

    /// Its name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dropping => "dropping",
            Self::Copying => "copying",
            Self::Automatic => "automatic",
            Self::Fork => "fork",
        }
    }
}

/// Where accesses go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Accesses {
    /// To the same few pages.
    Hot,
    /// Anywhere.
    Scattered,
}

impl Accesses {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Scattered => "scattered",
        }
    }
}

/// What a worker prepares.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CycleSpec {
    pub size: u64,
    pub accesses: Accesses,
    pub kept: Kept,
    pub cpu: usize,
}

/// A sealed region.
#[derive(Debug)]
pub(crate) struct CycleSubject {
    spec: CycleSpec,
    region: Region,
    random: fastrand::Rng,
    hot: Vec<usize>,
}

impl Subject for CycleSubject {
    const NAME: &'static str = "rollback-cycle";
    type Spec = CycleSpec;
    /// Whether it goes back as asked for.
    type Ready = bool;
    type Ask = ();
    type Reply = Visit<Measure>;

    fn prepare(spec: CycleSpec) -> Result<(Self, bool), BenchError> {
        pin::pin(spec.cpu)?;
        for file in engine::own_code() {
            flashfork::code::trust(&file).map_err(|e| BenchError::Unable(e.to_string()))?;
        }
        let mut region = super::prepare(spec.size, Pages::Auto)?;
        if spec.kept == Kept::Fork {
            engine::seal(engine::Pages::Auto, 0)?;
        }
        let way = match spec.kept {
            Kept::Dropping | Kept::Fork => Some(Way::Drop),
            Kept::Copying => Some(Way::Copy),
            Kept::Automatic => None,
        };
        region.go_back_by(way);
        region.rollback().map_err(unable)?;
        let is_so = spec.kept != Kept::Copying || region.next_way() == Way::Copy;
        let mut random = fastrand::Rng::with_seed(spec.size);
        let pages = region.range().len() / PAGE;
        let hot = (0..HOT).map(|_| random.usize(..pages)).collect();
        Ok((Self { spec, region, random, hot }, is_so))
    }

    fn answer(&mut self, (): ()) -> Result<Visit<Measure>, BenchError> {
        let (mut taken, mut all) = (Vec::new(), Vec::new());
        for cycle in 0..CYCLES + UNCOUNTED {
            let (read, written) = self.choose();
            let begin = Instant::now();
            match self.spec.kept {
                Kept::Fork => self.fork(&read, &written)?,
                _ => {
                    self.access(&read, &written);
                    self.region.rollback().map_err(unable)?;
                }
            }
            let took = begin.elapsed();
            if cycle >= UNCOUNTED {
                taken.push(took.as_nanos() as f64 / 1e3);
            }
            all.extend(written);
        }
        self.check(&all)?;
        // What the check has read would be in the first cycle's way.
        self.region.rollback().map_err(unable)?;
        Ok(vec![(Measure::Cycle, taken)])
    }
}

impl CycleSubject {
    fn pages(&self) -> usize {
        self.region.range().len() / PAGE
    }

    fn byte(&self, page: usize, at: usize) -> *mut u8 {
        assert!(page < self.pages() && at < PAGE);
        (self.region.range().start + page * PAGE + at) as *mut u8
    }

    fn choose(&mut self) -> ([usize; READ], [usize; WRITTEN]) {
        let pages = self.pages();
        let Self { random, hot, spec, .. } = self;
        let mut any = |near: usize| match spec.accesses {
            Accesses::Hot => (hot[random.usize(..HOT)] + random.usize(..near)) % pages,
            Accesses::Scattered => random.usize(..pages),
        };
        ([0; READ].map(|_| any(NEAR)), [0; WRITTEN].map(|_| any(1)))
    }

    fn access(&self, read: &[usize], written: &[usize]) {
        for (read, written) in read.iter().zip(written) {
            // SAFETY: inside the region, which this process's one thread uses by such pointers only.
            unsafe {
                self.byte(*read, 64).read_volatile();
                let byte = self.byte(*written, 128);
                byte.write_volatile(!byte.read_volatile());
            }
        }
    }

    fn fork(&self, read: &[usize], written: &[usize]) -> Result<(), BenchError> {
        // SAFETY: the child accesses memory and ends.
        match unsafe { engine::fork(Method::Seal) }.map_err(|e| BenchError::system("fork", e))? {
            Side::Child => {
                self.access(read, written);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) }
            }
            Side::Parent(pid) => match engine::reap(pid)? {
                status if WaitStatus::exit_status(status) == Some(0) => Ok(()),
                status => Err(BenchError::Void(format!("a clone ended with {status:?}"))),
            },
        }
    }

    /// Looks at pages that have been written.
    fn check(&self, pages: &[usize]) -> Result<(), BenchError> {
        let wrong = pages.iter().find(|page| {
            // SAFETY: inside the region, and aligned.
            let number = unsafe { self.byte(**page, 0).cast::<usize>().read_volatile() };
            // SAFETY: as above.
            number != **page || unsafe { self.byte(**page, 128).read_volatile() } != super::FILL
        });
        wrong.map_or(Ok(()), |page| Err(BenchError::Void(format!("page {page} did not go back"))))
    }
}

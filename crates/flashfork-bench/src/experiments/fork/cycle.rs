//! One clone: fork, let it work, reap it, and look at its exit status every time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::WaitStatus;

use super::probe::Probe;
use crate::subjects::Method;
use crate::subjects::engine::{self, Side};
use crate::subjects::{Region, WORDS_PER_PAGE, word};
use flashfork_measure::BenchError;

/// A clone that read something else than it should.
const WRONG_DATA: i32 = 3;

/// A page shared with the clones, for their times.
#[derive(Debug)]
pub(super) struct SharedPage(&'static AtomicU64);

impl SharedPage {
    pub(super) fn new() -> Result<Self, BenchError> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 8, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED) }
                .map_err(|errno| BenchError::system("map a page to share with clones", errno))?;
        // SAFETY: page-aligned, zeroed, never unmapped, and reached through atomics only.
        Ok(Self(unsafe { &*page.cast::<AtomicU64>() }))
    }
}

/// What one clone took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// The fork call in the parent.
    pub call: Duration,
    /// From before the fork until the clone was reaped.
    pub cycle: Duration,
    /// The work in the clone, when it was timed there.
    pub child: Option<Duration>,
}

/// The words a clone touches. Reads use even words and writes odd ones, so that they never meet.
#[derive(Debug)]
pub(super) struct Work {
    probe: Probe,
    reads: [usize; 100],
    writes: [usize; 25],
    expected: u64,
}

impl Work {
    /// Random words of `region` for `probe`.
    pub(super) fn random(probe: Probe, region: &Region, random: &mut fastrand::Rng) -> Self {
        let mut work = Self { probe, reads: [0; 100], writes: [0; 25], expected: 0 };
        let (reads, writes) = probe.touches();
        let mut pick =
            |odd| random.usize(..region.pages()) * WORDS_PER_PAGE + 2 * random.usize(..WORDS_PER_PAGE / 2) + odd;
        work.reads[..reads].fill_with(|| pick(0));
        work.writes[..writes].fill_with(|| pick(1));
        work.expected = work.reads[..reads].iter().fold(0, |sum, &index| sum ^ word(index));
        work
    }

    /// Touches the words and returns whether what was read is what was filled in. Neither allocates nor locks.
    #[inline(never)]
    fn perform(&self, region: &Region) -> bool {
        let (reads, writes) = self.probe.touches();
        let mut found = 0;
        for turn in 0..reads.max(writes) {
            if turn < reads {
                found ^= region.read(self.reads[turn]);
            }
            if turn < writes {
                region.write(self.writes[turn], !word(self.writes[turn]));
            }
        }
        found == self.expected
    }
}

/// Makes one clone that performs `work`.
pub(super) fn cycle(method: Method, region: &Region, work: &Work, page: &SharedPage) -> Result<Timing, BenchError> {
    page.0.store(0, Ordering::Relaxed);
    let begin = Instant::now();
    // SAFETY: the child calls async-signal-safe functions only (it neither allocates nor locks) and ends in `_exit`.
    match unsafe { engine::fork(method) } {
        Ok(Side::Child) => child(region, work, page),
        Ok(Side::Parent(pid)) => {
            let call = begin.elapsed();
            let status = engine::reap(pid)?;
            let cycle = begin.elapsed();
            check(work.probe, status)?;
            let nanoseconds = page.0.load(Ordering::Relaxed);
            let child = work.probe.timed_in_child().then_some(Duration::from_nanos(nanoseconds));
            Ok(Timing { call, cycle, child })
        }
        Err(error) => Err(BenchError::system("fork", error)),
    }
}

fn child(region: &Region, work: &Work, page: &SharedPage) -> ! {
    let right = if work.probe.timed_in_child() {
        // The first look at the clock and the first touch of the shared page fault: before the clock starts.
        page.0.store(Instant::now().elapsed().as_nanos() as u64, Ordering::Relaxed);
        let begin = Instant::now();
        let right = work.perform(region);
        page.0.store(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        right
    } else {
        work.perform(region)
    };
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(if right { 0 } else { WRONG_DATA }) }
}

fn check(probe: Probe, status: WaitStatus) -> Result<(), BenchError> {
    let why = match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => return Ok(()),
        (Some(WRONG_DATA), _) => "it read other bytes than its parent had written".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => format!("wait status {}", status.as_raw()),
    };
    Err(BenchError::Clone { what: format!("doing '{probe:?}'"), status: why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_of_each_kind_finds_its_data_and_leaves_the_parents_alone() {
        let region = Region::filled(Method::Fork4k, 1 << 20).unwrap();
        let page = SharedPage::new().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for probe in Probe::ALL {
            let work = Work::random(probe, &region, &mut random);
            let timing = cycle(Method::Fork4k, &region, &work, &page).unwrap();
            assert!(timing.cycle >= timing.call && timing.call > Duration::ZERO, "{timing:?}");
            assert_eq!(timing.child.is_some(), probe.timed_in_child());
            assert!(timing.child.is_none_or(|child| !child.is_zero() && child < timing.cycle), "{timing:?}");
        }
        region.verify().unwrap();
    }

    #[test]
    fn a_clone_that_finds_other_bytes_is_an_error() {
        let region = Region::filled(Method::Fork4k, 1 << 20).unwrap();
        let mut work = Work::random(Probe::Reads, &region, &mut fastrand::Rng::with_seed(2));
        work.expected ^= 1;
        let error = cycle(Method::Fork4k, &region, &work, &SharedPage::new().unwrap()).unwrap_err();
        assert!(error.to_string().contains("other bytes"), "{error}");
    }

    #[test]
    fn reads_and_writes_never_meet() {
        let region = Region::filled(Method::Fork4k, 8192).unwrap();
        let work = Work::random(Probe::Mixed, &region, &mut fastrand::Rng::with_seed(3));
        assert!(work.reads[..25].iter().all(|index| index % 2 == 0));
        assert!(work.writes.iter().all(|index| index % 2 == 1));
        assert!(work.reads.iter().chain(&work.writes).all(|&index| index < 1024));
    }
}

//! `bench all`: every experiment about process creation, one after the other, for the report.
//!
//! An experiment that can't run here is left out with its reason; the others go on. A run that is interrupted ends with what
//! it has.

use std::time::{Duration, Instant};

use crate::access::{self, AccessMixOptions, FaultOptions};
use crate::check::{self, CheckOptions};
use crate::cow_model::{self, CowModelOptions, Grid};
use crate::creation::{self, CreationOptions};
use crate::fork::{self, ForkOptions};
use crate::host::HostCard;
use crate::record::{Document, Missing};
use crate::size::Size;
use crate::write_fraction::{self, WriteFractionOptions};
use crate::{BenchError, Outcome, Progress};

/// Memory of the parents whose pages are touched, in a quick run and a full one.
const TOUCHED: [u64; 2] = [128 << 20, 512 << 20];

/// Runs one experiment.
type Run = Box<dyn Fn(&mut dyn Progress) -> Result<Outcome, BenchError>>;

/// One experiment of the run.
struct Part {
    name: &'static str,
    /// About how long it takes on two CPUs, in seconds: for the time left.
    seconds: u64,
    run: Run,
}

/// Runs everything, with fewer samples and sizes when `quick`.
pub fn run(quick: bool, progress: &mut dyn Progress) -> Result<Document, BenchError> {
    let host = HostCard::read()?;
    let parts = parts(quick);
    let mut document = Document::new(host, Vec::new());
    for (number, part) in parts.iter().enumerate() {
        if progress.interrupted() {
            let reason = "the run was interrupted".to_owned();
            document.missing.push(Missing { experiment: part.name.to_owned(), cell: "all".to_owned(), reason });
            continue;
        }
        let left = parts[number..].iter().map(|part| part.seconds).sum();
        let before = format!("{}/{} {}", number + 1, parts.len(), part.name);
        let mut stage = Stage { inner: progress, before, left: Duration::from_secs(left), begun: Instant::now() };
        match (part.run)(&mut stage) {
            Ok(outcome) => {
                document.records.extend(outcome.document.records);
                document.missing.extend(outcome.document.missing);
            }
            // A clone that went wrong is no reason to go on.
            Err(error @ BenchError::Clone { .. }) => return Err(error),
            Err(error) => {
                progress.note(&format!("left out: {}: {error}", part.name));
                let reason = error.to_string();
                document.missing.push(Missing { experiment: part.name.to_owned(), cell: "all".to_owned(), reason });
            }
        }
    }
    Ok(document)
}

fn parts(quick: bool) -> Vec<Part> {
    let size = Size(TOUCHED[usize::from(!quick)]);
    let part = |name, seconds: [u64; 2], run: Run| Part { name, seconds: seconds[usize::from(!quick)], run };
    vec![
        part(creation::EXPERIMENT, [30, 240], {
            let options = CreationOptions { quick, ..CreationOptions::default() };
            Box::new(move |progress| creation::run(&options, progress))
        }),
        part(fork::EXPERIMENT, [60, 600], {
            let options = ForkOptions { quick, ..ForkOptions::default() };
            Box::new(move |progress| fork::run(&options, progress))
        }),
        part(cow_model::EXPERIMENT, [35, 190], {
            let options = CowModelOptions { grid: Grid::Modern, quick };
            Box::new(move |progress| cow_model::run(&options, progress))
        }),
        part(access::FAULT, [10, 70], {
            let options = FaultOptions { size, quick };
            Box::new(move |progress| access::fault(&options, progress))
        }),
        part(access::ACCESS_MIX, [28, 250], {
            let options = AccessMixOptions { size, quick };
            Box::new(move |progress| access::access_mix(&options, progress))
        }),
        part(write_fraction::EXPERIMENT, [10, 30], {
            let runs = if quick { 1 } else { 5 };
            let options = WriteFractionOptions { runs, ..WriteFractionOptions::default() };
            Box::new(move |progress| write_fraction::run(&options, progress))
        }),
        part(check::EXPERIMENT, [20, 40], {
            let options = CheckOptions { quick };
            Box::new(move |progress| check::run(&options, progress))
        }),
    ]
}

/// Progress of one experiment as part of all.
struct Stage<'a> {
    inner: &'a mut dyn Progress,
    before: String,
    left: Duration,
    begun: Instant,
}

impl Progress for Stage<'_> {
    fn begin(&mut self, what: &str, steps: u64) {
        let left = self.left.saturating_sub(self.begun.elapsed()).as_secs().div_ceil(60).max(1);
        self.inner.begin(&format!("{}: {what} (about {left} min left)", self.before), steps);
    }

    fn step(&mut self) {
        self.inner.step();
    }

    fn note(&mut self, line: &str) {
        self.inner.note(line);
    }

    fn interrupted(&self) -> bool {
        self.inner.interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_keeps_to_its_time() {
        let seconds = |quick| parts(quick).iter().map(|part| part.seconds).sum::<u64>();
        assert!(seconds(true) <= 4 * 60 && seconds(false) <= 40 * 60);
    }

    /// Wants to stop before anything is measured.
    struct Stopped;

    impl Progress for Stopped {
        fn begin(&mut self, _: &str, _: u64) {}
        fn step(&mut self) {}
        fn note(&mut self, _: &str) {}
        fn interrupted(&self) -> bool {
            true
        }
    }

    #[test]
    fn what_an_interrupted_run_left_out_is_said() {
        let document = run(true, &mut Stopped).unwrap();
        assert!(document.records.is_empty());
        assert_eq!(document.missing.len(), parts(true).len());
        assert!(document.missing.iter().all(|missing| missing.reason.contains("interrupted")));
    }
}

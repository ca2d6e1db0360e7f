//! The methods in turn, slice by slice, and then each once more for the same number of executions.

use std::path::Path;
use std::time::Duration;

use super::FuzzOptions;
use super::campaign::{self, Until};
use super::measured::{EqualWork, Results, Slice};
use super::process::Setup;
use crate::fork::Method;
use crate::order::shuffled_rounds;
use crate::{BenchError, Progress};

/// Below this share of huge pages, what was measured would not be huge pages. A heap begins and ends between them, so a
/// small one never is all huge.
const MOSTLY_HUGE: f64 = 0.5;
/// Added to the number of a slice for AFL's random seed: the same inputs for every method, others in every slice.
const SEED: u64 = 9;

/// Runs all campaigns, each in a directory of its own within `work`.
pub(super) fn measure(
    options: &FuzzOptions,
    setup: &Setup,
    work: &Path,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let mut methods = Method::STOCK.to_vec();
    let time = Duration::from_secs_f64(f64::from(options.seconds) / f64::from(options.slices));
    for (slice, order) in shuffled_rounds(options.slices as usize, methods.len(), SEED).into_iter().enumerate() {
        for method in order.into_iter().map(|index| Method::STOCK[index]) {
            if !methods.contains(&method) {
                continue;
            }
            let what = format!("slice {} of {}, {method}", slice + 1, options.slices);
            progress.begin(&what, time.as_secs());
            let seed = SEED + slice as u64;
            let dir = work.join(format!("{method}-{slice}"));
            let campaign = campaign::run(setup, method, seed, Until::Time(time), &dir, progress)?;
            let huge = campaign.pages.huge_fraction();
            if method == Method::ForkThp && huge < MOSTLY_HUGE {
                let share = huge * 100.0;
                let flaw =
                    format!("left out: method {method}: the heap got huge pages for only {share:.0} % of its memory");
                progress.note(&flaw);
                results.notes.push(flaw);
                methods.retain(|&other| other != method);
                continue;
            }
            results.slices.push(Slice { method, slice, seed, campaign });
        }
    }
    equal_work(setup, &methods, work, results, progress)
}

/// Runs every method for as many executions as the slowest managed in its first slice.
fn equal_work(
    setup: &Setup,
    methods: &[Method],
    work: &Path,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let first = results.slices.iter().filter(|slice| slice.slice == 0);
    let Some(executions) = first.map(|slice| slice.campaign.afl.executions).min() else { return Ok(()) };
    for &method in methods {
        progress.begin(&format!("{executions} executions, {method}"), 0);
        let dir = work.join(format!("{method}-equal"));
        let campaign = campaign::run(setup, method, SEED, Until::Executions(executions), &dir, progress)?;
        results.equal.push(EqualWork { method, executions: campaign.afl.executions, afl: campaign.afl });
    }
    Ok(())
}

//! The methods in turn, slice by slice, and then each once more for the same number of executions.

use std::path::Path;
use std::time::Duration;

use super::FuzzOptions;
use super::campaign::{self, Until};
use super::found::{self, Run};
use super::process::Setup;
use crate::subjects::Method;
use flashfork_measure::experiment::Results;
use flashfork_measure::order::shuffled_rounds;
use flashfork_measure::{BenchError, Progress};

/// Below this share of huge pages, what was measured would not be huge pages. A heap begins and ends between them, so a
/// small one never is all huge.
const MOSTLY_HUGE: f64 = 0.5;
/// Added to the number of a slice for AFL's random seed: the same inputs for every method, others in every slice.
const SEED: u64 = 9;

/// The campaigns of one run.
pub(super) struct Runs<'a> {
    pub options: &'a FuzzOptions,
    pub setup: &'a Setup,
    /// Bytes of the database.
    pub database_bytes: u64,
    pub results: &'a mut Results,
    pub progress: &'a mut dyn Progress,
}

impl Runs<'_> {
    /// Runs all campaigns, each in a directory of its own within `work`.
    pub(super) fn measure(&mut self, work: &Path) -> Result<(), BenchError> {
        let run = Run { database_bytes: self.database_bytes, cpu: self.setup.cpu };
        let mut methods = Method::STOCK.to_vec();
        let whole = self.slices(run, &mut methods, work);
        for method in found::methods(&self.results.records).collect::<Vec<_>>() {
            let slices = found::slices(&self.results.records, method);
            self.results.records.extend(run.of_slices(method, &slices)?);
        }
        whole?;
        self.equal_work(run, &methods, work)
    }

    /// The methods in turn. One that can't be had as it is meant goes from `methods`.
    fn slices(&mut self, run: Run, methods: &mut Vec<Method>, work: &Path) -> Result<(), BenchError> {
        let (options, seconds) = (self.options, f64::from(self.options.seconds));
        let number = options.slices as usize;
        for (slice, order) in shuffled_rounds(number, methods.len(), SEED).into_iter().enumerate() {
            for (place, method) in order.into_iter().map(|index| Method::STOCK[index]).enumerate() {
                if self.progress.interrupted() {
                    return Ok(());
                }
                if !methods.contains(&method) {
                    continue;
                }
                let what = format!("slice {} of {number}, {method}", slice + 1);
                if self.progress.deadline().passed() {
                    self.results.no_time_for(what, self.progress);
                    continue;
                }
                // The slices to come, and about as many for equal work.
                let share =
                    1.0 / ((number - slice) * methods.len() - place.min(methods.len() - 1) + methods.len()) as f64;
                let time =
                    Duration::from_secs_f64(seconds / number as f64).min(self.progress.deadline().part(share).left());
                self.progress.begin(&what, time.as_secs());
                let seed = SEED + slice as u64;
                let dir = work.join(format!("{method}-{slice}"));
                let Some(campaign) = campaign::run(self.setup, method, seed, Until::Time(time), &dir, self.progress)?
                else {
                    return Ok(());
                };
                let huge = campaign.pages.huge_fraction();
                if method == Method::ForkThp && huge < MOSTLY_HUGE {
                    let flaw = format!("the heap got huge pages for only {:.0} % of its memory", huge * 100.0);
                    self.results.leave_out(method.name(), flaw, self.progress);
                    methods.retain(|&other| other != method);
                    continue;
                }
                self.results.records.push(run.slice(method, slice, seed, &campaign)?);
            }
        }
        Ok(())
    }

    /// Runs every method for as many executions as the slowest managed in its first slice.
    fn equal_work(&mut self, run: Run, methods: &[Method], work: &Path) -> Result<(), BenchError> {
        let first = |&method: &Method| Some(found::slices(&self.results.records, method).first()?.afl.executions);
        let Some(executions) = methods.iter().filter_map(first).min() else { return Ok(()) };
        for &method in methods {
            if self.progress.interrupted() {
                return Ok(());
            }
            if self.progress.deadline().passed() {
                self.results.no_time_for(format!("equal work, {method}"), self.progress);
                continue;
            }
            self.progress.begin(&format!("{executions} executions, {method}"), 0);
            let dir = work.join(format!("{method}-equal"));
            let until = Until::Executions(executions);
            match campaign::run(self.setup, method, SEED, until, &dir, self.progress)? {
                // Less than the whole would be no equal work.
                Some(campaign) if campaign.afl.executions >= executions => {
                    self.results.records.push(run.equal(method, &campaign.afl)?);
                }
                Some(_) | None => return Ok(()),
            }
        }
        Ok(())
    }
}

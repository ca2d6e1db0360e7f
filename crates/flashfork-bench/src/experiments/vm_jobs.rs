//! `bench vm-jobs`: jobs in virtual machines that were booted, cloned and rolled back.
//!
//! A C program is compiled, or a Java program with a heavy start estimates π: it loads thousands of classes and warms
//! up, then takes jobs. A template of the first has compiled once, so that compiler and headers are in its page cache;
//! one of the second is taken when the program waits for its first job. A machine that boots does all of that for one
//! job, but for the compilation before.
//!
//! Each CPU has a machine at a time, and begins a new one as soon as a job is done. A request is the machine's claim,
//! rollback or boot, from nothing, until the job's output is there and checked. The shells are driven as the daemon
//! drives them; what makes one before its claim is no part of a request, but of the throughput.
//!
//! The paper's Java job is Spark's example, of which this is the same estimate with as many points, without Spark: its
//! package is 300 MB.
//!
//! References: HyperFork (2020), sections 4.2 and 4.3, figures 10 to 12.

mod found;
mod guests;
mod options;
mod report;
mod run;

pub use options::VmJobsOptions;

use std::fs::File;

use crate::subjects::memory;
use crate::subjects::vm_host::{Host, MemoryPages, linux};
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::sampling::{Effort, sample};
use flashfork_measure::{BenchError, Progress};
use found::{Cell, Method};
use guests::{Guests, Kind};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-jobs";

/// Left to the rest of the machine and to what clones write.
const RESERVE: u64 = 1 << 30;

impl Experiment for VmJobsOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What jobs in virtual machines take that were booted, cloned and rolled back";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        let works = self.works();
        let mut kinds: Vec<Kind> = works.iter().flat_map(|work| work.kinds()).copied().collect();
        kinds.sort_unstable();
        kinds.dedup();
        // Templates on pages of both kinds.
        let needed = 2 * kinds.iter().map(|kind| kind.memory()).sum::<u64>() + RESERVE;
        memory::require(&memory::headroom()?, "templates and their clones".to_owned(), needed)?;
        let image = here.cache("bench")?.join("vm-jobs.ext4");
        let disk = File::open(&image).map_err(|error| {
            BenchError::Unable(format!(
                "no disk for the guests at {}: {error}; make it with scripts/vm-jobs-image",
                image.display()
            ))
        })?;
        let guest = linux::guest(here, progress)?;
        progress.begin("templates of guests that wait for jobs", kinds.len() as u64);
        let mut guests = Guests::new(&host, guest, disk);
        for kind in kinds {
            if progress.interrupted() {
                return Ok(());
            }
            let huge_fraction = guests.add(kind)?;
            if guests.template(kind, MemoryPages::Thp).is_none() {
                let why = format!("only {:.0} % of it got 2 MB pages", huge_fraction * 100.0);
                results.leave_out(format!("{}, template on 2 MB pages", kind.name()), why, progress);
            }
            progress.step();
        }
        let all = works.iter().flat_map(|work| Method::ALL.map(|method| Cell { work: *work, method }));
        let cells: Vec<Cell> = all.filter(|cell| guests.can(*cell)).collect();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let effort = Effort::rounds(self.rounds()).until(progress.deadline());
        progress.begin("interleaved rounds of jobs", effort.steps());
        let (sampled, done) = sample(cells.len(), &effort, cells.len() as u64, progress, |cell, _| {
            run::batch(&guests, cells[cell], cpus)
        });
        for (cell, series) in cells.iter().zip(&sampled.cells) {
            series.iter().try_for_each(|series| cell.keep(cpus, series, sampled.ended, results))?;
        }
        done
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

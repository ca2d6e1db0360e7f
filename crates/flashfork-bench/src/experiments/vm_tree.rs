//! `bench vm-tree`: applications over one database over one kernel, as a tree of templates, against templates that each
//! began with a boot, and against machines that boot.
//!
//! What HyperFork's thesis leaves open: a kernel is booted once; in a clone of it, which gets the database's disk, the
//! database is started once; a fork of that clone is a template, of which each application's machine is a clone that
//! gets the application's disk. The database is Redis with some thousand keys. An application has started when it has
//! asked the database.
//!
//! - tree: as above, by the daemon.
//! - templates: each application has a kernel and a database of its own, and a template of both.
//! - boots: each application's machine boots and starts the database. One disk has all, because a machine that boots
//!   can have only one; it is driven as the daemon drives its machines, without one.
//!
//! All three applications are alive at the end of each way, when its memory is counted: all processes', what kernel and
//! KVM hold for them, templates, and the one shell that the daemon keeps ready. Rounds take the ways in turn.
//!
//! References: HyperFork (2020), section 5.2, "Virtual machine trees".

mod boots;
mod daemon;
mod found;
mod guest;
mod options;
mod report;
mod templates;

pub use options::VmTreeOptions;

use std::path::PathBuf;
use std::time::Duration;

use crate::subjects::held::Counter;
use crate::subjects::memory;
use crate::subjects::vm_host::{Host, linux};
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::sampling::{Effort, Visit, sample};
use flashfork_measure::{BenchError, Progress};
use found::{Found, Measure, Way};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-tree";

/// Memory of every guest in MiB.
const MEMORY_MIB: u32 = 256;
/// The applications, each on a disk of its own.
const APPS: [&str; 3] = ["blog", "shop", "wiki"];
/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

/// After so long the kernel has freed some of what it puts off, or counted some of what it was late to count.
const QUIET: Duration = Duration::from_millis(700);
/// What memory in use may differ by from one moment to the next, in bytes, when nothing happens.
const STEADY: f64 = 1e6;
/// How often is waited for that.
const LOOKS: usize = 60;

/// What all ways need.
struct Setup<'a> {
    host: &'a Host,
    here: &'a dyn Places,
    guest: flashfork_image::guest::Guest,
    /// The directory with the disks.
    disks: PathBuf,
    counter: Counter,
}

impl Setup<'_> {
    /// Bytes in use, as soon as they stay the same: machines that have ended take a while to be gone.
    fn used(&self) -> Result<f64, BenchError> {
        let mut last = self.counter.used()?;
        for _ in 0..LOOKS {
            std::thread::sleep(QUIET);
            let now = self.counter.used()?;
            if (now - last).abs() < STEADY {
                return Ok(now);
            }
            last = now;
        }
        Err(BenchError::Unable(
            "memory in use doesn't stay the same; something else runs: repeat when it doesn't".into(),
        ))
    }
}

impl Experiment for VmTreeOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What a tree of templates saves: applications over one database over one kernel";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        let disks = here.cache("bench")?.join("vm-tree");
        if let Some(missing) = ["database", "whole"].iter().chain(&APPS).find(|name| !disks.join(name).is_file()) {
            return Err(BenchError::Unable(format!(
                "no disk {missing} in {}; make the disks with scripts/vm-tree-images",
                disks.display()
            )));
        }
        // Of each application a template and a machine.
        let needed = 2 * APPS.len() as u64 * (u64::from(MEMORY_MIB) << 20) + RESERVE;
        memory::require(&memory::headroom()?, "three templates and their clones".to_owned(), needed)?;
        let guest = linux::guest(here, progress)?;
        let setup = Setup { host: &host, here, guest, disks, counter: Counter::new() };
        let effort = Effort::rounds(self.rounds()).until(progress.deadline());
        progress.begin("interleaved rounds of trees, templates and boots", effort.steps());
        let (sampled, done) = sample(Way::ALL.len(), &effort, 1, progress, |way, _| visit(&setup, Way::ALL[way]));
        for (way, series) in Way::ALL.iter().zip(&sampled.cells) {
            let counted = setup.counter.name();
            series.iter().try_for_each(|series| found::keep(*way, counted, series, sampled.ended, results))?;
        }
        done
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

/// All applications once.
fn visit(setup: &Setup<'_>, way: Way) -> Result<Visit<Measure>, BenchError> {
    let mut found = Found::default();
    match way {
        Way::Tree => templates::tree(setup, &mut found)?,
        Way::Templates => templates::separate(setup, &mut found)?,
        Way::Boots => boots::boots(setup, &mut found)?,
    }
    Ok(found.0)
}

//! `bench vm-clone`: what it costs to clone a virtual machine, against booting one, by size of its memory.
//!
//! Shells wait as in the daemon's pool; a clone is timed from before its request is encoded and sent to a shell's
//! socket until the client has read that the guest's first exit was seen, and with Linux guests until the agent's first
//! reply. All memory of a template is there, so its size is real. Booting creates everything from nothing: VM,
//! interrupt controllers, timer, CPU, memory slot, memory; without the process, jail and socket that a shell has
//! besides.
//!
//! References: HyperFork (2020), section 4.3, figures 7 and 8.

mod density;
mod found;
mod linux;
mod options;
mod plan;
mod report;
mod targets;
mod tiny;

pub use options::{GuestKind, VmCloneOptions};

use crate::subjects::vm_host::Host;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-clone";

impl Experiment for VmCloneOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What a clone of a virtual machine costs by size of its memory, against booting one";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        let plan = Plan::new(self)?;
        plan.missing.iter().for_each(|(cell, why)| results.leave_out(cell, why, progress));
        for (index, guest) in plan.guests.iter().enumerate() {
            if progress.interrupted() {
                break;
            }
            if progress.deadline().passed() {
                results.no_time_for(format!("{} guests", guest.name()), progress);
                continue;
            }
            let deadline = progress.deadline().part(1.0 / (plan.guests.len() - index) as f64);
            match guest {
                GuestKind::Tiny => {
                    tiny::measure(&host, &plan, deadline, results, progress)?;
                    density::measure(&host, &plan, results, progress)?;
                }
                GuestKind::Linux => linux::measure(&host, here, &plan, deadline, results, progress)?,
            }
        }
        Ok(())
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn figure(document: &Document) -> Option<Result<String, BenchError>> {
        let own: Vec<_> = document.records.iter().filter(|record| record.experiment == EXPERIMENT).collect();
        (!own.is_empty()).then(|| crate::figure::of_machines(&own, &document.host))
    }
}

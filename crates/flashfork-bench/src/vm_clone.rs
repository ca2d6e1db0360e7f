//! `bench vm-clone`: what it costs to clone a virtual machine, against booting one, by size of its memory.
//!
//! Shells wait as in the daemon's pool; a clone is timed from before its request is encoded and sent to a shell's socket until
//! the client has read that the guest's first exit was seen, and with Linux guests until the agent's first reply. All memory of
//! a template is there, so its size is real. Booting creates everything from nothing: VM, interrupt controllers, timer, CPU,
//! memory slot, memory; without the process, jail and socket that a shell has besides.
//!
//! References: HyperFork (2020), section 4.3, figures 7 and 8.

mod density;
pub(crate) mod held;
mod linux;
mod measured;
mod options;
mod plan;
mod report;
mod targets;
mod tiny;

pub use options::{GuestKind, VmCloneOptions};

use crate::record::Document;
use crate::vm_host::{Ground, Installed};
use crate::{BenchError, Outcome, Progress};
use measured::Results;
use plan::Plan;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-clone";

/// Runs the experiment: waits for the machine-wide lock, refuses sizes that don't fit before allocating anything, measures.
pub fn run(
    options: &VmCloneOptions,
    installed: &Installed,
    progress: &mut dyn Progress,
) -> Result<Outcome, BenchError> {
    let ground = Ground::new(installed, progress)?;
    let host = &ground.host;
    let plan = Plan::new(options)?;
    let mut results = Results { notes: plan.notes.clone(), ..Results::default() };
    for guest in &plan.guests {
        match guest {
            GuestKind::Tiny => {
                tiny::measure(host, &plan, &mut results, progress)?;
                density::measure(host, &plan, &mut results, progress)?;
            }
            GuestKind::Linux => linux::measure(host, installed, &plan, &mut results, progress)?,
        }
    }
    let table = report::render(&ground.card, &plan, &results);
    Ok(Outcome { document: Document::new(ground.card, results.records()?), table })
}

//! `bench vm-memory`: what touching memory costs a guest that was booted, and a clone.
//!
//! A guest goes over its memory four times and has the monitor time each pass, as in HyperFork (2020), section 4.2 and figure 9:
//! 1. unbacked: just booted, the host has no page behind any of the guest's;
//! 2. backed: the same once more;
//! 3. after the fork, in the clone: every page is shared with the template, and a write copies it;
//! 4. backed: the same once more.
//!
//! Unlike the thesis's program, which fills all memory, this one touches one word in every 4 KB: what is left is the price of a
//! page, not of writing 4 KB. Guests run a few bytes of code without a kernel, so the guest's own page tables have no part in it.

mod code;
mod measured;
mod options;
mod passes;
mod report;

pub use options::VmMemoryOptions;

use crate::record::Document;
use crate::vm_host::{Ground, Installed, available};
use crate::{BenchError, Outcome, Progress, memory};
use measured::Results;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-memory";

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

/// Runs the experiment: waits for the machine-wide lock, refuses a size that doesn't fit before allocating anything, measures.
pub fn run(
    options: &VmMemoryOptions,
    installed: &Installed,
    progress: &mut dyn Progress,
) -> Result<Outcome, BenchError> {
    let ground = Ground::new(installed, progress)?;
    let host = &ground.host;
    let size = options.size.0;
    // The guest, a template that is a copy of it, and a clone that has copied it all.
    memory::require(
        &memory::headroom()?,
        format!("a guest of {}, its template and its clone", options.size),
        3 * size + RESERVE,
    )?;
    let (pages, missing) = available(size, 2)?;
    let mut results = Results { size, notes: Vec::from_iter(missing), ..Results::default() };
    passes::measure(host, &pages, options.rounds as usize, &mut results, progress)?;
    let table = report::render(&ground.card, &results);
    Ok(Outcome { document: Document::new(ground.card, results.records()?), table })
}

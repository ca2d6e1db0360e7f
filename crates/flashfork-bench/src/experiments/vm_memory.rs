//! `bench vm-memory`: what touching memory costs a guest that was booted, and a clone.
//!
//! A guest goes over its memory four times and has the monitor time each pass, as in HyperFork (2020), section 4.2 and
//! figure 9:
//! 1. unbacked: just booted, the host has no page behind any of the guest's;
//! 2. backed: the same once more;
//! 3. after the fork, in the clone: every page is shared with the template, and a write copies it;
//! 4. backed: the same once more.
//!
//! Unlike the thesis's program, which fills all memory, this one touches one word in every 4 KB: what is left is the
//! price of a page, not of writing 4 KB. Guests run a few bytes of code without a kernel, so the guest's own page
//! tables have no part in it.

mod code;
mod found;
mod options;
mod passes;
mod report;

pub use options::VmMemoryOptions;

use crate::subjects::memory;
use crate::subjects::vm_host::{Host, available};
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-memory";

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

impl Experiment for VmMemoryOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What touching memory costs in a virtual machine that was booted, and in a clone";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        let size = self.size.0;
        // The guest, a template that is a copy of it, and a clone that has copied it all.
        let what = format!("a guest of {}, its template and its clone", self.size);
        memory::require(&memory::headroom()?, what, 3 * size + RESERVE)?;
        let (pages, short) = available(size, 2)?;
        short.into_iter().for_each(|why| results.leave_out("hugetlb", why, progress));
        passes::measure(&host, size, &pages, self.rounds as usize, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

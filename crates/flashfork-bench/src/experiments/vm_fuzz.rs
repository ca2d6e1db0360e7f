//! `bench vm-fuzz`: what one execution of a target costs that needs a machine of its own, by how that comes to be, as
//! in On-demand-fork (EuroSys 2021), section 5.3.4 and figure 10.
//!
//! The target writes to so many pages, pairs of them spread over all of a tiny guest's memory, and is done. Before each
//! execution its guest is
//! - taken back to its template, which copies what was written, or drops it. These machines are in this process: the
//!   way through a shell's socket is the same for both, and left out. The guest has no page tables, so that it can be
//!   copied back whatever KVM's paging is; a shell drops where KVM keeps shadows of page tables;
//! - made anew, a clone of the template in a shell of its own, which is started, claimed and ended;
//! - booted, in such a shell.

mod code;
mod execution;
mod options;
mod report;

pub use options::VmFuzzOptions;

use crate::subjects::memory;
use crate::subjects::vm_host::Host;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-fuzz";

/// Left to the rest of the machine and to the clones.
const RESERVE: u64 = 512 << 20;

/// What comes before an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Copy,
    Drop,
    Clone,
    Boot,
}

impl Way {
    const ALL: [Self; 4] = [Self::Copy, Self::Drop, Self::Clone, Self::Boot];

    /// As records name it.
    fn name(self) -> &'static str {
        match self {
            Self::Copy => "rollback, copying",
            Self::Drop => "rollback, dropping",
            Self::Clone => "clone",
            Self::Boot => "boot",
        }
    }
}

impl Experiment for VmFuzzOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str =
        "What fuzzing takes in virtual machines that are taken back, cloned or booted each time";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        memory::require(&memory::headroom()?, format!("a template of {}", self.size), 2 * self.size.0 + RESERVE)?;
        execution::measure(&host, self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

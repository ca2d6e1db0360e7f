//! `bench vm-fork`: what it costs to fork a clone of a virtual machine while it runs: how long it stands still by size
//! of its memory, and how long claims of its clones take by how many forks lie between them and the template that
//! booted.
//!
//! 1. A clone writes 1 % of its memory, then reads all of it, so that all of it is mapped. From then on it writes a
//!    page every so many ticks of its time stamp counter, always another one. It is forked a few times in a row. The
//!    monitor says how long each pause was; a counter in the guest's memory says what was written meanwhile. What is
//!    mapped is looked at in the pause, so there are two kinds of guests: one whose template is on 4 KB pages and that
//!    writes all over them, and one on the 2 MB pages that the monitor makes where it can, whose writes lie together.
//! 2. A guest writes to some pages and is forked, its clone writes to some others, half of which it had written to
//!    before, and is forked, and so on. Clones of the templates that come of that are timed from before the request is
//!    encoded and sent to a shell that waits, primed or not, until the client has read that the guest's first exit was
//!    seen. Each adds up what all levels have written, and is believed only if that is right.
//!
//! Shells are driven as the daemon drives them. The guests run a few bytes of code without a kernel, and nobody asks an
//! agent in them for the signal to fork, as `flashfork vm fork --now` doesn't.

mod claims;
mod code;
mod found;
mod options;
mod pauses;
mod report;

pub use options::VmForkOptions;

use crate::subjects::memory;
use crate::subjects::vm_host::Host;
use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};
use flashfork_terminal::size::Size;
use found::Guest;

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "vm-fork";

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

impl Experiment for VmForkOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "What it costs to fork a virtual machine while it runs, and to clone what that gives";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let host = Host::open(here)?;
        let sizes = self.sizes();
        let (smallest, largest) = (sizes[0], sizes[sizes.len() - 1]);
        let names: Vec<String> = sizes.iter().map(|size| Size(*size).to_string()).collect();
        // A clone and the copy that a fork makes of it have no more than all of its memory.
        let needed = Guest::ALL.len() as u64 * sizes.iter().sum::<u64>() + 2 * largest + RESERVE;
        memory::require(&memory::headroom()?, format!("templates of {} and a fork", names.join(", ")), needed)?;
        pauses::measure(&host, &sizes, self, results, progress)?;
        if progress.interrupted() {
            return Ok(());
        }
        claims::measure(&host, smallest, self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

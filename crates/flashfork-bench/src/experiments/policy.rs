//! `bench policy`: a parent that writes some of its memory and forks, again and again: plain, sealed, and as `auto`
//! decides.
//!
//! What counts is the whole: writes, forks, clones that end at once, and the seals in between, divided by the number of
//! forks. Each run is a process of its own and begins with nothing sealed, because a policy learns. `auto` is held
//! against the best of the others on the same kind of memory (4 KB pages, or THP), over all forks so far and over the
//! latest ones alone.

mod figure;
mod options;
mod report;
mod rounds;
mod subject;

pub use options::PolicyOptions;
pub(crate) use subject::PolicySubject;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::worker::Registered;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "policy";

impl Experiment for PolicyOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str =
        "What `auto` decides beside plain forks and a seal, by size, written share and number of forks";
    const WORKERS: &'static [Registered] = &[Registered::of::<PolicySubject>()];

    fn measure(&self, _: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }

    fn figure(document: &Document) -> Option<Result<String, BenchError>> {
        let cells = report::cells(document);
        (!cells.is_empty()).then(|| figure::draw(&cells))
    }
}

//! `bench threads`: clones of programs with all of their threads (`flashfork warm --threads`), beside the same programs
//! started anew, and beside the best that their runtimes offer against long starts.
//!
//! Four things are timed. *Running*: from the request until the caller hears that the clone runs, by the library in
//! this process. A clone says so when its threads are made, the last thing before it opens the gate at which they wait;
//! it opens that when its caller has been told. *Served*: from the same request until a server has answered one of HTTP
//! that is made again and again. *First answer*: from the start of the command until its first line is there, or, of a
//! server, until it has answered such a request. *Whole*: until the command has ended. No program sleeps while it is
//! warmed, so that starting it anew is not made longer.

mod memory;
mod options;
mod program;
mod report;
mod rounds;
mod runs;
mod server;

pub use options::ThreadsOptions;
pub use program::Family;

use flashfork_measure::experiment::{Experiment, Places, Results};
use flashfork_measure::record::Document;
use flashfork_measure::{BenchError, Progress};

/// The name of this experiment in records.
pub const EXPERIMENT: &str = "threads";

impl Experiment for ThreadsOptions {
    const NAME: &'static str = EXPERIMENT;
    const ABOUT: &'static str = "Programs with threads, started anew and cloned: Java, Node, Python with numpy";

    fn measure(&self, here: &dyn Places, results: &mut Results, progress: &mut dyn Progress) -> Result<(), BenchError> {
        rounds::measure(self, here, results, progress)
    }

    fn page(document: &Document) -> String {
        report::render_all(document)
    }
}

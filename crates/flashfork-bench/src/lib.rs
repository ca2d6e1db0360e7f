//! Experiments on real software, and what they need to be trusted: interleaved workers, every sample kept, a host card.
//!
//! # How an experiment is built
//! - [`worker`]: each measured configuration lives in its own process, prepared once, then asked for batches of samples.
//! - [`order`]: the coordinator asks the workers in a random order within each round, so that drift can't pass for a ratio.
//! - [`sampling`]: the rules in one loop: random order, warm-up, as many rounds as it takes or there is time for, every sample
//!   kept, and a run that is interrupted or fails keeps what it has.
//! - [`lock`], [`pin`], [`memory`]: one experiment at a time on a machine, on a known CPU, and only when it fits.
//! - [`database`], [`heap`], [`workdir`]: the database of the SQLite experiments, the pages a program's heap is made of, and a
//!   temporary directory that is gone however a run ends.
//! - [`stats`], [`record`], [`host`], [`table`], [`figure`]: what was measured, where, and how sure it is.
//! - [`all`], [`report`], [`compare`], [`warnings`]: every experiment in one run, the page about it, two runs beside each other,
//!   and what to beware of.
//! - [`advise`]: no experiment: what a running process's forks cost, from the host's cost model; [`forecasts`] says how near that is.
//!
//! # Adding an experiment
//! A module whose options (deriving `clap::Args`) implement [`Experiment`], and one line in [`experiments::ALL`]: command line,
//! help, man page, `bench all` and workers follow. [`experiment::run`] does what all have in common: it takes the machine-wide
//! lock, reads the host card, hands a [`experiment::Results`] to [`Experiment::measure`], and renders [`Experiment::page`] from the
//! document. What was measured before a failure or an interruption is kept ([`BenchError::Unfinished`]), unless the failure
//! makes it worthless ([`BenchError::voids`]). For what is left:
//! - `Results::leave_out` is for cells that can't be measured, `experiment::page` for the page.
//! - a type implementing [`worker::Subject`] measures in a process of its own; [`Experiment::WORKERS`] names it.
//! - `parent::Spec` starts a worker whose memory is held in one way, and says when it isn't what it is called.
//! - [`sampling::sample`] measures; `Effort::until` keeps it within [`Progress::deadline`], `Deadline::part` divides that among
//!   stages.
//!
//! A [`record::Record`] is told from all others by what was chosen for it, and has what was observed beside it. The experiment
//! says which is which where it makes its records; two that can't be told apart end its tests.
//!
//! The crate prints nothing and reads no environment variable; the caller shows [`progress::Progress`] and [`Outcome::table`].

pub mod access;
pub mod advise;
pub mod all;
pub mod check;
pub mod clones;
pub mod compare;
pub mod cow_model;
pub mod creation;
pub mod database;
mod deadline;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod figure;
#[cfg(test)]
mod flags;
pub mod forecasts;
pub mod fork;
pub mod fuzz;
pub mod heap;
pub mod host;
mod hugetlb;
pub mod lock;
pub mod memory;
mod once;
pub mod order;
mod parent;
pub mod pin;
pub mod policy;
pub mod profile;
pub mod progress;
pub mod record;
pub mod redis;
pub mod report;
pub mod rollback;
pub mod sampling;
pub mod seal_threads;
pub mod size;
pub mod stats;
pub mod table;
mod target;
pub mod unit_test;
pub mod vm_clone;
mod vm_host;
pub mod vm_memory;
pub mod warm;
pub mod warnings;
pub mod workdir;
pub mod worker;
pub mod write_fraction;

pub use deadline::Deadline;
pub use error::BenchError;
pub use experiment::{Experiment, Places};
pub use progress::{Progress, Silent};
pub use worker::worker_main;

/// What an experiment hands back: the records for machines and the table for people.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Every record with every sample, and the host card.
    pub document: record::Document,
    /// The result as plain text, without a trailing newline.
    pub table: String,
}

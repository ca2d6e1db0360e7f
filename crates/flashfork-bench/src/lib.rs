//! Experiments on real software. How they measure is [`flashfork_measure`]'s; what they measure is in `subjects`.
//!
//! # Adding an experiment
//! A module in [`experiments`] whose options (deriving `clap::Args`) implement [`flashfork_measure::Experiment`], and
//! one line in [`experiments::ALL`]: command line, help, man page, `bench all` and workers follow.
//! [`flashfork_measure::experiment::run`] does what all have in common: it takes the machine-wide lock, reads the host
//! card, hands a `Run` to `Experiment::measure`, and renders `Experiment::page` from the document. What was
//! measured before a failure or an interruption is kept (`BenchError::Unfinished`), unless the failure makes it
//! worthless (`BenchError::voids`). For what is left:
//! - `Run::sample` measures cells in interleaved rounds within `Progress::deadline` and keeps each as a `Row`;
//!   `Deadline::part` divides the time among stages.
//! - `Run::leave_out` is for cells that can't be measured.
//! - [`flashfork_measure::experiment::page`] and [`flashfork_measure::cells`] are for the page.
//! - a type implementing `Subject` measures in a process of its own; `Experiment::WORKERS` names it.
//! - `subjects::parent::Spec` starts a worker whose memory is held in one way, and says when it isn't what it is
//!   called.
//!
//! [`experiments::figure`] and [`report`] draw what was found.
//!
//! The library prints nothing and reads no environment variable; the program of `flashfork bench` (`main.rs`) does.

mod advised;
pub mod experiments;
mod figure;
#[cfg(test)]
mod flags;
mod once;
mod prelude;
pub mod report;
mod subjects;

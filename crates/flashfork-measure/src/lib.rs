//! How flashfork measures, whatever is measured: it knows no engine and no virtual machine.
//!
//! - [`worker`], [`order`], [`sampling`]: the rules of docs/MEASURING.md; [`lock`], [`pin`]: one experiment at a time
//!   on a machine, on a known CPU; [`workdir`]: a temporary directory that is gone however a run ends.
//! - [`stats`], [`record`], [`host`], [`target`]: what was measured, where, how sure it is, and whether
//!   promises hold.
//! - [`experiment`], [`run`], [`cells`], [`all`]: what all experiments do in the same way, and every one of a list in
//!   one run.
//! - [`report`], [`plot`], [`compare`], [`warnings`]: the page about a run, its figures, two runs beside each other,
//!   and what to beware of.
//!
//! A [`record::Record`] is told from all others by what was chosen for it, and has what was observed beside it. The
//! experiment says which is which where it makes its records; two that can't be told apart end its tests.
//!
//! The crate prints nothing and reads no environment variable; the caller shows [`progress::Progress`] and
//! [`Outcome::table`].

pub mod all;
pub mod cells;
pub mod compare;
mod deadline;
pub mod error;
pub mod experiment;
pub mod host;
pub mod lock;
pub mod order;
pub mod pin;
pub mod plot;
pub mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod sampling;
pub mod stats;
pub mod target;
pub mod warnings;
pub mod workdir;
pub mod worker;

pub use cells::{median_time, met, shown, spread, spread_of_rounds, table, titled};
pub use deadline::Deadline;
pub use error::{BenchError, OrCant, Result};
pub use experiment::{Experiment, Places, page};
pub use progress::{Progress, Silent};
pub use record::{Document, Record, numbers, ratio_of};
pub use run::{Row, Run};
pub use sampling::{Effort, Visit, by_measure};
pub use stats::{Ratio, Rounds, Summary, median, quantile_of, ratio_of_medians};
pub use target::{Target, Unit, promises};
pub use workdir::WorkDir;
pub use worker::{Registered, Subject, Worker, worker_main};

/// What an experiment hands back: the records for machines and the table for people.
#[derive(Debug, Clone)]
pub struct Outcome {
	/// Every record with every sample, and the host card.
	pub document: record::Document,
	/// The result as plain text, without a trailing newline.
	pub table: String,
}

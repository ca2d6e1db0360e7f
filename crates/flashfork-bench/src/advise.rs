//! What a running process's forks cost, what they would cost otherwise, and what to do about it.
//!
//! The process is read through `/proc` ([`Survey`]) and priced by this host's [`CostModel`] ([`Forecast`]). Nothing in
//! it is changed; only when its writes are to be counted ([`watch`]) it is stopped twice for as long as copying its
//! memory takes.

mod forecast;
mod recommend;
mod survey;
mod text;

pub use forecast::{Engine, Forecast, Outlook};
pub use recommend::{Advice, Recommendation};
pub use survey::{LeftOut, Survey};

use std::ffi::OsString;
use std::time::Duration;

use flashfork::CostModel;

use crate::experiments::write_fraction::{Program, visit};
use crate::subjects::memory;
use flashfork_measure::BenchError;
use flashfork_measure::Progress;

/// How often memory is written between forks.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Dirtied {
    /// Pages of 4 KB.
    pub pages: u64,
    /// Regions of 2 MB these lie in.
    pub regions: u64,
    /// Whether they were counted or assumed.
    pub measured: bool,
}

/// The share of pages assumed to be written between forks when nobody counted.
pub const ASSUMED: f64 = 0.001;

/// Advises about the process `pid`. With `watch`, the writes of that long are counted first; else they are assumed.
///
/// Errors: the process is not there, ends meanwhile, or denies access.
pub fn process(
    pid: i32,
    model: &CostModel,
    watch: Option<Duration>,
    progress: &dyn Progress,
) -> Result<Advice, BenchError> {
    let survey = Survey::of(pid)?;
    let dirtied = match watch {
        Some(during) => {
            let change = visit(pid, during, progress)?;
            Dirtied { pages: change.blocks[0].1, regions: change.blocks[2].1, measured: true }
        }
        None => survey.assumed_dirty(),
    };
    let forecast = Forecast::make(&survey, model, dirtied);
    Ok(Advice::make(survey, forecast, memory::headroom()?.available))
}

/// Starts a command, lets it run for `after`, advises about it and ends it.
pub fn command(
    command: &[OsString],
    model: &CostModel,
    after: Duration,
    watch: Option<Duration>,
    progress: &dyn Progress,
) -> Result<Advice, BenchError> {
    let mut program = Program::command(command, after.as_secs_f64(), 0.0)?;
    program.reach(false, &|| progress.interrupted())?;
    process(program.pid(), model, watch, progress)
}

//! What a running process's forks cost, what they would cost otherwise, and what to do about it.
//!
//! The process is read through `/proc` ([`Survey`]) and priced by this host's [`CostModel`] ([`Forecast`]). Nothing in
//! it is changed; only when its writes are to be counted ([`look`]) it is stopped twice for as long as copying its
//! memory takes.
//!
//! The crate prints nothing and reads no environment variable.

mod error;
mod forecast;
pub mod look;
mod program;
mod recommend;
mod survey;
mod text;

pub use error::AdviseError;
pub use forecast::{Engine, Forecast, Outlook};
pub use program::{Program, Ran};
pub use recommend::{Advice, Recommendation};
pub use survey::{ASSUMED, Dirtied, LeftOut, Survey};

use std::{ffi::OsString, time::Duration};

use flashfork::CostModel;

/// Advises about the process `pid`. With `watch`, the writes of that long are counted first, or those until somebody
/// wants to stop; else they are assumed.
///
/// # Errors
/// The process is not there, ends meanwhile, or denies access.
pub fn process(
	pid: i32,
	model: &CostModel,
	watch: Option<Duration>,
	interrupted: &dyn Fn() -> bool,
) -> Result<Advice, AdviseError> {
	let survey = Survey::of(pid)?;
	let dirtied = match watch {
		Some(during) => {
			let change = look::visit(pid, during, interrupted)?;
			Dirtied { pages: change.blocks[0].1, regions: change.blocks[2].1, measured: true }
		}
		None => survey.assumed_dirty(),
	};
	let forecast = Forecast::make(&survey, model, dirtied);
	Ok(Advice::make(survey, forecast, look::headroom()?.available))
}

/// Starts a command, lets it run for `after`, advises about it and ends it.
///
/// # Errors
/// It can't be started, ends too soon, or somebody wants to stop; and as for [`process`].
pub fn command(
	command: &[OsString],
	model: &CostModel,
	after: Duration,
	watch: Option<Duration>,
	interrupted: &dyn Fn() -> bool,
) -> Result<Advice, AdviseError> {
	let mut program = Program::command(command)?;
	match program.run(after, interrupted)? {
		Ran::Stopped | Ran::InTime => process(program.pid(), model, watch, interrupted),
		Ran::Interrupted => {
			Err(AdviseError::Unable(format!("{}: interrupted before it was looked at", program.name())))
		}
		Ran::Ended(status) => Err(AdviseError::Unable(format!(
			"{} ended ({status}) before it was looked at; choose a smaller --after",
			program.name()
		))),
	}
}

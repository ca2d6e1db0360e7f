//! The worker's side: prepare, then answer until the input closes.

use std::{
	ffi::OsString,
	io::{BufRead, Write},
	process::ExitCode,
};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::Serialize;

use super::{Line, Subject};
use crate::{BenchError, Result, error::OrCant};

/// A subject that worker processes can be started for.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
	name: &'static str,
	/// Serves it over the standard input and output.
	converse: fn() -> Result,
}

impl Registered {
	/// The entry of subject `S`.
	pub const fn of<S: Subject>() -> Self {
		Self { name: S::NAME, converse: converse::<S> }
	}
}

/// The `main` of a worker process for one of `subjects`. `args` are the program's arguments after [`super::ARGUMENT`].
///
/// Must be called before the program starts a thread. Problems are told to the coordinator; the exit status only says
/// whether the conversation itself worked.
pub fn worker_main(
	subjects: impl IntoIterator<Item = Registered>,
	args: impl IntoIterator<Item = OsString>,
) -> ExitCode {
	let mut args = args.into_iter().map(|arg| arg.into_string().unwrap_or_default());
	let (name, parent) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
	let conversation = || {
		die_with(&parent)?;
		let subject = subjects
			.into_iter()
			.find(|subject| subject.name == name)
			.ok_or_else(|| crate::unable!("there is no worker '{name}'; workers are started by 'bench'"))?;
		(subject.converse)()
	};
	match conversation() {
		Ok(()) => ExitCode::SUCCESS,
		// The coordinator may be gone: there is nobody left to tell.
		Err(error) => match say::<()>(&Line::Failed { text: error.to_string(), void: error.voids() }) {
			Ok(()) | Err(_) => ExitCode::FAILURE,
		},
	}
}

/// Has this process killed when its coordinator dies, and makes sure that it hasn't already. `PR_SET_PDEATHSIG`.
fn die_with(parent: &str) -> Result {
	set_parent_process_death_signal(Some(Signal::KILL)).or_cant("tie the worker's life to its coordinator's")?;
	let parent: Option<i32> = parent.parse().ok();
	if parent != getppid().map(Pid::as_raw_pid) {
		return Err(crate::unable!("workers are started by 'bench', not by hand"));
	}
	Ok(())
}

fn converse<S: Subject>() -> Result {
	let mut input = std::io::stdin().lock();
	let Some(spec) = hear(&mut input)? else {
		return Ok(());
	};
	let (mut subject, ready) = S::prepare(spec)?;
	say(&Line::Done(ready))?;
	while let Some(ask) = hear(&mut input)? {
		// A failed request ends the worker: its state may no longer be what the coordinator believes.
		say(&Line::Done(subject.answer(ask)?))?;
	}
	Ok(())
}

/// The next request; `None` when the coordinator has closed the pipe.
fn hear<T: serde::de::DeserializeOwned>(input: &mut impl BufRead) -> Result<Option<T>> {
	let mut line = String::new();
	let length = input.read_line(&mut line).or_cant("read a request")?;
	if length == 0 {
		return Ok(None);
	}
	let request = serde_json::from_str(&line).or_cant("understand a request")?;
	Ok(Some(request))
}

fn say<T: Serialize>(line: &Line<T>) -> Result {
	let failed = |error: std::io::Error| BenchError::system("answer the coordinator", error);
	let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
	text.push(b'\n');
	let mut output = std::io::stdout().lock();
	output.write_all(&text).and_then(|()| output.flush()).map_err(failed)
}

//! `flashfork warm`.

use super::{Ready, WarmArgs, call::environment, caller, list};
use flashfork_templates::{
	Directory, Facts, Moment, Name, Ready as At, ReadyAt, Template, Warm, Warming, is_interpreter, why_unsealed,
};
use flashfork_terminal::{CliError, output, places};
use nix::{
	poll::{PollFd, PollFlags, PollTimeout, poll},
	sys::{signal::Signal, signalfd::SignalFd},
};
use std::{
	ffi::OsStr,
	num::NonZeroU64,
	os::fd::AsFd,
	path::Path,
	process::{ExitCode, Stdio},
	time::Duration,
};

/// Signals that end this command while the program is warmed, and the program, which has no terminal, with it.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// After how long it is said that the program is not ready yet.
const PATIENCE: Duration = Duration::from_secs(5);

pub fn warm(args: &WarmArgs) -> Result<ExitCode, CliError> {
	let names = Directory::open(super::place())?;
	let warm = Template::warm(&names, args.name.clone(), &args.command[0], places::shim()?).args(&args.command[1..]);
	let warm = match (&args.ready, args.threads) {
		(Ready::At(ready), false) => warm.ready(*ready),
		(Ready::At(ready), true) => warm.ready(*ready).threads(Moment::Itself),
		(Ready::When(moment), true) => warm.threads(moment.clone()),
		(Ready::When(_), false) => {
			let line = "a program is ready at a moment that it does not know of only with all of its threads: add --threads, or write --ready main or --ready call";
			return Err(CliError::Unable(line.into()));
		}
	};
	let warm = environment().fold(warm.renews(args.watch), Warm::variable).output(Stdio::inherit(), Stdio::inherit());
	let most = args.max_clones.and_then(NonZeroU64::new);
	let warm = if let Some(clones) = most { warm.max_clones(clones) } else { warm };
	let checked = warm.check()?;
	// From here on a signal is read where it ends the program, too. One that comes when that is ready is too late.
	let signals = caller::take_signals(ENDING.into_iter().filter(|signal| !caller::is_ignored_here(*signal as i32)))?;
	let mut warming = checked.start()?;
	let facts = match until_ready(args, &mut warming, &signals)? {
		Came::Ready(facts) => facts,
		Came::Signal(signal) => {
			drop(warming);
			caller::end_by(signal);
		}
	};
	// Nobody keeps a template that he doesn't know of.
	output::outlive_the_pipe();
	if let Err(e) = output::say(&announcement(&args.name, &args.command[0], &facts, args.threads)) {
		Template::named(&names, args.name.clone()).remove()?;
		output::end_if_closed(&e);
		return Err(e);
	}
	if facts.unwatched > 0 {
		output::complain(&CliError::Unable(format!(
			"changes to {} of the files that {} was made of will not be noticed: they are more than a template can watch",
			facts.unwatched, args.name
		)));
	}
	if args.ready == Ready::At(At::Auto) && facts.at == ReadyAt::Main && is_interpreter(&args.command[0]) {
		let line = format!(
			"{} is ready before main, without having done any of its work: it is no CPython (3.8 or later, with its C API), Perl or Ruby, but a program that starts one, perhaps; warm that one itself",
			args.name
		);
		output::complain(&CliError::Unable(line));
	}
	Ok(ExitCode::SUCCESS)
}

enum Came {
	Ready(Facts),
	Signal(Signal),
}

/// Waits until the program is ready, however long that takes; unless it ends.
fn until_ready(args: &WarmArgs, warming: &mut Warming<'_>, signals: &SignalFd) -> Result<Came, CliError> {
	let mut told = false;
	loop {
		let [process, link] = warming.descriptors();
		let mut ready = [process, signals.as_fd(), link].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
		let patience = if told { None } else { PollTimeout::try_from(PATIENCE).ok() };
		match poll(&mut ready, patience.unwrap_or(PollTimeout::NONE)) {
			Ok(0) => {
				told = true;
				output::complain(&waits(args, warming.listens_elsewhere()));
			}
			Ok(_) | Err(nix::Error::EINTR) => {}
			Err(e) => {
				let command = args.command[0].display();
				return Err(CliError::Unable(format!("can't wait for {command}: {}", e.desc())));
			}
		}
		if let Ok(Some(info)) = signals.read_signal()
			&& let Some(signal) = ENDING.into_iter().find(|signal| *signal as u32 == info.ssi_signo)
		{
			return Ok(Came::Signal(signal));
		}
		if let Some(facts) = warming.advance()? {
			return Ok(Came::Ready(facts));
		}
	}
}

/// What a program that isn't ready after a while has yet to do.
fn waits(args: &WarmArgs, elsewhere: &[u16]) -> CliError {
	let until = match &args.ready {
		Ready::When(Moment::Listen(Some(port))) if !elsewhere.is_empty() => {
			let all = elsewhere.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
			&*format!("until it listens on port {port} (it listens on {all})")
		}
		Ready::At(At::Auto) => "until it has run what it was given, or enters main",
		Ready::At(At::Main) => "until it enters main",
		Ready::At(At::Call) => "until it calls flashfork_ready()",
		Ready::At(At::Runtime) => "until its runtime asks for work",
		Ready::When(Moment::Idle(_)) => "until it is idle",
		Ready::When(Moment::Listen(_)) => "until it listens for connections",
		Ready::When(_) => "until it prints that line",
	};
	CliError::Unable(format!(
		"{} is not ready yet, and may take all the time it needs, {until}; Ctrl-C ends it",
		args.command[0].display()
	))
}

fn announcement(name: &Name, program: &OsStr, facts: &Facts, threads: bool) -> String {
	let cloned = list::where_ready(facts.at);
	let sealed = match why_unsealed(facts) {
		Some(what) => format!("its memory is not sealed ({what}), so clones are plain forks"),
		None => format!("{} of its memory are sealed", list::size(facts.sealed)),
	};
	let sealed = match facts.at {
		ReadyAt::Main => format!(
			"{sealed}; none of its own code has run, so clones do all its work again ({})",
			what_changes_that(program)
		),
		_ => sealed,
	};
	let unnoticed =
		if threads { "; of changes those of its program, libraries and archives alone are noticed" } else { "" };
	format!("{name} is ready {cloned} (process {}); {sealed}{unnoticed}", facts.pid)
}

/// So that clones do less work again. Runtimes and shells can't call, and do all of theirs in `main`.
fn what_changes_that(program: &OsStr) -> &'static str {
	match Path::new(program).file_name().unwrap_or_default().as_encoded_bytes() {
		b"node" | b"nodejs" => "`flashfork warm --threads` changes that: it keeps what Node has loaded",
		b"java" | b"deno" | b"bun" | b"dotnet" => {
			"`flashfork warm --threads` changes that, with a moment at which it is ready: --ready listen, idle:SECONDS or line:REGEX"
		}
		b"bash" | b"sh" | b"dash" | b"ksh" | b"zsh" => {
			"`flashfork warm --threads --ready idle:SECONDS` changes that: clones go on where the script waits for something"
		}
		_ => "flashfork_ready in the program and --ready call change that",
	}
}

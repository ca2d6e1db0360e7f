//! `flashfork clone`.

use super::caller;
use flashfork_templates::{Asked, Error, Listen, Name, News, Renewal, Request, Run, Stale, Template};
use flashfork_terminal::CliError;
use flashfork_warm::{Ask, Job, PASSED_ON};
use nix::{
	poll::{PollFd, PollFlags, PollTimeout, poll},
	sys::{signal::Signal, signalfd::SignalFd},
};
use std::{
	ffi::{CStr, OsStr, OsString},
	os::{
		fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
		unix::ffi::OsStrExt,
	},
};

/// Runs a clone with these arguments to its end, of a template made anew if it is stale and `fresh` says so. Gives the
/// exit code; a signal that ends the clone ends this process.
pub fn clone(name: &Name, arguments: &[OsString], listens: &[Listen], fresh: bool) -> Result<u8, CliError> {
	let names = super::names()?.ok_or_else(|| Error::Nobody(name.clone()))?;
	let template = Template::named(&names, name.clone());
	// The clone blocks and ignores what this process did when it was started.
	let run = template.run().args(arguments).streams(streams()).umask(caller::umask()).one_job();
	let run = environment().fold(run, Run::variable).ignored(caller::ignored()).blocked(caller::blocked());
	let run = listens.iter().fold(run, |run, listen| run.listen(*listen));
	let mut signals = None;
	for turn in 0.. {
		let anew = |stale: &Stale| (fresh || stale.renews) && turn < MOST_TURNS;
		let request = run.connect();
		let signals = match &signals {
			Some(signals) => signals,
			None => signals.insert(self::signals()?),
		};
		let asked = match request.and_then(Request::ask) {
			Err(Error::Stale(stale)) if anew(&stale) => {
				renew(&run, signals)?;
				continue;
			}
			Err(e) if template.is_replaced(&e, None) => continue,
			asked => asked?,
		};
		let process = asked.template();
		match (Running { asked, signals }).attend() {
			Err(Ended::Clone(Error::Stale(stale))) if anew(&stale) => renew(&run, signals)?,
			Err(Ended::Clone(e)) if template.is_replaced(&e, Some(process)) => {}
			ended => return Ok(ended?),
		}
	}
	unreachable!("there is no last turn")
}

/// How often a template is made anew for one clone, where it is stale again as soon as that is done.
const MOST_TURNS: u32 = 20;

/// Makes a template anew, unless somebody else does; then waits for that. A signal that would end this command does.
fn renew(run: &Run<'_>, signals: &SignalFd) -> Result<(), CliError> {
	loop {
		match run.renew()? {
			Renewal::Done => return Ok(()),
			Renewal::Others => wait(&[signals.as_fd()], PollTimeout::try_from(Template::TURN).ok())?,
			Renewal::Warming(mut warming) => loop {
				if warming.advance()?.is_some() {
					return Ok(());
				}
				let [process, link] = warming.descriptors();
				wait(&[process, link, signals.as_fd()], None)?;
				if let Some(signal) = ending(signals) {
					drop(warming);
					caller::end_by(signal);
				}
			},
		}
		if let Some(signal) = ending(signals) {
			caller::end_by(signal);
		}
	}
}

/// Until one of these can be read, or that time is over.
fn wait(all: &[BorrowedFd<'_>], limit: Option<PollTimeout>) -> Result<(), CliError> {
	let mut ready: Vec<_> = all.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
	match poll(&mut ready, limit.unwrap_or(PollTimeout::NONE)) {
		Ok(_) | Err(nix::Error::EINTR) => Ok(()),
		Err(e) => Err(CliError::Unable(format!("can't wait for the template: {}", e.desc()))),
	}
}

/// A signal that has come and ends a command with no clone. Others wait for nobody.
fn ending(signals: &SignalFd) -> Option<Signal> {
	while let Ok(Some(info)) = signals.read_signal() {
		let signal = info.ssi_signo as i32;
		if let Job::Ends = flashfork_warm::job(signal, info.ssi_code, false, !caller::is_ignored_here(signal)) {
			return Signal::try_from(signal).ok();
		}
	}
	None
}

/// Goes on with a clone that this process has asked for over this connection, before it was this program; the clone's
/// process is 0 where it has not started. Signals wait since then.
pub fn go_on(name: Name, connection: RawFd, clone: i32) -> Result<u8, CliError> {
	// SAFETY: takes numbers.
	if unsafe { libc::fcntl(connection, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
		return Err(CliError::Unable(format!("no clone of {name} was asked for that this command could go on with")));
	}
	// SAFETY: it is there, and nobody else's: this process has begun with it.
	let connection = unsafe { OwnedFd::from_raw_fd(connection) };
	let signals = signals()?;
	Ok(Running { asked: Asked::over(connection, name, clone)?, signals: &signals }.attend()?)
}

/// Those that are for the clone, read here.
fn signals() -> Result<SignalFd, CliError> {
	caller::take_signals(PASSED_ON.into_iter().filter_map(|signal| Signal::try_from(signal).ok()))
}

/// This process's own.
fn streams() -> [Option<BorrowedFd<'static>>; 3] {
	// SAFETY: Rust's runtime opens those that are missing.
	[0, 1, 2].map(|stream| (!caller::was_closed(stream)).then(|| unsafe { BorrowedFd::borrow_raw(stream) }))
}

unsafe extern "C" {
	static environ: *const *const libc::c_char;
}

/// The environment as it is, word for word.
pub fn environment() -> impl Iterator<Item = &'static OsStr> {
	// SAFETY: a table of strings that a null ends; nothing changes the environment of this process.
	(0..).map_while(|i| unsafe {
		let string = environ.as_ref().and_then(|_| (*environ.add(i)).as_ref())?;
		Some(OsStr::from_bytes(CStr::from_ptr(string).to_bytes()))
	})
}

enum Ended {
	/// The clone has ended with its template, or there is none.
	Clone(Error),
	/// This command can't.
	Command(CliError),
}

impl From<Error> for Ended {
	fn from(e: Error) -> Ended {
		Ended::Clone(e)
	}
}

impl From<Ended> for CliError {
	fn from(ended: Ended) -> CliError {
		match ended {
			Ended::Clone(e) => e.into(),
			Ended::Command(e) => e,
		}
	}
}

struct Running<'a> {
	asked: Asked,
	signals: &'a SignalFd,
}

impl Running<'_> {
	/// Until the clone ends: its signals to it, its exit status from it. The template stops and continues this command
	/// with its clone.
	fn attend(mut self) -> Result<u8, Ended> {
		loop {
			let (clone, signals) = (self.asked.as_fd(), self.signals.as_fd());
			let mut ready = [PollFd::new(clone, PollFlags::POLLIN), PollFd::new(signals, PollFlags::POLLIN)];
			let look = PollTimeout::try_from(Asked::LOOK).unwrap_or(PollTimeout::ZERO);
			match poll(&mut ready, if self.asked.pid().is_some() { PollTimeout::NONE } else { look }) {
				Ok(_) | Err(nix::Error::EINTR) => {}
				Err(e) => {
					return Err(Ended::Command(CliError::Unable(format!("can't wait for the clone: {}", e.desc()))));
				}
			}
			let signalled = ready[1].any().unwrap_or(false);
			// Before the signals: one sent because of what the clone does finds that it has started.
			while let Some(news) = self.asked.hear()? {
				match news {
					News::Started { .. } => let_go_of_streams(),
					News::Ended(status) => return Ok(caller::end_as(status)),
				}
			}
			if signalled {
				self.pass_on();
			} else if self.asked.pid().is_none() {
				self.asked.look()?;
			}
		}
	}

	fn pass_on(&self) {
		while let Ok(Some(info)) = self.signals.read_signal() {
			let signal = info.ssi_signo as i32;
			// Nobody has seen anything of the clone, and it does end by the signal.
			let ends = self.asked.pid().is_none() && !caller::is_ignored_here(signal);
			let from_template = self.asked.template().is_some_and(|pid| pid as u32 == info.ssi_pid);
			match flashfork_warm::job(signal, info.ssi_code, from_template, ends) {
				Job::Ends => Signal::try_from(signal).map_or((), |signal| caller::end_by(signal)),
				// A template that is gone is told of by its connection; one that has not read hundreds of signals
				// before will not miss this.
				Job::Ask(Ask::Signal { signal, group }) => drop(self.asked.signal(signal, group)),
				Job::Ask(_) | Job::Nothing => {}
			}
		}
	}
}

/// The clone has them; who is at their other end should notice when it closes them. Errors can still be told.
fn let_go_of_streams() {
	if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
		for stream in 0..2 {
			// SAFETY: nothing in this process uses these two any more.
			unsafe { libc::dup2(null.as_raw_fd(), stream) };
		}
	}
}

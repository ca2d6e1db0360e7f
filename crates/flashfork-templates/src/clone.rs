//! A clone, from the request to its end.

use crate::{
	error::Error,
	link::{Heard, LOOK, Link, Silence, State, readable},
	name::Name,
	renew::Stale,
};
use flashfork_warm::{Ask, Step, Tell, UNSEEN};
use rustix::{
	io::Errno,
	process::{Pid, Signal, kill_process_group},
};
use std::{
	os::{
		fd::{AsFd, BorrowedFd, OwnedFd},
		unix::process::ExitStatusExt,
	},
	process::ExitStatus,
	sync::{Mutex, PoisonError},
	time::{Duration, Instant},
};

/// How long a template may take to make a clone: it makes one by one, for as many callers as come.
const LIMIT: Duration = Duration::from_secs(60);

/// What a template says of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
	/// It runs.
	Started {
		/// Its process.
		pid: i32,
	},
	/// It has ended.
	Ended(ExitStatus),
}

/// A clone asked for, whether or not it runs yet. Dropped, it is killed.
///
/// For callers with their own loop: its descriptor can be read when there is something to [`hear`](Asked::hear).
#[derive(Debug)]
pub struct Asked {
	link: Link,
	name: Name,
	since: Instant,
	/// Its process, once it has started.
	pid: Option<i32>,
}

impl Asked {
	pub(crate) fn new(link: Link, name: Name) -> Asked {
		Asked { link, name, since: Instant::now(), pid: None }
	}

	/// One that this process has asked for otherwise than by [`Request::ask`](crate::Request::ask), over this
	/// connection. `clone`: its process, or 0 if it has not started.
	pub fn over(connection: OwnedFd, name: Name, clone: i32) -> Result<Asked, Error> {
		let link = Link::of(connection).map_err(|source| Error::Connect { name: name.clone(), source })?;
		// A signal to the groups of others would reach more than a clone.
		Ok(Asked { pid: Some(clone).filter(|pid| *pid > 1), ..Asked::new(link, name) })
	}

	/// What there is to hear, without waiting. An error is the end: there is no clone, or it has ended with its
	/// template.
	pub fn hear(&mut self) -> Result<Option<News>, Error> {
		let Some(heard) = self.link.hear() else { return Ok(None) };
		let news = news(&self.link, &self.name, self.pid, &heard)?;
		if let News::Started { pid } = news {
			self.pid = Some(pid);
		}
		Ok(Some(news))
	}

	/// Whether there is hope for a clone that has not started: its template lives, is not stopped, and a minute is not
	/// over. To be asked every now and then.
	pub fn look(&self) -> Result<(), Error> {
		let silent = |why| Err(self.link.silent(&self.name, why, LIMIT));
		match self.link.state() {
			State::Stopped => silent(Silence::Stopped),
			State::Gone => Err(Error::Gone(self.name.clone())),
			State::Runs if self.since.elapsed() > LIMIT => silent(Silence::Mute),
			State::Runs => Ok(()),
		}
	}

	/// How often to [`look`](Asked::look).
	pub const LOOK: Duration = LOOK;

	/// The clone's process, once it has started.
	#[must_use]
	pub fn pid(&self) -> Option<i32> {
		self.pid
	}

	/// The template's process, where it can be seen from here.
	#[must_use]
	pub fn template(&self) -> Option<i32> {
		self.link.template
	}

	/// As [`Clone::signal`], before it has started too: then nothing happens.
	pub fn signal(&self, signal: i32, group: bool) -> std::io::Result<()> {
		Ok(self.link.ask(Ask::Signal { signal, group }, &[])?)
	}

	/// Waits until it has started.
	pub fn started(mut self) -> Result<Clone, Error> {
		loop {
			match self.hear()? {
				None => {}
				Some(News::Started { pid }) => {
					let Asked { link, name, .. } = self;
					let process = std::process::id();
					return Ok(Clone { link, name, pid, process, status: Mutex::new(None) });
				}
				Some(News::Ended(_)) => return Err(self.link.misunderstood(&self.name)),
			}
			match readable(&[self.as_fd()], Some(LOOK)) {
				Ok([true]) | Err(Errno::INTR) => {}
				Ok([false]) => self.look()?,
				Err(e) => return Err(not_waited(e)),
			}
		}
	}
}

impl AsFd for Asked {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.link.as_fd()
	}
}

/// What a message means; `pid` is the clone's process, if it has started.
fn news(link: &Link, name: &Name, pid: Option<i32>, heard: &Heard) -> Result<News, Error> {
	match *heard {
		Heard::Tell(Tell::Started { pid }) => {
			// One of another space would be a stranger's here, who must not get its signals.
			Ok(News::Started { pid: if link.has_our_numbers() { pid } else { UNSEEN } })
		}
		Heard::Tell(Tell::Stale { why, renews, count, name: what }) => {
			Err(Error::Stale(Stale::new(name, why, renews, count, &what)))
		}
		Heard::Tell(Tell::Ended { status }) => Ok(News::Ended(ExitStatus::from_raw(status))),
		Heard::Tell(
			Tell::Failed { step: Step::Request, .. }
			| Tell::Facts(_)
			| Tell::Refused { .. }
			| Tell::Unfit { .. }
			| Tell::Listens { .. }
			| Tell::Ports { .. }
			| Tell::Recipe,
		)
		| Heard::Nonsense => Err(link.misunderstood(name)),
		Heard::Tell(Tell::Failed { step, errno }) => Err(Error::NoClone { name: name.clone(), step, errno }),
		Heard::End => {
			// The clone itself ends with its template; what it has started in its group would not.
			if let Some(pid) = pid.and_then(Pid::from_raw) {
				let _ = kill_process_group(pid, Signal::KILL);
			}
			Err(Error::Gone(name.clone()))
		}
	}
}

fn not_waited(e: Errno) -> Error {
	Error::Wait { what: "the clone".into(), source: e.into() }
}

/// A clone that runs, or has run. It is a child of its template, not of this process.
///
/// Dropped, it is killed with all its process group, as is the clone of a caller that is killed: the connection is what
/// it hangs on, so that none is left that nobody waits for. Nobody waits for that: kill it and [`wait`](Clone::wait)
/// where it matters. What shall outlive this process is started by the clone in its own session.
///
/// Any thread may wait for it and send it signals, several at a time too. A process forked since can't wait for it
/// (`ECHILD`): its end is told once.
#[derive(Debug)]
pub struct Clone {
	link: Link,
	name: Name,
	pid: i32,
	/// Whose it is.
	process: u32,
	/// How it has ended; `Err` where its template has, and it with that.
	status: Mutex<Option<Result<ExitStatus, Lost>>>,
}

/// The template has ended, or has said something that makes no sense.
#[derive(Clone, Copy, Debug)]
enum Lost {
	Gone,
	Misunderstood,
}

impl Clone {
	/// Its process, which leads its own process group; `i32::MAX` where its template has other process numbers than
	/// this process (`pid_namespaces(7)`).
	#[must_use]
	pub fn pid(&self) -> i32 {
		self.pid
	}

	/// Waits for its end: its exit status as of `wait(2)`. It stays known.
	pub fn wait(&self) -> Result<ExitStatus, Error> {
		loop {
			if let Some(status) = self.wait_for(None)? {
				return Ok(status);
			}
		}
	}

	/// How it has ended, if it has.
	pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
		self.wait_for(Some(Duration::ZERO))
	}

	/// Waits for its end, or so long. A signal handled in this thread may end the wait early, with `None` too.
	pub fn wait_for(&self, limit: Option<Duration>) -> Result<Option<ExitStatus>, Error> {
		if let Some(status) = self.heard()? {
			return Ok(Some(status));
		}
		match readable(&[self.as_fd()], limit) {
			Ok(_) => self.heard(),
			Err(Errno::INTR) => Ok(None),
			Err(e) => Err(not_waited(e)),
		}
	}

	/// What is known of its end.
	fn heard(&self) -> Result<Option<ExitStatus>, Error> {
		// Nothing in here panics half-way.
		let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
		if status.is_none() && std::process::id() != self.process {
			return Err(not_waited(Errno::CHILD));
		}
		while status.is_none()
			&& let Some(heard) = self.link.hear()
		{
			*status = match news(&self.link, &self.name, Some(self.pid), &heard) {
				Ok(News::Ended(status)) => Some(Ok(status)),
				Err(Error::Gone(_)) => Some(Err(Lost::Gone)),
				// It has started once.
				Ok(News::Started { .. }) | Err(_) => Some(Err(Lost::Misunderstood)),
			};
			// Others who wait would wait for what has been heard here.
			self.link.end();
		}
		match *status {
			None => Ok(None),
			Some(Ok(status)) => Ok(Some(status)),
			Some(Err(Lost::Gone)) => Err(Error::Gone(self.name.clone())),
			Some(Err(Lost::Misunderstood)) => Err(self.link.misunderstood(&self.name)),
		}
	}

	/// Has its template send it a signal, or its whole process group, as a terminal would. Nobody else can get it: one
	/// for a clone that has ended is lost, and no failure.
	pub fn signal(&self, signal: i32, group: bool) -> std::io::Result<()> {
		match self.link.ask(Ask::Signal { signal, group }, &[]) {
			Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
			Err(e) => Err(e.into()),
		}
	}

	/// Kills it, with all its process group.
	pub fn kill(&self) -> std::io::Result<()> {
		self.signal(libc::SIGKILL, true)
	}
}

/// Can be read from its end on.
impl AsFd for Clone {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.link.as_fd()
	}
}

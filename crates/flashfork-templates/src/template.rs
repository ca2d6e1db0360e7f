//! Templates that are there.

use crate::{
	children,
	directory::Directory,
	error::Error,
	link::{Found, Heard, LIMIT, Link, Silence},
	name::Name,
	run::Run,
	warm::Warm,
};
use flashfork_core::never_seal::TABLE;
use flashfork_warm::{Ask, Facts, Tell};
use std::{
	ffi::OsStr,
	path::{Path, PathBuf},
	time::{Duration, Instant},
};

/// A template, by its name. Each question and each clone is its own connection: what was warmed anew by this name
/// meanwhile is asked.
#[derive(Debug)]
pub struct Template<'a> {
	pub(crate) names: &'a Directory,
	pub(crate) name: Name,
}

impl<'a> Template<'a> {
	/// The template of that name, without looking whether there is one.
	#[must_use]
	pub fn named(names: &'a Directory, name: Name) -> Template<'a> {
		Template { names, name }
	}

	/// The template of that name, if it lives and can be asked for something.
	pub fn find(names: &'a Directory, name: Name) -> Result<Template<'a>, Error> {
		Link::to(names, &name)?;
		Ok(Template { names, name })
	}

	/// Makes one of a program. `shim` is `libflashfork_preload.so` of the same version as this library.
	pub fn warm(names: &'a Directory, name: Name, program: impl AsRef<OsStr>, shim: impl Into<PathBuf>) -> Warm<'a> {
		Warm::new(names, name, program.as_ref().to_owned(), shim.into())
	}

	/// Its name.
	#[must_use]
	pub fn name(&self) -> &Name {
		&self.name
	}

	/// A clone to be made.
	pub fn run(&self) -> Run<'_> {
		Run::new(self.names, &self.name)
	}

	/// What it knows about itself.
	pub fn facts(&self) -> Result<Facts, Error> {
		let link = Link::to(self.names, &self.name)?;
		// One that has just ended is seen below.
		let _ = link.ask(Ask::Status, &[]);
		match link.answer(Instant::now() + LIMIT) {
			Ok(Heard::Tell(Tell::Facts(facts))) => Ok(facts),
			Ok(Heard::Tell(_) | Heard::Nonsense) => Err(link.misunderstood(&self.name)),
			Ok(Heard::End) => Err(Error::Gone(self.name.clone())),
			Err(why) => Err(link.silent(&self.name, why, LIMIT)),
		}
	}

	/// Removes it: the name is free afterwards, clones run on, the template ends with the last. That there is none is
	/// no failure.
	pub fn remove(&self) -> Result<Removed, Error> {
		let link = match Link::find(self.names, &self.name)? {
			Found::Alive(link) | Found::Stopped(link) => link,
			Found::Dead => {
				self.names.clear(&self.name)?;
				return Ok(Removed::HadEnded);
			}
			Found::Nobody => return Ok(Removed::Nobody),
		};
		// One that has just ended is seen below.
		let _ = link.ask(Ask::Retire, &[]);
		match link.answer(Instant::now() + LIMIT) {
			Ok(Heard::Tell(Tell::Facts(Facts { running: 0, pid, .. }))) => {
				children::ends(Some(pid));
				Ok(Removed::Gone)
			}
			Ok(Heard::Tell(Tell::Facts(facts))) => Ok(Removed::ClonesRun(facts.running)),
			Ok(Heard::Tell(_) | Heard::Nonsense) => Err(link.misunderstood(&self.name)),
			Ok(Heard::End) => {
				children::ends(link.template);
				self.names.clear(&self.name)?;
				Ok(Removed::Gone)
			}
			Err(why) => Err(link.silent(&self.name, why, LIMIT)),
		}
	}
}

/// What has become of a template that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
	/// It is removed.
	Gone,
	/// It is removed; so many clones run on, and it ends with the last.
	ClonesRun(u64),
	/// It had ended before, and only its name was left.
	HadEnded,
	/// There was none.
	Nobody,
}

/// A template in a list.
#[derive(Clone, Debug)]
pub struct Listed {
	/// Its name.
	pub name: Name,
	/// Its process, where it can be seen from here.
	pub pid: Option<i32>,
	/// How it is.
	pub state: State,
	/// How long ago its program was started.
	pub age: Option<Duration>,
	/// Its command line, as `ps` shows it.
	pub command: String,
}

/// How a template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
	/// It waits for callers, and has told what it knows.
	Waiting(Facts),
	/// It is stopped.
	Stopped,
	/// It has not answered for ten seconds.
	Silent,
	/// It is of another version.
	Strange,
}

impl Directory {
	/// The templates that live, also those that don't answer; names of others are removed.
	pub fn templates(&self) -> Result<Vec<Listed>, Error> {
		let mut asked = Vec::new();
		for name in self.names()? {
			match Link::find(self, &name)? {
				Found::Alive(link) | Found::Stopped(link) => {
					// One that has just ended is seen below.
					let _ = link.ask(Ask::Status, &[]);
					asked.push((link, name));
				}
				Found::Dead => self.clear(&name)?,
				Found::Nobody => {}
			}
		}
		// All together: what many don't answer takes no longer than what one doesn't.
		let until = Instant::now() + LIMIT;
		Ok(asked.into_iter().filter_map(|(link, name)| self.listed(name, &link, until)).collect())
	}

	/// `None` of a template that has just ended.
	fn listed(&self, name: Name, link: &Link, until: Instant) -> Option<Listed> {
		let state = match link.answer(until) {
			Ok(Heard::Tell(Tell::Facts(facts))) => State::Waiting(facts),
			Ok(Heard::End) => return None,
			Ok(Heard::Tell(_) | Heard::Nonsense) => State::Strange,
			Err(Silence::Stopped) => State::Stopped,
			Err(Silence::Mute) => State::Silent,
		};
		let pid = if let State::Waiting(facts) = state { Some(facts.pid) } else { link.template };
		let command = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok()).unwrap_or_default();
		let words = program(&command).map(String::from_utf8_lossy);
		let command = words.collect::<Vec<_>>().join(" ").trim_end().replace(char::is_control, " ");
		let age = age(&self.path.join(&name));
		Some(Listed { name, pid, state, age, command })
	}
}

/// The words of a template's command line. A keeper has those of the program behind its own.
fn program(command: &[u8]) -> impl Iterator<Item = &[u8]> {
	const KEEPERS: usize = 5;
	let first = command.split(|b| *b == 0).next().unwrap_or_default();
	let own = if first.ends_with(b"/flashfork-keeper") { KEEPERS } else { 0 };
	command.split(|b| *b == 0).skip(own)
}

/// Of a template: its socket was made when its program was started.
fn age(socket: &Path) -> Option<Duration> {
	let made = std::fs::symlink_metadata(socket).and_then(|about| about.modified()).ok()?;
	// The clock may have been set back since.
	Some(made.elapsed().unwrap_or_default())
}

/// Why nothing of a template's memory is sealed, so that clones are plain forks; `None` if some is.
#[must_use]
pub fn why_unsealed(facts: &Facts) -> Option<&'static str> {
	facts.unsealed.and_then(|reason| TABLE.get(usize::from(reason))).map(|row| row.what)
}

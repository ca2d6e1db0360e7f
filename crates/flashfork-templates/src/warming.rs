//! A program on its way to its ready point, until it is a template with its name.

use crate::{
	children,
	error::Error,
	link::{Heard, LIMIT, Link, readable},
	listener::Listener,
	name::Name,
	recipe::Kept,
	spawn::Program,
	warm::{Moment, Ready, Warm},
};
use flashfork_core::never_seal::{Reason, TABLE};
use flashfork_warm::{Ask, Facts, Tell};
use rustix::net::{SendFlags, send};
use std::{
	os::{
		fd::{AsFd, BorrowedFd, OwnedFd},
		unix::process::ExitStatusExt,
	},
	process::{Child, ExitStatus},
	time::{Duration, Instant},
};

/// How long a program that has let go of its connection may take to end.
const TO_END: Duration = Duration::from_secs(1);

/// A program that is on its way to its ready point. Dropped, it is ended with its process group, and leaves nothing.
// Fields are dropped in this order: the program ends before its socket goes.
#[derive(Debug)]
pub struct Warming<'a> {
	program: Program,
	process: OwnedFd,
	link: Link,
	listener: Listener<'a>,
	name: Name,
	command: String,
	ready: Ready,
	/// The template in whose place it comes, which nobody else makes anew meanwhile.
	replaces: Option<Kept>,
	/// To that one, if it has let go of its ports.
	old: Option<Link>,
	/// Whether it was a wrapper that was started.
	wrapped: bool,
	/// When it was to be ready, if it does not know of that.
	waited: Option<Moment>,
	/// Whether the launcher runs it, of Java programs.
	launched: bool,
	/// On which ports it listens that was to listen on another one.
	elsewhere: Vec<u16>,
}

impl<'a> Warming<'a> {
	pub(crate) fn new(program: Program, link: Link, listener: Listener<'a>, of: Warm<'a>) -> Result<Self, Error> {
		let command = of.command[0].display().to_string();
		let process = program.descriptor().map_err(|e| Error::Wait { what: command.clone(), source: e.into() })?;
		let waited = of.threads.clone().filter(|moment| *moment != Moment::Itself);
		let (launched, elsewhere) = (of.launches_java(), Vec::new());
		let Warm { name, ready, replaces, wrapper, .. } = of;
		let wrapped = wrapper.is_some();
		Ok(Warming {
			program,
			process,
			link,
			listener,
			name,
			command,
			ready,
			replaces,
			old: None,
			wrapped,
			waited,
			launched,
			elsewhere,
		})
	}

	/// In the place of a template that has let go of its ports for it.
	pub(crate) fn after(self, old: Option<Link>) -> Self {
		Warming { old, ..self }
	}

	/// Waits until it is a template with its name, however long that takes; unless it ends.
	pub fn wait(mut self) -> Result<Facts, Error> {
		loop {
			if let Some(facts) = self.advance()? {
				return Ok(facts);
			}
			match readable(&self.descriptors(), None) {
				Ok(_) | Err(rustix::io::Errno::INTR) => {}
				Err(e) => return Err(Error::Wait { what: self.command.clone(), source: e.into() }),
			}
		}
	}

	/// For callers with their own loop: one of these can be read when it is time to [`advance`](Self::advance).
	#[must_use]
	pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
		[self.process.as_fd(), self.link.as_fd()]
	}

	/// The ports of TCP on which it listens, while it is waited for that it listens on another one.
	#[must_use]
	pub fn listens_elsewhere(&self) -> &[u16] {
		&self.elsewhere
	}

	/// What there is to do, without waiting for the program: `None` if it isn't ready yet. When it is, it gets its
	/// name, and outlives this. To be called no more after that.
	pub fn advance(&mut self) -> Result<Option<Facts>, Error> {
		let advanced = self.step();
		advanced.map_err(|e| if self.replaces.is_some() { Error::anew(&self.name, e, self.taken()) } else { e })
	}

	/// Where its program could not listen perhaps, if the old template has let go of its ports.
	fn taken(&self) -> Option<Vec<u16>> {
		let old = self.old.as_ref()?;
		// One that is gone holds none.
		Some(old.let_go(&self.name).ok().flatten().unwrap_or_default())
	}

	fn step(&mut self) -> Result<Option<Facts>, Error> {
		// Its end shows even where something that it has started keeps the connection.
		let ended = readable(&[self.process.as_fd()], Some(Duration::ZERO)).is_ok_and(|[ended]| ended);
		match self.link.hear() {
			Some(Heard::Tell(Tell::Facts(facts))) => {
				let (inode, old) = self.listener.name(&self.name, self.replaces.as_ref())?;
				send(&self.link, &inode.to_ne_bytes(), SendFlags::NOSIGNAL).map_err(Error::socket)?;
				if let Some(template) = self.program.0.take() {
					children::keep(template);
				}
				if let Some(old) = old {
					// One that has just ended needs no word.
					let _ = old.ask(Ask::Retire, &[]);
					match old.answer(Instant::now() + LIMIT) {
						Ok(Heard::Tell(Tell::Facts(Facts { running: 0, pid, .. }))) => children::ends(Some(pid)),
						Ok(Heard::End) => children::ends(old.template),
						_ => {}
					}
				}
				Ok(Some(facts))
			}
			Some(Heard::Tell(Tell::Ports { ports })) => {
				self.elsewhere = ports.into_iter().filter(|port| *port > 0).collect();
				Ok(None)
			}
			Some(Heard::Tell(Tell::Refused { reason })) => Err(self.unfit(refused(reason, self.ready))),
			Some(Heard::Tell(Tell::Unfit { words })) => {
				let end = words.iter().position(|b| *b == 0).unwrap_or(words.len());
				Err(self.unfit(String::from_utf8_lossy(&words[..end]).into_owned()))
			}
			Some(Heard::Tell(Tell::Failed { errno, .. })) => {
				let why = std::io::Error::from_raw_os_error(errno);
				Err(self.unfit(format!("is ready but can't wait for callers: {why}")))
			}
			None if !ended => Ok(None),
			// A process that ends lets go a moment before.
			_ => {
				let ended = ended || readable(&[self.process.as_fd()], Some(TO_END)).is_ok_and(|[ended]| ended);
				Err(if ended { self.ended() } else { self.unfit(REPLACED.into()) })
			}
		}
	}

	fn unfit(&self, why: String) -> Error {
		Error::Unfit { program: self.command.clone(), why }
	}

	fn ended(&mut self) -> Error {
		let status = self.program.0.as_mut().map(Child::wait).and_then(Result::ok);
		let killed = status.is_some_and(|s| s.signal() == Some(libc::SIGKILL));
		let how = match status.map(|s: ExitStatus| (s.code(), s.signal())) {
			_ if killed => "was killed".into(),
			Some((Some(code), _)) => format!("ended with exit status {code}"),
			Some((_, Some(signal))) => format!("was ended by signal {signal}"),
			_ => "ended".into(),
		};
		let hint = match (self.ready, &self.waited) {
			// What does so in most cases prints nothing, least of all in the program.
			_ if killed => "somebody has, or memory was short (the kernel's log or the cgroup's memory.events tells)",
			(_, Some(Moment::Idle(_))) => "it was not idle for so long before; wait for less, or for a line or a port",
			(_, Some(Moment::Listen(_))) => "it did not listen before; what it printed may say why",
			(_, Some(_)) => "it did not print such a line before; what it printed may say why",
			_ if self.launched => {
				"what it printed may say why; a program that ends by System.exit can't be warmed with arguments, which run it"
			}
			_ if self.wrapped => {
				"it is a wrapper, and is followed only where it becomes the program (`exec`); of one that starts the program and waits, warm the program itself (of a Python, `-c 'import sys; print(sys.executable)'` tells which)"
			}
			(Ready::Call, _) => {
				"it must call flashfork_ready() itself, not a program that it starts; of Java, flashfork.Flashfork.ready()"
			}
			(Ready::Auto | Ready::Main | Ready::Runtime, _) => "what it printed may say why",
		};
		Error::Ended { program: self.command.clone(), how, hint }
	}
}

/// It is still there, but as something else.
const REPLACED: &str = "let go of flashfork before it was ready: it has gone on as a program that is statically linked or has rights of its own (exec), or closed descriptors that are not its own; warm the program that it starts itself";

fn refused(reason: u8, ready: Ready) -> String {
	let cure = match ready {
		Ready::Runtime => "; make them in the handler",
		_ => ", or have it ready before `main` (--ready main; FLASHFORK_READY_MAIN in C)",
	};
	if reason == Reason::Threads as u8 {
		return format!(
			"can't be a template: at its ready point it has other threads, which clones would lack; have it, or the library that starts them, start them later (OMP_NUM_THREADS=1 helps with some){cure}"
		);
	}
	if reason == Reason::HugeTlb as u8 {
		return "can't be a template: at its ready point it has private huge pages (MAP_HUGETLB), of which the host's pool may have none left for a clone that writes; have it take them later, or use transparent ones".into();
	}
	let row = TABLE.get(usize::from(reason));
	let what = row.map_or("something that can't be cloned", |row| row.what);
	let why = row.map_or_else(String::new, |row| format!(" ({})", row.why));
	format!("can't be a template: at its ready point it has {what}{why}; make it ready without them{cure}")
}

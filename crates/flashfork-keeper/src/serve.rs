//! A template with threads waits for callers, and for the ends of its clones.

use crate::{
	begin::{self, MOST},
	clone::{Ordered, Space, has_arguments, order},
	connection::{Clone, Connection, Request},
	file::Files,
	let_go::{self, LetGo},
	message::{self, Received},
	namespaces::Time,
	notes::Note,
	numbers::Numbers,
	process,
	told::Told,
	variables,
	warm::Ready,
};
use flashfork_warm::{Ask, DESCRIPTORS, Facts, LISTENERS, MOST_RUNNING, ReadyAt, Step, Tell, UNSEEN, Word};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::AtFlags,
	io::Errno,
	net::{SocketFlags, accept_with},
};
use std::{
	collections::{BTreeMap, BTreeSet, VecDeque},
	os::fd::{AsFd, OwnedFd},
	process::ExitCode,
	time::{Duration, Instant},
};

/// Namespaces that wait for a clone.
const AHEAD: usize = 2;

/// How long a clone that was ordered has the processors to itself, if it doesn't end before and nobody else waits: what
/// is made ahead is made after that.
const BEGINNING: Duration = Duration::from_millis(100);

/// How long nobody is accepted where descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);

/// A template.
pub struct Keeper {
	pub told: Told,
	pub init: OwnedFd,
	/// The init's number.
	pub init_process: i32,
	pub line: OwnedFd,
	pub signals: OwnedFd,
	pub inode: u64,
	pub facts: Facts,
	pub clocks: [u64; 2],
	pub files: Files,
	/// The sockets of TCP on which the program listens, by its numbers for them.
	pub listeners: Vec<(i32, OwnedFd)>,
	/// Set if it has let go of them.
	pub gone: Option<LetGo>,
	pub retired: bool,
	pub paused: bool,
	pub connections: BTreeMap<u64, Connection>,
	pub next: u64,
	/// Connections that wait for a clone.
	pub wanted: VecDeque<u64>,
	pub ordered: Option<Ordered>,
	/// Clones ended before the maker had said that it forked them.
	pub early: BTreeMap<i32, i32>,
	pub spaces: VecDeque<Space>,
	/// Whether one was asked for.
	pub asked: bool,
	/// A namespace of time for the next.
	pub time: Option<Time>,
	/// Until when nothing is made ahead.
	pub begins_until: Instant,
	/// Inits of namespaces whose clone was forked: something of it may still run.
	pub inits: BTreeSet<i32>,
	/// The template's number, if clones have it.
	pub kept: Option<i32>,
	pub numbers: Numbers,
}

/// Says that the template is ready, gets its name, and serves until it is removed.
pub fn serve(told: Told, ready: Ready) -> ExitCode {
	match begin::begin(told, ready) {
		Ok(mut keeper) => loop {
			if let Some(code) = keeper.turn() {
				return code;
			}
		},
		Err(_) => ExitCode::FAILURE,
	}
}

enum About {
	Signals,
	Init,
	Line,
	Listener,
	Caller(u64),
	Report(u64),
}

impl Keeper {
	/// Waits for something and does what there is to do. Gives the exit code when all is over.
	fn turn(&mut self) -> Option<ExitCode> {
		let idle = self.wanted.is_empty() && self.ordered.is_none() && self.inits.is_empty();
		if self.retired && self.facts.running == 0 && idle {
			self.turn_away();
			return Some(ExitCode::SUCCESS);
		}
		self.ask_for_spaces();
		self.order_next();
		if self.may_make_ahead() && !self.retired && self.time.is_none() {
			// Who orders a clone says what is missing.
			self.time = Time::new().ok();
		}
		for about in self.wait() {
			let on = match about {
				About::Signals => self.signalled(),
				About::Init => self.notes(),
				About::Line => self.hear_maker(),
				About::Listener => {
					self.accept();
					true
				}
				About::Caller(id) => {
					self.hear(id);
					true
				}
				About::Report(id) => {
					self.reported(id);
					true
				}
			};
			if !on {
				self.give_up_name();
				return Some(ExitCode::FAILURE);
			}
		}
		None
	}

	fn wait(&mut self) -> Vec<About> {
		let mut abouts = vec![About::Signals, About::Init, About::Line];
		let mut all: Vec<_> = [&self.signals, &self.init, &self.line].map(|fd| PollFd::new(fd, PollFlags::IN)).into();
		if !self.paused {
			abouts.push(About::Listener);
			all.push(PollFd::new(&self.told.listener, PollFlags::IN));
		}
		for (id, connection) in &self.connections {
			if let Some(socket) = &connection.socket {
				abouts.push(About::Caller(*id));
				all.push(PollFd::new(socket, PollFlags::IN));
			}
			if let Some(report) = connection.clone.as_ref().and_then(|clone| clone.report.as_ref()) {
				abouts.push(About::Report(*id));
				all.push(PollFd::new(report, PollFlags::IN));
			}
		}
		let beginning = (!self.may_make_ahead()).then(|| self.begins_until.saturating_duration_since(Instant::now()));
		let longest = beginning.into_iter().chain(self.paused.then_some(PAUSE)).min();
		let longest = longest.and_then(|limit| Timespec::try_from(limit).ok());
		// What it fails with is a signal.
		let come = poll(&mut all, longest.as_ref());
		self.paused = false;
		if come.is_err() {
			return Vec::new();
		}
		let ready: Vec<_> = all.iter().map(|fd| !fd.revents().is_empty()).collect();
		abouts.into_iter().zip(ready).filter_map(|(about, ready)| ready.then_some(about)).collect()
	}

	/// False: it ends, and its clones with it.
	fn signalled(&mut self) -> bool {
		process::take_signals(self.signals.as_fd()).is_empty()
	}

	/// Whoever has come meanwhile is told that there is no clone, so that he may ask whom the name leads to by then.
	fn turn_away(&mut self) {
		// From here on nobody else comes.
		let _ = rustix::net::shutdown(&self.told.listener, rustix::net::Shutdown::Both);
		let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
		while let Ok(socket) = accept_with(&self.told.listener, flags) {
			self.admit(socket);
		}
		for connection in self.connections.values() {
			let Some(socket) = &connection.socket else { continue };
			let mut bytes = [0; Ask::LEN];
			// Who has not asked yet can't any more.
			let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Read);
			// What is not read when this process ends would be in the way of the answer.
			let asked = message::receive(socket.as_fd(), &mut bytes).is_ok_and(|received| received.is_some());
			if asked && matches!(Ask::decode(&bytes), Some(Ask::Clone { .. })) {
				connection.tell(Tell::Failed { step: Step::Retired, errno: 0 });
			}
		}
	}

	fn admit(&mut self, socket: OwnedFd) {
		// A function's calls are no callers of its template: the server is outside of its process number space.
		let outside = self.told.ready_at() == ReadyAt::Runtime;
		if let Some(connection) = Connection::of(socket, outside) {
			self.connections.insert(self.next, connection);
			self.next += 1;
		}
	}

	fn accept(&mut self) {
		let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
		match accept_with(&self.told.listener, flags) {
			Ok(socket) => self.admit(socket),
			Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => self.paused = true,
			Err(_) => {}
		}
	}

	fn hear(&mut self, id: u64) {
		let Some(connection) = self.connections.get_mut(&id) else { return };
		let Some(socket) = &connection.socket else { return };
		let mut bytes = [0; Ask::LEN];
		let received = match message::receive(socket.as_fd(), &mut bytes) {
			Ok(None) => return,
			Ok(Some(received)) if received.len > 0 => received,
			_ => {
				connection.hang_up();
				if connection.clone.is_none() && self.ordered.as_ref().is_none_or(|o| o.connection != id) {
					self.connections.remove(&id);
				}
				return;
			}
		};
		let Received { len, descriptors, short, .. } = received;
		match Ask::decode(&bytes[..len]) {
			Some(Ask::Clone { job }) if descriptors.len() == DESCRIPTORS => self.want(id, job, descriptors),
			Some(Ask::Clone { .. }) if short => connection.tell(Tell::Failed { step: Step::Descriptors, errno: 0 }),
			Some(Ask::Listeners) if self.gone.is_some() => connection.tell(let_go::told(self.told.renews)),
			Some(Ask::Listeners) => {
				for (number, socket) in &self.listeners {
					connection.tell_with(Tell::Listens { number: *number }, socket);
				}
				connection.tell(Tell::Facts(facts(&self.facts, &self.files, self.gone.as_ref())));
			}
			Some(Ask::LetGo) => self.let_go(id),
			Some(Ask::Recipe) => connection.tell_with(Tell::Recipe, &self.told.recipe),
			Some(Ask::Listen { number }) if connection.listeners.len() < LISTENERS => {
				connection.listeners.extend(descriptors.into_iter().map(|socket| (number, socket)));
			}
			Some(Ask::Status) => connection.tell(Tell::Facts(facts(&self.facts, &self.files, self.gone.as_ref()))),
			Some(Ask::Retire) => {
				self.retire();
				let facts = facts(&self.facts, &self.files, self.gone.as_ref());
				self.connections[&id].tell(Tell::Facts(facts));
			}
			Some(Ask::Signal { signal, group }) => {
				if let Some(clone) = &connection.clone {
					clone.signal(signal, group);
				}
			}
			_ => connection.tell(Tell::Failed { step: Step::Request, errno: 0 }),
		}
	}

	/// A clone is asked for.
	fn want(&mut self, id: u64, job: bool, request: Vec<OwnedFd>) {
		let takes_none = !matches!(self.facts.at, ReadyAt::Call | ReadyAt::Python | ReadyAt::Node);
		let running = self.facts.running + self.wanted.len() as u64;
		let left = self.facts.max == 0
			|| self.facts.made + self.wanted.len() as u64 + u64::from(self.ordered.is_some()) < self.facts.max;
		let Some(connection) = self.connections.get_mut(&id) else { return };
		let refused = if self.retired || !left {
			Some(Step::Retired)
		} else if connection.has_asked {
			Some(Step::Request)
		} else if let Some(stale) = stale(&self.told, &self.files, self.gone.as_ref(), &request) {
			return connection.tell(stale);
		} else if running >= MOST_RUNNING as u64 {
			Some(Step::TooMany)
		} else {
			(takes_none && has_arguments(&request)).then_some(Step::Arguments)
		};
		if let Some(step) = refused {
			return connection.tell(Tell::Failed { step, errno: 0 });
		}
		(connection.job, connection.request, connection.has_asked) = (job, Some(request), true);
		self.wanted.push_back(id);
	}

	fn order_next(&mut self) {
		while self.ordered.is_none() && !self.spaces.is_empty() {
			let Some(id) = self.wanted.pop_front() else { return };
			let Some(connection) = self.connections.get_mut(&id) else { continue };
			// Who has gone meanwhile wants none any more.
			let Some(request) = connection.request.take().filter(|_| !connection.has_hung_up()) else { continue };
			let Some(space) = self.spaces.pop_front() else { return };
			let init = space.init;
			let listeners = std::mem::take(&mut connection.listeners);
			// Above all numbers that there are.
			let told = self.kept.map_or(0, |_| MOST + 1 + self.facts.made as i32);
			match order(self.line.as_fd(), id, &request, &listeners, space, told, self.time.take(), self.clocks) {
				Ok(ordered) => {
					self.inits.insert(init);
					// Of what ended before nothing is this clone, though it may get such a number.
					self.early.clear();
					self.ordered = Some(ordered);
					self.begins_until = Instant::now() + BEGINNING;
				}
				Err((step, errno)) => connection.tell(Tell::Failed { step, errno }),
			}
		}
	}

	/// False: there is no maker any more, and no program.
	fn hear_maker(&mut self) -> bool {
		let mut bytes = [0; Word::LEN];
		let Ok(received) = message::receive(self.line.as_fd(), &mut bytes) else { return false };
		let Some(Received { len, mut descriptors, .. }) = received else { return true };
		let Some(word) = Word::decode(&bytes[..len]) else { return false };
		if word == Word::LetGo {
			return self.has_let_go();
		}
		let Some(Ordered { connection: id, report, leash }) = self.ordered.take() else { return true };
		let Some(connection) = self.connections.get_mut(&id) else { return true };
		match (word, descriptors.pop()) {
			(Word::Made { pid: inner }, Some(process)) => {
				// Signals for the clone go there. The maker is the program's, who may not say where to.
				if process::number_of(&process).is_some_and(|pid| process::parent_of(pid) != Some(self.init_process)) {
					return false;
				}
				connection.clone = Some(Clone::new(inner, process, report, leash));
				self.facts.made += 1;
				self.facts.running += 1;
				if connection.socket.is_none() {
					connection.hang_up();
				}
				if self.facts.made == self.facts.max {
					self.retire();
				}
			}
			(Word::Failed { errno }, _) => connection.tell(Tell::Failed { step: Step::Fork, errno }),
			_ => return false,
		}
		if let Word::Made { pid: inner } = word
			&& let Some(status) = self.early.remove(&inner)
		{
			self.waited(inner, status);
		}
		true
	}

	/// How a clone's beginning went.
	fn reported(&mut self, id: u64) {
		let Some(connection) = self.connections.get_mut(&id) else { return };
		let Some(clone) = &mut connection.clone else { return };
		let Some(report) = &clone.report else { return };
		let mut bytes = [0; Tell::LEN];
		let told = match message::receive(report.as_fd(), &mut bytes) {
			Ok(None) => return,
			Ok(Some(Received { len, sender, .. })) => Tell::decode(&bytes[..len]).map(|tell| (tell, sender)),
			Err(_) => None,
		};
		let report = clone.report.take();
		connection.tell(match told {
			// Whoever calls a function could not see its process from where it is.
			Some((Tell::Started { .. }, _)) if self.facts.at == ReadyAt::Runtime => Tell::Started { pid: UNSEEN },
			// Its number here is another.
			Some((Tell::Started { .. }, Some(pid))) => Tell::Started { pid },
			Some((failed @ Tell::Failed { .. }, _)) => failed,
			// It was killed before it could say anything.
			_ => Tell::Failed { step: Step::Threads, errno: 0 },
		});
		// It goes on when its caller has been told. One that has ended doesn't.
		let _ = report.map(|report| message::send(report.as_fd(), &[1], &[]));
	}

	/// What the init says; false: it is gone.
	fn notes(&mut self) -> bool {
		loop {
			match Note::receive(self.init.as_fd()) {
				Ok(None) => return true,
				Ok(Some((Note::Waited { pid, status }, _))) => {
					self.inits.remove(&pid);
					// Nobody can be made in a namespace whose init is gone.
					self.spaces.retain(|space| space.init != pid);
					self.waited(pid, status);
				}
				Ok(Some((Note::Made { init, pid }, descriptors))) => {
					self.asked = false;
					if let Ok([processes, mounts, leash]) = <[OwnedFd; 3]>::try_from(descriptors) {
						let pid = self.kept.unwrap_or(pid);
						self.spaces.push_back(Space { init, pid, processes, mounts, leash });
					}
				}
				Ok(Some((Note::Failed { errno, .. }, _))) => {
					self.asked = false;
					if let Some(connection) = self.wanted.pop_front().and_then(|id| self.connections.get_mut(&id)) {
						connection.request = None;
						connection.tell(Tell::Failed { step: Step::Namespaces, errno });
					}
				}
				Ok(Some(_)) => {}
				Err(_) => return false,
			}
		}
	}

	/// A clone has ended, stopped or gone on; or something else of the init's has.
	fn waited(&mut self, inner: i32, status: i32) {
		let goes_on = libc::WIFSTOPPED(status) || libc::WIFCONTINUED(status);
		let of = |c: &Connection| c.clone.as_ref().is_some_and(|clone| clone.inner == inner);
		let Some(id) = self.connections.iter().find(|(_, c)| of(c)).map(|(id, _)| *id) else {
			if !goes_on && self.ordered.is_some() {
				self.early.insert(inner, status);
			}
			return;
		};
		if !goes_on {
			// What it has said before.
			self.reported(id);
		}
		let Some(connection) = self.connections.get_mut(&id) else { return };
		connection.stop_caller(libc::WIFSTOPPED(status));
		if goes_on {
			return;
		}
		connection.tell(Tell::Ended { status });
		connection.clone = None;
		self.begins_until = Instant::now();
		self.facts.running -= 1;
		if connection.socket.is_none() {
			self.connections.remove(&id);
		}
	}

	/// Whether there is time for it: somebody waits, or no clone begins.
	fn may_make_ahead(&self) -> bool {
		!self.wanted.is_empty() || Instant::now() >= self.begins_until
	}

	/// Has namespaces made, for those who wait and for the next.
	fn ask_for_spaces(&mut self) {
		let no_more = self.retired || self.gone.is_some();
		let enough = self.spaces.len() >= AHEAD || no_more && self.wanted.is_empty();
		if self.asked || enough || !self.may_make_ahead() {
			return;
		}
		self.asked = (Note::Namespace { pid: self.numbers.choose() }).send(self.init.as_fd(), &[]).is_ok();
	}

	fn retire(&mut self) {
		self.retired = true;
		self.give_up_name();
	}

	/// If it is still this template's.
	fn give_up_name(&self) {
		let (directory, name) = (&self.told.directory, self.told.name.as_str());
		let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
		if found.is_ok_and(|stat| stat.st_ino == self.inode) {
			let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
		}
	}
}

/// Why its program would be another one for this caller.
fn stale(told: &Told, files: &Files, gone: Option<&LetGo>, request: &Request) -> Option<Tell> {
	let others = || told.renews.then(|| variables::told(&told.command[0], request)).flatten();
	files.told(told.renews).or_else(others).or_else(|| gone.map(|_| let_go::told(told.renews)))
}

/// With what has changed by now.
pub fn facts(facts: &Facts, files: &Files, gone: Option<&LetGo>) -> Facts {
	Facts { changed: files.changed().max(u64::from(gone.is_some())), ..*facts }
}

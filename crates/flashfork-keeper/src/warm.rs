//! From the start of the program to the moment at which its threads stand still.

use crate::{
	file::Files,
	init::{self, Passed},
	message::{self, Received},
	moment::{Moment, Watch},
	namespaces,
	notes::{Note, What},
	numbers, process,
	relay::Relay,
	rights, streams,
	told::Told,
};
use flashfork_core::{
	Errno,
	forkall::{Fit, Seized, Unfit, WORDS, What as Reason},
	never_seal,
};
use flashfork_warm::{ADDRESSES, Order, PORTS, PREPARE, PREPARED, ReadyAt, Tell, Word};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
	io::Error,
	os::fd::{AsFd, FromRawFd, OwnedFd},
	time::{Duration, Instant},
};

/// How long a program that has let go of its descriptors may take to end.
const TO_END: Duration = Duration::from_secs(1);
/// How long it may take to prepare itself, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A template that clones can be made of. The program itself has ended.
pub struct Ready {
	/// To its init, which is this process, and to its maker.
	pub init: OwnedFd,
	pub init_process: i32,
	pub line: OwnedFd,
	/// The program's number, if clones have it.
	pub kept: Option<i32>,
	/// What the maker says of it: a [`Word::Frozen`].
	pub word: Word,
	/// What it was made of.
	pub files: Files,
	/// The sockets of TCP on which it listens, by its numbers for them.
	pub listeners: Vec<(i32, OwnedFd)>,
}

/// Why there is none.
pub enum Failed {
	/// The program has ended, with this status.
	Ended(i32),
	/// In words, of the program.
	Unfit(String),
}

impl From<String> for Failed {
	fn from(words: String) -> Failed {
		Failed::Unfit(words)
	}
}

/// Starts the program and brings it there.
pub fn warm(told: &Told) -> Result<Ready, Failed> {
	let drops = namespaces::enter().map_err(|why| format!("can't be a template with threads: {why}"))?;
	let (bell, rings) = message::pair().map_err(|e| unseen(e.into()))?;
	let (relays, output) = match &told.moment {
		Moment::Line(_) => {
			let (first, output) = Relay::new(std::io::stdout()).map_err(unseen)?;
			let (second, errors) = Relay::new(std::io::stderr()).map_err(unseen)?;
			(vec![first, second], Some([output, errors]))
		}
		_ => (Vec::new(), streams::apart().map_err(unseen)?),
	};
	let passed = Passed { bell: rings, drops, output };
	let (init_process, init) = init::start(told, passed).map_err(|e| Failed::Unfit(no_init(&e)))?;
	let mut warming = Warming {
		told,
		init,
		init_process,
		drops,
		entered: false,
		bell: Some(bell),
		trampoline: None,
		prepares: None,
		relays,
		process: None,
		program: None,
		inner: 0,
		watch: Watch::new(),
	};
	warming.until_ready()?;
	warming.freeze()
}

fn unseen(e: Error) -> Failed {
	Failed::Unfit(format!("can't be warmed: {e}"))
}

fn no_init(e: &Error) -> String {
	format!("can't be a template with threads: {}", namespaces::no_others(e))
}

struct Warming<'a> {
	told: &'a Told,
	init: OwnedFd,
	init_process: i32,
	/// Whether the program has no capabilities.
	drops: bool,
	/// Whether the init is where clones will be.
	entered: bool,
	/// Where the program rings; none when it has let go of that.
	bell: Option<OwnedFd>,
	/// What the maker is made by, and the word by which the program prepares itself, if it does: addresses in the
	/// program's memory, as far as it says the truth.
	trampoline: Option<usize>,
	prepares: Option<usize>,
	relays: Vec<Relay>,
	process: Option<OwnedFd>,
	/// Its number here, and as the init sees it.
	program: Option<i32>,
	inner: i32,
	watch: Watch,
}

impl Warming<'_> {
	fn until_ready(&mut self) -> Result<(), Failed> {
		loop {
			let moment = &self.told.moment;
			let [mut bell, mut output] = [false, false];
			{
				let mut all = vec![PollFd::new(&self.init, PollFlags::IN)];
				let bell_at = self.bell.as_ref().map(|fd| {
					all.push(PollFd::new(fd, PollFlags::IN));
					all.len() - 1
				});
				let relays_at = all.len();
				all.extend(self.relays.iter().map(|relay| PollFd::from_borrowed_fd(relay.as_fd(), PollFlags::IN)));
				let patience = Watch::patience(moment).and_then(|span| Timespec::try_from(span).ok());
				// What it fails with is a signal.
				let _ = poll(&mut all, patience.as_ref());
				let ready = |at: Option<usize>| at.is_some_and(|at| !all[at].revents().is_empty());
				bell |= ready(bell_at);
				output |= all[relays_at..].iter().any(|fd| !fd.revents().is_empty());
			}
			self.notes()?;
			if bell && self.rung()? {
				return Ok(());
			}
			if output && self.printed() {
				return Ok(());
			}
			let Some(pid) = self.program else { continue };
			if self.watch.has_come(moment, pid) {
				return Ok(());
			}
			if let Some(elsewhere) = self.watch.listens_elsewhere(moment, pid) {
				let mut ports = [0; PORTS];
				ports.iter_mut().zip(elsewhere).for_each(|(place, port)| *place = *port);
				// Who has gone ends the program.
				let _ = message::send(self.told.control.as_fd(), &Tell::Ports { ports }.encode(), &[]);
			}
		}
	}

	/// What the init says.
	fn notes(&mut self) -> Result<(), Failed> {
		loop {
			match Note::receive(self.init.as_fd()) {
				Ok(None) => return Ok(()),
				Ok(Some((Note::Runs { pid }, mut descriptors))) => {
					self.inner = pid;
					self.process = descriptors.pop();
					self.program = self.process.as_ref().and_then(process::number_of);
				}
				Ok(Some((Note::Waited { pid, status }, _)))
					if pid == self.inner && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) =>
				{
					return Err(Failed::Ended(status));
				}
				Ok(Some((Note::Users, _))) => self.entered = true,
				Ok(Some((Note::Failed { what, errno }, _))) => return Err(Failed::Unfit(self.no_start(what, errno))),
				Ok(Some(_)) => {}
				Err(_) => return Err(Failed::Unfit("can't be warmed: its init has ended".into())),
			}
		}
	}

	/// Whether the program has, or is about to: a process that ends lets go of its descriptors a moment before.
	fn has_ended(&self) -> bool {
		let Some(process) = &self.process else { return false };
		let deadline = Instant::now() + TO_END;
		while !process::has_ended(process) {
			if Instant::now() > deadline {
				return false;
			}
			std::thread::sleep(Duration::from_millis(1));
		}
		true
	}

	fn no_start(&self, what: What, errno: i32) -> String {
		let e = Error::from_raw_os_error(errno);
		let why = match what {
			What::Proc => namespaces::no_proc(&e),
			What::Namespace => namespaces::no_others(&e),
			What::Program => return format!("can't be run: {e}"),
		};
		format!("can't be a template with threads: {why}")
	}

	fn rung(&mut self) -> Result<bool, Failed> {
		let Some(bell) = &self.bell else { return Ok(false) };
		let mut addresses = [0; ADDRESSES];
		match message::receive(bell.as_fd(), &mut addresses) {
			Ok(None) => Ok(false),
			// The first thing that the shim says.
			Ok(Some(Received { len, .. })) if len == addresses.len() => {
				let mut all = addresses.chunks_exact(size_of::<usize>());
				let mut next = || all.next()?.try_into().map(usize::from_ne_bytes).ok();
				self.trampoline = next();
				self.prepares = next().filter(|at| *at != 0);
				Ok(false)
			}
			Ok(Some(Received { len: 1.., .. })) => Ok(true),
			// By the end of the program, or because it closes all descriptors: that is no matter where it needn't ring.
			_ => {
				self.bell = None;
				let rings = matches!(self.told.moment, Moment::Itself);
				// It may have ended before its init said that it runs.
				while rings && self.process.is_none() {
					self.wait_for_notes()?;
				}
				if rings && !self.has_ended() { Err(Failed::Unfit(REPLACED.into())) } else { Ok(false) }
			}
		}
	}

	fn printed(&mut self) -> bool {
		let Moment::Line(wanted) = &self.told.moment else { return false };
		let mut found = false;
		self.relays.retain_mut(|relay| match relay.pass(wanted) {
			Ok(in_it) => {
				found |= in_it;
				true
			}
			Err(_) => false,
		});
		found
	}

	/// Has it make the maker, and the maker stop it.
	fn freeze(mut self) -> Result<Ready, Failed> {
		// It may have rung before its init said that it runs.
		while self.process.is_none() {
			self.wait_for_notes()?;
		}
		// The moment may have been seen from outside before what the shim says at the start was heard.
		if self.trampoline.is_none() {
			self.rung()?;
		}
		let gone = |_| Failed::Unfit("can't be a template with threads: the maker of its clones has ended".into());
		let Some(program) = self.program else { return Err(gone(rustix::io::Errno::SRCH)) };
		// Another thread may have asked for work.
		while self.told.ready_at() == ReadyAt::Runtime && !self.watch.waits(program) {
			std::thread::sleep(Duration::from_millis(1));
			self.notes()?;
		}
		if let Some(at) = self.prepares.take_if(|_| self.bell.is_some()) {
			self.prepare(program, at)?;
		}
		// The program lets go of its descriptors when it is stopped.
		let files = Files::of(program);
		let words = |u: Unfit| Failed::Unfit(unfit(u.what as u8, u.number, &u.name));
		let line = self.make_maker(program).map_err(words)?;
		let kept = numbers::are_kept(program).map_err(words)?.then_some(self.inner);
		let users = if self.drops { Some(self.enter_that_of_clones()?) } else { None };
		let users: Vec<_> = users.iter().map(AsFd::as_fd).collect();
		message::send(line.as_fd(), &Order::Freeze.encode(), &users).map_err(gone)?;
		let (mut bytes, mut listeners) = ([0; Word::LEN], Vec::new());
		let word = loop {
			let mut all = vec![PollFd::new(&line, PollFlags::IN)];
			all.extend(self.relays.iter().map(|relay| PollFd::from_borrowed_fd(relay.as_fd(), PollFlags::IN)));
			let _ = poll(&mut all, None);
			// Until it is stopped it prints on, and whoever waits for room would hold up those who are waited for.
			if all[1..].iter().any(|fd| !fd.revents().is_empty()) {
				self.printed();
			}
			let received = message::receive(line.as_fd(), &mut bytes).map_err(gone)?;
			let Some(Received { len, descriptors, .. }) = received else { continue };
			match Word::decode(&bytes[..len]) {
				Some(Word::Listens { number }) => {
					listeners.extend(descriptors.into_iter().map(|socket| (number, socket)));
				}
				word => break word,
			}
		};
		self.relays.iter_mut().for_each(Relay::pass_rest);
		match word {
			Some(word @ Word::Frozen { .. }) => {
				if self.told.ready_at() == ReadyAt::Runtime {
					self.leaves_nothing()?;
				}
				Ok(Ready { init: self.init, init_process: self.init_process, line, kept, word, files, listeners })
			}
			Some(Word::Unfit { what, number, name }) => Err(Failed::Unfit(unfit(what, number, &name))),
			_ => Err(gone(rustix::io::Errno::PIPE)),
		}
	}

	/// What a function has left running would run beside all of its calls. Who ends when it has forked might pass a
	/// look by: so none may have begun from before the first of two to behind the second.
	fn leaves_nothing(&self) -> Result<(), Failed> {
		// The number of the latest process or thread (`proc_loadavg(5)`) is its last word.
		let latest = || std::fs::read_to_string("/proc/loadavg").map(|told| told.rsplit(' ').next().map(str::to_owned));
		for _ in 0..LOOKS {
			let before = latest().map_err(unseen)?;
			if self.leaves_any()? || self.leaves_any()? {
				break;
			}
			if latest().map_err(unseen)? == before {
				return Ok(());
			}
			std::thread::sleep(Duration::from_millis(1));
		}
		Err(Failed::Unfit(LEFT.into()))
	}

	/// It is its init's child, as the maker is.
	fn leaves_any(&self) -> Result<bool, Failed> {
		let init = self.init_process;
		let all = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).map_err(unseen)?;
		let runs = |pid| pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|process| !process::has_ended(&process));
		let all = all.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
		Ok(all.filter(|pid| runs(*pid)).count() > 1)
	}

	/// Has the program prepare itself, by a word of its memory. Whatever else may lie there is the program's own; and
	/// it has not become another one by `exec`, which closes the bell.
	fn prepare(&mut self, program: i32, at: usize) -> Result<(), Failed> {
		let failed = |e: Error| {
			let told = Unfit::forbidden(b"process_vm_writev", Errno::new(e.raw_os_error().unwrap_or(libc::EIO)));
			Failed::Unfit(unfit(told.what as u8, told.number, &told.name))
		};
		let begun = Instant::now();
		let mut told = process::write_word(program, at, PREPARE);
		loop {
			if begun.elapsed() > PATIENCE {
				return Err(Failed::Unfit(UNPREPARED.into()));
			}
			match told.and_then(|()| process::read_word(program, at)) {
				Ok(PREPARED) => return Ok(()),
				Ok(_) => std::thread::sleep(Duration::from_millis(1)),
				// It has ended: the init will say so.
				Err(e) if e.raw_os_error() == Some(libc::ESRCH) => self.wait_for_notes()?,
				Err(e) => return Err(failed(e)),
			}
			self.notes()?;
			told = Ok(());
		}
	}

	fn wait_for_notes(&mut self) -> Result<(), Failed> {
		let mut ready = [PollFd::new(&self.init, PollFlags::IN)];
		let _ = poll(&mut ready, None);
		self.notes()
	}

	/// Stops the program, by its number here, sees to it that it still is what it was started as, and has it make the
	/// maker. Gives the maker's socket.
	fn make_maker(&self, program: i32) -> Fit<OwnedFd> {
		let seized = Seized::new(program)?;
		rights::compare(program, self.init_process, self.drops)?;
		// The shim wasn't loaded.
		let trampoline = self.trampoline.ok_or(Unfit::new(Reason::Library, self.inner))?;
		let line = seized.make_maker(trampoline)?;
		// SAFETY: a new descriptor, nobody else's.
		Ok(unsafe { OwnedFd::from_raw_fd(line) })
	}

	/// This process needs no right over the program any more: it and the init go where the clones will be.
	fn enter_that_of_clones(&mut self) -> Result<std::fs::File, Failed> {
		let users = namespaces::enter_that_of_clones()
			.map_err(|why| Failed::Unfit(format!("can't be a template with threads: {why}")))?;
		let sent = Note::Users.send(self.init.as_fd(), &[users.as_fd()]);
		sent.map_err(|_| Failed::Unfit("can't be warmed: its init has ended".into()))?;
		while !self.entered {
			self.wait_for_notes()?;
		}
		Ok(users)
	}
}

/// It is still there, but as something else.
const UNPREPARED: &str = "can't be a template with threads: its runtime has not let its random numbers be renewed for a minute (code of C's holds Python's lock, or keeps Java's threads from stopping); make it ready while such code waits";

/// How often it is looked for what is left running, while others begin.
const LOOKS: usize = 1000;
const LEFT: &str =
	"can't be a template with threads: it has left a process running, beside all calls: start it in the handler";

const REPLACED: &str = "let go of flashfork before it was ready: it has gone on as another program (exec) without flashfork or with other standard streams, or closed descriptors that are not its own; warm the program that it starts itself";

/// What stands against a template, in words.
fn unfit(what: u8, number: i32, name: &[u8]) -> String {
	let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
	let name = String::from_utf8_lossy(&name[..end]).replace(char::is_control, "?");
	let (has, cure) =
		WORDS.get(usize::from(what)).copied().unwrap_or(("something that clones can't have", "make it ready earlier"));
	let writer = usize::from(what) == Reason::Writer as usize;
	let row = usize::try_from(number).ok().and_then(|reason| never_seal::TABLE.get(reason)).filter(|_| writer);
	let system = usize::from(what) == Reason::System as usize;
	let about = match (row, name.is_empty()) {
		(Some(row), _) => format!(" ({})", row.what),
		_ if system => format!(" ({})", Error::from_raw_os_error(number)),
		(None, false) if number > 0 => format!(" ({name}, {number})"),
		(None, false) => format!(" ({name})"),
		(None, true) if number > 0 => format!(" ({number})"),
		(None, true) => String::new(),
	};
	format!("can't be a template with threads: it has {has}{about}; {cure}")
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_warm::{NAME_OF_UNFIT, WORDS_OF_UNFIT};

	#[test]
	fn what_stands_against_it_is_said_in_words() {
		let text = unfit(Reason::Child as u8, 77, &[]);
		assert_eq!(
			text,
			"can't be a template with threads: it has a child process, which its clones would not have (77); have it end its children before it is ready"
		);
		let text = unfit(Reason::Lock as u8, 5, b"/tmp/x\0\0");
		assert!(text.contains("(/tmp/x, 5)"), "{text}");
		let text = unfit(Reason::System as u8, libc::ENOENT, &[]);
		assert!(text.contains("No such file"), "{text}");
	}

	#[test]
	fn no_words_are_too_long_to_be_told() {
		for what in 0..WORDS.len() {
			let text = unfit(what as u8, i32::MAX, &[b'x'; NAME_OF_UNFIT]);
			assert!(text.len() <= WORDS_OF_UNFIT, "{text}");
		}
		for row in 0..never_seal::TABLE.len() {
			assert!(unfit(Reason::Writer as u8, row as i32, &[]).len() <= WORDS_OF_UNFIT, "{row}");
		}
	}
}

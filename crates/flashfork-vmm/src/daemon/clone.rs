//! One clone: its shell, and the thread that listens to it.

mod forking;
#[cfg(test)]
pub(super) mod tests;

pub(super) use forking::{Delta, Forking};

use super::{
	claim::Claimed,
	clones::Alive,
	console::Console,
	disks::Attached,
	error::DaemonError,
	kept::{self, CloneRecord},
	memory,
	own_fork::{self, OwnForks},
	templates::Entry,
};
use crate::{
	pool::{Footprint, Pools, Shell, ShellFailure},
	store::{self, Descriptor, Held, Kind, Store, StoreError},
};
use flashfork_proto::{
	Generation,
	api::{self, CloneState},
	generation_hex, printable,
	shape::Shape,
	shell::{Channel, ChannelError, ClaimTimes, Ended, FromShell, Renewal, ToShell},
};
use forking::Promised;
use std::{
	os::{
		fd::{AsFd, BorrowedFd},
		unix::net::UnixStream,
	},
	sync::{
		Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
		atomic::{AtomicBool, Ordering},
		mpsc,
	},
	thread,
	time::{Duration, Instant},
};

/// How long a guest may take for its entropy, clock and hooks.
pub(super) const ALIVE: Duration = Duration::from_secs(60);

/// How long a shell may take for a request.
const ANSWER: Duration = Duration::from_secs(20);

/// A clone that is older when its agent first answers has written more than others will before that.
const YOUNG: Duration = Duration::from_secs(10);

/// Bytes of what a shell says that are kept: it is written down, and shown in one line.
const LINE: usize = 1024;

/// How often it is looked whether a fork signal still may come, and what a shell does meanwhile.
pub(super) const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Running {
	name: String,
	template: String,
	forked_from: Option<String>,
	made_ns: u64,
	/// Gone after its end, when its template may be removed.
	origin: Weak<Entry>,
	own_forks: OwnForks,
	job: Vec<u8>,
	disks: Arc<Attached>,
	footprint: Footprint,
	cid: u32,
	/// Its template may learn of it what clones write first: at the first answer of its agent, if this daemon has made
	/// it and it was never taken back.
	teaches: AtomicBool,
	/// Until its end.
	channel: Mutex<Option<Arc<Channel>>>,
	console: Console,
	life: Mutex<Life>,
	changed: Condvar,
	/// Held by who asks its shell for something with an answer: one at a time.
	asking: Mutex<Promised>,
	/// Until its end, or until it is removed.
	alive: Mutex<Option<Alive>>,
	/// With its shell, until that has ended.
	held: Arc<Held>,
	/// What the next daemon is told of it that doesn't change, from when it is to have it.
	kept: OnceLock<kept::Clone>,
}

#[derive(Debug)]
struct Life {
	generation: Generation,
	started: Instant,
	claim: ClaimTimes,
	first_exit_ns: u64,
	ready_ns: Option<u64>,
	ended: Option<Ended>,
	trouble: Option<String>,
	question: Question,
	/// Answers that didn't come in time, and come before any other.
	owed: u32,
	/// The guest gave the fork signal, and waits for what is made of that.
	at_fork: bool,
	/// Somebody is about to fork it, or does.
	forking: bool,
	/// It gave the fork signal by itself, as it may, and nobody has begun to fork it.
	forks_itself: bool,
	/// It is on its way back to its template.
	rolls_back: bool,
	/// Its shell had no room for a refusal, which comes yet.
	refuses: bool,
	/// Answers are still to what another daemon had asked, up to this [`FromShell::Adopted`].
	of_another: Option<u64>,
}

/// What its shell was asked. There is room for one answer: a shell taken over may send any number.
#[derive(Debug)]
enum Question {
	None,
	Asked,
	Answered(FromShell),
}

pub(super) struct Born {
	pub(super) name: String,
	pub(super) template: String,
	pub(super) forked_from: Option<String>,
	pub(super) origin: Weak<Entry>,
	pub(super) alive: Option<Alive>,
	pub(super) own_forks: OwnForks,
	pub(super) job: Vec<u8>,
	pub(super) disks: Arc<Attached>,
	pub(super) cid: u32,
	pub(super) started: Instant,
	/// Under an earlier daemon.
	pub(super) past: Option<CloneRecord>,
}

impl Running {
	/// Listens to a shell that was claimed; `gone` is called when it has ended.
	pub(super) fn start(
		claimed: Claimed,
		born: Born,
		pools: &Arc<Pools>,
		gone: impl FnOnce(&Arc<Self>) + Send + 'static,
	) -> Result<Arc<Self>, DaemonError> {
		let Claimed { shell, generation, times, early } = claimed;
		let channel = shell.channel();
		let clone = Arc::new(Self::new(born, generation, times, shell.footprint(), shell.held()));
		*lock(&clone.channel) = Some(channel.clone());
		let adopted = clone.lock().of_another;
		let (listener, pools) = (clone.clone(), pools.clone());
		let (give, given) = mpsc::sync_channel::<Shell>(1);
		let started = thread::Builder::new().name("clone".into()).stack_size(256 << 10).spawn(move || {
			let Ok(mut shell) = given.recv() else { return };
			let early = early.into_iter().find_map(|message| listener.hear(message));
			let ended = early.or_else(|| listener.listen(&channel));
			{
				let mut life = listener.lock();
				// If it was not stopped and took no leave, how its process ended says why.
				let found = || ended.unwrap_or_else(|| Ended::Failed(format!("its shell ended: {}", shell.put_down())));
				life.ended.get_or_insert_with(found);
				listener.save(&life);
			}
			*lock(&listener.channel) = None;
			listener.console.end();
			listener.changed.notify_all();
			// Before it is torn down: its template can be removed and its name used again.
			lock(&listener.alive).take();
			gone(&listener);
			pools.bury(shell);
		});
		if let Err(e) = started {
			if adopted.is_some() {
				// It goes on for the next daemon: this one ends.
				std::mem::forget(shell);
			}
			return Err(DaemonError::System("start a thread", e));
		}
		// It waits.
		let _ = give.send(shell);
		if let Some(number) = adopted {
			// Whatever that had begun is given up.
			clone.send_beside(ToShell::Adopt(number));
		}
		Ok(clone)
	}

	/// One that has ended under an earlier daemon, and was `process`.
	pub(super) fn ended(
		born: Born,
		generation: Generation,
		claim: ClaimTimes,
		(pid, shape): (u32, Shape),
		held: Arc<Held>,
	) -> Arc<Self> {
		let clone = Self::new(born, generation, claim, Footprint { pid, shape, cgroup: None }, held);
		clone.console.end();
		Arc::new(clone)
	}

	fn new(born: Born, generation: Generation, claim: ClaimTimes, footprint: Footprint, held: Arc<Held>) -> Self {
		let Born { name, template, forked_from, origin, alive, own_forks, job, disks, cid, started, past } = born;
		let life = Life {
			generation,
			started,
			claim,
			first_exit_ns: past.as_ref().map_or_else(|| nanoseconds(started.elapsed()), |past| past.first_exit_ns),
			ready_ns: past.as_ref().and_then(|past| past.ready_ns),
			ended: past.as_ref().and_then(|past| past.ended.clone()),
			trouble: past.as_ref().and_then(|past| past.trouble.clone()),
			question: Question::None,
			owed: 0,
			at_fork: false,
			forking: false,
			forks_itself: false,
			rolls_back: false,
			refuses: false,
			// Two daemons come at different times.
			of_another: past.as_ref().map(|_| kept::monotonic_ns()),
		};
		let teaches = AtomicBool::new(past.is_none());
		let made_ns = past.as_ref().map_or_else(kept::monotonic_ns, |past| past.clone.made_ns);
		let kept = OnceLock::new();
		if let Some(past) = past {
			let _ = kept.set(past.clone);
		}
		Self {
			name,
			template,
			forked_from,
			made_ns,
			origin,
			own_forks,
			job,
			disks,
			footprint,
			cid,
			teaches,
			channel: Mutex::default(),
			console: Console::default(),
			life: Mutex::new(life),
			changed: Condvar::new(),
			asking: Mutex::default(),
			alive: Mutex::new(alive),
			held,
			kept,
		}
	}

	/// From now on it goes on when this daemon ends, and the next one has it.
	pub(super) fn keep(&self, store: &Arc<Store>) -> Result<(), DaemonError> {
		let files = self.disks.shared()?;
		let life = self.lock();
		// Both are there while it lives.
		let origin = self.origin.upgrade().and_then(|entry| entry.held.get().map(|held| held.id()));
		let cgroup = self.footprint.cgroup.as_ref().and_then(Weak::upgrade);
		let kept = kept::Clone {
			name: self.name.clone(),
			template: self.template.clone(),
			forked_from: self.forked_from.clone(),
			made_ns: self.made_ns,
			origin,
			budget: self.own_forks.hold(store),
			job: self.job.clone(),
			disks: self.disks.disks.iter().map(kept::Disk::of).collect(),
			told: self.disks.told.clone(),
			cid: self.cid,
			pid: self.footprint.pid,
			shape: self.footprint.shape,
			cgroup: cgroup.map(|cgroup| cgroup.path().to_owned()),
		};
		let _ = self.kept.set(kept);
		Ok(self.save_with(&life, files)?)
	}

	/// Writes down what has changed, before anybody else hears of it.
	fn save(&self, life: &Life) {
		self.save_with(life, Vec::new()).expect("what was kept once has room again");
	}

	fn save_with(&self, life: &Life, new: Vec<Arc<dyn Descriptor>>) -> Result<(), StoreError> {
		let Some(record) = self.record(life) else { return Ok(()) };
		let record = store::seal(&record);
		match &life.ended {
			Some(_) => self.held.kill(Some(record)),
			None => self.held.put(Kind::Clone, record, new)?,
		}
		Ok(())
	}

	/// What the next daemon is told of it.
	fn record(&self, life: &Life) -> Option<CloneRecord> {
		Some(CloneRecord {
			clone: self.kept.get()?.clone(),
			started_ns: kept::monotonic_ns().saturating_sub(nanoseconds(life.started.elapsed())),
			generation: life.generation,
			claim: life.claim,
			first_exit_ns: life.first_exit_ns,
			ready_ns: life.ready_ns,
			trouble: life.trouble.clone(),
			rolls_back: life.rolls_back,
			ended: life.ended.clone(),
		})
	}

	/// When it was made, on the clock that [`kept::monotonic_ns`] gives.
	pub(super) fn made_ns(&self) -> u64 {
		self.made_ns
	}

	/// Ends it, so that no daemon knows it any more, and its template can be removed at once.
	pub(super) fn remove(&self) {
		self.stop();
		self.held.kill(None);
		lock(&self.alive).take();
	}

	/// Its agent has answered on a connection. Its template learns what a clone writes until the first time, unless it
	/// knows.
	pub(super) fn learn(&self) {
		let is_first = self.teaches.swap(false, Ordering::Relaxed) && self.lock().started.elapsed() < YOUNG;
		if is_first && self.origin.upgrade().is_some_and(|entry| entry.written.get().is_none()) {
			// There will be other clones, if this one's shell has no room.
			let _ = self.send(&ToShell::Tell, &[]);
		}
	}

	/// A guest that was frozen at no fork signal doesn't say that it is ready.
	pub(super) fn ready_unless_it_says_so(self: &Arc<Self>, entry: &Entry) {
		if !entry.template.frozen.state.forked {
			self.hear(FromShell::Alive(self.generation()));
		}
	}

	/// Until the shell's end; what it says of it, if it says anything.
	fn listen(self: &Arc<Self>, channel: &Channel) -> Option<Ended> {
		loop {
			match channel.receive_bare() {
				Ok(message) => {
					if let Some(ended) = self.hear(message) {
						return Some(ended);
					}
				}
				Err(e) if e.is_gone() => return None,
				Err(e) => return Some(Ended::Failed(e.to_string())),
			}
		}
	}

	/// Acts on a message; gives the shell's end.
	fn hear(self: &Arc<Self>, message: FromShell) -> Option<Ended> {
		match message {
			FromShell::Console(bytes) => self.console.write(&bytes),
			FromShell::Alive(generation) => {
				let mut life = self.lock();
				if life.generation == generation && life.ready_ns.is_none() {
					life.ready_ns = Some(nanoseconds(life.started.elapsed()));
					self.save(&life);
					self.changed.notify_all();
				}
			}
			FromShell::Written(runs) => {
				if let Some(entry) = self.origin.upgrade() {
					entry.learn(runs);
				}
			}
			FromShell::Lap(_) => {}
			// Daemons before that were killed may have asked for others.
			FromShell::Adopted(number) => {
				self.lock().of_another.take_if(|own| *own == number);
				self.changed.notify_all();
			}
			FromShell::Forked => self.note_fork_signal(),
			FromShell::Trouble(mut line) => {
				line.truncate(line.floor_char_boundary(LINE));
				let mut life = self.lock();
				life.trouble = Some(line);
				self.save(&life);
			}
			FromShell::Ended(mut ended) => {
				if let Ended::Failed(line) | Ended::Kvm(line) = &mut ended {
					line.truncate(line.floor_char_boundary(LINE));
				}
				return Some(ended);
			}
			answer => {
				let mut life = self.lock();
				if life.of_another.is_some() {
					return None;
				}
				if life.owed > 0 {
					life.owed -= 1;
					return None;
				}
				if !matches!(life.question, Question::Asked) {
					return Some(Ended::Failed(ShellFailure::Unexpected.to_string()));
				}
				// Signals that are heard from now on were given since.
				life.at_fork &= !matches!(answer, FromShell::Branched { .. });
				life.question = Question::Answered(answer);
				self.changed.notify_all();
			}
		}
		None
	}

	fn lock(&self) -> MutexGuard<'_, Life> {
		lock(&self.life)
	}

	pub(super) fn name(&self) -> &str {
		&self.name
	}

	/// Its template, while it lives.
	pub(super) fn template(&self) -> Result<Arc<Entry>, DaemonError> {
		if self.has_ended() {
			return Err(self.over());
		}
		self.origin.upgrade().ok_or_else(|| self.over())
	}

	/// What it was given to do.
	pub(super) fn job(&self) -> &[u8] {
		&self.job
	}

	/// What it has beside its template's.
	pub(super) fn disks(&self) -> &Attached {
		&self.disks
	}

	fn over(&self) -> DaemonError {
		DaemonError::Conflict(format!("clone {} has ended; remove it and make another", self.name))
	}

	pub(super) fn has_ended(&self) -> bool {
		self.lock().ended.is_some()
	}

	/// The name of the template that it, or the first of its ancestors, was cloned from.
	pub(super) fn template_name(&self) -> &str {
		&self.template
	}

	/// Bytes of memory that it adds to its template's.
	pub(super) fn memory(&self) -> Option<u64> {
		if self.has_ended() { None } else { memory::added(&self.footprint) }
	}

	/// As the interface shows it.
	pub(super) fn show(&self) -> api::Clone {
		let memory_bytes = self.memory();
		let life = self.lock();
		api::Clone {
			name: self.name.clone(),
			template: self.template.clone(),
			forked_from: self.forked_from.clone(),
			made_ns: self.made_ns,
			generation: generation_hex(&life.generation),
			state: match (&life.ended, life.ready_ns) {
				(Some(_), _) => CloneState::Ended,
				(None, Some(_)) => CloneState::Ready,
				(None, None) => CloneState::Starting,
			},
			pid: self.footprint.pid,
			cid: self.cid,
			claim: life.claim,
			first_exit_ns: life.first_exit_ns,
			ready_ns: life.ready_ns,
			trouble: life.trouble.as_deref().map(printable),
			ended: life.ended.as_ref().map(ToString::to_string),
			memory_bytes,
		}
	}

	/// Waits until the guest has its entropy, clock and hooks, or its work is done already.
	pub(super) fn wait_ready(&self) -> Result<(), DaemonError> {
		let life = self.lock();
		let waits = |life: &mut Life| life.ready_ns.is_none() && life.ended.is_none();
		let (life, timeout) =
			self.changed.wait_timeout_while(life, ALIVE, waits).unwrap_or_else(PoisonError::into_inner);
		match &life.ended {
			_ if timeout.timed_out() => Err(self.failed(&format!("did not become ready within {} s", ALIVE.as_secs()))),
			None => Ok(()),
			Some(Ended::Done(done)) if done.status == 0 => Ok(()),
			Some(ended) => Err(self.failed(&ended.to_string())),
		}
	}

	fn failed(&self, how: &str) -> DaemonError {
		let line = self.console.last_line().map_or(String::new(), |line| format!("; its console's last line: {line}"));
		DaemonError::Guest(format!("clone {} {how}{line}", self.name))
	}

	/// Ends it; the rest happens in the background.
	pub(super) fn stop(&self) {
		self.end(Ended::Stopped);
	}

	pub(super) fn end(&self, how: Ended) {
		self.lock().ended.get_or_insert(how);
		// The listener reads the end, and has the shell killed: a guest taken over need not agree.
		if let Some(channel) = &*lock(&self.channel) {
			let _ = rustix::net::shutdown(channel.as_fd(), rustix::net::Shutdown::Both);
		}
	}

	/// Sends it back to its template, as another generation. If its shell was asked and didn't do it, nobody knows what
	/// it is: then it ends.
	pub(super) fn rollback(&self, renewal: Renewal) -> Result<(), DaemonError> {
		self.teaches.store(false, Ordering::Relaxed);
		let _alone = lock(&self.asking);
		let (generation, started) = (renewal.identity.generation, Instant::now());
		let before = {
			let mut life = self.lock();
			if life.ended.is_some() {
				return Err(self.over());
			}
			let forks_itself = std::mem::take(&mut life.forks_itself);
			let trouble = life.trouble.take();
			life.rolls_back = true;
			let before = (
				std::mem::replace(&mut life.generation, generation),
				std::mem::replace(&mut life.started, started),
				life.ready_ns.take(),
				trouble,
				forks_itself,
			);
			self.save(&life);
			before
		};
		match self.answer(&ToShell::Rollback(Box::new(renewal)), &[], ANSWER) {
			Ok(FromShell::Claimed(times)) => {
				let mut life = self.lock();
				life.claim = times;
				life.first_exit_ns = nanoseconds(started.elapsed());
				life.rolls_back = false;
				self.save(&life);
				Ok(())
			}
			Err(Unanswered::Unasked(error)) => {
				let mut life = self.lock();
				(life.generation, life.started, life.ready_ns, life.trouble, life.forks_itself) = before;
				life.rolls_back = false;
				self.save(&life);
				Err(error)
			}
			other => {
				let failure = failure_of(other);
				self.end(Ended::Failed(format!("its rollback failed: {failure}")));
				Err(failure.into())
			}
		}
	}

	/// Asks its shell for something, and waits for the answer.
	fn answer(&self, message: &ToShell, fds: &[BorrowedFd<'_>], patience: Duration) -> Result<FromShell, Unanswered> {
		self.answer_if(message, fds, patience, || Ok(()))
	}

	/// While what it does meanwhile is all right.
	fn answer_if(
		&self,
		message: &ToShell,
		fds: &[BorrowedFd<'_>],
		patience: Duration,
		right: impl Fn() -> Result<(), ShellFailure>,
	) -> Result<FromShell, Unanswered> {
		let mut life = self.lock();
		let waits = |life: &mut Life| life.of_another.is_some() && life.ended.is_none();
		life = self.changed.wait_timeout_while(life, ANSWER, waits).unwrap_or_else(PoisonError::into_inner).0;
		if life.of_another.is_some() {
			return Err(Unanswered::Unasked(DaemonError::Deaf(self.name.clone())));
		}
		life.question = Question::Asked;
		drop(life);
		let deadline = Instant::now() + patience;
		if let Err(error) = self.send(message, fds) {
			self.lock().question = Question::None;
			return Err(Unanswered::Unasked(error));
		}
		let waits = |life: &mut Life| life.ended.is_none() && matches!(life.question, Question::Asked);
		let mut life = self.lock();
		loop {
			let left = deadline.saturating_duration_since(Instant::now());
			let look = left.min(LOOK);
			life = self.changed.wait_timeout_while(life, look, waits).unwrap_or_else(PoisonError::into_inner).0;
			if !waits(&mut life) || left.is_zero() {
				break;
			}
			drop(life);
			if let Err(failure) = right() {
				self.end(Ended::Failed(failure.to_string()));
			}
			life = self.lock();
		}
		match std::mem::replace(&mut life.question, Question::None) {
			Question::Answered(answer) => Ok(answer),
			Question::Asked | Question::None => {
				life.owed += 1;
				Err(Unanswered::Asked(match &life.ended {
					Some(ended) => ShellFailure::Gone(ended.to_string()),
					None => ShellFailure::Silent(patience),
				}))
			}
		}
	}

	/// Whoever gave it unasked is refused, unless it may: what a guest may cost is said by who made it. One that is not
	/// one of its own yet could make none that is.
	fn note_fork_signal(self: &Arc<Self>) {
		let mut life = self.lock();
		if life.forking {
			life.at_fork = true;
			self.changed.notify_all();
		} else if !life.forks_itself {
			let daemon = life.ready_ns.and_then(|_| self.own_forks.take());
			life.forks_itself = daemon.is_some();
			drop(life);
			match daemon {
				Some(daemon) => own_fork::begin(daemon, self),
				// One is enough for all before it: a shell taken over may give any number.
				None if self.lock().refuses => {}
				None => self.send_beside(ToShell::Refuse),
			}
		}
	}

	/// What it may still do by its own fork signal.
	pub(super) fn own_forks(&self) -> OwnForks {
		self.own_forks.clone()
	}

	/// Which clone of its template it is: another one after a rollback.
	pub(super) fn generation(&self) -> Generation {
		self.lock().generation
	}

	/// The own fork of the clone that it was failed. If it was not begun, the guest still waits for it.
	pub(super) fn has_not_forked(&self, generation: Generation, why: &str) {
		let _alone = lock(&self.asking);
		let waits = {
			let mut life = self.lock();
			if life.generation != generation {
				return;
			}
			life.trouble = Some(format!("it did not fork itself: {why}"));
			let waits = std::mem::take(&mut life.forks_itself);
			self.save(&life);
			waits
		};
		if waits {
			self.send_surely(&ToShell::Refuse);
		}
	}

	/// Waits for nobody, as whoever hears its shell must.
	fn send_beside(self: &Arc<Self>, message: ToShell) {
		if self.is_deaf_to(&message) {
			let own = self.clone();
			let later = move || own.send_surely(&message);
			if let Err(error) = thread::Builder::new().name("send".into()).spawn(later) {
				self.end(Ended::Failed(format!("its guest waits for an answer: {error}")));
			}
		}
	}

	/// What its guest waits for: a shell that doesn't read it for so long ends.
	fn send_surely(&self, message: &ToShell) {
		let deadline = Instant::now() + ANSWER;
		while self.is_deaf_to(message) {
			if Instant::now() >= deadline {
				return self.end(Ended::Failed("its shell doesn't read what its guest waits for".into()));
			}
			thread::sleep(LOOK);
		}
	}

	fn is_deaf_to(&self, message: &ToShell) -> bool {
		// Held: no signal that follows a refusal is heard before that is noted.
		let mut life = self.lock();
		let is_deaf = matches!(self.send(message, &[]), Err(DaemonError::Deaf(_)));
		if matches!(message, ToShell::Refuse) {
			life.refuses = is_deaf;
		}
		is_deaf
	}

	pub(super) fn connect(&self, port: u32) -> Result<UnixStream, DaemonError> {
		let (ours, theirs) = UnixStream::pair().map_err(|e| DaemonError::System("make a socket", e))?;
		self.send(&ToShell::Connect { port }, &[theirs.as_fd()])?;
		Ok(ours)
	}

	pub(super) fn input(&self, bytes: &[u8]) -> Result<(), DaemonError> {
		self.send(&ToShell::Input(bytes.to_vec()), &[])
	}

	pub(super) fn console(&self) -> tokio::io::DuplexStream {
		self.console.listen()
	}

	/// Waits for nobody: a shell taken over may never read.
	fn send(&self, message: &ToShell, fds: &[BorrowedFd<'_>]) -> Result<(), DaemonError> {
		let ended = || DaemonError::Conflict(format!("clone {} has ended", self.name));
		let channel = lock(&self.channel).clone().ok_or_else(ended)?;
		channel.try_send(message, fds).map_err(|error| match error {
			ChannelError::Full => DaemonError::Deaf(self.name.clone()),
			_ => ended(),
		})
	}
}

/// Why a shell gave no answer.
enum Unanswered {
	/// It was not asked.
	Unasked(DaemonError),
	/// It was.
	Asked(ShellFailure),
}

/// An answer that is none to what was asked.
fn failure_of(answer: Result<FromShell, Unanswered>) -> ShellFailure {
	match answer {
		Ok(FromShell::Failed(why)) => ShellFailure::Said(why),
		Ok(_) => ShellFailure::Unexpected,
		Err(Unanswered::Asked(failure)) => failure,
		Err(Unanswered::Unasked(error)) => ShellFailure::Said(error.to_string()),
	}
}

/// Panics abort, so no lock is ever poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
	mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
	u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

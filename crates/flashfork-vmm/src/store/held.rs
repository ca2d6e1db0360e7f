//! The daemon's side: all that is held, and the line to the store, which may end at any time.

use super::{BACKLOG, FromStore, HELLO, Hello, Kind, PATIENCE, ToStore};
use flashfork_proto::{
	frame::FrameError,
	shell::{Channel, ChannelError},
};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::{Mode, OFlags},
	io::Errno,
	net::{
		AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
		sockopt::{Timeout, set_socket_timeout, socket_peercred},
	},
	process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal},
};
use serde_bytes::ByteBuf;
use std::{
	collections::BTreeMap,
	fmt::Debug,
	io,
	os::{
		fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
		unix::fs::FileTypeExt,
	},
	path::{Path, PathBuf},
	process::{Child, Command, Stdio},
	sync::{Arc, Mutex, MutexGuard, PoisonError},
	thread,
	time::{Duration, Instant},
};

/// Stores in a row that may end soon; how often one that hangs up is asked.
const ATTEMPTS: u32 = 3;

/// How long a store lives of which no other need be said to have ended.
const STEADY: Duration = Duration::from_secs(60);

/// Until one is asked again, or has ended after its last word.
const AGAIN: Duration = Duration::from_secs(1);

/// Something that is held, and used here as well.
pub trait Descriptor: AsFd + Debug + Send + Sync {}
impl<T: AsFd + Debug + Send + Sync> Descriptor for T {}

/// Where the store is.
#[derive(Debug)]
pub struct Place {
	/// Its socket; only one daemon at a time may use it.
	pub socket: PathBuf,
	/// The program, which is the store if it is given `--store`.
	pub program: PathBuf,
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
	/// It doesn't answer, and what it holds would be lost.
	#[error("what holds templates and clones of an earlier daemon at {} doesn't answer: wait, or end it (fuser)", .0.display())]
	Silent(PathBuf),
	/// It may open no more files.
	#[error(
		"what keeps templates and clones may open no more files: remove some, or end all (flashfork vm stop) and raise the daemon's limit (ulimit -n)"
	)]
	Full,
	/// No message to it may be as long.
	#[error(
		"what the next daemon would have to know is too large to be kept: {0}; give it fewer disks or processors, or shorter paths"
	)]
	TooLarge(FrameError),
	/// This process may open too few files.
	#[error(
		"an earlier daemon's templates and clones go on, and are more descriptors than this one may have: raise its limit (ulimit -n)"
	)]
	Few,
	/// Another user's.
	#[error("user {user} listens at {}: give another socket", path.display())]
	Foreign {
		/// Where.
		path: PathBuf,
		/// Whose it is.
		user: u32,
	},
	/// Something that this didn't make.
	#[error("{} is there and is no socket: give another path, or remove it yourself", .0.display())]
	Other(PathBuf),
	/// There is one, which can't be reached.
	#[error("cannot {0}, and an earlier daemon's templates and clones may be there: {1}")]
	Reach(&'static str, io::Error),
	/// A step failed, and there is none.
	#[error("cannot {0}: {1}")]
	Step(&'static str, io::Error),
}

fn step<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StoreError {
	move |e| StoreError::Step(what, e.into())
}

fn reach<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StoreError {
	move |e| StoreError::Reach(what, e.into())
}

/// All that is held, in the store if any.
#[derive(Debug)]
pub struct Store {
	state: Mutex<State>,
	leash: Arc<OwnedFd>,
	place: Option<Place>,
	say: fn(&str),
}

#[derive(Debug, Default)]
struct State {
	line: Option<Line>,
	items: BTreeMap<u64, Item>,
	next: u64,
	/// This daemon ends.
	over: bool,
}

#[derive(Debug)]
struct Item {
	kind: Kind,
	record: ByteBuf,
	descriptors: Vec<Arc<dyn Descriptor>>,
}

#[derive(Debug)]
struct Line {
	channel: Arc<Channel>,
	process: OwnedFd,
	/// If this process has started it.
	child: Option<Child>,
}

/// Something held while this lives.
#[derive(Debug)]
pub struct Held {
	store: Arc<Store>,
	id: u64,
}

/// What an earlier daemon has left.
#[derive(Debug)]
pub struct Kept {
	/// Dropping it lets it go.
	pub held: Arc<Held>,
	/// What it is.
	pub kind: Kind,
	/// What is known of it.
	pub record: Vec<u8>,
	/// In the order in which they were put.
	pub descriptors: Vec<OwnedFd>,
}

impl Store {
	/// Nothing that outlives this process.
	///
	/// # Errors
	/// If there is no descriptor left.
	pub fn none() -> io::Result<Arc<Self>> {
		let (_, leash) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
		Ok(Arc::new(Self { state: Mutex::default(), leash: Arc::new(leash), place: None, say: |_| () }))
	}

	/// The store at a place, with what it holds, or a new one. `say` is told, in a line, what becomes of it.
	pub fn at(place: Place, say: fn(&str)) -> Result<(Arc<Self>, Vec<Kept>), StoreError> {
		let (line, found) = match connect(&place.socket, say)? {
			Some((line, found)) => (line, found),
			None => (start(&place)?, Vec::new()),
		};
		let (mut leash, mut left) = (None, Vec::new());
		let mut state = State { line: Some(line), ..State::default() };
		for (id, kind, record, mut descriptors) in found {
			state.next = state.next.max(id + 1);
			match kind {
				Kind::Leash => leash = descriptors.pop().map(Arc::new),
				_ => left.push((id, kind, record.clone(), descriptors)),
			}
			let descriptors: Vec<Arc<dyn Descriptor>> = match &leash {
				Some(leash) if kind == Kind::Leash => vec![leash.clone()],
				_ => Vec::new(),
			};
			state.items.insert(id, Item { kind, record, descriptors });
		}
		let is_new = leash.is_none();
		let leash = match leash {
			Some(leash) => leash,
			None => Arc::new(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(step("make a pipe"))?.1),
		};
		let store = Arc::new(Self { state: Mutex::new(state), leash, place: Some(place), say });
		if is_new {
			store.insert(Kind::Leash, Vec::new(), vec![store.leash.clone()])?;
		}
		let watched = store.clone();
		thread::Builder::new().name("store".into()).spawn(move || watched.watch()).map_err(reach("start a thread"))?;
		let kept = |(id, kind, record, descriptors): (u64, Kind, ByteBuf, _)| {
			let held = Arc::new(Held { store: store.clone(), id });
			Kept { held, kind, record: record.into_vec(), descriptors }
		};
		Ok((store.clone(), left.into_iter().map(kept).collect()))
	}

	fn lock(&self) -> MutexGuard<'_, State> {
		self.state.lock().unwrap_or_else(PoisonError::into_inner)
	}

	/// Whether anything would outlive this process.
	#[must_use]
	pub fn holds(&self) -> bool {
		let state = self.lock();
		state.line.is_some() && state.items.values().any(|item| item.kind.lasts())
	}

	/// Its end of the leash that a new shell is on: a process that has asked for it by `F_SETSIG` is killed when this
	/// process and the store are gone. Each has one of its own.
	///
	/// # Errors
	/// If there is no descriptor left, or /proc isn't mounted.
	pub fn leash(&self) -> io::Result<OwnedFd> {
		let path = format!("/proc/self/fd/{}", self.leash.as_raw_fd());
		Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
	}

	/// Holds something new.
	///
	/// # Errors
	/// [`StoreError::Full`] and [`StoreError::TooLarge`]: then it is not held.
	pub fn hold(
		self: &Arc<Self>,
		kind: Kind,
		record: Vec<u8>,
		descriptors: Vec<Arc<dyn Descriptor>>,
	) -> Result<Arc<Held>, StoreError> {
		Ok(Arc::new(Held { store: self.clone(), id: self.insert(kind, record, descriptors)? }))
	}

	/// Holds a few numbers.
	#[must_use]
	pub fn note(self: &Arc<Self>, kind: Kind, record: Vec<u8>) -> Arc<Held> {
		self.hold(kind, record, Vec::new()).expect("a message without descriptors has room for them")
	}

	fn insert(&self, kind: Kind, record: Vec<u8>, descriptors: Vec<Arc<dyn Descriptor>>) -> Result<u64, StoreError> {
		let mut state = self.lock();
		let id = state.next;
		let item = Item { kind, record: record.into(), descriptors };
		send(state.line.as_ref(), &item.message(id), &item.borrowed())?;
		state.next += 1;
		state.items.insert(id, item);
		Ok(id)
	}

	/// Leaves what is held to the next daemon. Nothing is put any more.
	pub fn leave(&self) {
		let mut state = self.lock();
		state.over = true;
		if let Some(line) = state.line.take() {
			// The thread that watches has it, too. What was sent arrives.
			let _ = rustix::net::shutdown(&*line.channel, Shutdown::Both);
		}
	}

	/// Ends all shells, and the store. Its socket is removed.
	pub fn end(&self) {
		let mut state = self.lock();
		// Never refused; if it can't be sent it is killed.
		let _ = send(state.line.as_ref(), &ToStore::End, &[]);
		state.over = true;
		if let Some(line) = state.line.take() {
			let _ = rustix::net::shutdown(&*line.channel, Shutdown::Both);
			// One that was stopped would keep clones.
			if !line.ends() {
				line.kill();
			}
		}
		drop(state);
		if let Some(place) = &self.place {
			// Nothing is lost if it stays.
			let _ = std::fs::remove_file(&place.socket);
		}
	}

	/// Waits for the store's end, and starts another, which is given everything.
	fn watch(&self) {
		let Some(place) = &self.place else { return };
		let mut failures = 0;
		loop {
			let Some(channel) = self.lock().line.as_ref().map(|line| line.channel.clone()) else { return };
			let begin = Instant::now();
			// Until either side has shut it down. It takes an event, and who sends takes what is answered.
			while let Err(Errno::INTR) = poll(&mut [PollFd::new(&*channel, PollFlags::empty())], None) {}
			if begin.elapsed() > STEADY {
				failures = 0;
			}
			let mut state = self.lock();
			if state.over {
				return;
			}
			if let Some(mut line) = state.line.take() {
				line.kill();
				let _ = line.child.as_mut().map(Child::wait);
			}
			failures += 1;
			let next = if failures > ATTEMPTS {
				Err(step("keep it alive")(io::Error::other(format!("it ended {ATTEMPTS} times soon"))))
			} else {
				start(place)
			};
			match next {
				Ok(line) => {
					(self.say)("the process that keeps templates and clones has ended: another has taken its place");
					state.line = Some(line);
					let State { line: Some(line), items, .. } = &*state else { return };
					// The leash last: what isn't all there yet holds no shell.
					let (leash, rest): (Vec<_>, Vec<_>) = items.iter().partition(|(_, item)| item.kind == Kind::Leash);
					for (id, item) in rest.into_iter().chain(leash) {
						if let Err(e) = send(Some(line), &item.message(*id), &item.borrowed()) {
							(self.say)(&format!("something ends with this daemon: {e}"));
						}
					}
				}
				Err(e) => {
					return (self.say)(&format!(
						"the process that keeps templates and clones has ended: they end with this daemon: {e}"
					));
				}
			}
		}
	}
}

impl Held {
	/// Names it among all that is held, while it is.
	#[must_use]
	pub fn id(&self) -> u64 {
		self.id
	}

	/// Changes it, and adds descriptors; what was killed stays so.
	///
	/// # Errors
	/// As those of [`Store::hold`]: then it is what it was.
	pub fn put(&self, kind: Kind, record: Vec<u8>, descriptors: Vec<Arc<dyn Descriptor>>) -> Result<(), StoreError> {
		let mut state = self.store.lock();
		let State { line, items, .. } = &mut *state;
		let Some(item) = items.get_mut(&self.id).filter(|item| item.kind != Kind::Ended) else { return Ok(()) };
		let mut new = Item { kind, record: record.into(), descriptors };
		send(line.as_ref(), &new.message(self.id), &new.borrowed())?;
		item.descriptors.append(&mut new.descriptors);
		(item.kind, item.record) = (kind, new.record);
		Ok(())
	}

	/// Changes what is known of it, which is as long as before, or little longer.
	pub fn change(&self, kind: Kind, record: Vec<u8>) {
		self.put(kind, record, Vec::new()).expect("what was kept once has room again");
	}

	/// These are the descriptors that the store has for it.
	pub fn adopt(&self, descriptors: Vec<Arc<dyn Descriptor>>) {
		if let Some(item) = self.store.lock().items.get_mut(&self.id) {
			item.descriptors = descriptors;
		}
	}

	/// Has the store end a process, whether it has ended or not, and keep this record of it if any.
	pub fn kill(&self, record: Option<Vec<u8>>) {
		let mut state = self.store.lock();
		let Some(before) = state.items.remove(&self.id) else { return };
		let record = record.map(ByteBuf::from);
		// It is no longer than what was put.
		let _ = send(state.line.as_ref(), &ToStore::Kill { id: self.id, record: record.clone() }, &[]);
		if let Some(record) = record {
			state.items.insert(self.id, Item { kind: Kind::Ended, record, descriptors: Vec::new() });
		}
		// Closed without the lock.
		drop(state);
		drop(before);
	}
}

impl Drop for Held {
	fn drop(&mut self) {
		let mut state = self.store.lock();
		let before = state.items.remove(&self.id);
		if before.is_some() {
			// Never refused.
			let _ = send(state.line.as_ref(), &ToStore::Remove { id: self.id }, &[]);
		}
		drop(state);
		drop(before);
	}
}

impl Item {
	fn message(&self, id: u64) -> ToStore {
		ToStore::Put { id, kind: self.kind, record: self.record.clone() }
	}

	fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
		self.descriptors.iter().map(|descriptor| descriptor.as_fd()).collect()
	}
}

/// To a store, if any; what can't be sent is sent again to the next. A store that doesn't read is ended.
fn send(line: Option<&Line>, message: &ToStore, descriptors: &[BorrowedFd<'_>]) -> Result<(), StoreError> {
	let Some(line) = line else { return Ok(()) };
	let deadline = Instant::now() + PATIENCE;
	loop {
		match line.channel.send(message, descriptors) {
			Ok(()) if descriptors.is_empty() => return Ok(()),
			Ok(()) => match line.channel.receive() {
				Ok((FromStore::Full, _)) => return Err(StoreError::Full),
				Ok((FromStore::End, _)) => return Ok(()),
				_ => {}
			},
			// Too many of this user's descriptors are under way.
			Err(ChannelError::Io(e))
				if e.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) && Instant::now() < deadline =>
			{
				thread::sleep(Duration::from_millis(1));
				continue;
			}
			Err(ChannelError::Message(e)) => return Err(StoreError::TooLarge(e)),
			Err(_) => {}
		}
		line.kill();
		return Ok(());
	}
}

impl Line {
	fn kill(&self) {
		// Fails if it has ended.
		let _ = pidfd_send_signal(&self.process, Signal::KILL);
	}

	/// Whether its process ends within a moment.
	fn ends(&self) -> bool {
		let limit = Timespec { tv_sec: AGAIN.as_secs() as i64, tv_nsec: 0 };
		matches!(poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&limit)), Ok(1))
	}
}

type Found = Vec<(u64, Kind, ByteBuf, Vec<OwnedFd>)>;

/// A store that an earlier daemon has left, with all that it holds, if any.
fn connect(path: &Path, say: fn(&str)) -> Result<Option<(Line, Found)>, StoreError> {
	for _ in 0..ATTEMPTS {
		let socket = socket().map_err(reach("make a socket"))?;
		let address = SocketAddrUnix::new(path).map_err(reach("find the store of templates and clones"))?;
		// It may still have much of its last daemon's to do.
		set_socket_timeout(&socket, Timeout::Recv, Some(6 * PATIENCE)).map_err(reach("limit a wait"))?;
		set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).map_err(reach("limit a wait"))?;
		match rustix::net::connect(&socket, &address) {
			Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
			Err(Errno::AGAIN) => break,
			other => other.map_err(reach("reach the store of templates and clones"))?,
		}
		let peer = socket_peercred(&socket).map_err(reach("find whose store it is"))?;
		if peer.uid != geteuid() {
			return Err(StoreError::Foreign { path: path.to_owned(), user: peer.uid.as_raw() });
		}
		let process = match pidfd_open(peer.pid, PidfdFlags::empty()) {
			// It has just ended; or was begun by a daemon that has, and doesn't listen yet.
			Err(Errno::SRCH) => {
				thread::sleep(AGAIN);
				continue;
			}
			other => other.map_err(reach("hold the store's process"))?,
		};
		let line = Line { channel: Arc::new(Channel::new(socket)), process, child: None };
		match line.ask() {
			Ok(Some(found)) => {
				let limit = set_socket_timeout(&line.channel, Timeout::Recv, Some(PATIENCE));
				limit.map_err(reach("limit a wait"))?;
				return Ok(Some((line, found)));
			}
			Ok(None) => {
				say(
					"templates and clones of another version of flashfork are there, which this can't read: they end now",
				);
				line.kill();
				return Ok(None);
			}
			// It had nothing to hold any more; or this process was too slow for it, as one that was stopped is.
			Err(e) if e.is_gone() && line.ends() => return Ok(None),
			Err(e) if e.is_gone() => {}
			Err(ChannelError::Descriptors) => return Err(StoreError::Few),
			Err(_) => break,
		}
	}
	Err(StoreError::Silent(path.to_owned()))
}

impl Line {
	/// What a store holds; none if that isn't understood.
	fn ask(&self) -> Result<Option<Found>, ChannelError> {
		self.channel.send(&HELLO, &[])?;
		if self.channel.receive::<Hello>()?.0 != HELLO {
			return Ok(None);
		}
		self.channel.send(&ToStore::All, &[])?;
		let mut found = Vec::new();
		loop {
			match self.channel.receive()? {
				(FromStore::Held { id, kind, record }, descriptors) => found.push((id, kind, record, descriptors)),
				_ => return Ok(Some(found)),
			}
		}
	}
}

fn socket() -> Result<OwnedFd, Errno> {
	rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// A new store, whose socket takes the place of an earlier one's.
fn start(place: &Place) -> Result<Line, StoreError> {
	let path = &place.socket;
	if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
		return Err(StoreError::Other(path.clone()));
	}
	match std::fs::remove_file(path) {
		Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(step("remove an earlier store's socket")(e)),
		_ => {}
	}
	let listener = socket().map_err(step("make a socket"))?;
	let address = SocketAddrUnix::new(path).map_err(step("place the store's socket"))?;
	rustix::net::bind(&listener, &address).map_err(step("place the store's socket"))?;
	// Nobody reaches it before it listens.
	rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR).map_err(step("protect the store's socket"))?;
	rustix::net::listen(&listener, BACKLOG).map_err(step("listen for the next daemon"))?;
	let (ours, theirs) = Channel::pair().map_err(step("make a socket"))?;
	set_socket_timeout(&ours, Timeout::Send, Some(PATIENCE)).map_err(step("limit a wait"))?;
	let mut command = Command::new(&place.program);
	command.arg("--store").stdin(listener).stdout(theirs.into_descriptor()).stderr(Stdio::null());
	command.env_clear().current_dir("/");
	let child = command.spawn().map_err(step("start the store of templates and clones"))?;
	let process = Pid::from_child(&child);
	let process = pidfd_open(process, PidfdFlags::empty()).map_err(step("hold the store's process"))?;
	let line = Line { channel: Arc::new(ours), process, child: Some(child) };
	// Once it has answered it is found under its own number, whatever becomes of this process.
	let greet = || {
		set_socket_timeout(&line.channel, Timeout::Recv, Some(PATIENCE))?;
		line.channel.send(&HELLO, &[]).map_err(io::Error::other)?;
		let (hello, _) = line.channel.receive::<Hello>().map_err(io::Error::other)?;
		if hello == HELLO { Ok(()) } else { Err(io::Error::other("it answers otherwise")) }
	};
	match greet() {
		Ok(()) => Ok(line),
		Err(e) => {
			line.kill();
			Err(step("greet the store")(e))
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	/// A store at a path that hangs up on whom it hears first, so often; this process is its own.
	fn hangs_up(path: &Path, times: usize) -> thread::JoinHandle<()> {
		let listener = socket().unwrap();
		rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
		rustix::net::listen(&listener, BACKLOG).unwrap();
		thread::spawn(move || {
			for _ in 0..times {
				drop(rustix::net::accept(&listener).unwrap());
			}
			if times < ATTEMPTS as usize {
				let peer = Channel::new(rustix::net::accept(&listener).unwrap());
				assert_eq!(peer.receive::<Hello>().unwrap().0, HELLO);
				peer.send(&HELLO, &[]).unwrap();
				assert!(matches!(peer.receive().unwrap().0, ToStore::All));
				peer.send(&FromStore::End, &[]).unwrap();
			}
		})
	}

	#[test]
	fn a_store_that_hangs_up_and_lives_is_asked_again() {
		let dir = tempfile::tempdir().unwrap();
		let path = dir.path().join("store");
		let store = hangs_up(&path, 1);
		let (_, found) = connect(&path, |_| ()).unwrap().unwrap();
		assert!(found.is_empty());
		store.join().unwrap();
	}

	#[test]
	fn what_is_too_large_to_be_kept_is_refused_and_changes_nothing() {
		let (store, (ours, _theirs)) = (Store::none().unwrap(), Channel::pair().unwrap());
		let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
		store.lock().line = Some(Line { channel: ours.into(), process, child: None });
		let large = vec![7; flashfork_proto::shell::MAX_MESSAGE];
		assert!(matches!(store.hold(Kind::Template, large.clone(), Vec::new()), Err(StoreError::TooLarge(_))));
		let held = store.hold(Kind::Template, vec![7], Vec::new()).unwrap();
		assert!(held.put(Kind::Template, large, Vec::new()).is_err());
		assert!(store.lock().items.values().map(|item| &**item.record).eq([[7]]));
	}

	#[test]
	fn one_that_always_does_is_left_as_it_is() {
		let dir = tempfile::tempdir().unwrap();
		let place = Place { socket: dir.path().join("store"), program: "/nonexistent".into() };
		let store = hangs_up(&place.socket, ATTEMPTS as usize);
		let path = place.socket.clone();
		assert!(matches!(Store::at(place, |_| ()), Err(StoreError::Silent(at)) if at == path));
		assert!(path.exists());
		store.join().unwrap();
		let place = Place { socket: dir.path().into(), program: path };
		assert!(matches!(Store::at(place, |_| ()), Err(StoreError::Other(_))));
	}
}

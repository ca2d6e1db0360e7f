//! Where the agent answers, and the accepting of connections.

use std::{
	fs::{self, File, OpenOptions},
	io,
	os::{fd::OwnedFd, unix::net::UnixListener},
	path::PathBuf,
	sync::{
		Arc, Mutex, PoisonError,
		atomic::{AtomicUsize, Ordering},
	},
	thread,
	time::Duration,
};

use flashfork_proto::agent::{MAX_CONNECTIONS, PORT, READY_PORT};
use rustix::{
	net::{
		AddressFamily, SocketFlags, SocketType, accept_with,
		addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
		bind, connect, listen, socket_with,
	},
	termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::{
	conn::Conn,
	log,
	reaper::Reaper,
	session::{self, Rights},
};

/// Threads that wait for connections.
const SPARE: usize = 2;

/// Pause after a failed accept, which mostly means too few descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A place to answer on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
	/// A Unix socket, created; for tests on a host.
	Unix(PathBuf),
	/// [`PORT`] of the guest.
	Vsock,
	/// A character device that is one endless connection, such as a serial line.
	Line(PathBuf),
}

impl Place {
	/// The place that `text` names.
	pub fn parse(text: &str) -> Result<Self, String> {
		if let Some(path) = text.strip_prefix("unix:") {
			return Ok(Self::Unix(path.into()));
		}
		match text {
			"vsock" => Ok(Self::Vsock),
			line if line.starts_with("/dev/") => Ok(Self::Line(line.into())),
			other => Err(format!("no place to answer on: {other:?}; give unix:PATH, vsock or a device in /dev")),
		}
	}
}

/// Answers on `place`, forever.
pub fn run(place: &Place, rights: Rights) -> io::Result<()> {
	let reaper = Reaper::start()?;
	open(place)?.serve(&reaper, rights)
}

/// An opened place.
pub enum Server {
	/// A socket that accepts.
	Socket(OwnedFd),
	/// A line.
	Line(PathBuf),
}

/// Opens `place`: from now on it can be connected to.
pub fn open(place: &Place) -> io::Result<Server> {
	// Made up by the kernel when it is first read: before there is a template, so that it is the same in all clones.
	session::boot_id();
	match place {
		Place::Unix(path) => Ok(Server::Socket(UnixListener::bind(path)?.into())),
		Place::Vsock => {
			let socket = vsock()?;
			bind(&socket, &VsockAddress { cid: libc::VMADDR_CID_ANY, port: PORT })?;
			listen(&socket, MAX_CONNECTIONS as i32)?;
			Ok(Server::Socket(socket))
		}
		Place::Line(path) => fs::metadata(path).map(|_| Server::Line(path.clone())),
	}
}

impl Server {
	/// Answers, forever.
	pub fn serve(self, reaper: &Reaper, rights: Rights) -> io::Result<()> {
		match self {
			Self::Socket(socket) => accept_all(socket, reaper, rights),
			Self::Line(path) => loop {
				if let Some(conn) = session::greet(raw_line(&path)?) {
					session::run(&conn, reaper, rights);
				}
				// The host begins anew, with a preamble.
				thread::sleep(RETRY);
			},
		}
	}
}

/// Connects to the port of the host where guests report that they are ready.
pub fn connect_to_host() -> io::Result<File> {
	let socket = vsock()?;
	connect(&socket, &VsockAddress { cid: libc::VMADDR_CID_HOST, port: READY_PORT })?;
	Ok(socket.into())
}

fn accept_all(socket: OwnedFd, reaper: &Reaper, rights: Rights) -> io::Result<()> {
	let acceptor = Arc::new(Acceptor {
		socket,
		reaper: reaper.clone(),
		rights,
		turn: Mutex::default(),
		open: AtomicUsize::new(0),
		idle: AtomicUsize::new(1),
	});
	for _ in 1..SPARE {
		acceptor.add_thread()?;
	}
	// This thread stays.
	acceptor.work(|_| true);
	Ok(())
}

/// Threads that take turns in accept(2). One is always there to serve a connection: starting it would cost a clone more
/// than the rest of its first answer.
struct Acceptor {
	socket: OwnedFd,
	reaper: Reaper,
	rights: Rights,
	/// Held by the thread whose turn it is.
	turn: Mutex<()>,
	/// Connections that are served.
	open: AtomicUsize,
	/// Threads that serve none.
	idle: AtomicUsize,
}

impl Acceptor {
	fn add_thread(self: &Arc<Self>) -> io::Result<()> {
		self.idle.fetch_add(1, Ordering::AcqRel);
		let acceptor = Arc::clone(self);
		let started = thread::Builder::new().spawn(move || acceptor.work(|idle| idle < SPARE));
		if started.is_err() {
			self.idle.fetch_sub(1, Ordering::AcqRel);
		}
		started.map(drop)
	}

	/// Serves one connection after the other, as long as `stay` wants the thread beside so many others that are idle.
	fn work(self: &Arc<Self>, stay: impl Fn(usize) -> bool) {
		loop {
			let conn = self.next();
			let alone = self.idle.fetch_sub(1, Ordering::AcqRel) == 1;
			match if alone { self.add_thread() } else { Ok(()) } {
				Ok(()) => session::run(&conn, &self.reaper, self.rights),
				// Nobody would accept another one meanwhile.
				Err(error) => log::line(&format!("cannot serve a connection: {error}")),
			}
			drop(conn);
			self.open.fetch_sub(1, Ordering::AcqRel);
			// A thread that leaves is never counted as idle: another would rely on it.
			let staying = |idle| stay(idle).then_some(idle + 1);
			if self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, staying).is_err() {
				return;
			}
		}
	}

	/// The next connection, greeted before anything else is done, and counted.
	fn next(&self) -> Conn {
		let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
		loop {
			let stream = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
				Ok(stream) => stream,
				Err(error) => {
					log::line(&format!("cannot accept a connection: {error}"));
					thread::sleep(RETRY);
					continue;
				}
			};
			if self.open.load(Ordering::Acquire) < MAX_CONNECTIONS
				&& let Some(conn) = session::greet(stream.into())
			{
				self.open.fetch_add(1, Ordering::AcqRel);
				return conn;
			}
		}
	}
}

/// Opens a line so that bytes pass as they are.
fn raw_line(path: &PathBuf) -> io::Result<File> {
	let line = OpenOptions::new().read(true).write(true).open(path)?;
	if let Ok(mut attributes) = tcgetattr(&line) {
		attributes.make_raw();
		tcsetattr(&line, OptionalActions::Now, &attributes)?;
	}
	Ok(line)
}

fn vsock() -> io::Result<OwnedFd> {
	Ok(socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

struct VsockAddress {
	cid: u32,
	port: u32,
}

// SAFETY: `with_sockaddr` passes a valid `sockaddr_vm` with its length, as the trait demands; it lives until `f`
// returns.
unsafe impl SocketAddrArg for VsockAddress {
	unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
		// SAFETY: all zeros are a value of this plain C structure.
		let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
		address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
		address.svm_cid = self.cid;
		address.svm_port = self.port;
		f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn places_have_one_form_each() {
		assert_eq!(Place::parse("unix:/x"), Ok(Place::Unix("/x".into())));
		assert_eq!(Place::parse("vsock"), Ok(Place::Vsock));
		assert_eq!(Place::parse("/dev/ttyS1"), Ok(Place::Line("/dev/ttyS1".into())));
		assert!(Place::parse("tcp:1").unwrap_err().contains("tcp:1"));
	}
}

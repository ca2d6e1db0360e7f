//! Has the maker make a clone.

use crate::{connection::Request, message, namespaces::Time};
use flashfork_warm::{Order, PATH, Start, Step};
use rustix::io::Errno;
use std::{
	fs::File,
	os::{
		fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
		unix::{ffi::OsStrExt, fs::FileExt},
	},
};

/// A namespace for a clone, made ahead.
#[derive(Debug)]
pub struct Space {
	/// Its init, as the template's init sees it.
	pub init: i32,
	/// The clone's number in it.
	pub pid: i32,
	pub processes: OwnedFd,
	pub mounts: OwnedFd,
	pub leash: OwnedFd,
}

/// A clone that the maker is about to fork.
#[derive(Debug)]
pub struct Ordered {
	/// For whom.
	pub connection: u64,
	pub report: OwnedFd,
	pub leash: OwnedFd,
}

/// Orders it. `told`: the number that libraries are told, as [`Order::Make`] has it. `clocks`: what its clocks show, in
/// the namespace of `time`, if one was made ahead.
#[expect(clippy::too_many_arguments, reason = "what a clone is made of")]
pub fn order(
	line: BorrowedFd<'_>,
	connection: u64,
	request: &Request,
	listeners: &[(i32, OwnedFd)],
	space: Space,
	told: i32,
	time: Option<Time>,
	clocks: [u64; 2],
) -> Result<Ordered, (Step, i32)> {
	let failed = |step| move |e: Errno| (step, e.raw_os_error());
	let (report, theirs) = message::pair().map_err(failed(Step::Descriptors))?;
	message::tell_senders(report.as_fd()).map_err(failed(Step::Descriptors))?;
	let time = time.map_or_else(Time::new, Ok).and_then(|time| time.show(clocks));
	let time = time.map_err(|e| (Step::Namespaces, e.raw_os_error().unwrap_or(libc::EIO)))?;
	for (number, socket) in listeners {
		let listen = Order::Listen { number: *number };
		message::send(line, &listen.encode(), &[socket.as_fd()]).map_err(failed(Step::Descriptors))?;
	}
	let mut bytes = Order::Make { pid: space.pid, listeners: listeners.len() as u64, told }.encode().to_vec();
	bytes.extend(path_of(&request[1]));
	bytes.push(0);
	let own = [space.processes.as_fd(), space.mounts.as_fd(), time.as_fd(), theirs.as_fd()];
	let all: Vec<_> = own.into_iter().chain(request.iter().map(AsFd::as_fd)).collect();
	message::send(line, &bytes, &all).map_err(failed(Step::Fork))?;
	Ok(Ordered { connection, report, leash: space.leash })
}

/// The name of an open directory; nothing of one whose name is too long.
fn path_of(directory: &OwnedFd) -> Vec<u8> {
	let link = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap_or_default();
	Some(link.as_os_str().as_bytes().to_vec()).filter(|path| path.len() < PATH).unwrap_or_default()
}

/// Whether a request is one for a program with arguments. Of one that comes through a pipe that is not known.
pub fn has_arguments(request: &Request) -> bool {
	let Ok(memory) = request[0].try_clone().map(File::from) else { return false };
	let mut count = [0; 8];
	let at = std::mem::offset_of!(Start, arguments) as u64;
	memory.read_exact_at(&mut count, at).is_ok() && u64::from_ne_bytes(count) > 0
}

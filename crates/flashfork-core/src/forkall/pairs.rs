//! Pipes and pairs of sockets by which the program talks to itself, made anew with what is in them.

use super::{
	frozen::{Entry, Files, Kind, NONE},
	open::{duplicate_to, place, set_flags},
	raw::{at, call, into, numeric},
	sockets::{self, UNREAD},
	unfit::{Fit, Unfit, What},
};
use crate::sys::{self, Errno, Result};
use linux_raw_sys::general as k;
use syscalls::Sysno;

const FIONREAD: usize = 0x541b;
const F_SETPIPE_SZ: usize = 1031;
pub const F_GETPIPE_SZ: usize = 1032;
const SPLICE_F_NONBLOCK: usize = 2;
const MSG_DONTWAIT: usize = 0x40;
const MSG_PEEK_DONTWAIT: usize = 2 | MSG_DONTWAIT;
const SOL_SOCKET: usize = 1;
const AF_UNIX: usize = 1;
const STREAM: usize = 1;

pub fn waiting(fd: i32) -> Result<i32> {
	let mut count = 0i32;
	// SAFETY: the kernel writes one number.
	unsafe { call(Sysno::ioctl, [fd as usize, FIONREAD, into(&mut count)]) }.map(|_| count)
}

fn two(number: Sysno, arguments: [usize; 3]) -> Result<[i32; 2]> {
	let mut pair = [0i32; 2];
	let [a, b, c] = arguments;
	// SAFETY: the kernel writes two numbers.
	unsafe {
		match number {
			Sysno::pipe2 => call(number, [into(&mut pair), a, 0, 0]),
			_ => call(number, [a, b, c, into(&mut pair)]),
		}
	}?;
	Ok(pair)
}

/// A pipe, of which this is an end. Of one whose other end is closed or outside nobody has that.
pub fn pipe(entry: &Entry, all: &[Entry]) -> Result<()> {
	// The end that is written says whether that makes packets. Where it is closed nobody knows whether it did.
	let writer = if entry.kind == Kind::Writes { Some(entry) } else { all.get(entry.other) };
	let packets = writer.map_or(0, |writer| writer.info.flags & k::O_DIRECT) as usize;
	// Both ends at once, when the one that is read comes up.
	if entry.kind == Kind::Writes {
		if entry.other != NONE {
			return Ok(());
		}
		let [reads, writes] = two(Sysno::pipe2, [packets, 0, 0])?;
		sys::close(reads);
		set_flags(writes, entry);
		return place(writes, entry);
	}
	let [reads, writes] = sized(packets, entry.count)?;
	// A user may have only so much in pipes (`pipe-user-pages-soft`).
	if numeric(Sysno::fcntl, [reads as usize, F_GETPIPE_SZ])? < entry.count {
		return Err(Errno::ENOBUFS);
	}
	let left = waiting(entry.number)? as usize;
	if left > 0 && (packets != 0 || writer.is_none()) {
		tee(entry.number, writes, left)?;
	} else if left > 0 {
		copy(entry, writes, left)?;
	}
	if waiting(reads)? as usize != left {
		return Err(Errno::ENOBUFS);
	}
	set_flags(reads, entry);
	place(reads, entry)?;
	let Some(other) = writer else {
		sys::close(writes);
		return Ok(());
	};
	set_flags(writes, other);
	place(writes, other)
}

/// A pipe with this capacity, whose ends don't wait. Where so much may not be had what doesn't fit is seen.
fn sized(flags: usize, capacity: usize) -> Result<[i32; 2]> {
	let [reads, writes] = two(Sysno::pipe2, [flags | k::O_NONBLOCK as usize, 0, 0])?;
	let _ = numeric(Sysno::fcntl, [writes as usize, F_SETPIPE_SZ, capacity]);
	Ok([reads, writes])
}

/// Gives a pipe the bytes of another, and takes nothing out of that.
fn tee(from: i32, to: i32, len: usize) -> Result<()> {
	numeric(Sysno::tee, [from as usize, to as usize, len, SPLICE_F_NONBLOCK]).map(drop)
}

/// Writes the bytes that wait in a pipe to another. Pages that two pipes share would take no more bytes: there would be
/// less room than in the program's.
fn copy(entry: &Entry, to: i32, len: usize) -> Result<()> {
	const CHUNK: usize = 64 * 1024;
	let [reads, writes] = sized(0, entry.count)?;
	let buffer = crate::scratch::map(CHUNK)?;
	let copied = tee(entry.number, writes, len).and_then(|()| {
		let mut left = len;
		while left > 0 {
			// SAFETY: the buffer is this function's own, and as long as said.
			left -= unsafe {
				let read = call(Sysno::read, [reads as usize, buffer, CHUNK])?;
				call(Sysno::write, [to as usize, buffer, read])?
			};
		}
		Ok(())
	});
	// SAFETY: as above.
	let _ = unsafe { sys::munmap(buffer, CHUNK) };
	sys::close(reads);
	sys::close(writes);
	copied
}

/// A pair of sockets, of which this is an end.
pub fn sockets(entry: &Entry, all: &[Entry], at: usize) -> Result<()> {
	let Some(other) = all.get(entry.other).filter(|_| entry.other > at) else { return Ok(()) };
	let [one, two] = two(Sysno::socketpair, [AF_UNIX, entry.socket[1] as usize, 0])?;
	move_bytes(entry.number, two)?;
	move_bytes(other.number, one)?;
	// After the bytes, or a socket that passes credentials would have the maker's with them, and less room.
	sockets::copy_options(entry.number, one, entry.socket)?;
	sockets::copy_options(other.number, two, other.socket)?;
	// Who has had the end of the other's bytes announced has that announced.
	for (end, new) in [(entry, two), (other, one)] {
		if is_at_end(end.number) {
			const SHUT_WR: usize = 1;
			numeric(Sysno::shutdown, [new as usize, SHUT_WR])?;
		}
	}
	set_flags(one, entry);
	set_flags(two, other);
	place(one, entry)?;
	place(two, other)
}

/// A socket whose other end is closed, with what is left to read.
pub fn closed(entry: &Entry) -> Result<()> {
	let [kept, closed] = two(Sysno::socketpair, [AF_UNIX, kind_of(entry), 0])?;
	move_bytes(entry.number, closed)?;
	copy_options_of_unix(entry, kept)?;
	sys::close(closed);
	set_flags(kept, entry);
	place(kept, entry)
}

/// Of a pair that stands for a socket.
fn kind_of(entry: &Entry) -> usize {
	if sockets::is_unix(entry.socket) { entry.socket[1] as usize } else { STREAM }
}

/// A pair has no options of other families.
fn copy_options_of_unix(entry: &Entry, to: i32) -> Result<()> {
	if sockets::is_unix(entry.socket) { sockets::copy_options(entry.number, to, entry.socket) } else { Ok(()) }
}

/// When the program has ended: has whoever is at the other end of its connections see that, and keeps what has come
/// from there and was not read.
pub fn end_connections(files: &mut Files) -> Fit {
	for i in 0..files.count {
		let entry = files.all[i];
		if entry.kind == Kind::Outside {
			let kept = end_connection(&entry).map_err(|_| Unfit::new(What::Unread, entry.number))?;
			let same = |e: &&Entry| e.kind == Kind::Same && e.other == i;
			for copy in files.all[..files.count].iter().filter(same) {
				duplicate_to(kept, copy.number, k::O_CLOEXEC as usize)?;
			}
			duplicate_to(kept, entry.number, k::O_CLOEXEC as usize)?;
			sys::close(kept);
			files.all[i].kind = Kind::Closed;
		}
	}
	Ok(())
}

/// What takes its place: a socket whose other end is closed.
fn end_connection(entry: &Entry) -> Result<i32> {
	const SO_LINGER: usize = 13;
	let [kept, closed] = two(Sysno::socketpair, [AF_UNIX, kind_of(entry), 0])?;
	// All that is there: a connection closed with bytes in it is reset, and the other end may lose some.
	take_bytes(entry.number, closed)?;
	copy_options_of_unix(entry, kept)?;
	sys::close(closed);
	// Nobody waits until the other end has all; one that is to be reset is.
	let (mut linger, mut len) = ([0i32; 2], 8u32);
	// SAFETY: the kernel reads and writes locals.
	unsafe {
		let fd = entry.number as usize;
		call(Sysno::getsockopt, [fd, SOL_SOCKET, SO_LINGER, into(&mut linger), into(&mut len)])?;
		if linger[1] > 0 {
			call(Sysno::setsockopt, [fd, SOL_SOCKET, SO_LINGER, at(&[0i32; 2]), 8])?;
		}
	}
	Ok(kept)
}

/// Has room at a socket's other end for so many bytes, and for what the kernel has beside them, if there may be.
fn make_room(socket: i32, bytes: usize) {
	let room = 2 * bytes as i32;
	// SAFETY: the kernel reads a local. Whether it is enough is seen by what fits.
	let _ = unsafe { call(Sysno::setsockopt, [socket as usize, SOL_SOCKET, sockets::SO_SNDBUF, at(&room), 4]) };
}

/// Takes what `from` has to read, and sends it to `to`.
fn take_bytes(from: i32, to: i32) -> Result<()> {
	let buffer = crate::scratch::map(UNREAD)?;
	make_room(to, UNREAD);
	// SAFETY: the buffer is this function's own, and as long as said.
	unsafe {
		let taken = loop {
			match call(Sysno::recvfrom, [from as usize, buffer, UNREAD, MSG_DONTWAIT, 0, 0]) {
				Ok(0) | Err(_) => break Ok(()),
				Ok(read) => match call(Sysno::sendto, [to as usize, buffer, read, MSG_DONTWAIT, 0, 0]) {
					Ok(sent) if sent == read => {}
					_ => break Err(Errno::ENOBUFS),
				},
			}
		};
		let _ = sys::munmap(buffer, UNREAD);
		taken
	}
}

/// Copies what `from` has yet to read, by way of its new peer `to`.
fn move_bytes(from: i32, to: i32) -> Result<()> {
	let left = waiting(from)? as usize;
	if left == 0 {
		return Ok(());
	}
	let buffer = crate::scratch::map(UNREAD)?;
	// Its own is set later.
	make_room(to, left);
	// SAFETY: the buffer is this function's own, and as long as said.
	let moved = unsafe {
		let read = call(Sysno::recvfrom, [from as usize, buffer, UNREAD, MSG_PEEK_DONTWAIT, 0, 0]);
		let moved = read.and_then(|read| call(Sysno::sendto, [to as usize, buffer, read, MSG_DONTWAIT, 0, 0]));
		let _ = sys::munmap(buffer, UNREAD);
		moved?
	};
	if moved == left { Ok(()) } else { Err(Errno::ENOBUFS) }
}

/// Tries with another pair whether what `from` has yet to read can be copied.
pub fn fits(from: i32) -> Result<()> {
	let [one, two] = two(Sysno::socketpair, [AF_UNIX, STREAM, 0])?;
	let moved = move_bytes(from, two);
	sys::close(one);
	sys::close(two);
	moved
}

/// Whether no more bytes will come than there are.
pub fn is_at_end(fd: i32) -> bool {
	const POLLRDHUP: u64 = 0x2000;
	let mut poll = fd as u32 as u64 | POLLRDHUP << 32;
	// SAFETY: one struct pollfd, a local.
	let told = unsafe { call(Sysno::poll, [into(&mut poll), 1, 0]) };
	told == Ok(1) && poll >> 48 & POLLRDHUP != 0
}

/// Whether all that is to be read of a stream is bytes: no descriptors, credentials or urgent bytes come with them,
/// at which a look ahead would end.
pub fn is_bytes_only(fd: i32, len: usize) -> Result<bool> {
	let buffer = crate::scratch::map(UNREAD)?;
	let mut control = [0u64; 64];
	let mut vector = [buffer, UNREAD];
	// struct msghdr: name and its length, vector and its length, control and its length, flags.
	let mut message = [0, 0, into(&mut vector), 1, into(&mut control), size_of_val(&control), 0];
	// SAFETY: the buffers are this function's own, as long as said.
	let told = unsafe {
		let told = call(Sysno::recvmsg, [fd as usize, into(&mut message), MSG_PEEK_DONTWAIT]);
		let _ = sys::munmap(buffer, UNREAD);
		told
	};
	close_brought(&control, if told.is_ok() { message[5] } else { 0 });
	Ok(told == Ok(len) && message[5] == 0 && message[6] == 0)
}

/// Closes the descriptors that a look has brought here. `control`: struct cmsghdr's, each of length, level and type,
/// and what it holds.
fn close_brought(control: &[u64; 64], len: usize) {
	const SCM_RIGHTS: u64 = 1;
	const SCM_PIDFD: u64 = 4;
	let mut words = &control[..(len / 8).min(control.len())];
	while let [size, kind, rest @ ..] = words {
		let numbers = (*size as usize).saturating_sub(16) / 4;
		if [SCM_RIGHTS, SCM_PIDFD].contains(&(kind >> 32)) {
			for number in rest.iter().flat_map(|pair| [*pair as i32, (*pair >> 32) as i32]).take(numbers) {
				sys::close(number);
			}
		}
		words = rest.get(numbers.div_ceil(2)..).unwrap_or(&[]);
	}
}

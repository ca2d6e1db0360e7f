//! Sockets of TCP that listen, which clones share with their template; or, where a caller has brought another socket in
//! place of one, have for themselves.

use super::{
	frozen::{Entry, Frozen, Kind},
	open::duplicate_to,
	raw::{call, into, numeric},
	sockets::{self, SO_ACCEPTCONN, SO_DOMAIN, SO_PROTOCOL, SO_TYPE, option},
};
use crate::{
	proc::{
		directory::for_each_entry,
		text::{ProcPath, decimal},
	},
	sys::{self, Errno, Result},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const F_GETFL: usize = 3;
const F_SETFL: usize = 4;

impl Frozen {
	/// The program's descriptors of such sockets. Copies of a descriptor are left out: they follow it.
	pub fn listening(&self) -> impl Iterator<Item = i32> {
		self.files.all[..self.files.count].iter().filter(|entry| listens(entry)).map(|entry| entry.number)
	}

	/// In a clone, before [`Frozen::renew`]: puts another socket in place of one of them.
	pub fn replace(&self, number: i32, by: i32) -> Result<()> {
		let all = &self.files.all[..self.files.count];
		let entry = all.iter().find(|entry| entry.number == number && listens(entry)).ok_or(Errno::EBADF)?;
		duplicate_to(by, number, entry.close_on_exec())
	}
}

/// Takes a socket that a clone shares out of all epoll sets of the calling process, if it is the last of its
/// descriptors of that: closing it would leave it there, for the kernel does that only where it is the last anywhere.
///
/// # Errors
/// What `/proc` or the kernel refuses.
pub fn leave_sets(fd: i32) -> Result<()> {
	const EPOLL_CTL_DEL: usize = 2;
	let each = |what: &mut dyn FnMut(i32) -> bool| {
		let mut names = [0; 4096];
		for_each_entry(ProcPath::of_this_thread().push(b"/fd").as_c(), &mut names, |name| {
			what(decimal(name)? as i32).then_some(())
		})
	};
	let own = sys::identity(fd)?;
	if each(&mut |other| other != fd && sys::identity(other) == Ok(own))?.is_some() {
		return Ok(());
	}
	each(&mut |set| {
		let mut target = [0; 32];
		let len = sys::readlink(ProcPath::of_this_thread().push(b"/fd/").number(set).as_c(), &mut target);
		if len.is_ok_and(|len| &target[..len] == b"anon_inode:[eventpoll]") {
			// It is in few of them, perhaps.
			let _ = numeric(Sysno::epoll_ctl, [set as usize, EPOLL_CTL_DEL, fd as usize, 0]);
		}
		false
	})
	.map(drop)
}

fn listens(entry: &Entry) -> bool {
	entry.kind == Kind::Shared && is_listening(entry.number)
}

fn is_listening(fd: i32) -> bool {
	let family = option(fd, SO_DOMAIN);
	family.is_ok_and(|family| [AF_INET, AF_INET6].contains(&family))
		&& option(fd, SO_ACCEPTCONN).is_ok_and(|listens| listens != 0)
}

/// The port of a socket of TCP.
pub fn port(socket: i32) -> Result<u16> {
	let (address, _) = sockets::name(socket, Sysno::getsockname)?;
	Ok(u16::from_be_bytes([address[2], address[3]]))
}

/// A new socket that listens on another port as one does that listens: at the same address, with the same options and
/// the same room for connections that wait. Bound with the rights of the process that calls this.
pub fn listen_alike(socket: i32, port: u16) -> Result<i32> {
	let about = [option(socket, SO_DOMAIN)?, option(socket, SO_TYPE)?, option(socket, SO_PROTOCOL)?];
	let new = sockets::new(about)?;
	let listens = listen(socket, new, about, port);
	if listens.is_err() {
		sys::close(new);
	}
	listens.map(|()| new)
}

fn listen(from: i32, to: i32, about: [i32; 3], port: u16) -> Result<()> {
	// Whether others may have its address, or IPv4 is meant, too, counts from when it is bound.
	sockets::copy_options(from, to, about)?;
	let (mut address, len) = sockets::name(from, Sysno::getsockname)?;
	// In both families behind the family itself (struct sockaddr_in, sockaddr_in6).
	address[2..4].copy_from_slice(&port.to_be_bytes());
	let waiting = room(from)?;
	// SAFETY: takes numbers, and an address that is as long as said.
	unsafe {
		call(Sysno::bind, [to as usize, address.as_ptr() as usize, len])?;
		call(Sysno::listen, [to as usize, waiting])?;
		let flags = call(Sysno::fcntl, [from as usize, F_GETFL])? & k::O_NONBLOCK as usize;
		call(Sysno::fcntl, [to as usize, F_SETFL, flags])?;
	}
	Ok(())
}

/// How many connections may wait to be accepted (`tcp_get_info` of net/ipv4/tcp.c).
fn room(socket: i32) -> Result<usize> {
	const TCP: usize = 6;
	const TCP_INFO: usize = 11;
	// Of struct tcp_info: tcpi_sacked, which of a socket that listens is this.
	const ROOM: usize = 28 / 4;
	let (mut info, mut len) = ([0u32; 64], 256u32);
	// SAFETY: both are locals, and the structure as long as said.
	unsafe { call(Sysno::getsockopt, [socket as usize, TCP, TCP_INFO, into(&mut info), into(&mut len)]) }?;
	Ok(info[ROOM] as usize)
}

#[cfg(test)]
mod tests;

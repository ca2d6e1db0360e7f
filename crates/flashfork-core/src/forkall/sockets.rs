//! Which sockets clones can have, and which of them are pairs.

use super::{
	frozen::{Entry, Frozen, Kind},
	multicast, pairs,
	raw::{call, into, numeric},
};
use crate::sys::{self, Errno, Result};
use syscalls::Sysno;

const SOL_SOCKET: usize = 1;
pub const SO_SNDBUF: usize = 7;
const SO_RCVBUF: usize = 8;
pub const SO_TYPE: usize = 3;
pub const SO_ACCEPTCONN: usize = 30;
pub const SO_PROTOCOL: usize = 38;
pub const SO_DOMAIN: usize = 39;

const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_NETLINK: i32 = 16;
const AF_INET6: i32 = 10;
const STREAM: i32 = 1;
const DATAGRAM: i32 = 2;
const PACKETS: i32 = 5;

/// A number among a socket's options.
pub fn option(fd: i32, which: usize) -> Result<i32> {
	let (mut value, mut len) = (0i32, 4u32);
	// SAFETY: both are locals of the right size.
	unsafe { call(Sysno::getsockopt, [fd as usize, SOL_SOCKET, which, into(&mut value), into(&mut len)]) }
		.map(|_| value)
}

/// Bytes of the longest option that is copied.
const OPTION: usize = 16;
const IP: usize = 0;
const TCP: usize = 6;
const UDP: usize = 17;
const IPV6: usize = 41;

/// Options that are a number or a short structure, by level.
const OPTIONS: [(usize, &[usize]); 6] = [
	(
		SOL_SOCKET,
		&[
			2, 5, 6, SO_SNDBUF, SO_RCVBUF, 9, 10, 11, 13, 15, 16, 18, 20, 21, 25, 29, 34, 35, 36, 37, 40, 42, 43, 44,
			46, 47, 60, 61, 76,
		],
	),
	(IP, &[1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 15, 18, 19, 20, 21, 22, 23, 24, 32, 33, 34, 49, 50]),
	(TCP, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 18, 23, 25, 27, 30, 36, 37]),
	(UDP, &[1, 100, 101, 102, 103, 104]),
	(IPV6, &[7, 16, 17, 18, 19, 23, 25, 26, 29, 33, 49, 51, 66, 67, 70, 72, 73, 76]),
	// SO_PRIORITY, which IP_TOS sets, too.
	(SOL_SOCKET, &[12]),
];

fn option_bytes(fd: i32, level: usize, which: usize) -> Option<([u8; OPTION], usize)> {
	let (mut value, mut len) = ([0u8; OPTION], OPTION as u32);
	// SAFETY: both are locals of the right size.
	unsafe { call(Sysno::getsockopt, [fd as usize, level, which, into(&mut value), into(&mut len)]) }.ok()?;
	Some((value, len as usize))
}

/// Copies the options in which a socket differs from a new one of its kind. An error: one of them can't be set.
pub fn copy_options(from: i32, to: i32, [family, kind, _]: [i32; 3]) -> Result<()> {
	for (level, all) in OPTIONS {
		let has = match level {
			IP => family != AF_UNIX,
			IPV6 => family == AF_INET6,
			TCP => family != AF_UNIX && kind == STREAM,
			UDP => family != AF_UNIX && kind == DATAGRAM,
			_ => true,
		};
		for which in all.iter().copied().filter(|_| has) {
			let Some(wanted) = option_bytes(from, level, which) else { continue };
			if option_bytes(to, level, which) == Some(wanted) {
				continue;
			}
			let (mut value, len) = wanted;
			if level == SOL_SOCKET && [SO_SNDBUF, SO_RCVBUF].contains(&which) {
				// The kernel doubles them.
				let bytes = i32::from_ne_bytes([value[0], value[1], value[2], value[3]]) / 2;
				value[..4].copy_from_slice(&bytes.to_ne_bytes());
			}
			// SAFETY: a local, as long as said.
			unsafe { call(Sysno::setsockopt, [to as usize, level, which, into(&mut value), len]) }?;
			if option_bytes(to, level, which) != Some(wanted) {
				return Err(Errno::EOPNOTSUPP);
			}
		}
	}
	Ok(())
}

/// A new socket of a family, type and protocol.
pub fn new(socket: [i32; 3]) -> Result<i32> {
	const CLOEXEC: usize = 0x80000;
	let [family, kind, protocol] = socket.map(|number| number as usize);
	numeric(Sysno::socket, [family, kind | CLOEXEC, protocol]).map(|fd| fd as i32)
}

/// Tries with another socket whether clones can have the options of one. `text`: room for files of /proc.
pub fn options_can_be_copied(entry: Entry, text: &mut [u8]) -> Result<()> {
	let [family, kind, _] = entry.socket;
	if has_filter(entry.number) || family != AF_UNIX && kind == DATAGRAM && multicast::is_member(entry.number, text)? {
		return Err(Errno::EOPNOTSUPP);
	}
	let new = new(entry.socket)?;
	let copied = copy_options(entry.number, new, entry.socket);
	sys::close(new);
	copied
}

/// Whether a filter has been attached to a socket (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF`).
fn has_filter(fd: i32) -> bool {
	const SO_GET_FILTER: usize = 26;
	let mut instructions = 0u32;
	// SAFETY: without room nothing but the number of instructions is told.
	let told = unsafe { call(Sysno::getsockopt, [fd as usize, SOL_SOCKET, SO_GET_FILTER, 0, into(&mut instructions)]) };
	// One of eBPF is not shown.
	told == Err(Errno::EACCES) || told.is_ok() && instructions > 0
}

impl Frozen {
	/// Whether a descriptor of a clone's is a socket that listens for all clones.
	pub fn is_shared_listener(&self, fd: i32) -> bool {
		let identity = sys::identity(fd);
		let all = &self.files.all[..self.files.count];
		let mut shared = all.iter().filter(|entry| entry.kind == Kind::Shared);
		option(fd, SO_ACCEPTCONN).is_ok_and(|listens| listens != 0)
			&& shared.any(|entry| identity == Ok((entry.device, entry.inode)))
	}
}

/// Whether a socket is one of `unix(7)`.
pub fn is_unix([family, ..]: [i32; 3]) -> bool {
	family == AF_UNIX
}

/// Whether the other end of a socket of `unix(7)` without one is closed, and was not lost.
pub fn is_hung_up(fd: i32, [_, kind, _]: [i32; 3]) -> bool {
	const POLLHUP: u64 = 0x10;
	const POLLERR: u64 = 8;
	let mut poll = u64::from(fd as u32);
	// SAFETY: one struct pollfd, a local.
	let told = unsafe { call(Sysno::poll, [into(&mut poll), 1, 0]) };
	// Datagrams don't tell.
	kind == DATAGRAM || told == Ok(1) && poll >> 48 & (POLLHUP | POLLERR) == POLLHUP
}

/// What becomes of a socket in clones, and its family, type and protocol. An error: it can't be made anew.
pub fn kind(fd: i32) -> Result<(Kind, [i32; 3])> {
	let socket = [option(fd, SO_DOMAIN)?, option(fd, SO_TYPE)?, option(fd, SO_PROTOCOL)?];
	let [family, kind, _] = socket;
	if option(fd, SO_ACCEPTCONN).is_ok_and(|listens| listens != 0) {
		return Ok((Kind::Shared, socket));
	}
	let connected = name(fd, Sysno::getpeername).is_ok();
	let bound = || name(fd, Sysno::getsockname).map_or(true, |name| is_bound(&name));
	match (family, kind) {
		(AF_UNIX, DATAGRAM) if connected && bound() => Err(Errno::EOPNOTSUPP),
		(AF_UNIX, STREAM | DATAGRAM | PACKETS) if connected => Ok((Kind::Pair, socket)),
		(AF_INET | AF_INET6, STREAM) if connected || has_been_connected(fd) => Ok((Kind::Outside, socket)),
		(AF_UNIX, _) | (AF_INET | AF_INET6, STREAM | DATAGRAM) if !connected && !bound() => Ok((Kind::Fresh, socket)),
		_ => Err(Errno::EOPNOTSUPP),
	}
}

/// Whether one of TCP has sent or received anything: its peer may have reset it, or be about to answer.
fn has_been_connected(fd: i32) -> bool {
	const TCP: usize = 6;
	const TCP_INFO: usize = 11;
	/// Where struct tcp_info counts segments that were sent and received.
	const SEGMENTS: usize = 136 / 4;
	let (mut info, mut len) = ([0u32; 64], 256u32);
	// SAFETY: both are locals, and the structure as long as said.
	let told = unsafe { call(Sysno::getsockopt, [fd as usize, TCP, TCP_INFO, into(&mut info), into(&mut len)]) };
	told.is_ok() && info[SEGMENTS] + info[SEGMENTS + 1] > 0
}

/// A socket's own address, or its peer's, and how long it is.
pub fn name(fd: i32, which: Sysno) -> Result<([u8; 128], usize)> {
	let (mut address, mut len) = ([0u8; 128], 128u32);
	// SAFETY: both are locals, and the address as long as said.
	unsafe { call(which, [fd as usize, into(&mut address), into(&mut len)]) }?;
	Ok((address, len as usize))
}

/// An address of the family alone is none, nor is port 0.
fn is_bound((address, len): &([u8; 128], usize)) -> bool {
	let family = i32::from(u16::from_ne_bytes([address[0], address[1]]));
	if family == AF_UNIX { *len > 2 } else { address[2..4] != [0, 0] }
}

/// The inode of the socket at the other end of one of `unix(7)`, by `sock_diag(7)`; 0 for none.
pub fn peer(inode: u64) -> Result<u64> {
	const NETLINK_SOCK_DIAG: usize = 4;
	const SOCK_RAW_CLOEXEC: usize = 3 | 0x80000;
	const BY_FAMILY: usize = 20;
	const REQUEST: usize = 1;
	const SHOW_PEER: u32 = 4;
	const PEER: u16 = 2;
	// struct nlmsghdr: length, type and flags, number, process; struct unix_diag_req: family, states, inode, what to
	// show, cookie.
	const LEN: usize = 16 + 24;
	let request: [u32; LEN / 4] = [
		LEN as u32,
		(BY_FAMILY | REQUEST << 16) as u32,
		1,
		0,
		AF_UNIX as u32,
		u32::MAX,
		inode as u32,
		SHOW_PEER,
		u32::MAX,
		u32::MAX,
	];
	let mut answer = [0u32; 128];
	// SAFETY: a request of this length, and a buffer as long as said.
	let told = unsafe {
		let socket = call(Sysno::socket, [AF_NETLINK as usize, SOCK_RAW_CLOEXEC, NETLINK_SOCK_DIAG])?;
		let sent = call(Sysno::sendto, [socket, request.as_ptr() as usize, LEN, 0, 0, 0]);
		let told = sent.and_then(|_| call(Sysno::recvfrom, [socket, into(&mut answer), size_of_val(&answer), 0, 0, 0]));
		sys::close(socket as i32);
		told?
	};
	// Attributes stand behind struct nlmsghdr and struct unix_diag_msg, 16 bytes each: length, type, value.
	let words = &answer[..told.min(size_of_val(&answer)) / 4];
	if words.get(1).is_none_or(|kind| *kind as u16 != BY_FAMILY as u16) {
		return Ok(0);
	}
	let mut at = 8;
	while let Some(head) = words.get(at) {
		let (len, kind) = (*head as u16, (*head >> 16) as u16);
		if kind == PEER {
			return Ok(words.get(at + 1).map_or(0, |inode| u64::from(*inode)));
		}
		if len == 0 {
			break;
		}
		at += usize::from(len).div_ceil(4);
	}
	Ok(0)
}

/// Whether what waits in a socket to be read can be copied: a stream's bytes, up to [`UNREAD`], and nothing else. Of
/// datagrams there must be none, not even an empty one.
pub fn can_be_copied(fd: i32, [_, kind, _]: [i32; 3]) -> bool {
	const MSG_PEEK_DONTWAIT: usize = 2 | 0x40;
	/// Of the kernel's own.
	const ERESTARTSYS: i32 = 512;
	if kind != STREAM {
		// SAFETY: nothing is written.
		let look = || unsafe { call(Sysno::recvfrom, [fd as usize, 0, 0, MSG_PEEK_DONTWAIT, 0, 0]) };
		let told = match look() {
			// What the stop has cut short is kept as an error of the socket's (recvmmsg(2)), and told once.
			Err(e) if e.into_raw() == ERESTARTSYS => look(),
			told => told,
		};
		return matches!(told, Err(Errno::EAGAIN | Errno::ENOTCONN));
	}
	match pairs::waiting(fd).map(|waiting| waiting as usize) {
		Ok(0) => true,
		Ok(waiting) if waiting <= UNREAD => pairs::is_bytes_only(fd, waiting) == Ok(true) && pairs::fits(fd).is_ok(),
		_ => false,
	}
}

/// Most bytes copied from one pair of sockets to another.
pub const UNREAD: usize = 512 * 1024;

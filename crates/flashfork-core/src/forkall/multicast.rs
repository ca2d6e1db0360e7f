//! Whether a socket has joined a multicast group, which no call lists: the groups that this host's interfaces are in
//! are listed, and a socket says of each whether it is a member.

use super::raw::{call, into};
use crate::{
	proc::text::{Lines, number, words},
	sys::{Errno, Result},
};
use core::ffi::CStr;
use syscalls::Sysno;

/// A family of addresses: its number, the level of its options, where `struct sockaddr` has the address, and the file
/// of /proc with the groups.
struct Family {
	family: u16,
	level: usize,
	at: usize,
	file: &'static CStr,
}

const FAMILIES: [Family; 2] = [
	Family { family: 2, level: 0, at: 4, file: c"/proc/thread-self/net/igmp" },
	Family { family: 10, level: 41, at: 8, file: c"/proc/thread-self/net/igmp6" },
];

/// A group on an interface, by that one's number.
struct Group {
	interface: u32,
	address: [u8; 16],
}

/// Whether a datagram socket is a member of a group. `text`: room for files of /proc.
pub fn is_member(fd: i32, text: &mut [u8]) -> Result<bool> {
	for family in &FAMILIES {
		let mut lines = match Lines::open(family.file, text) {
			Err(Errno::ENOENT) => continue,
			lines => lines?,
		};
		let mut interface = 0;
		while let Some(line) = lines.next()? {
			let group = if family.level == 0 { old(line, &mut interface) } else { new(line) };
			if let Some(group) = group
				&& has_joined(fd, family, &group)?
			{
				return Ok(true);
			}
		}
	}
	Ok(false)
}

/// `/proc/net/igmp` has a line for each interface, which begins with its number, and below it one for each group, which
/// begins with a tab and the address as a number.
fn old(line: &[u8], interface: &mut u32) -> Option<Group> {
	let first = words(line).next()?;
	if !line.starts_with(b"\t") {
		*interface = number(first, 10)? as u32;
		return None;
	}
	let mut address = [0; 16];
	address[..4].copy_from_slice(&(number(first, 16)? as u32).to_ne_bytes());
	Some(Group { interface: *interface, address })
}

/// `/proc/net/igmp6`: number and name of the interface, and the address, byte by byte.
fn new(line: &[u8]) -> Option<Group> {
	let mut words = words(line);
	let (interface, text) = (number(words.next()?, 10)? as u32, words.nth(1)?);
	let mut address = [0; 16];
	for (byte, digits) in address.iter_mut().zip(text.chunks(2)) {
		*byte = number(digits, 16)? as u8;
	}
	Some(Group { interface, address })
}

/// Asks for the senders that it takes of a group (`MCAST_MSFILTER`): whoever is no member has none to tell.
fn has_joined(fd: i32, family: &Family, group: &Group) -> Result<bool> {
	const MCAST_MSFILTER: usize = 48;
	/// `struct group_filter` without senders: interface, from its 8th byte struct sockaddr_storage, mode, their number.
	const LEN: usize = 144;
	const ADDRESS: usize = 8;
	let mut filter = [0u64; LEN / 8];
	let mut bytes = [0u8; LEN];
	bytes[..4].copy_from_slice(&group.interface.to_ne_bytes());
	bytes[ADDRESS..ADDRESS + 2].copy_from_slice(&family.family.to_ne_bytes());
	let at = ADDRESS + family.at;
	let len = if family.level == 0 { 4 } else { 16 };
	bytes[at..at + len].copy_from_slice(&group.address[..len]);
	for (word, bytes) in filter.iter_mut().zip(bytes.as_chunks().0) {
		*word = u64::from_ne_bytes(*bytes);
	}
	let mut size = LEN as u32;
	// SAFETY: the kernel reads and writes locals, as long as said.
	let told = unsafe {
		let fd = fd as usize;
		call(Sysno::getsockopt, [fd, family.level, MCAST_MSFILTER, into(&mut filter), into(&mut size)])
	};
	match told {
		Ok(_) => Ok(true),
		// It is none, or of the other family.
		Err(Errno::EADDRNOTAVAIL | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => Ok(false),
		Err(e) => Err(e),
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::{
		net::{Ipv4Addr, Ipv6Addr, UdpSocket},
		os::fd::AsRawFd,
	};

	#[test]
	fn a_socket_is_known_to_be_a_member() {
		let mut text = [0; 65536];
		let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
		let other = UdpSocket::bind("0.0.0.0:0").unwrap();
		socket.join_multicast_v4(&Ipv4Addr::new(224, 1, 2, 3), &Ipv4Addr::LOCALHOST).unwrap();
		assert_eq!(is_member(socket.as_raw_fd(), &mut text), Ok(true));
		assert_eq!(is_member(other.as_raw_fd(), &mut text), Ok(false));
		// A host may have no IPv6.
		let Ok(socket) = UdpSocket::bind("[::]:0") else { return };
		assert_eq!(is_member(socket.as_raw_fd(), &mut text), Ok(false));
		if socket.join_multicast_v6(&Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2), 1).is_ok() {
			assert_eq!(is_member(socket.as_raw_fd(), &mut text), Ok(true));
		}
	}
}

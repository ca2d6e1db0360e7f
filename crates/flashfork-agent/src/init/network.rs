//! The loopback interface and a host name, which programs take for granted.

use std::{io, os::fd::AsRawFd};

use rustix::{
	net::{AddressFamily, SocketFlags, SocketType, socket_with},
	system::sethostname,
};

use crate::log;

/// Brings up `lo`; a kernel without a network still makes a guest.
pub fn bring_up() {
	if let Err(error) = loopback_up() {
		log::line(&format!("cannot bring up the loopback interface: {error}"));
	}
	if let Err(errno) = sethostname(b"flashfork") {
		log::line(&format!("cannot set the host name: {errno}"));
	}
}

/// netdevice(7), SIOCSIFFLAGS.
fn loopback_up() -> io::Result<()> {
	let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
	// SAFETY: all zeros are a value of this plain C structure.
	let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
	for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
		*to = *from as libc::c_char;
	}
	request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
	// SAFETY: the descriptor is open, and `request` names an interface and its flags.
	let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
	if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

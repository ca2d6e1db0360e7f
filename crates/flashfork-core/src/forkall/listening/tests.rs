use super::*;
use std::{
	net::{Ipv6Addr, TcpListener, TcpStream},
	os::fd::{AsRawFd, FromRawFd},
};

#[test]
fn another_port_is_listened_on_in_the_same_way() {
	for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
		let Ok(old) = TcpListener::bind(address) else {
			assert!(address.starts_with('['), "IPv4 is there");
			continue;
		};
		old.set_nonblocking(true).unwrap();
		let fd = old.as_raw_fd();
		// SAFETY: takes numbers; the socket is the test's own.
		assert_eq!(unsafe { libc::listen(fd, 7) }, 0);
		assert!(is_listening(fd));
		let free = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
		let wanted = free.local_addr().unwrap().port();
		drop(free);
		// SAFETY: a new descriptor, nobody else's.
		let new = unsafe { TcpListener::from_raw_fd(listen_alike(fd, wanted).unwrap()) };
		assert_eq!(port(new.as_raw_fd()), Ok(wanted));
		assert_eq!(new.local_addr().unwrap().ip(), old.local_addr().unwrap().ip());
		assert_eq!(room(new.as_raw_fd()), Ok(7));
		for which in [2, 15] {
			assert_eq!(option(new.as_raw_fd(), which), option(fd, which));
		}
		assert_eq!(new.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
		let mut reached = new.local_addr().unwrap();
		if reached.ip().is_unspecified() {
			reached.set_ip(Ipv6Addr::LOCALHOST.into());
		}
		TcpStream::connect(reached).unwrap();
		assert_eq!(listen_alike(fd, wanted), Err(Errno::EADDRINUSE));
	}
}

#[test]
fn what_does_not_listen_is_told() {
	let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
	assert!(!is_listening(one.as_raw_fd()) && !is_listening(0));
}

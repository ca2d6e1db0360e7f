//! Packets with descriptors over a real socket.

use std::{
	fs::File,
	io::{Read, Seek, Write},
	os::fd::{AsFd, AsRawFd, OwnedFd},
};

use flashfork_proto::shell::{Channel, ChannelError, FromShell, MAX_DESCRIPTORS, MAX_MESSAGE, ToShell};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A channel and the bare socket at its other end.
fn channel_and_stranger() -> (Channel, File) {
	let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
	(Channel::new(a), File::from(b))
}

fn memfd(content: &[u8]) -> File {
	let mut file = File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
	file.write_all(content).unwrap();
	file
}

#[test]
fn descriptors_arrive_with_their_message_in_order_and_closed_on_exec() {
	let (daemon, shell) = Channel::pair().unwrap();
	let (one, two) = (memfd(b"one"), memfd(b"two"));
	daemon.send(&ToShell::Connect { port: 7 }, &[one.as_fd(), two.as_fd()]).unwrap();
	daemon.send(&ToShell::Pause, &[]).unwrap();
	let (message, descriptors) = shell.receive::<ToShell>().unwrap();
	assert_eq!(message, ToShell::Connect { port: 7 });
	let contents: Vec<String> = descriptors
		.into_iter()
		.map(|fd| {
			assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
			let mut text = String::new();
			let mut file = File::from(fd);
			file.rewind().unwrap();
			file.read_to_string(&mut text).unwrap();
			text
		})
		.collect();
	assert_eq!(contents, ["one", "two"]);
	let (message, descriptors) = shell.receive::<ToShell>().unwrap();
	assert_eq!((message, descriptors.len()), (ToShell::Pause, 0));
}

#[test]
fn a_message_of_the_greatest_length_passes_and_a_longer_one_does_not() {
	let (daemon, shell) = Channel::pair().unwrap();
	// Two bytes or three of length, one of the variant.
	let fits = FromShell::Console(vec![1; MAX_MESSAGE - 4]);
	shell.send(&fits, &[]).unwrap();
	assert_eq!(daemon.receive::<FromShell>().unwrap().0, fits);
	let error = shell.send(&FromShell::Console(vec![1; MAX_MESSAGE]), &[]).unwrap_err();
	assert!(matches!(error, ChannelError::Message(_)), "{error}");
	let (channel, mut stranger) = channel_and_stranger();
	stranger.write_all(&vec![0; MAX_MESSAGE + 1]).unwrap();
	assert!(matches!(channel.receive::<ToShell>(), Err(ChannelError::Message(_))));
}

#[test]
fn versions_and_strangers_are_told_apart_before_any_message() {
	let (daemon, shell) = Channel::pair().unwrap();
	daemon.greet().unwrap();
	shell.expect_greeting().unwrap();
	for greeting in [&b"hello"[..], b"GET / HTTP/1.1", b"ff\r\n\x02\0\xff\xff"] {
		let (channel, mut stranger) = channel_and_stranger();
		stranger.write_all(greeting).unwrap();
		assert!(matches!(channel.expect_greeting(), Err(ChannelError::Preamble(_))), "{greeting:?}");
	}
}

#[test]
fn more_descriptors_than_allowed_are_refused_and_closed() {
	let (daemon, shell) = Channel::pair().unwrap();
	let file = memfd(b"");
	let too_many = vec![file.as_fd(); MAX_DESCRIPTORS + 1];
	assert!(matches!(daemon.send(&ToShell::Pause, &too_many), Err(ChannelError::Descriptors)));

	// A peer that sends them all the same.
	let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
	let mut space = vec![std::mem::MaybeUninit::uninit(); 4 * (MAX_DESCRIPTORS + 1) + 100];
	let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
	let (pipe, writer) = std::io::pipe().unwrap();
	let writer = OwnedFd::from(writer);
	let many = vec![writer.as_fd(); MAX_DESCRIPTORS + 1];
	assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&many)));
	let flags = rustix::net::SendFlags::empty();
	rustix::net::sendmsg(&a, &[std::io::IoSlice::new(&[0])], &mut ancillary, flags).unwrap();
	assert!(matches!(Channel::new(b).receive::<ToShell>(), Err(ChannelError::Descriptors)));
	drop(writer);
	// All copies are closed, or the pipe would not end.
	assert!(pipe.as_raw_fd() >= 0);
	let mut rest = Vec::new();
	File::from(OwnedFd::from(pipe)).read_to_end(&mut rest).unwrap();
	assert!(rest.is_empty(), "{rest:?}");
	drop(shell);
}

#[test]
fn a_peer_that_is_gone_is_told() {
	let (daemon, shell) = Channel::pair().unwrap();
	drop(shell);
	assert!(matches!(daemon.receive::<FromShell>(), Err(ChannelError::Closed)));
	assert!(matches!(daemon.send(&ToShell::Pause, &[]), Err(ChannelError::Unread)));
	let (daemon, shell) = Channel::pair().unwrap();
	daemon.send(&ToShell::Pause, &[]).unwrap();
	drop(shell);
	assert!(matches!(daemon.receive_bare::<FromShell>(), Err(ChannelError::Unread)));
}

//! Messages on a template's sockets.

use core::{
	ffi::{c_int, c_void},
	mem::{MaybeUninit, size_of},
};
use flashfork_warm::{Ask, DESCRIPTORS, Tell};

/// Sends, and passes a descriptor.
pub fn send_with(socket: c_int, tell: Tell, descriptor: c_int) {
	send_all(socket, &tell.encode(), [descriptor]);
}

/// Sends; a caller who is gone or doesn't read is no reason to wait.
pub fn send(socket: c_int, tell: Tell) -> bool {
	let bytes = tell.encode();
	// SAFETY: the bytes are valid for the call.
	let sent =
		unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
	sent == bytes.len() as isize
}

/// What has come.
pub enum Received {
	/// A request, with the descriptors of [`Ask::Clone`].
	Ask(Ask, Option<[c_int; DESCRIPTORS]>),
	/// Bytes that are no request.
	Nonsense,
	/// A request whose descriptors found no room in this process.
	Short,
	/// Nothing yet.
	Nothing,
	/// The caller is gone.
	End,
}

/// Room for the descriptors of one message.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Takes one message, without waiting.
pub fn receive(socket: c_int) -> Received {
	let mut bytes = [0u8; Ask::LEN];
	let mut control = Control([0; 64]);
	let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
	// SAFETY: all zeros are a value of this plain C structure.
	let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
	message.msg_iov = &raw mut vector;
	message.msg_iovlen = 1;
	message.msg_control = (&raw mut control).cast();
	message.msg_controllen = size_of::<Control>();
	// SAFETY: the buffers are valid for the call and as long as they say.
	let count = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
	if count <= 0 {
		// SAFETY: errno of this thread.
		let errno = unsafe { *libc::__errno_location() };
		return if count < 0 && [libc::EAGAIN, libc::EINTR].contains(&errno) {
			Received::Nothing
		} else {
			Received::End
		};
	}
	let descriptors = descriptors(&message);
	let lost = message.msg_flags & libc::MSG_CTRUNC != 0;
	match (Ask::decode(&bytes[..count as usize]), descriptors) {
		(Some(ask @ Ask::Clone { .. }), Ok(all)) => Received::Ask(ask, Some(all)),
		(Some(Ask::Clone { .. }), Err(count)) if lost && count < DESCRIPTORS => Received::Short,
		(ask, descriptors) => {
			close_all(descriptors.as_ref().map_or(&[], |all| &all[..]));
			ask.map_or(Received::Nonsense, |ask| Received::Ask(ask, None))
		}
	}
}

/// Whether nobody is at the other end any more.
pub fn hung_up(socket: c_int) -> bool {
	let mut poll = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
	// SAFETY: one structure, a local.
	unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Those that came with a message; any other number than [`DESCRIPTORS`] is closed and told.
fn descriptors(message: &libc::msghdr) -> Result<[c_int; DESCRIPTORS], usize> {
	// SAFETY: the message was filled in by recvmsg; the macros stay inside its control data, whose buffer is aligned.
	unsafe {
		let header = libc::CMSG_FIRSTHDR(message);
		if header.is_null() || (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_RIGHTS {
			return Err(0);
		}
		let data = libc::CMSG_DATA(header).cast::<c_int>();
		let count = ((*header).cmsg_len - (data as usize - header as usize)) / size_of::<c_int>();
		let all = core::slice::from_raw_parts(data, count);
		<[c_int; DESCRIPTORS]>::try_from(all).map_err(|_| {
			close_all(all);
			count
		})
	}
}

/// Descriptors for a clone that was made ahead: its caller's connection, then those of the request.
pub const PASSED: usize = DESCRIPTORS + 1;

/// Passes descriptors to the process at the other end, without waiting, and whether it is one job with the caller.
pub fn pass(socket: c_int, job: bool, descriptors: [c_int; PASSED]) -> bool {
	send_all(socket, &[u8::from(job)], descriptors)
}

/// Bytes and descriptors; whether they went.
fn send_all<const N: usize>(socket: c_int, bytes: &[u8], descriptors: [c_int; N]) -> bool {
	const { assert!(N <= PASSED) };
	let mut control = Control([0; 64]);
	let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
	let len = size_of_val(&descriptors) as u32;
	// SAFETY: all zeros are a value of the structure; the control data has room for its header and the descriptors.
	unsafe {
		let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
		message.msg_iov = &raw mut vector;
		message.msg_iovlen = 1;
		message.msg_control = (&raw mut control).cast();
		message.msg_controllen = libc::CMSG_SPACE(len) as usize;
		let header = libc::CMSG_FIRSTHDR(&raw const message);
		(*header).cmsg_level = libc::SOL_SOCKET;
		(*header).cmsg_type = libc::SCM_RIGHTS;
		(*header).cmsg_len = libc::CMSG_LEN(len) as usize;
		libc::CMSG_DATA(header).cast::<[c_int; N]>().write_unaligned(descriptors);
		let sent = libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
		sent == bytes.len() as isize
	}
}

/// Waits for a byte with so many descriptors, as [`pass`] passes them; none when the other end is gone, or this process
/// has no room for them.
pub fn take<const N: usize>(socket: c_int) -> Option<(bool, [c_int; N])> {
	const { assert!(N <= PASSED) };
	let (mut byte, mut control) = (0u8, Control([0; 64]));
	let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
	// SAFETY: all zeros are a value of the structure; the buffers are as long as they say, and looked at within what
	// was received.
	unsafe {
		let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
		message.msg_iov = &raw mut vector;
		message.msg_iovlen = 1;
		message.msg_control = (&raw mut control).cast();
		message.msg_controllen = size_of::<Control>();
		loop {
			match libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) {
				1 => break,
				-1 if *libc::__errno_location() == libc::EINTR => {}
				_ => return None,
			}
		}
		let header = libc::CMSG_FIRSTHDR(&raw const message);
		let all = libc::CMSG_LEN(size_of::<[c_int; N]>() as u32) as usize;
		(!header.is_null() && (*header).cmsg_len == all)
			.then(|| (byte != 0, libc::CMSG_DATA(header).cast::<[c_int; N]>().read_unaligned()))
	}
}

/// Closes what nobody wants.
pub fn close_all(descriptors: &[c_int]) {
	for fd in descriptors {
		// SAFETY: they came with a message and nobody else knows them.
		unsafe { libc::close(*fd) };
	}
}

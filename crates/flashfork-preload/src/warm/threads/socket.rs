//! The maker's messages. No call of libc's is made here: the maker has no `errno` of its own.

use core::mem::MaybeUninit;
use flashfork_core::{Errno, system_call};
use flashfork_warm::{MADE_FROM, Order, PATH};
use syscalls::Sysno;

/// What has come.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Heard {
	/// With a descriptor of the clones' namespace of users, or -1.
	Freeze { users: i32 },
	/// A request, whose directory has this name.
	Make {
		pid: i32,
		told: i32,
		/// Of the last [`Heard::Listen`], so many are for it.
		listeners: u64,
		descriptors: [i32; MADE_FROM],
		path: [u8; PATH],
	},
	/// A request for whose descriptors there was no room.
	Short,
	/// A socket for the next clone, in place of one of the program's.
	Listen { number: i32, socket: i32 },
	/// Nothing of the program is wanted any more.
	LetGo,
	/// Something else.
	Nonsense,
	/// The keeper is gone.
	End,
}

/// Room for the descriptors of one message.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Header of the control data: length, level and type.
const HEADER: usize = 16;

/// Waits for a message.
pub fn hear(line: i32) -> Heard {
	let mut bytes = [0u8; Order::LEN + PATH];
	let mut control = Control([0; 64]);
	let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() - 1 };
	// SAFETY: all zeros are a value of this plain C structure; the buffers are as long as they say.
	let (count, message) = unsafe {
		let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
		message.msg_iov = &raw mut vector;
		message.msg_iovlen = 1;
		message.msg_control = (&raw mut control).cast();
		message.msg_controllen = size_of::<Control>();
		let flags = libc::MSG_CMSG_CLOEXEC as usize;
		(system_call(Sysno::recvmsg, [line as usize, (&raw mut message) as usize, flags, 0, 0, 0]), message)
	};
	let count = match count {
		Ok(0) => return Heard::End,
		Err(Errno::EINTR) => return Heard::Nonsense,
		Err(_) => return Heard::End,
		Ok(count) => count,
	};
	let mut descriptors = [-1; MADE_FROM];
	// The header's own length: that of all control data is rounded up.
	let length = control.0.first_chunk().filter(|_| message.msg_controllen > 0).map_or(0, |b| usize::from_ne_bytes(*b));
	let given = length.saturating_sub(HEADER) / 4;
	for (i, place) in descriptors.iter_mut().enumerate().take(given) {
		let at = HEADER + 4 * i;
		*place = control.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(-1, i32::from_ne_bytes);
	}
	match Order::decode(&bytes[..count]) {
		Some(Order::Freeze) => Heard::Freeze { users: descriptors[0] },
		Some(Order::Make { pid, told, listeners }) if given >= MADE_FROM => {
			let mut path = [0; PATH];
			path.copy_from_slice(&bytes[Order::LEN..]);
			Heard::Make { pid, told, listeners, descriptors, path }
		}
		Some(Order::LetGo) => Heard::LetGo,
		Some(Order::Listen { number }) if given == 1 => Heard::Listen { number, socket: descriptors[0] },
		other => {
			close_all(&descriptors);
			if matches!(other, Some(Order::Make { .. })) { Heard::Short } else { Heard::Nonsense }
		}
	}
}

/// Sends; with a descriptor, where there is one. Who is gone hears nothing.
pub fn say(line: i32, bytes: &[u8], descriptor: Option<i32>) {
	let mut control = Control([0; 64]);
	let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
	// SAFETY: all zeros are a value of the structure; the buffers are as long as they say.
	unsafe {
		let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
		message.msg_iov = &raw mut vector;
		message.msg_iovlen = 1;
		if let Some(descriptor) = descriptor {
			control.0[..8].copy_from_slice(&(HEADER + 4).to_ne_bytes());
			control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
			control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
			control.0[16..20].copy_from_slice(&descriptor.to_ne_bytes());
			message.msg_control = (&raw mut control).cast();
			message.msg_controllen = HEADER + 8;
		}
		let flags = libc::MSG_NOSIGNAL as usize;
		let _ = system_call(Sysno::sendmsg, [line as usize, (&raw mut message) as usize, flags, 0, 0, 0]);
	}
}

/// Waits for a byte; false at the end.
pub fn is_answered(socket: i32) -> bool {
	let mut byte = 0u8;
	// SAFETY: one byte, a local.
	let read = || unsafe { system_call(Sysno::read, [socket as usize, (&raw mut byte) as usize, 1, 0, 0, 0]) };
	core::iter::repeat_with(read).find(|read| *read != Err(Errno::EINTR)) == Some(Ok(1))
}

/// Closes those that there are.
pub fn close_all(descriptors: &[i32]) {
	for fd in descriptors.iter().filter(|fd| **fd >= 0) {
		// SAFETY: they came with a message and nobody else knows them.
		let _ = unsafe { system_call(Sysno::close, [*fd as usize, 0, 0, 0, 0, 0]) };
	}
}

//! Messages on a template's sockets.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use flashfork_warm::{Ask, DESCRIPTORS, Tell};

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
    match Ask::decode(&bytes[..count as usize]) {
        Some(Ask::Clone) => Received::Ask(Ask::Clone, descriptors),
        ask => {
            close_all(descriptors.as_ref().map_or(&[], |all| &all[..]));
            ask.map_or(Received::Nonsense, |ask| Received::Ask(ask, None))
        }
    }
}

/// Those that came with a message; any other number than [`DESCRIPTORS`] is closed.
fn descriptors(message: &libc::msghdr) -> Option<[c_int; DESCRIPTORS]> {
    // SAFETY: the message was filled in by recvmsg; the macros stay inside its control data, whose buffer is aligned.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if header.is_null() || (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_RIGHTS {
            return None;
        }
        let data = libc::CMSG_DATA(header).cast::<c_int>();
        let count = ((*header).cmsg_len - (data as usize - header as usize)) / size_of::<c_int>();
        let all = core::slice::from_raw_parts(data, count);
        let right = <[c_int; DESCRIPTORS]>::try_from(all).ok();
        if right.is_none() {
            close_all(all);
        }
        right
    }
}

/// Closes what nobody wants.
pub fn close_all(descriptors: &[c_int]) {
    for fd in descriptors {
        // SAFETY: they came with a message and nobody else knows them.
        unsafe { libc::close(*fd) };
    }
}

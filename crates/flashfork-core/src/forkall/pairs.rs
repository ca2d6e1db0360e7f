//! Pipes and pairs of sockets by which the program talks to itself, made anew with what is in them.

use super::descriptors::{Entry, Kind, NONE, duplicate_to};
use super::raw::{call, into};
use super::sockets::{self, UNREAD};
use crate::sys::{self, Errno, Result};
use linux_raw_sys::general as k;
use syscalls::Sysno;

const FIONREAD: usize = 0x541b;
const F_SETPIPE_SZ: usize = 1031;
const F_SETFL: usize = 4;
const SPLICE_F_NONBLOCK: usize = 2;
const MSG_PEEK_DONTWAIT: usize = 2 | 0x40;
const AF_UNIX: usize = 1;
const STREAM: usize = 1;

/// Puts a new descriptor in the place of an old one.
pub fn place(new: i32, entry: &Entry) -> Result<()> {
    let placed = duplicate_to(new, entry.number, entry.close_on_exec());
    sys::close(new);
    placed
}

/// Sets what of the flags of an open file can be set.
pub fn set_flags(fd: i32, entry: &Entry) {
    // SAFETY: takes numbers.
    let _ = unsafe { call(Sysno::fcntl, [fd as usize, F_SETFL, entry.info.flags as usize]) };
}

fn waiting(fd: i32) -> Result<i32> {
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

/// A pipe, of which this is an end. Of one whose other end is outside nobody has that.
pub fn pipe(entry: &Entry, all: &[Entry]) -> Result<()> {
    let packets = (entry.info.flags & k::O_DIRECT) as usize;
    if entry.other == NONE {
        let [reads, writes] = two(Sysno::pipe2, [packets, 0, 0])?;
        let (kept, closed) = if entry.kind == Kind::Reads { (reads, writes) } else { (writes, reads) };
        sys::close(closed);
        set_flags(kept, entry);
        return place(kept, entry);
    }
    // Both ends at once, when the one that is read comes up.
    let Some(other) = all.get(entry.other).filter(|_| entry.kind == Kind::Reads) else { return Ok(()) };
    let [reads, writes] = two(Sysno::pipe2, [packets, 0, 0])?;
    // SAFETY: takes numbers. What doesn't fit is seen below.
    unsafe {
        let _ = call(Sysno::fcntl, [writes as usize, F_SETPIPE_SZ, entry.count]);
        let left = waiting(entry.number)?;
        if left > 0 {
            // Takes nothing out of the template's.
            call(Sysno::tee, [entry.number as usize, writes as usize, left as usize, SPLICE_F_NONBLOCK])?;
            if waiting(reads)? != left {
                return Err(Errno::ENOBUFS);
            }
        }
    }
    set_flags(reads, entry);
    set_flags(writes, other);
    place(reads, entry)?;
    place(writes, other)
}

/// A pair of sockets, of which this is an end.
pub fn sockets(entry: &Entry, all: &[Entry], at: usize) -> Result<()> {
    let Some(other) = all.get(entry.other).filter(|_| entry.other > at) else { return Ok(()) };
    let [one, two] = two(Sysno::socketpair, [AF_UNIX, entry.socket[1] as usize, 0])?;
    for (new, end) in [(one, entry), (two, other)] {
        for (which, len) in [(sockets::SO_PASSCRED, 4), (sockets::SO_RCVTIMEO, 16), (sockets::SO_SNDTIMEO, 16)] {
            sockets::copy_option(end.number, new, which, len);
        }
    }
    move_bytes(entry.number, two)?;
    move_bytes(other.number, one)?;
    // Who has had the end of the other's bytes announced has that announced.
    for (end, new) in [(entry, two), (other, one)] {
        if is_at_end(end.number) {
            const SHUT_WR: usize = 1;
            // SAFETY: takes numbers.
            unsafe { call(Sysno::shutdown, [new as usize, SHUT_WR]) }?;
        }
    }
    set_flags(one, entry);
    set_flags(two, other);
    place(one, entry)?;
    place(two, other)
}

/// A socket whose other end nobody has.
pub fn outside(entry: &Entry) -> Result<()> {
    let kind = if entry.socket[0] as usize == AF_UNIX { entry.socket[1] as usize } else { STREAM };
    let [kept, closed] = two(Sysno::socketpair, [AF_UNIX, kind, 0])?;
    sys::close(closed);
    set_flags(kept, entry);
    place(kept, entry)
}

/// Copies what `from` has yet to read, by way of its new peer `to`.
fn move_bytes(from: i32, to: i32) -> Result<()> {
    let left = waiting(from)? as usize;
    if left == 0 {
        return Ok(());
    }
    let buffer = crate::scratch::map(UNREAD)?;
    // SAFETY: the buffer is this function's own, and as long as said.
    let moved = unsafe {
        let read = call(Sysno::recvfrom, [from as usize, buffer, UNREAD, MSG_PEEK_DONTWAIT, 0, 0]);
        let moved = read.and_then(|read| call(Sysno::write, [to as usize, buffer, read]));
        let _ = sys::munmap(buffer, UNREAD);
        moved?
    };
    if moved == left { Ok(()) } else { Err(Errno::ENOBUFS) }
}

/// Whether no more bytes will come than there are.
fn is_at_end(fd: i32) -> bool {
    const POLLRDHUP: u64 = 0x2000;
    let mut poll = fd as u32 as u64 | POLLRDHUP << 32;
    // SAFETY: one struct pollfd, a local.
    let told = unsafe { call(Sysno::poll, [into(&mut poll), 1, 0]) };
    told == Ok(1) && poll >> 48 & POLLRDHUP != 0
}

/// Whether descriptors come with what is to be read.
pub fn has_descriptors(fd: i32) -> bool {
    let (mut byte, mut control) = (0u8, [0u64; 8]);
    let mut vector = [into(&mut byte), 1];
    // struct msghdr: name and its length, vector and its length, control and its length, flags.
    let mut message = [0, 0, into(&mut vector), 1, into(&mut control), size_of_val(&control), 0];
    // SAFETY: all buffers are locals, as long as said.
    let told = unsafe { call(Sysno::recvmsg, [fd as usize, into(&mut message), MSG_PEEK_DONTWAIT]) };
    const SCM_RIGHTS: u64 = 1;
    let found = message[5] > 0 && control[1] >> 32 == SCM_RIGHTS;
    if told.is_ok() && found {
        // What a look has brought here.
        let end = control.as_ptr() as usize + message[5];
        let mut at = control.as_ptr() as usize + 16;
        while at + 4 <= end {
            // SAFETY: within the control buffer.
            sys::close(unsafe { (at as *const i32).read() });
            at += 4;
        }
    }
    found
}

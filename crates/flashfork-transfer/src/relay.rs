//! A TCP connection here and its other half in another machine, with messages between.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt::set_socket_linger};
use serde_bytes::ByteBuf;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes read from a connection at once.
const CHUNK: usize = 32 << 10;

/// Who connected, or was connected to, here has sent all.
const OURS: u8 = 1;
/// Who is at the other half has.
const THEIRS: u8 = 2;
/// It ends before both have.
const CUT: u8 = 4;

/// What comes from the other machine.
pub enum Passed {
    /// Bytes for the connection here.
    Data(ByteBuf),
    /// No more will come.
    End,
}

/// The way to the other machine.
pub trait Peer: Sync {
    /// Passes bytes on, or with none the end; whether it could.
    fn send(&self, data: Option<&[u8]>) -> bool;
    /// Ends the connection to the other machine, so that waiting for it ends, too.
    fn hang_up(&self);
}

/// Which of the two this is.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// The host, which waits for the guest to hang up: what it has sent is taken then.
    Host,
    /// The guest, which hangs up when both have sent all. The host's end of this descriptor is closed before that only
    /// if nobody is there any more.
    Guest(BorrowedFd<'a>),
}

/// Passes `tcp` on until both have sent all, and the end of one is passed on while the other goes on. If it ends in any
/// other way, then so does `tcp`: with a reset, since an end would say that all had come. Whether it ended well.
///
/// Nothing is kept but what is under way: who doesn't read holds up who writes.
///
/// # Errors
/// There can be no thread for it.
pub fn relay(
    tcp: &TcpStream,
    peer: &impl Peer,
    receive: impl FnMut() -> Option<Passed>,
    side: Side<'_>,
) -> io::Result<bool> {
    // Also if this process is killed.
    set_socket_linger(tcp, Some(Duration::ZERO))?;
    let ends = AtomicU8::new(0);
    thread::scope(|scope| -> io::Result<()> {
        thread::Builder::new().spawn_scoped(scope, || pass_on(tcp, peer, &ends, side))?;
        take(tcp, receive, &ends, side);
        if ends.load(Ordering::Acquire) != OURS | THEIRS {
            ends.fetch_or(CUT, Ordering::AcqRel);
        }
        peer.hang_up();
        // Wakes the thread. Fails if the connection is gone already.
        let _ = tcp.shutdown(Shutdown::Read);
        Ok(())
    })?;
    let well = ends.into_inner() == OURS | THEIRS;
    if well {
        set_socket_linger(tcp, None)?;
    }
    Ok(well)
}

/// From the connection here to the other machine.
fn pass_on(tcp: &TcpStream, peer: &impl Peer, ends: &AtomicU8, side: Side<'_>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match (&mut &*tcp).read(&mut buffer) {
            Ok(0) => {
                // After a cut nobody hears of it.
                let said = ends.load(Ordering::Acquire) & CUT == 0 && peer.send(None);
                if !said {
                    return peer.hang_up();
                }
                let before = ends.fetch_or(OURS, Ordering::AcqRel);
                if before & THEIRS != 0 && matches!(side, Side::Guest(_)) {
                    peer.hang_up();
                }
                return;
            }
            Ok(count) if peer.send(Some(&buffer[..count])) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return peer.hang_up(),
        }
    }
}

/// From the other machine to the connection here, until it is over.
fn take(tcp: &TcpStream, mut receive: impl FnMut() -> Option<Passed>, ends: &AtomicU8, side: Side<'_>) {
    loop {
        match receive() {
            Some(Passed::Data(bytes)) => {
                if !write_all(tcp, &bytes, side) {
                    return;
                }
            }
            Some(Passed::End) => {
                // Fails if the connection is gone, which the thread notices.
                let _ = tcp.shutdown(Shutdown::Write);
                let before = ends.fetch_or(THEIRS, Ordering::AcqRel);
                if before & OURS != 0 && matches!(side, Side::Guest(_)) {
                    return;
                }
            }
            None => return,
        }
    }
}

/// Whether all could be written; in the guest not if the host has gone meanwhile, whom nobody would wait for.
fn write_all(tcp: &TcpStream, mut bytes: &[u8], side: Side<'_>) -> bool {
    while !bytes.is_empty() {
        match send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let room = PollFd::new(tcp, PollFlags::OUT);
                let gone = match side {
                    Side::Host => None,
                    Side::Guest(host) => Some(PollFd::from_borrowed_fd(host, PollFlags::RDHUP)),
                };
                let mut fds: Vec<_> = [room].into_iter().chain(gone).collect();
                match poll(&mut fds, None) {
                    Err(Errno::INTR) => {}
                    Ok(_) if fds.get(1).is_none_or(|host| host.revents().is_empty()) => {}
                    Ok(_) | Err(_) => return false,
                }
            }
            Err(_) => return false,
        }
    }
    true
}

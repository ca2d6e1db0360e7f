//! The connection to a template.

use super::names::{Name, Names};
use crate::error::CliError;
use flashfork_warm::{Ask, Tell};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, sendmsg, socket,
};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A connection.
pub struct Link(OwnedFd);

/// Whom a name leads to.
pub enum Found {
    /// A template.
    Alive(Link),
    /// A template that is gone without having given up its name.
    Dead,
    /// Nobody.
    Nobody,
}

impl Link {
    /// Connects to the template of that name, if it lives.
    pub fn find(names: &Names, name: &Name) -> Result<Found, CliError> {
        let failed = |e: nix::Error| CliError::Unable(format!("can't connect to the template {name}: {}", e.desc()));
        let end = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        let address = UnixAddr::new(&names.short(name)).map_err(failed)?;
        match connect(end.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(nix::Error::ENOENT) => return Ok(Found::Nobody),
            Err(nix::Error::ECONNREFUSED) => return Ok(Found::Dead),
            Err(e) => return Err(failed(e)),
        }
        let peer = getsockopt(&end, PeerCredentials).map_err(failed)?;
        if (peer.uid(), peer.gid()) != (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()) {
            return Err(CliError::Unable(format!(
                "the template {name} was warmed by user {} and group {}: a clone would run as these; warm one as yourself",
                peer.uid(),
                peer.gid()
            )));
        }
        Ok(Found::Alive(Link(end)))
    }

    /// Over a socket that is there.
    pub fn over(end: OwnedFd) -> Link {
        Link(end)
    }

    /// Sends a request, and descriptors with it.
    pub fn ask(&self, ask: Ask, descriptors: &[RawFd]) -> nix::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let with: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
        let bytes = ask.encode();
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], with, MsgFlags::MSG_NOSIGNAL, None).map(drop)
    }

    /// The next message; `None` when the template is gone. Waits for it.
    pub fn hear(&self) -> Option<Tell> {
        let mut bytes = [0; Tell::LEN];
        loop {
            match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(0) => return None,
                Ok(count) => return Tell::decode(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// There is no template of that name.
pub fn nobody(name: &Name) -> CliError {
    CliError::Unable(format!(
        "there is no template {name}; `flashfork warm {name} -- COMMAND` makes one, `flashfork ls` lists those there are"
    ))
}

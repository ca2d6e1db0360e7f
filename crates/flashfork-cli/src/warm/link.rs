//! The connection to a template.

use super::names::{Name, Names};
use crate::error::CliError;
use flashfork_warm::{Ask, Tell};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, sendmsg,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long a template may take to answer a question: it has nothing else to do, but a fork, and its host may be busy.
pub const LIMIT: Duration = Duration::from_secs(10);

/// How often a template that doesn't answer is looked at.
pub const LOOK: Duration = Duration::from_millis(250);

/// A connection.
pub struct Link {
    end: OwnedFd,
    /// The template's process; unknown where it can't be seen from here.
    pub template: Option<Pid>,
}

/// Whom a name leads to.
pub enum Found {
    /// A template.
    Alive(Link),
    /// One that is stopped. It must get no descriptors: it would keep them from those who wait for their end.
    Stopped(Link),
    /// A template that is gone without having given up its name.
    Dead,
    /// Nobody.
    Nobody,
}

/// What there is to hear.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Heard {
    /// A message.
    Tell(Tell),
    /// Something that is none.
    Nonsense,
    /// The end of the connection, and of the template.
    End,
}

/// How a process is.
pub enum State {
    /// As it should be.
    Runs,
    /// Stopped, by a signal or a debugger.
    Stopped,
    /// No process any more.
    Gone,
}

/// Why a template doesn't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is stopped.
    Stopped,
    /// Time is up.
    Mute,
}

impl Link {
    /// Connects to the template of that name, if it lives.
    pub fn find(names: &Names, name: &Name) -> Result<Found, CliError> {
        let failed = |e: nix::Error| {
            let short = [nix::Error::EMFILE, nix::Error::ENFILE].contains(&e);
            let cure = if short { "; close some, or raise the limit (ulimit -n)" } else { "" };
            CliError::Unable(format!("can't connect to the template {name}: {}{cure}", e.desc()))
        };
        let end = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        // Only where thousands wait already does connecting wait.
        setsockopt(&end, SendTimeout, &TimeVal::seconds(LIMIT.as_secs() as i64)).map_err(failed)?;
        let address = UnixAddr::new(&names.short(name)).map_err(failed)?;
        match connect(end.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(nix::Error::ENOENT) => return Ok(Found::Nobody),
            Err(nix::Error::ECONNREFUSED) => return Ok(Found::Dead),
            Err(nix::Error::EAGAIN) => {
                return Err(CliError::Unable(format!(
                    "the template {name} doesn't let anybody in for {} seconds: it is stopped, or thousands wait for it; `flashfork ls` in a while tells which",
                    LIMIT.as_secs()
                )));
            }
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
        let link = Link { end, template: Some(Pid::from_raw(peer.pid())).filter(|pid| pid.as_raw() > 1) };
        Ok(match link.state() {
            State::Runs => Found::Alive(link),
            // A tracer that only looks stops it for moments.
            State::Stopped if link.stays_stopped() => Found::Stopped(link),
            State::Stopped => Found::Alive(link),
            // A process that its warm-up has started holds the socket.
            State::Gone => Found::Dead,
        })
    }

    /// Over a socket that is there.
    pub fn over(end: OwnedFd) -> Link {
        Link { end, template: None }
    }

    /// Sends a request, and descriptors with it.
    pub fn ask(&self, ask: Ask, descriptors: &[RawFd]) -> nix::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let with: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
        let (bytes, flags) = (ask.encode(), MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        sendmsg::<()>(self.end.as_raw_fd(), &[IoSlice::new(&bytes)], with, flags, None).map(drop)
    }

    /// What has come, without waiting.
    pub fn hear(&self) -> Option<Heard> {
        let mut bytes = [0; Tell::LEN];
        loop {
            return Some(match recv(self.end.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => Heard::End,
                Ok(count) => Tell::decode(&bytes[..count]).map_or(Heard::Nonsense, Heard::Tell),
                Err(nix::Error::EAGAIN) => return None,
                Err(nix::Error::EINTR) => continue,
                Err(_) => Heard::End,
            });
        }
    }

    /// The next message, if it comes until then and the template is not stopped.
    pub fn answer(&self, until: Instant) -> Result<Heard, Silence> {
        loop {
            if let Some(heard) = self.hear() {
                return Ok(heard);
            }
            let left = until.saturating_duration_since(Instant::now());
            let mut ready = [PollFd::new(self.end.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(left.min(LOOK)).unwrap_or(PollTimeout::ZERO);
            // What it fails with is a signal, or shows again when time is up.
            if poll(&mut ready, wait).is_ok_and(|ready| ready > 0) {
                continue;
            }
            match self.state() {
                State::Stopped => return Err(Silence::Stopped),
                State::Gone => return Ok(Heard::End),
                State::Runs if left.is_zero() => return Err(Silence::Mute),
                State::Runs => {}
            }
        }
    }

    /// How the template's process is. One that is gone may have left the connection to what it has started while it was
    /// warmed.
    pub fn state(&self) -> State {
        let Some(pid) = self.template else { return State::Runs };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            Some('T' | 't') => State::Stopped,
            None | Some('Z' | 'X') => State::Gone,
            Some(_) => State::Runs,
        }
    }

    fn stays_stopped(&self) -> bool {
        std::thread::sleep(LOOK / 50);
        matches!(self.state(), State::Stopped)
    }

    /// A command line that sends it a signal, for a message.
    fn kill(&self, signal: &str) -> String {
        self.template.map_or_else(|| format!("signal {signal} to its process"), |pid| format!("`kill -{signal} {pid}`"))
    }

    /// Its silence in words, with what to do.
    pub fn silent(&self, name: &Name, why: Silence, limit: Duration) -> CliError {
        let end = format!("{} ends it and its clones", self.kill("KILL"));
        CliError::Unable(match why {
            Silence::Stopped => format!("the template {name} is stopped: {} lets it go on, {end}", self.kill("CONT")),
            Silence::Mute => {
                format!("the template {name} has not answered for {} seconds: try again later; {end}", limit.as_secs())
            }
        })
    }

    /// What it says makes no sense.
    pub fn misunderstood(&self, name: &Name) -> CliError {
        CliError::Unable(format!(
            "the template {name} and this command don't understand each other: they are of different versions; {} ends it and its clones, then warm it again",
            self.kill("TERM")
        ))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// There is no template of that name.
pub fn nobody(name: &Name) -> CliError {
    CliError::Unable(format!(
        "there is no template {name}; `flashfork warm {name} -- COMMAND` makes one, `flashfork ls` lists those there are"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::socketpair;

    fn pair() -> (Link, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        (Link::over(ours), theirs)
    }

    #[test]
    fn silence_has_an_end() {
        let (link, theirs) = pair();
        assert!(matches!(link.answer(Instant::now() + Duration::from_millis(300)), Err(Silence::Mute)));
        drop(theirs);
        assert!(matches!(link.answer(Instant::now()), Ok(Heard::End)));
    }

    #[test]
    fn nonsense_is_told_from_the_end() {
        let (link, theirs) = pair();
        assert!(link.hear().is_none());
        for bytes in [&[0xff; 3][..], &[6; 200]] {
            nix::sys::socket::send(theirs.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
            assert!(matches!(link.answer(Instant::now() + LIMIT), Ok(Heard::Nonsense)));
        }
    }
}

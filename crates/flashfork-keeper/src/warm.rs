//! From the start of the program to the moment at which its threads stand still.

use crate::file::Files;
use crate::init::{self, Passed};
use crate::message::{self, Received};
use crate::moment::{Moment, Watch};
use crate::namespaces;
use crate::notes::{Note, What};
use crate::process;
use crate::relay::Relay;
use crate::streams;
use crate::told::Told;
use flashfork_core::forkall::WORDS;
use flashfork_core::never_seal;
use flashfork_warm::{Order, Word};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Error;
use std::os::fd::{AsFd, OwnedFd};

/// A template that clones can be made of. The program itself has ended.
pub struct Ready {
    /// To its init, and to its maker.
    pub init: OwnedFd,
    pub line: OwnedFd,
    /// What the maker says of it: a [`Word::Frozen`].
    pub word: Word,
    /// What it was made of.
    pub files: Files,
}

/// Why there is none.
pub enum Failed {
    /// The program has ended, with this status.
    Ended(i32),
    /// In words, of the program.
    Unfit(String),
}

impl From<String> for Failed {
    fn from(words: String) -> Failed {
        Failed::Unfit(words)
    }
}

/// Starts the program and brings it there.
pub fn warm(told: &Told) -> Result<Ready, Failed> {
    let system = |e: Error| Failed::Unfit(format!("can't be warmed: {e}"));
    let drops = namespaces::enter().map_err(|why| format!("can't be a template with threads: {why}"))?;
    let (line, theirs) = message::pair().map_err(|e| system(e.into()))?;
    let (bell, rings) = message::pair().map_err(|e| system(e.into()))?;
    let (relays, output) = match &told.moment {
        Moment::Line(_) => {
            let (first, output) = Relay::new(std::io::stdout()).map_err(system)?;
            let (second, errors) = Relay::new(std::io::stderr()).map_err(system)?;
            (vec![first, second], Some([output, errors]))
        }
        _ => (Vec::new(), streams::apart().map_err(system)?),
    };
    let passed = Passed { line: theirs, bell: rings, drops, output };
    let init = init::start(told, passed).map_err(|e| Failed::Unfit(no_init(&e)))?;
    let mut warming = Warming {
        told,
        init,
        line,
        bell: Some(bell),
        relays,
        process: None,
        program: None,
        inner: 0,
        watch: Watch::new(),
    };
    warming.until_ready()?;
    warming.freeze()
}

fn no_init(e: &Error) -> String {
    format!("can't be a template with threads: {}", namespaces::no_others(e))
}

struct Warming<'a> {
    told: &'a Told,
    init: OwnedFd,
    line: OwnedFd,
    /// Where the program rings; none when it has let go of that.
    bell: Option<OwnedFd>,
    relays: Vec<Relay>,
    process: Option<OwnedFd>,
    /// Its number here, and as the init sees it.
    program: Option<i32>,
    inner: i32,
    watch: Watch,
}

impl Warming<'_> {
    fn until_ready(&mut self) -> Result<(), Failed> {
        loop {
            let moment = &self.told.moment;
            let [mut bell, mut output] = [false, false];
            {
                let mut all = vec![PollFd::new(&self.init, PollFlags::IN), PollFd::new(&self.line, PollFlags::IN)];
                let bell_at = self.bell.as_ref().map(|fd| {
                    all.push(PollFd::new(fd, PollFlags::IN));
                    all.len() - 1
                });
                let relays_at = all.len();
                all.extend(self.relays.iter().map(|relay| PollFd::from_borrowed_fd(relay.as_fd(), PollFlags::IN)));
                let patience = Watch::patience(moment).and_then(|span| Timespec::try_from(span).ok());
                // What it fails with is a signal.
                let _ = poll(&mut all, patience.as_ref());
                let ready = |at: Option<usize>| at.is_some_and(|at| !all[at].revents().is_empty());
                bell |= ready(bell_at);
                output |= all[relays_at..].iter().any(|fd| !fd.revents().is_empty());
            }
            self.notes()?;
            self.hear()?;
            if bell && self.rung()? {
                return Ok(());
            }
            if output && self.printed() {
                return Ok(());
            }
            if let Some(pid) = self.program
                && self.watch.has_come(moment, pid)
            {
                return Ok(());
            }
        }
    }

    /// What the init says.
    fn notes(&mut self) -> Result<(), Failed> {
        loop {
            match Note::receive(self.init.as_fd()) {
                Ok(None) => return Ok(()),
                Ok(Some((Note::Runs { pid }, mut descriptors))) => {
                    self.inner = pid;
                    self.process = descriptors.pop();
                    self.program = self.process.as_ref().and_then(process::number_of);
                }
                Ok(Some((Note::Waited { pid, status }, _)))
                    if pid == self.inner && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) =>
                {
                    return Err(Failed::Ended(status));
                }
                Ok(Some((Note::Failed { what, errno }, _))) => return Err(Failed::Unfit(self.no_start(what, errno))),
                Ok(Some(_)) => {}
                Err(_) => return Err(Failed::Unfit("can't be warmed: its init has ended".into())),
            }
        }
    }

    /// Whether the program has.
    fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(process::has_ended)
    }

    fn no_start(&self, what: What, errno: i32) -> String {
        let e = Error::from_raw_os_error(errno);
        let why = match what {
            What::Proc => namespaces::no_proc(&e),
            What::Namespace => namespaces::no_others(&e),
            What::Program => return format!("can't be run: {e}"),
        };
        format!("can't be a template with threads: {why}")
    }

    /// The maker says nothing before it was told to stop the program; its end is that of the shim.
    fn hear(&self) -> Result<(), Failed> {
        match message::receive(self.line.as_fd(), &mut [0; Word::LEN]) {
            Ok(None) => Ok(()),
            // The end of the program is told by the init, and more to the point.
            _ if self.has_ended() => Ok(()),
            _ => Err(Failed::Unfit("can't be a template with threads: the maker of its clones has ended".into())),
        }
    }

    fn rung(&mut self) -> Result<bool, Failed> {
        let Some(bell) = &self.bell else { return Ok(false) };
        match message::receive(bell.as_fd(), &mut [0; 8]) {
            Ok(None) => Ok(false),
            Ok(Some(Received { len: 1.., .. })) => Ok(true),
            // By the end of the program, or because it closes all descriptors: that is no matter where it needn't ring.
            _ => {
                self.bell = None;
                let rings = matches!(self.told.moment, Moment::Itself);
                if rings && !self.has_ended() { Err(Failed::Unfit(REPLACED.into())) } else { Ok(false) }
            }
        }
    }

    fn printed(&mut self) -> bool {
        let Moment::Line(wanted) = &self.told.moment else { return false };
        let mut found = false;
        self.relays.retain_mut(|relay| match relay.pass(wanted) {
            Ok(in_it) => {
                found |= in_it;
                true
            }
            Err(_) => false,
        });
        found
    }

    /// Has the maker stop it.
    fn freeze(mut self) -> Result<Ready, Failed> {
        // It may have rung before its init said that it runs.
        while self.process.is_none() {
            let mut ready = [PollFd::new(&self.init, PollFlags::IN)];
            let _ = poll(&mut ready, None);
            self.notes()?;
        }
        let gone = |_| Failed::Unfit("can't be a template with threads: the maker of its clones has ended".into());
        // The program lets go of its descriptors when it is stopped.
        let files = self.program.map(Files::of).unwrap_or_default();
        message::send(self.line.as_fd(), &Order::Freeze.encode(), &[]).map_err(gone)?;
        let mut bytes = [0; Word::LEN];
        let word = loop {
            let mut ready = [PollFd::new(&self.line, PollFlags::IN)];
            let _ = poll(&mut ready, None);
            if let Some(Received { len, .. }) = message::receive(self.line.as_fd(), &mut bytes).map_err(gone)? {
                break Word::decode(&bytes[..len]);
            }
        };
        self.relays.iter_mut().for_each(Relay::pass_rest);
        match word {
            Some(word @ Word::Frozen { .. }) => Ok(Ready { init: self.init, line: self.line, word, files }),
            Some(Word::Unfit { what, number, name }) => Err(Failed::Unfit(unfit(what, number, &name))),
            _ => Err(gone(rustix::io::Errno::PIPE)),
        }
    }
}

/// It is still there, but as something else.
const REPLACED: &str = "let go of flashfork before it was ready: it has gone on as another program (exec), or closed descriptors that are not its own; warm the program that it starts itself";

/// What stands against a template, in words.
fn unfit(what: u8, number: i32, name: &[u8]) -> String {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(&name[..end]).replace(char::is_control, "?");
    let (has, cure) =
        WORDS.get(usize::from(what)).copied().unwrap_or(("something that clones can't have", "make it ready earlier"));
    let writer = usize::from(what) == flashfork_core::forkall::What::Writer as usize;
    let row = usize::try_from(number).ok().and_then(|reason| never_seal::TABLE.get(reason)).filter(|_| writer);
    let system = usize::from(what) == flashfork_core::forkall::What::System as usize;
    let about = match (row, name.is_empty()) {
        (Some(row), _) => format!(" ({})", row.what),
        _ if system => format!(" ({})", Error::from_raw_os_error(number)),
        (None, false) if number > 0 => format!(" ({name}, {number})"),
        (None, false) => format!(" ({name})"),
        (None, true) if number > 0 => format!(" ({number})"),
        (None, true) => String::new(),
    };
    format!("can't be a template with threads: it has {has}{about}; {cure}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashfork_core::forkall::What as Reason;

    #[test]
    fn what_stands_against_it_is_said_in_words() {
        let text = unfit(Reason::Child as u8, 77, &[0; 48]);
        assert_eq!(
            text,
            "can't be a template with threads: it has a child process, which its clones would not have (77); have it end its children before it is ready"
        );
        let text = unfit(Reason::Lock as u8, 5, b"/tmp/x\0\0");
        assert!(text.contains("(/tmp/x, 5)"), "{text}");
        let text = unfit(Reason::System as u8, libc::ENOENT, &[0; 48]);
        assert!(text.contains("No such file"), "{text}");
    }
}

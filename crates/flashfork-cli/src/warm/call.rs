//! `flashfork clone`.

use super::link::{Found, Heard, LOOK, Link, Silence, State, nobody};
use super::names::{Name, Names, working_directory};
use super::{caller, start};
use crate::error::CliError;
use flashfork_warm::{Ask, MOST_RUNNING, Step, Tell};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Signals that the clone gets in place of this command; the first ones end a program that hasn't said otherwise.
const PASSED_ON: [Signal; 13] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGWINCH,
    Signal::SIGURG,
];
const ENDING: usize = 7;

/// How long a template may take to make a clone: it makes one after the other, for as many callers as come.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a clone with these arguments to its end. Gives the exit code.
pub fn clone(name: &Name, arguments: &[OsString]) -> Result<u8, CliError> {
    let names = Names::open()?;
    let link = match Link::find(&names, name)? {
        Found::Alive(link) => link,
        Found::Stopped(link) => return Err(link.silent(name, Silence::Stopped, LIMIT)),
        Found::Nobody => return Err(nobody(name)),
        Found::Dead => {
            names.clear(name)?;
            return Err(gone(name));
        }
    };
    // First of all: the clone blocks and ignores what this process did when it was started.
    let start = start::file(arguments.iter().map(OsString::as_os_str))?;
    let directory = working_directory().map_err(|e| {
        CliError::Unable(format!("can't open the working directory, where the clone is to run: {}", e.desc()))
    })?;
    let signals = caller::take_signals(&PASSED_ON)?;
    let (start_fd, directory_fd) = (start.as_raw_fd(), directory.as_raw_fd());
    match link.ask(Ask::Clone, &[start_fd, directory_fd, 0, 1, 2]) {
        Ok(()) => drop(start),
        Err(nix::Error::EPIPE | nix::Error::ECONNRESET) => return Err(gone(name)),
        Err(e) => return Err(CliError::Unable(format!("can't ask the template {name} for a clone: {}", e.desc()))),
    }
    Running { name, link: &link, signals: &signals, clone: None }.attend()
}

/// A clone, or the wait for it.
struct Running<'a> {
    name: &'a Name,
    link: &'a Link,
    signals: &'a SignalFd,
    /// Its process, once it has started.
    clone: Option<i32>,
}

impl Running<'_> {
    /// Until the clone ends: its signals to it, its exit status from it. The template stops and continues this command
    /// with its clone.
    fn attend(mut self) -> Result<u8, CliError> {
        let asked = Instant::now();
        loop {
            let (link, signals) = (self.link.as_fd(), self.signals.as_fd());
            let mut ready = [PollFd::new(link, PollFlags::POLLIN), PollFd::new(signals, PollFlags::POLLIN)];
            let look = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
            match poll(&mut ready, if self.clone.is_some() { PollTimeout::NONE } else { look }) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(CliError::Unable(format!("can't wait for the clone: {}", e.desc()))),
            }
            let signalled = ready[1].any().unwrap_or(false);
            // Before the signals: one that was sent because of what the clone does finds that it has started.
            while let Some(heard) = self.link.hear() {
                if let Some(end) = self.told(&heard)? {
                    return Ok(end);
                }
            }
            if signalled {
                self.pass_on();
            } else if self.clone.is_none() {
                self.look(asked)?;
            }
        }
    }

    /// The exit code, if this was the end.
    fn told(&mut self, heard: &Heard) -> Result<Option<u8>, CliError> {
        match *heard {
            Heard::Tell(Tell::Started { pid }) => {
                self.clone = Some(pid);
                let_go_of_streams();
                Ok(None)
            }
            Heard::Tell(Tell::Changed { count, name }) => {
                crate::output::complain(&changed(self.name, count, &name));
                Ok(None)
            }
            Heard::Tell(Tell::Ended { status }) => Ok(Some(exit_code(status))),
            Heard::Tell(Tell::Failed { step: Step::Request, .. } | Tell::Facts(_) | Tell::Refused { .. })
            | Heard::Nonsense => Err(self.link.misunderstood(self.name)),
            Heard::Tell(Tell::Failed { step, errno }) => Err(no_clone(self.name, step, errno)),
            Heard::End => {
                // The clone itself ends with its template; what it has started in its group would not.
                if let Some(pid) = self.clone {
                    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
                }
                Err(gone(self.name))
            }
        }
    }

    fn pass_on(&self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let signal = info.ssi_signo as i32;
            // Nobody has seen anything of the clone, which may never be: it ends with this command.
            if self.clone.is_none()
                && let Some(ending) = PASSED_ON[..ENDING].iter().find(|s| **s as i32 == signal)
            {
                caller::end_by(*ending);
            }
            // The clone goes on already.
            let from_template = self.link.template.is_some_and(|pid| pid.as_raw() as u32 == info.ssi_pid);
            if signal == libc::SIGCONT && from_template {
                continue;
            }
            // A stopped job is continued as a whole. A template that is gone is told of by the link; one that has not
            // read hundreds of signals before will not miss this.
            let group = info.ssi_code == caller::FROM_KERNEL || signal == libc::SIGCONT;
            let _ = self.link.ask(Ask::Signal { signal, group }, &[]);
        }
    }

    /// Whether there is hope for a clone.
    fn look(&self, asked: Instant) -> Result<(), CliError> {
        let silent = |why| Err(self.link.silent(self.name, why, LIMIT));
        match self.link.state() {
            State::Stopped => silent(Silence::Stopped),
            State::Gone => Err(gone(self.name)),
            State::Runs if asked.elapsed() > LIMIT => silent(Silence::Mute),
            State::Runs => Ok(()),
        }
    }
}

/// The clone has them; who is at their other end should notice when it closes them. Errors can still be told.
fn let_go_of_streams() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        for stream in 0..2 {
            // SAFETY: nothing in this process uses these two any more.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
}

/// What a shell would make of it.
fn exit_code(status: i32) -> u8 {
    let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    u8::try_from(code).unwrap_or(1)
}

/// The clone runs what was there.
fn changed(template: &Name, count: u64, name: &[u8]) -> CliError {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    let file = String::from_utf8_lossy(&name[..end]).replace(char::is_control, "?");
    let others = if count > 1 { format!(" and {} other files", count - 1) } else { String::new() };
    CliError::Unable(format!(
        "{file}{others} changed since {template} was warmed, and this clone runs what was there before: `flashfork rm {template}`, then warm it again"
    ))
}

fn gone(name: &Name) -> CliError {
    CliError::Unable(format!(
        "the template {name} has ended, and its clones with it; `flashfork warm {name} -- COMMAND` makes a new one"
    ))
}

fn no_clone(name: &Name, step: Step, errno: i32) -> CliError {
    let why = nix::Error::from_raw(errno).desc();
    CliError::Unable(match step {
        Step::TooMany => format!(
            "{MOST_RUNNING} clones of {name} run, no more can; wait until some have ended, or warm another template"
        ),
        Step::Retired => {
            format!("the template {name} is being removed; `flashfork warm {name} -- COMMAND` makes a new one")
        }
        Step::Fork => format!(
            "can't fork a clone of {name}: {why}; free memory, or raise the limits its template was warmed under"
        ),
        Step::Descriptors => format!(
            "the template {name} is out of descriptors, of which it needs one for each clone that runs: wait until some have ended, or warm it under a higher limit (ulimit -n)"
        ),
        Step::Directory => format!("a clone of {name} can't go to the working directory: {why}; run it elsewhere"),
        Step::Streams => format!("a clone of {name} can't take the standard streams: {why}"),
        Step::Map | Step::Wait | Step::Request => {
            format!("a clone of {name} can't take its arguments: {why}; free memory, or raise its limit (ulimit -v)")
        }
    })
}

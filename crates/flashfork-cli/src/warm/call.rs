//! `flashfork clone`.

use super::link::{Found, Link, nobody};
use super::names::{Name, Names, working_directory};
use super::{caller, start};
use crate::error::CliError;
use flashfork_warm::{Ask, MOST_RUNNING, Step, Tell};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

/// Signals that the clone gets in place of this command.
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

/// `si_code` of a signal from the kernel: that of a terminal goes to the whole group in front.
const FROM_KERNEL: i32 = 0x80;

/// Runs a clone with these arguments to its end.
pub fn clone(name: &Name, arguments: &[OsString]) -> Result<ExitCode, CliError> {
    let names = Names::open()?;
    let link = match Link::find(&names, name)? {
        Found::Alive(link) => link,
        Found::Nobody => return Err(nobody(name)),
        Found::Dead => {
            names.remove(name)?;
            return Err(gone(name));
        }
    };
    let failed = |e: std::io::Error| CliError::Unable(format!("can't write down what the clone takes over: {e}"));
    // First of all: the clone blocks and ignores what this process did when it was started.
    let start = start::memfd(arguments.iter().map(OsString::as_os_str)).map_err(failed)?;
    let directory = working_directory().map_err(|e| {
        CliError::Unable(format!("can't open the working directory, where the clone is to run: {}", e.desc()))
    })?;
    let signals = take_signals()?;
    let (memory, directory) = (start.as_raw_fd(), directory.as_raw_fd());
    if link.ask(Ask::Clone, &[memory, directory, 0, 1, 2]).is_err() {
        return Err(gone(name));
    }
    drop(start);
    attend(name, &link, &signals)
}

/// From now on signals are read, but for those that were ignored.
fn take_signals() -> Result<SignalFd, CliError> {
    let ignored = caller::ignored();
    let wanted: SigSet = PASSED_ON.into_iter().filter(|s| ignored & caller::bit(*s as i32) == 0).collect();
    let failed = |e: nix::Error| CliError::Unable(format!("can't catch signals: {}", e.desc()));
    wanted.thread_block().map_err(failed)?;
    SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

/// Until the clone ends: its signals to it, its state to this command's parent.
fn attend(name: &Name, link: &Link, signals: &SignalFd) -> Result<ExitCode, CliError> {
    let mut clone = None;
    loop {
        let mut ready = [PollFd::new(link.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(CliError::Unable(format!("can't wait for the clone: {}", e.desc()))),
        }
        let [told, signalled] = ready.map(|fd| fd.any().unwrap_or(false));
        if signalled {
            while let Ok(Some(info)) = signals.read_signal() {
                let (signal, group) = (info.ssi_signo as i32, info.ssi_code == FROM_KERNEL);
                // A stopped job is continued as a whole. A template that is gone is told of below.
                let group = group || signal == libc::SIGCONT;
                let _ = link.ask(Ask::Signal { signal, group }, &[]);
            }
        }
        if !told {
            continue;
        }
        match link.hear() {
            Some(Tell::Started { pid }) => {
                clone = Some(pid);
                let_go_of_streams();
            }
            // As the clone would in this command's place. Continued, it passes the signal on.
            Some(Tell::Stopped) => drop(raise(Signal::SIGSTOP)),
            Some(Tell::Ended { status }) => return Ok(exit_code(status)),
            Some(Tell::Failed { step, errno }) => return Err(no_clone(name, step, errno)),
            Some(_) => return Err(no_clone(name, Step::Request, 0)),
            None => {
                // The clone itself ends with its template; what it has started in its group would not.
                if let Some(pid) = clone {
                    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
                }
                return Err(gone(name));
            }
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
fn exit_code(status: i32) -> ExitCode {
    let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn gone(name: &Name) -> CliError {
    CliError::Unable(format!(
        "the template {name} has ended, and its clones with it; `flashfork warm {name} -- COMMAND` makes a new one"
    ))
}

fn no_clone(name: &Name, step: Step, errno: i32) -> CliError {
    let why = nix::Error::from_raw(errno).desc();
    CliError::Unable(match step {
        Step::Request => format!(
            "the template {name} does not understand this command: they are of different versions; `flashfork rm {name}`, then warm it again"
        ),
        Step::TooMany => format!(
            "{MOST_RUNNING} clones of {name} run, no more can; wait until some have ended, or warm another template"
        ),
        Step::Retired => {
            format!("the template {name} is being removed; `flashfork warm {name} -- COMMAND` makes a new one")
        }
        Step::Fork => format!(
            "can't fork a clone of {name}: {why}; free memory, or raise the limits its template was warmed under"
        ),
        Step::Directory => format!("a clone of {name} can't go to the working directory: {why}; run it elsewhere"),
        Step::Streams => format!("a clone of {name} can't take the standard streams: {why}"),
        Step::Map | Step::Wait => format!("a clone of {name} can't take its arguments: {why}; free memory"),
    })
}

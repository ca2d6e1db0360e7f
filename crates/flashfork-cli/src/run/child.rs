//! Starts the program, passes signals on to it, and waits.

use crate::error::CliError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// What came of it.
pub enum Outcome {
    /// It ran.
    Ended(Ended),
    /// It could not be started: the exit code a shell would give, and why.
    NotStarted { code: u8, why: String },
}

/// How the program ended.
pub struct Ended(ExitStatus);

impl Ended {
    /// The exit code a shell would give: the program's own, or 128 plus the signal.
    pub fn code(&self) -> u8 {
        let code = self.0.code().or(self.0.signal().map(|s| 128 + s));
        code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
    }
}

/// Runs the command to its end. The terminal's own signals reach the program directly; those sent to us are passed on.
pub fn run(command: &mut Command, name: &OsStr) -> Result<Outcome, CliError> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|e| CliError::Unable(format!("can't catch signals: {e}")))?;
    // SAFETY: between fork and exec only getpid's cousin prctl is called, which is async-signal-safe.
    unsafe { command.pre_exec(die_with_parent) };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return Ok(not_started(name, &e)),
    };
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    let handle = signals.handle();
    let passer = std::thread::spawn(move || {
        for signal in signals.forever() {
            // SIGINT and SIGQUIT come from the terminal to the whole group: the program has them already.
            if let (true, Ok(signal)) =
                (![SIGINT, SIGQUIT].contains(&signal), nix::sys::signal::Signal::try_from(signal))
            {
                // The program may have ended in this moment; then there is nobody to tell.
                let _ = nix::sys::signal::kill(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(|e| CliError::Unable(format!("can't wait for {}: {e}", name.display())));
    handle.close();
    // The thread only loops over signals: it can't have panicked with anything to say.
    let _ = passer.join();
    status.map(|status| Outcome::Ended(Ended(status)))
}

/// Has the kernel end the program when this process dies, so that a killed `flashfork run` leaves nothing behind.
fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(Into::into)
}

fn not_started(name: &OsStr, e: &std::io::Error) -> Outcome {
    let (code, why) = match e.kind() {
        std::io::ErrorKind::NotFound if !name.as_encoded_bytes().contains(&b'/') => (127, "not found in PATH".into()),
        std::io::ErrorKind::NotFound => (127, "no such file".into()),
        _ => (126, e.to_string()),
    };
    Outcome::NotStarted { code, why: format!("can't run '{}': {why}", name.display()) }
}

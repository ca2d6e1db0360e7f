//! Starts the program, passes signals on to it, and waits.

use crate::error::CliError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

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
pub fn run(command: &mut Command, name: &OsStr) -> Result<Ended, CliError> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|e| CliError::Unable(format!("can't catch signals: {e}")))?;
    // SAFETY: between fork and exec only getpid's cousin prctl is called, which is async-signal-safe.
    unsafe { command.pre_exec(die_with_parent) };
    let mut child = command.spawn().map_err(|e| CliError::Unable(format!("can't run {}: {e}", name.display())))?;
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
    status.map(Ended)
}

/// Has the kernel end the program when this process dies, so that a killed `flashfork run` leaves nothing behind.
fn die_with_parent() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(Into::into)
}

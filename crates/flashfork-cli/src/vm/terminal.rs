//! The user's terminal while a command in a guest has one: raw, so that every key gets there, and as large.

use crate::error::CliError;
use flashfork_proto::agent::TerminalSize;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{IsTerminal, stdin, stdout};

/// What a terminal is taken for that doesn't say how large it is.
const UNKNOWN: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Whether somebody types and looks.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// The size of the terminal that is looked at.
pub fn size() -> TerminalSize {
    // SAFETY: all zeros are a value of this plain C structure.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: `size` is writable; see ioctl_tty(2), TIOCGWINSZ.
    let known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    if known && size.ws_row > 0 && size.ws_col > 0 {
        TerminalSize { rows: size.ws_row, columns: size.ws_col }
    } else {
        UNKNOWN
    }
}

/// Raw mode of standard input, if that is a terminal; dropping it puts back what was before.
pub struct Raw(Option<Termios>);

impl Raw {
    pub fn begin() -> Result<Self, CliError> {
        if !stdin().is_terminal() {
            return Ok(Self(None));
        }
        let failed = |errno: nix::Error| CliError::Unable(format!("cannot set up the terminal: {errno}"));
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin(), SetArg::TCSADRAIN, &raw).map_err(failed)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A terminal that is gone needs no mode.
            let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, before);
        }
    }
}

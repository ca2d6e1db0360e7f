//! The user's terminal while a command in a guest has one: raw, so that every key gets there, and as large.

use flashfork_proto::agent::TerminalSize;
use flashfork_terminal::CliError;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, stdin, stdout};

/// What a terminal is taken for that doesn't say how large it is.
const UNKNOWN: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Whether somebody types and looks.
pub fn is_there() -> bool {
	stdin().is_terminal() && stdout().is_terminal()
}

/// The size of the terminal looked at.
pub fn size() -> TerminalSize {
	match tcgetwinsize(stdout()) {
		Ok(size) if size.ws_row > 0 && size.ws_col > 0 => TerminalSize { rows: size.ws_row, columns: size.ws_col },
		_ => UNKNOWN,
	}
}

/// Raw mode of standard input, if that is a terminal; dropping it puts back what was before.
pub struct Raw(Option<Termios>);

impl Raw {
	pub fn begin() -> Result<Self, CliError> {
		if !stdin().is_terminal() {
			return Ok(Self(None));
		}
		let failed = |e| CliError::Unable(format!("cannot set up the terminal: {e}"));
		let before = tcgetattr(stdin()).map_err(failed)?;
		let mut raw = before.clone();
		raw.make_raw();
		tcsetattr(stdin(), OptionalActions::Drain, &raw).map_err(failed)?;
		Ok(Self(Some(before)))
	}
}

impl Drop for Raw {
	fn drop(&mut self) {
		if let Some(before) = &self.0 {
			// A terminal that is gone needs no mode.
			let _ = tcsetattr(stdin(), OptionalActions::Drain, before);
		}
	}
}

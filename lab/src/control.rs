//! The protocol between the guest's init (`guest/init.sh`) and the lab: lines on their own serial
//! port.
//!
//! ```text
//! ready RELEASE                       the command starts on kernel RELEASE
//! failed REASON                       the guest could not be set up
//! Command terminated by signal N      from time(1), before `exited`
//! Command exited with non-zero ...    from time(1), before `exited`; says nothing new
//! exited N                            from time(1)
//! end                                 all output of the command is out
//! ```

use crate::{LabError, Status};

/// What the guest has said so far.
#[derive(Debug, Default)]
pub(crate) struct Control {
	line: Vec<u8>,
	/// Kernel release, once the command has started.
	pub release: Option<String>,
	/// Why the guest could not be set up.
	pub failure: Option<String>,
	/// How the command ended.
	pub status: Option<Status>,
	/// Whether all output is out and the guest is about to power off.
	pub ended: bool,
}

impl Control {
	/// Takes in what the guest wrote.
	pub fn feed(&mut self, bytes: &[u8]) -> Result<(), LabError> {
		for byte in bytes {
			if *byte == b'\n' {
				let line = String::from_utf8_lossy(&self.line).into_owned();
				self.line.clear();
				self.understand(&line).ok_or(LabError::Protocol(line))?;
			} else {
				self.line.push(*byte);
			}
		}
		Ok(())
	}

	fn understand(&mut self, line: &str) -> Option<()> {
		if let Some(release) = line.strip_prefix("ready ") {
			self.release = Some(release.to_owned());
		} else if let Some(reason) = line.strip_prefix("failed ") {
			self.failure = Some(reason.to_owned());
		} else if let Some(signal) = line.strip_prefix("Command terminated by signal ") {
			self.status = Some(Status::Signaled(signal.parse().ok()?));
		} else if let Some(code) = line.strip_prefix("exited ") {
			// time(1) gives a code of 0 after a signal.
			let code = code.parse().ok()?;
			self.status.get_or_insert(Status::Exited(code));
		} else if line == "end" {
			self.ended = true;
		} else if !line.starts_with("Command exited with non-zero status ") {
			return None;
		}
		Some(())
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn control(text: &str) -> Result<Control, LabError> {
		let mut control = Control::default();
		for piece in text.as_bytes().chunks(3) {
			control.feed(piece)?;
		}
		Ok(control)
	}

	#[test]
	fn a_command_that_exits() {
		let control =
			control("ready 6.1.0-56-cloud-amd64\nCommand exited with non-zero status 7\nexited 7\nend\n").unwrap();
		assert_eq!(control.release.as_deref(), Some("6.1.0-56-cloud-amd64"));
		assert_eq!(control.status, Some(Status::Exited(7)));
		assert!(control.ended);
	}

	#[test]
	fn a_signal_outweighs_the_code_after_it() {
		let control = control("ready x\nCommand terminated by signal 9\nexited 0\nend\n").unwrap();
		assert_eq!(control.status, Some(Status::Signaled(9)));
	}

	#[test]
	fn a_guest_that_is_not_set_up() {
		let control = control("failed no swap\n").unwrap();
		assert_eq!(control.failure.as_deref(), Some("no swap"));
		assert!(!control.ended);
	}

	#[test]
	fn anything_else_is_an_error() {
		for text in ["hello\n", "exited x\n", "Command terminated by signal\n"] {
			assert!(matches!(control(text), Err(LabError::Protocol(_))), "{text}");
		}
	}
}

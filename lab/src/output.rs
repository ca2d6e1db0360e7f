//! Where a command's output and the lab's progress go.

use std::io;

/// Receives what a command in a guest writes, as it comes, byte for byte.
///
/// An error ends the run with [`LabError::Output`](crate::LabError::Output). A slow receiver slows
/// the guest down; nothing is lost.
pub trait Output {
	/// Bytes of the command's standard output.
	fn stdout(&mut self, bytes: &[u8]) -> io::Result<()>;
	/// Bytes of the command's standard error.
	fn stderr(&mut self, bytes: &[u8]) -> io::Result<()>;
	/// One line about work before the command starts, such as a download. Ignored by default.
	fn progress(&mut self, _line: &str) {}
}

/// An [`Output`] that keeps everything in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
	/// All of standard output.
	pub stdout: Vec<u8>,
	/// All of standard error.
	pub stderr: Vec<u8>,
	/// The progress lines.
	pub progress: Vec<String>,
}

impl Output for Collected {
	fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
		self.stdout.extend_from_slice(bytes);
		Ok(())
	}

	fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
		self.stderr.extend_from_slice(bytes);
		Ok(())
	}

	fn progress(&mut self, line: &str) {
		self.progress.push(line.to_owned());
	}
}

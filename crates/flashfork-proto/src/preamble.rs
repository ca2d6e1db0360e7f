//! What each side of a stream sends first, so that strangers and other versions are told apart
//! before a message is decoded.

use std::io::{self, Read, Write};

/// Bytes in a preamble.
pub const PREAMBLE_LEN: usize = 8;

const MAGIC: [u8; 4] = *b"ff\r\n";

/// Which protocol a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Protocol {
	/// [`crate::agent`].
	Agent = 1,
	/// [`crate::shell`].
	Shell = 2,
}

impl Protocol {
	/// The version of this protocol that this library speaks.
	#[must_use]
	pub const fn version(self) -> u16 {
		match self {
			Self::Agent => crate::agent::VERSION,
			Self::Shell => crate::shell::VERSION,
		}
	}
}

/// The first bytes of a stream: four that name the project, protocol and version, little-endian.
/// The line break in them keeps a terminal or a serial line that rewrites bytes from passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble(pub Protocol);

/// Why a peer's preamble was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PreambleError {
	/// Something else is at the other end.
	#[error("the peer does not speak a flashfork protocol: it began with {0:02x?}")]
	Stranger([u8; PREAMBLE_LEN]),
	/// The peer speaks another of the protocols.
	#[error("the peer speaks protocol {got}, not {wanted}: it is connected to the wrong socket or port")]
	Protocol {
		/// Number of the protocol it speaks.
		got: u16,
		/// Number of the one wanted.
		wanted: u16,
	},
	/// The peer is of another version.
	#[error("the peer speaks version {got} of the protocol, this is {wanted}: use both from the same flashfork")]
	Version {
		/// Its version.
		got: u16,
		/// This version.
		wanted: u16,
	},
	/// The stream failed or ended.
	#[error("no preamble from the peer: {0}")]
	Io(#[from] io::Error),
}

impl Preamble {
	/// The bytes that go over the stream.
	#[must_use]
	pub fn bytes(self) -> [u8; PREAMBLE_LEN] {
		let mut bytes = [0; PREAMBLE_LEN];
		bytes[..4].copy_from_slice(&MAGIC);
		bytes[4..6].copy_from_slice(&(self.0 as u16).to_le_bytes());
		bytes[6..].copy_from_slice(&self.0.version().to_le_bytes());
		bytes
	}

	/// Checks what a peer sent.
	pub fn check(self, bytes: &[u8; PREAMBLE_LEN]) -> Result<(), PreambleError> {
		if bytes[..4] != MAGIC {
			return Err(PreambleError::Stranger(*bytes));
		}
		let got = u16::from_le_bytes([bytes[4], bytes[5]]);
		if got != self.0 as u16 {
			return Err(PreambleError::Protocol { got, wanted: self.0 as u16 });
		}
		let got = u16::from_le_bytes([bytes[6], bytes[7]]);
		if got != self.0.version() {
			return Err(PreambleError::Version { got, wanted: self.0.version() });
		}
		Ok(())
	}

	/// Sends this preamble.
	///
	/// # Errors
	/// The stream's.
	pub fn send(self, to: &mut impl Write) -> io::Result<()> {
		to.write_all(&self.bytes())?;
		to.flush()
	}

	/// Reads the peer's preamble and checks it.
	pub fn expect(self, from: &mut impl Read) -> Result<(), PreambleError> {
		let mut bytes = [0; PREAMBLE_LEN];
		from.read_exact(&mut bytes)?;
		self.check(&bytes)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn only_the_same_protocol_and_version_pass() {
		let agent = Preamble(Protocol::Agent);
		let mut bytes = agent.bytes();
		agent.check(&bytes).unwrap();
		assert!(matches!(Preamble(Protocol::Shell).check(&bytes), Err(PreambleError::Protocol { got: 1, wanted: 2 })));
		bytes[6] += 1;
		assert!(matches!(agent.check(&bytes), Err(PreambleError::Version { .. })));
		assert!(matches!(agent.check(b"GET / HT"), Err(PreambleError::Stranger(_))));
		assert!(matches!(agent.expect(&mut &bytes[..5]), Err(PreambleError::Io(_))));
	}
}

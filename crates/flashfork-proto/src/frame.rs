//! Frames: a message in postcard's encoding after its length, as 32 bits, little-endian.

use std::io::{self, ErrorKind, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the message.
const HEADER: usize = 4;

/// Why a frame could not be written or read. After any of these the stream is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
	/// The length is beyond what the protocol allows.
	#[error("a message of {length} bytes exceeds the limit of {limit}: the peer is broken or hostile")]
	TooLong {
		/// The length named or encoded.
		length: usize,
		/// The protocol's limit.
		limit: usize,
	},
	/// The stream ended inside a frame.
	#[error("the stream ended {missing} bytes before the end of a message: the peer died while it wrote")]
	Truncated {
		/// Bytes that should have come.
		missing: usize,
	},
	/// The bytes are no message of the expected type.
	#[error("{length} bytes that are no message of this protocol ({reason}): the peer is broken or hostile")]
	Malformed {
		/// How many bytes there were.
		length: usize,
		/// What the decoder says.
		reason: String,
	},
	/// The stream failed.
	#[error("the stream failed: {0}")]
	Io(#[from] io::Error),
}

/// Appends `message` as one frame to `buffer`, which is left as it was on error.
///
/// # Errors
/// [`FrameError::TooLong`] if the message takes more than `limit` bytes.
pub fn encode<T: Serialize>(message: &T, limit: usize, buffer: &mut Vec<u8>) -> Result<(), FrameError> {
	let encoded = to_bytes(message)?;
	if encoded.len() > limit || u32::try_from(encoded.len()).is_err() {
		return Err(FrameError::TooLong { length: encoded.len(), limit });
	}
	buffer.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
	buffer.extend_from_slice(&encoded);
	Ok(())
}

/// Writes `message` as one frame, with a single write where the stream takes it whole.
///
/// # Errors
/// [`FrameError::TooLong`] before anything is written; [`FrameError::Io`] from the stream.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T, limit: usize) -> Result<(), FrameError> {
	let mut buffer = Vec::with_capacity(64);
	encode(message, limit, &mut buffer)?;
	to.write_all(&buffer)?;
	to.flush()?;
	Ok(())
}

/// Reads one frame of at most `limit` bytes; `None` if the stream ended before it began.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, limit: usize) -> Result<Option<T>, FrameError> {
	let mut header = [0; HEADER];
	let read = read_up_to(from, &mut header)?;
	if read == 0 {
		return Ok(None);
	}
	if read < HEADER {
		return Err(FrameError::Truncated { missing: HEADER - read });
	}
	let length = u32::from_le_bytes(header) as usize;
	if length > limit {
		return Err(FrameError::TooLong { length, limit });
	}
	let mut bytes = Vec::new();
	// Grows as bytes arrive: a length alone costs nothing.
	let arrived = from.take(length as u64).read_to_end(&mut bytes)?;
	if arrived < length {
		return Err(FrameError::Truncated { missing: length - arrived });
	}
	from_bytes(&bytes).map(Some)
}

/// `message` without a header.
pub(crate) fn to_bytes<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
	postcard::to_stdvec(message).map_err(|error| FrameError::Malformed { length: 0, reason: error.to_string() })
}

/// The message that takes up all of `bytes`.
pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
	let malformed = |reason: String| FrameError::Malformed { length: bytes.len(), reason };
	let (message, rest) = postcard::take_from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
	if rest.is_empty() { Ok(message) } else { Err(malformed(format!("{} bytes too many", rest.len()))) }
}

/// Reads until `buffer` is full or the stream ends, and says how much came.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
	let mut filled = 0;
	while filled < buffer.len() {
		match from.read(&mut buffer[filled..]) {
			Ok(0) => break,
			Ok(count) => filled += count,
			Err(error) if error.kind() == ErrorKind::Interrupted => {}
			Err(error) => return Err(error),
		}
	}
	Ok(filled)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn frames_follow_each_other() {
		let mut stream = Vec::new();
		write(&mut stream, &(1u32, "one"), 100).unwrap();
		write(&mut stream, &(2u32, "two"), 100).unwrap();
		let mut stream = stream.as_slice();
		assert_eq!(read(&mut stream, 100).unwrap(), Some((1u32, "one".to_owned())));
		assert_eq!(read(&mut stream, 100).unwrap(), Some((2u32, "two".to_owned())));
		assert_eq!(read::<(u32, String)>(&mut stream, 100).unwrap(), None);
	}

	#[test]
	fn a_length_beyond_the_limit_is_refused_on_both_sides() {
		let text = "x".repeat(100);
		assert!(matches!(write(&mut Vec::new(), &text, 100), Err(FrameError::TooLong { length: 101, limit: 100 })));
		let mut huge: &[u8] = &[0xff; 8];
		assert!(matches!(read::<String>(&mut huge, 100), Err(FrameError::TooLong { .. })));
	}

	#[test]
	fn a_stream_that_ends_inside_a_frame_is_an_error_at_every_byte() {
		let mut stream = Vec::new();
		write(&mut stream, &"message", 100).unwrap();
		for end in 1..stream.len() {
			let error = read::<String>(&mut &stream[..end], 100).unwrap_err();
			assert!(matches!(error, FrameError::Truncated { .. }), "{end}: {error}");
		}
	}

	#[test]
	fn bytes_after_the_message_are_an_error() {
		let mut bytes = to_bytes(&"message").unwrap();
		bytes.push(0);
		assert!(from_bytes::<String>(&bytes).unwrap_err().to_string().contains("1 bytes too many"));
	}
}

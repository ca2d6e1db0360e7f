//! Bytes that say what they are: magic number, version, length, checksum, then postcard.

use serde::{Serialize, de::DeserializeOwned};

/// Version of everything below [`MachineState`](super::MachineState) and of [`crate::layout`]. Another version is
/// refused: templates are cheap to make again.
pub const VERSION: u32 = 3;
/// Magic number, version, checksum, length.
const HEADER: usize = 24;

/// Why bytes are no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
	/// Something else.
	#[error("not a part of a flashfork template")]
	Magic,
	/// Written by another version of flashfork.
	#[error("a template of version {found}, this flashfork reads version {known}: make the template again")]
	Version {
		/// In the bytes.
		found: u32,
		/// The only one known here.
		known: u32,
	},
	/// Truncated, or with something behind it.
	#[error("the template state is {found} bytes long, {expected} were written: the file is damaged")]
	Length {
		/// What there is.
		found: u64,
		/// What the header says.
		expected: u64,
	},
	/// A bit has changed.
	#[error("the template state's checksum is wrong: the file is damaged")]
	Checksum,
	/// The checksum is right, the content isn't.
	#[error("the template state makes no sense: {0}")]
	Nonsense(String),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
	/// First bytes.
	pub magic: [u8; 8],
	pub version: u32,
}

impl Envelope {
	pub(crate) fn seal(&self, value: &impl Serialize) -> Result<Vec<u8>, StateError> {
		let mut bytes = postcard::to_extend(value, vec![0; HEADER]).map_err(|e| StateError::Nonsense(e.to_string()))?;
		let length = (bytes.len() - HEADER) as u64;
		let checksum = crc32fast::hash(&bytes[HEADER..]);
		bytes[..8].copy_from_slice(&self.magic);
		bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
		bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
		bytes[16..24].copy_from_slice(&length.to_le_bytes());
		Ok(bytes)
	}

	/// What [`Self::seal`] was given; never trusts `bytes`.
	pub(crate) fn open<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, StateError> {
		let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(StateError::Magic)?;
		if header[..8] != self.magic {
			return Err(StateError::Magic);
		}
		let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
		if word(8) != self.version {
			return Err(StateError::Version { found: word(8), known: self.version });
		}
		let expected = u64::from(word(16)) | u64::from(word(20)) << 32;
		if expected != body.len() as u64 {
			return Err(StateError::Length { found: body.len() as u64, expected });
		}
		if crc32fast::hash(body) != word(12) {
			return Err(StateError::Checksum);
		}
		let nonsense = |e: postcard::Error| StateError::Nonsense(e.to_string());
		let (value, rest) = postcard::take_from_bytes(body).map_err(nonsense)?;
		if rest.is_empty() { Ok(value) } else { Err(StateError::Nonsense("bytes after its end".into())) }
	}
}

/// `bytes` with the length and checksum that belong to them.
#[cfg(test)]
pub(crate) fn reseal(bytes: &[u8]) -> Vec<u8> {
	let mut sealed = bytes.to_vec();
	if let Some(body) = bytes.get(HEADER..) {
		sealed[12..16].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
		sealed[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
	}
	sealed
}

#[cfg(test)]
mod tests {
	use super::*;

	const KIND: Envelope = Envelope { magic: *b"a kind !", version: 3 };

	fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateError> {
		KIND.open(bytes)
	}

	#[test]
	fn every_damaged_byte_and_every_truncation_is_seen() {
		let good = KIND.seal(&vec![1u32, 2, 3, 400_000]).unwrap();
		assert_eq!(open::<Vec<u32>>(&good).unwrap(), [1, 2, 3, 400_000]);
		for at in 0..good.len() {
			assert!(open::<Vec<u32>>(&good[..at]).is_err(), "cut at {at}");
			let mut bad = good.clone();
			bad[at] ^= 0x10;
			assert!(open::<Vec<u32>>(&bad).is_err(), "changed at {at}");
		}
		let mut long = good.clone();
		long.push(0);
		assert!(matches!(open::<Vec<u32>>(&long), Err(StateError::Length { .. })));
	}

	#[test]
	fn another_version_is_named() {
		let mut bytes = KIND.seal(&1u8).unwrap();
		bytes[8] = 9;
		assert_eq!(open::<u8>(&bytes), Err(StateError::Version { found: 9, known: 3 }));
	}
}

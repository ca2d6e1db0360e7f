//! Bytes that say what they are: magic number, version, length, checksum, then postcard.

use serde::{Serialize, de::DeserializeOwned};

/// First bytes of every state.
const MAGIC: [u8; 8] = *b"FLFKVM\r\n";
/// Version of everything below [`MachineState`](super::MachineState) and of [`crate::layout`]. Another version is refused:
/// templates are cheap to make again.
pub const VERSION: u32 = 1;
/// Magic number, version, checksum, length.
const HEADER: usize = 24;

/// Why bytes are no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Something else.
    #[error("not a flashfork template state")]
    Magic,
    /// Written by another version of flashfork.
    #[error("template state of version {0}, this flashfork reads version {VERSION}: make the template again")]
    Version(u32),
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

pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>, StateError> {
    let bytes = postcard::to_extend(value, vec![0; HEADER]).map_err(|e| StateError::Nonsense(e.to_string()))?;
    let mut bytes = bytes;
    let length = (bytes.len() - HEADER) as u64;
    let checksum = crc32fast::hash(&bytes[HEADER..]);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

pub(super) fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateError> {
    let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(StateError::Magic)?;
    if header[..8] != MAGIC {
        return Err(StateError::Magic);
    }
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    if word(8) != VERSION {
        return Err(StateError::Version(word(8)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damaged_byte_and_every_truncation_is_seen() {
        let good = seal(&vec![1u32, 2, 3, 400_000]).unwrap();
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
        let mut bytes = seal(&1u8).unwrap();
        bytes[8] = 9;
        assert_eq!(open::<u8>(&bytes), Err(StateError::Version(9)));
    }
}

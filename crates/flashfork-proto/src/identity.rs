//! What makes a clone differ from its siblings: given to the monitor at the claim, and to the guest as the reply to `FORK`.

use serde::{Deserialize, Serialize};

/// Bytes of fresh entropy a clone gets.
pub const ENTROPY: usize = 64;
/// Most bytes of [`CloneIdentity::job`].
pub const MAX_JOB: usize = super::signal::PAYLOAD_MAX - HEADER;

/// Layout version of the guest's copy.
const VERSION: u32 = 1;
/// Bytes before the job in the guest's copy.
const HEADER: usize = 100;

/// Identity of one clone. A guest finds it in its signal page, little endian: version (u32, 1), index (u32), wall clock (u64),
/// generation (16 bytes), entropy (64 bytes), length of the job (u32), job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneIdentity {
    /// Number of this clone of its template, from 0.
    pub index: u32,
    /// Host's wall clock, nanoseconds since 1970 UTC.
    pub wall_ns: u64,
    /// Random, never used twice: what VMGENID shows and the guest echoes with `ALIVE`.
    pub generation: [u8; 16],
    /// For the guest's random number generators; secret.
    #[serde(with = "entropy")]
    pub entropy: [u8; ENTROPY],
    /// Whatever the caller wants the clone to know, up to [`MAX_JOB`] bytes.
    pub job: Vec<u8>,
}

/// Bytes that are no [`CloneIdentity`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the identity of a clone: {0}")]
pub struct IdentityError(&'static str);

impl CloneIdentity {
    /// As the guest finds it; `None` if the job is longer than [`MAX_JOB`].
    pub fn to_guest(&self) -> Option<Vec<u8>> {
        if self.job.len() > MAX_JOB {
            return None;
        }
        let mut bytes = Vec::with_capacity(HEADER + self.job.len());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.wall_ns.to_le_bytes());
        bytes.extend(self.generation);
        bytes.extend(self.entropy);
        bytes.extend((self.job.len() as u32).to_le_bytes());
        bytes.extend(&self.job);
        Some(bytes)
    }

    /// What [`Self::to_guest`] made, read by the guest.
    pub fn from_guest(bytes: &[u8]) -> Result<Self, IdentityError> {
        let (header, job) = bytes.split_first_chunk::<HEADER>().ok_or(IdentityError("too short"))?;
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(0) != VERSION {
            return Err(IdentityError("another version"));
        }
        let mut generation = [0; 16];
        generation.copy_from_slice(&header[16..32]);
        let mut entropy = [0; ENTROPY];
        entropy.copy_from_slice(&header[32..96]);
        let job = job.get(..word(96) as usize).ok_or(IdentityError("shorter than its job"))?.to_vec();
        Ok(Self { index: word(4), wall_ns: u64::from(word(8)) | u64::from(word(12)) << 32, generation, entropy, job })
    }
}

/// Entropy is not printed.
impl std::fmt::Debug for CloneIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloneIdentity").field("index", &self.index).field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// serde knows arrays of up to 32 elements.
mod entropy {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8; 64], to: S) -> Result<S::Ok, S::Error> {
        let (low, high) = bytes.split_at(32);
        (<[u8; 32]>::try_from(low).unwrap_or_default(), <[u8; 32]>::try_from(high).unwrap_or_default()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 64], D::Error> {
        let (low, high) = <([u8; 32], [u8; 32])>::deserialize(from)?;
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&low);
        bytes[32..].copy_from_slice(&high);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(job: Vec<u8>) -> CloneIdentity {
        CloneIdentity { index: 7, wall_ns: u64::MAX - 5, generation: [3; 16], entropy: [9; ENTROPY], job }
    }

    #[test]
    fn the_guest_reads_what_was_written() {
        for job in [vec![], b"hello".to_vec(), vec![1; MAX_JOB]] {
            let one = identity(job);
            assert_eq!(CloneIdentity::from_guest(&one.to_guest().unwrap()).unwrap(), one);
        }
        assert_eq!(identity(vec![0; MAX_JOB + 1]).to_guest(), None);
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        let good = identity(b"hello".to_vec()).to_guest().unwrap();
        for length in 0..good.len() {
            assert!(CloneIdentity::from_guest(&good[..length]).is_err(), "{length}");
        }
        let mut other = good.clone();
        other[0] = 2;
        assert!(CloneIdentity::from_guest(&other).is_err());
        let mut huge = good;
        huge[96..100].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CloneIdentity::from_guest(&huge).is_err());
    }

    #[test]
    fn entropy_survives_the_daemon_and_is_not_printed() {
        let one = identity(vec![]);
        let bytes = postcard::to_stdvec(&one).unwrap();
        assert_eq!(postcard::from_bytes::<CloneIdentity>(&bytes).unwrap(), one);
        assert!(!format!("{one:?}").contains("9, 9"));
    }
}

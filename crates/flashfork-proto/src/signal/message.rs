//! Commands and replies as values; their layout is fixed, for guests without an encoder.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{MAX_JOB, MAX_PAYLOAD, Status, command};
use crate::{Generation, agent::CloneIdentity, api::LONGEST_NAME};

/// Bytes before the job in the reply to a fork.
pub(super) const HEADER: usize = 72 + LONGEST_NAME;

/// What a guest signalled. Questions for the version are answered by the device alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
	/// The guest is warm. Answered with [`Forked`].
	Fork,
	/// The guest's work is over.
	Done(Done),
	/// Answered with the nanoseconds since the last one, as u64.
	Reset,
	/// The clone of this generation is ready for use.
	Alive(Generation),
}

/// How a guest's work ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
	/// 0 for success.
	pub status: u32,
	/// Whatever the guest gives back, at most [`MAX_PAYLOAD`] less four bytes.
	#[serde(with = "serde_bytes")]
	pub result: Vec<u8>,
}

/// Which copy of the guest reads the reply to a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Role {
	/// The one that signalled.
	Template = 0,
	/// A clone of it.
	Clone = 1,
}

/// A disk that a clone has and its template hadn't. In bytes: number and flags (1: read-only), each u8; length of the
/// path, u16; sectors, u64; path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedDisk {
	/// Which of the machine's block devices, from 0.
	pub number: u8,
	/// Writes are refused.
	pub read_only: bool,
	/// How long the device will say it is, in sectors of 512 bytes.
	pub sectors: u64,
	/// Where the agent mounts its file system; nowhere if this is empty.
	pub mount: String,
}

/// Bytes before the path.
const DISK: usize = 12;

impl AttachedDisk {
	/// Bytes that it takes in the reply to a fork.
	#[must_use]
	pub fn length(&self) -> usize {
		DISK + self.mount.len()
	}

	fn encode(&self) -> Vec<u8> {
		let length = u16::try_from(self.mount.len()).unwrap_or(u16::MAX);
		let mut bytes = vec![self.number, u8::from(self.read_only)];
		bytes.extend_from_slice(&length.to_le_bytes());
		bytes.extend_from_slice(&self.sectors.to_le_bytes());
		bytes.extend_from_slice(&self.mount.as_bytes()[..length.into()]);
		bytes
	}

	/// The first of `bytes`, and what is behind it.
	fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
		let ([number, flags, a, b, sectors @ ..], rest) = bytes.split_first_chunk::<DISK>()?;
		let (mount, rest) = rest.split_at_checked(u16::from_le_bytes([*a, *b]).into())?;
		let mount = std::str::from_utf8(mount).ok()?.to_owned();
		let sectors = u64::from_le_bytes(*sectors);
		(*flags <= 1).then_some((Self { number: *number, read_only: *flags == 1, sectors, mount }, rest))
	}
}

/// The reply to a fork. In bytes: role and length of the job, each u32; index; generation id; time;
/// entropy; 64 bytes of name, padded with zeros; job; disks.
#[derive(Clone, PartialEq, Eq)]
pub struct Forked {
	/// Which copy this is.
	pub role: Role,
	/// Who the clone is.
	pub identity: CloneIdentity,
	/// CLOCK_REALTIME of the host in nanoseconds.
	pub realtime_ns: u64,
	/// Fresh random bytes, to be mixed in before anything else is done; secret.
	pub entropy: [u8; 32],
	/// Disks attached to the clone.
	pub disks: Vec<AttachedDisk>,
}

/// Entropy is not shown.
impl fmt::Debug for Forked {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Forked")
			.field("role", &self.role)
			.field("identity", &self.identity)
			.field("realtime_ns", &self.realtime_ns)
			.field("disks", &self.disks)
			.finish_non_exhaustive()
	}
}

impl Signal {
	/// The signal of `number` with `payload`.
	///
	/// # Errors
	/// The status to report to the guest.
	pub fn decode(number: u8, payload: &[u8]) -> Result<Self, Status> {
		let signal = match number {
			command::FORK => Self::Fork,
			command::RESET => Self::Reset,
			command::DONE => return Done::decode(payload).map(Self::Done).ok_or(Status::BadPayload),
			command::ALIVE => return payload.try_into().map(Self::Alive).map_err(|_| Status::BadPayload),
			_ => return Err(Status::Unknown),
		};
		if payload.is_empty() { Ok(signal) } else { Err(Status::BadPayload) }
	}

	/// Number and payload.
	#[must_use]
	pub fn encode(&self) -> (u8, Vec<u8>) {
		match self {
			Self::Fork => (command::FORK, Vec::new()),
			Self::Reset => (command::RESET, Vec::new()),
			Self::Done(done) => (command::DONE, done.encode()),
			Self::Alive(generation) => (command::ALIVE, generation.to_vec()),
		}
	}
}

impl Done {
	/// Without a payload the status is 0, as with the thesis's programs.
	fn decode(payload: &[u8]) -> Option<Self> {
		if payload.is_empty() {
			return Some(Self::default());
		}
		if payload.len() > MAX_PAYLOAD {
			return None;
		}
		let (status, result) = payload.split_first_chunk()?;
		Some(Self { status: u32::from_le_bytes(*status), result: result.to_vec() })
	}

	fn encode(&self) -> Vec<u8> {
		let mut payload = self.status.to_le_bytes().to_vec();
		payload.extend_from_slice(&self.result);
		payload
	}
}

impl Forked {
	/// The reply's bytes; a name is cut at [`LONGEST_NAME`], a job where all has [`MAX_PAYLOAD`].
	#[must_use]
	pub fn encode(&self) -> Vec<u8> {
		let CloneIdentity { name, index, generation, job } = &self.identity;
		let disks = self.disks.iter().flat_map(AttachedDisk::encode).collect::<Vec<_>>();
		let job = &job[..job.len().min(MAX_JOB.saturating_sub(disks.len()))];
		let name = &name.as_bytes()[..name.len().min(LONGEST_NAME)];
		let mut bytes = Vec::with_capacity(HEADER + job.len());
		bytes.extend_from_slice(&(self.role as u32).to_le_bytes());
		bytes.extend_from_slice(&(job.len() as u32).to_le_bytes());
		bytes.extend_from_slice(&index.to_le_bytes());
		bytes.extend_from_slice(generation);
		bytes.extend_from_slice(&self.realtime_ns.to_le_bytes());
		bytes.extend_from_slice(&self.entropy);
		bytes.extend_from_slice(name);
		bytes.resize(HEADER, 0);
		bytes.extend_from_slice(job);
		bytes.extend_from_slice(&disks);
		bytes
	}

	/// The reply in these bytes; `None` if they are none.
	#[must_use]
	pub fn decode(bytes: &[u8]) -> Option<Self> {
		let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
		let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
		let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
		let role = match half(0) {
			0 => Role::Template,
			1 => Role::Clone,
			_ => return None,
		};
		let (job, mut rest) = rest.split_at_checked(half(4) as usize)?;
		let mut disks = Vec::new();
		while !rest.is_empty() {
			let (disk, behind) = AttachedDisk::decode(rest)?;
			disks.push(disk);
			rest = behind;
		}
		let name = header[HEADER - LONGEST_NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
		let identity = CloneIdentity {
			name: std::str::from_utf8(name).ok()?.to_owned(),
			index: word(8),
			generation: std::array::from_fn(|i| header[16 + i]),
			job: job.to_vec(),
		};
		Some(Self { role, identity, realtime_ns: word(32), entropy: std::array::from_fn(|i| header[40 + i]), disks })
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn signals_come_back_from_their_bytes() {
		for signal in [
			Signal::Fork,
			Signal::Reset,
			Signal::Alive([7; 16]),
			Signal::Done(Done { status: 3, result: b"result".to_vec() }),
		] {
			let (number, payload) = signal.encode();
			assert_eq!(Signal::decode(number, &payload), Ok(signal));
		}
	}

	#[test]
	fn payloads_that_do_not_fit_are_told_from_unknown_commands() {
		assert_eq!(Signal::decode(command::FORK, &[1]), Err(Status::BadPayload));
		assert_eq!(Signal::decode(command::ALIVE, &[1; 15]), Err(Status::BadPayload));
		assert_eq!(Signal::decode(command::DONE, &[1; 3]), Err(Status::BadPayload));
		assert_eq!(Signal::decode(0x77, &[]), Err(Status::Unknown));
		assert_eq!(Signal::decode(command::DONE, &[]), Ok(Signal::Done(Done::default())));
	}

	#[test]
	fn the_reply_to_a_fork_has_its_documented_layout() {
		let identity = CloneIdentity { name: "web-5".into(), index: 5, generation: [9; 16], job: b"job".to_vec() };
		let disks = vec![AttachedDisk { number: 1, read_only: true, sectors: 7, mount: "/m".into() }];
		let forked = Forked { role: Role::Clone, identity, realtime_ns: 1 << 40, entropy: [3; 32], disks };
		let bytes = forked.encode();
		assert_eq!(bytes[..9], [1, 0, 0, 0, 3, 0, 0, 0, 5]);
		assert_eq!(bytes[72..78], *b"web-5\0");
		assert_eq!(bytes[136..], *b"job\x01\x01\x02\0\x07\0\0\0\0\0\0\0/m");
		assert_eq!(Forked::decode(&bytes).as_ref(), Some(&forked));
		for end in (0..bytes.len()).filter(|end| *end != 139) {
			assert_eq!(Forked::decode(&bytes[..end]), None);
		}
		assert_eq!(Forked::decode(&[0xff; HEADER]), None);
		assert!(!format!("{forked:?}").contains("entropy"));
		let identity = CloneIdentity { job: vec![1; MAX_PAYLOAD], ..forked.identity };
		let longest = Forked { identity, ..forked };
		assert_eq!(longest.encode().len(), MAX_PAYLOAD);
		assert_eq!(Forked::decode(&longest.encode()).unwrap().disks, longest.disks);
	}
}

//! What the keeper and the template's init say to each other.

use crate::message::{self, Received};
use rustix::io::Result;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A message between them; descriptors as said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
	/// Init: the program runs, as this process of the init's; with a descriptor for it.
	Runs { pid: i32 },
	/// Init: something has ended, stopped or gone on: its process, as the init sees it, and its status as of `wait(2)`.
	Waited { pid: i32, status: i32 },
	/// Keeper: a namespace for a clone, please, in which numbers go on above this one.
	Namespace { pid: i32 },
	/// Init: here it is, with this init, which is what `Waited` tells of; with descriptors of its processes, its
	/// mounts, and of the leash: when that is closed its init ends as soon as nothing else runs there.
	Made { init: i32, pid: i32 },
	/// Init: something failed.
	Failed { what: What, errno: i32 },
	/// Keeper: go to the clones' namespace of users, for which a descriptor comes with this. Init: it is there.
	Users,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
	/// Mounting /proc.
	Proc = 1,
	/// Starting the program.
	Program = 2,
	/// Making a namespace for a clone.
	Namespace = 3,
}

/// Bytes of a message.
const LEN: usize = 24;

impl Note {
	fn encode(self) -> [u8; LEN] {
		let (kind, a, b) = match self {
			Note::Runs { pid } => (1, pid, 0),
			Note::Waited { pid, status } => (2, pid, status),
			Note::Namespace { pid } => (3, pid, 0),
			Note::Made { init, pid } => (4, init, pid),
			Note::Failed { what, errno } => (5, what as i32, errno),
			Note::Users => (6, 0, 0),
		};
		let mut bytes = [0; LEN];
		for (place, number) in bytes.chunks_exact_mut(8).zip([kind, a, b]) {
			place.copy_from_slice(&i64::from(number).to_ne_bytes());
		}
		bytes
	}

	fn decode(bytes: &[u8]) -> Option<Note> {
		let mut numbers =
			bytes.chunks_exact(8).filter_map(|b| i32::try_from(i64::from_ne_bytes(b.try_into().ok()?)).ok());
		let (kind, a, b) = (numbers.next()?, numbers.next()?, numbers.next()?);
		Some(match kind {
			1 => Note::Runs { pid: a },
			2 => Note::Waited { pid: a, status: b },
			3 => Note::Namespace { pid: a },
			4 => Note::Made { init: a, pid: b },
			5 => {
				let all = [What::Proc, What::Program, What::Namespace];
				Note::Failed { what: all.into_iter().find(|what| *what as i32 == a)?, errno: b }
			}
			6 => Note::Users,
			_ => return None,
		})
	}

	/// Sends it.
	pub fn send(self, to: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
		message::send(to, &self.encode(), descriptors)
	}

	/// Takes one, without waiting; `Ok(None)` if there is none. The end of the other is an error.
	pub fn receive(from: BorrowedFd<'_>) -> Result<Option<(Note, Vec<OwnedFd>)>> {
		let mut bytes = [0; LEN];
		let Some(Received { len, descriptors, .. }) = message::receive(from, &mut bytes)? else { return Ok(None) };
		let note = Note::decode(&bytes[..len]).ok_or(rustix::io::Errno::PIPE)?;
		Ok(Some((note, descriptors)))
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_note_comes_back_as_it_was_sent() {
		let failed = Note::Failed { what: What::Program, errno: 2 };
		let waited = Note::Waited { pid: 7, status: 0x7f00 };
		let made = Note::Made { init: 3, pid: 9 };
		for note in [Note::Runs { pid: 5 }, waited, Note::Namespace { pid: 9 }, made, failed, Note::Users] {
			assert_eq!(Note::decode(&note.encode()), Some(note));
		}
		assert_eq!(Note::decode(&[]), None);
	}
}

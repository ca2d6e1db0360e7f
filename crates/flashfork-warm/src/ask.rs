//! Command to template.

use crate::{Reader, Writer};

/// What the command asks of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
	/// A clone. One connection is one clone: when the caller's end is closed, the clone is killed.
	Clone {
		/// Whether the caller is one job with it, as a shell's command is: it is stopped and continued with its clone.
		job: bool,
	},
	/// What there is to know: [`crate::Facts`].
	Status,
	/// No more clones: the name goes at once, the process when its last clone has ended.
	Retire,
	/// On which sockets the program listens: [`crate::Tell::Listens`] for each, then [`crate::Tell::Facts`].
	Listeners,
	/// Before [`Ask::Clone`]: the clone has the socket that comes with this in place of the program's descriptor of
	/// this number.
	Listen {
		/// One of [`Ask::Listeners`].
		number: i32,
	},
	/// What it was made by: [`crate::Tell::Recipe`].
	Recipe,
	/// Before it is made anew: to let go of the sockets of TCP on which the program listens, and to make no clones from
	/// then on. [`crate::Tell::Ports`] says on which of these ports others listen by them; a program with none stays as
	/// it is: [`crate::Tell::Facts`].
	LetGo,
	/// A signal for the clone of this connection, or for its process group.
	Signal {
		/// Its number.
		signal: i32,
		/// Whether the whole group gets it, as from a terminal.
		group: bool,
	},
}

impl Ask {
	/// Bytes of a message.
	pub const LEN: usize = 24;

	/// As it is sent.
	#[must_use]
	pub fn encode(self) -> [u8; Self::LEN] {
		let (kind, signal, whole) = match self {
			Ask::Clone { job } => (1, 0, job),
			Ask::Status => (2, 0, false),
			Ask::Retire => (3, 0, false),
			Ask::Signal { signal, group } => (4, signal, group),
			Ask::Listeners => (5, 0, false),
			Ask::Listen { number } => (6, number, false),
			Ask::Recipe => (7, 0, false),
			Ask::LetGo => (8, 0, false),
		};
		Writer::new().put(kind).signed(signal).put(u64::from(whole)).0
	}

	/// As it was received; `None` for bytes that are none of these.
	#[must_use]
	pub fn decode(bytes: &[u8]) -> Option<Ask> {
		let mut r = Reader(bytes);
		let (kind, signal, whole) = (r.get()?, r.signed()?, r.get()? != 0);
		Some(match kind {
			1 => Ask::Clone { job: whole },
			2 => Ask::Status,
			3 => Ask::Retire,
			4 => Ask::Signal { signal, group: whole },
			5 => Ask::Listeners,
			6 => Ask::Listen { number: signal },
			7 => Ask::Recipe,
			8 => Ask::LetGo,
			_ => return None,
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_request_comes_back_as_it_was_sent() {
		let signal = Ask::Signal { signal: 15, group: true };
		let clones = [Ask::Clone { job: true }, Ask::Clone { job: false }];
		let others = [Ask::Status, Ask::Retire, signal, Ask::Signal { signal: 2, group: false }];
		let others = others.into_iter().chain([Ask::Listeners, Ask::Recipe, Ask::LetGo, Ask::Listen { number: 7 }]);
		for ask in clones.into_iter().chain(others) {
			assert_eq!(Ask::decode(&ask.encode()), Some(ask));
		}
	}

	#[test]
	fn nonsense_is_none() {
		assert_eq!(Ask::decode(&[]), None);
		assert_eq!(Ask::decode(&[9; Ask::LEN]), None);
		assert_eq!(Ask::decode(&Ask::Signal { signal: 1, group: false }.encode()[..12]), None);
	}
}

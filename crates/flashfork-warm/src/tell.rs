//! Template to command.

use crate::{Facts, NAME_OF_CHANGED, PORTS, Reader, WORDS_OF_UNFIT, Writer};

/// What could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Step {
	/// The request made no sense: command and shim are of different versions.
	Request = 1,
	/// [`crate::MOST_RUNNING`] clones run.
	TooMany = 2,
	/// The template is being removed, or has made all its clones.
	Retired = 3,
	/// `fork(2)`.
	Fork = 4,
	/// Going to the caller's working directory.
	Directory = 5,
	/// Taking over the standard streams.
	Streams = 6,
	/// Mapping the caller's arguments and environment.
	Map = 7,
	/// Setting up the place where the template waits: its sockets, its signals.
	Wait = 8,
	/// Receiving the descriptors of a request: the template has no room for more.
	Descriptors = 9,
	/// Giving arguments to a program that takes none: it was ready by itself.
	Arguments = 10,
	/// Making namespaces for a clone, or going there.
	Namespaces = 11,
	/// Making a clone's descriptors anew.
	Files = 12,
	/// Making a clone's threads, timers and signals.
	Threads = 13,
	/// Running what the program has asked to be done in each of its clones.
	Hooks = 14,
	/// Taking over the caller's scheduling policy.
	Scheduling = 15,
	/// Taking over its I/O priority.
	IoPriority = 16,
	/// Taking over its personality.
	Personality = 17,
	/// Taking over its filter of core dumps.
	DumpFilter = 18,
	/// The template was warmed under `no_new_privs`, and its caller is not under it.
	NoNewPrivs = 19,
	/// Taking over what else `prctl(2)` sets.
	Prctl = 20,
}

/// What makes a template stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Why {
	/// A file that it has read was written, replaced or removed.
	File = 1,
	/// There is now what it has looked for in vain.
	New = 2,
	/// In a directory whose names it has read there are others.
	Listing = 3,
	/// The caller has another value of a variable that it has read.
	Variable = 4,
	/// It has let go of its ports to be made anew ([`crate::Ask::LetGo`]).
	LetGo = 5,
}

/// What a template says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated here")]
pub enum Tell {
	/// It is warm (on the control socket), or: the answer to [`crate::Ask::Status`] and [`crate::Ask::Retire`].
	Facts(Facts),
	/// It must not become a template (on the control socket): a number of `flashfork_core::never_seal::Reason`.
	Refused {
		/// The reason.
		reason: u8,
	},
	/// The clone runs: it says so itself, before any code of the program.
	Started {
		/// Its process, above 1; [`UNSEEN`](crate::UNSEEN) where its caller could not see it.
		pid: i32,
	},
	/// The clone has ended.
	Ended {
		/// Its status as of `wait(2)`.
		status: i32,
	},
	/// There is no clone: the program would not be what its template is, if it were started now.
	Stale {
		/// What has changed.
		why: Why,
		/// Whether the template was warmed to be made anew then, by its caller.
		renews: bool,
		/// How many have.
		count: u64,
		/// The name of one, or its end; zeros behind it.
		name: [u8; NAME_OF_CHANGED],
	},
	/// What the template was made by comes with this, as flashfork-templates has written it.
	Recipe,
	/// It can't become a template (on the control socket), in words.
	Unfit {
		/// What is said of the program; zeros behind it.
		words: [u8; WORDS_OF_UNFIT],
	},
	/// The program listens on the socket that comes with this, which is its descriptor of this number.
	Listens {
		/// The number.
		number: i32,
	},
	/// It isn't ready (on the control socket): it listens on other ports of TCP than it was to. Or: the answer to
	/// [`crate::Ask::LetGo`].
	Ports {
		/// These; zeros behind them.
		ports: [u16; PORTS],
	},
	/// There is no clone.
	Failed {
		/// What was being done.
		step: Step,
		/// `errno`; 0 for none.
		errno: i32,
	},
}

impl Tell {
	/// Bytes of a message.
	pub const LEN: usize = 8 + WORDS_OF_UNFIT;

	/// [`Tell::Stale`], with the end of a long name, which tells more than its begin.
	#[must_use]
	pub fn stale(why: Why, renews: bool, count: u64, path: &[u8]) -> Tell {
		let mut name = [0; NAME_OF_CHANGED];
		let end = &path[path.len().saturating_sub(NAME_OF_CHANGED)..];
		name[..end.len()].copy_from_slice(end);
		Tell::Stale { why, renews, count, name }
	}

	/// As it is sent.
	#[must_use]
	pub fn encode(self) -> [u8; Self::LEN] {
		let w = Writer::new();
		match self {
			Tell::Facts(facts) => facts.write(w.put(1)),
			Tell::Refused { reason } => w.put(2).put(u64::from(reason)),
			Tell::Started { pid } => w.put(3).signed(pid),
			Tell::Ended { status } => w.put(5).signed(status),
			Tell::Stale { why, renews, count, name } => {
				w.put(7).put(why as u64).put(u64::from(renews)).put(count).bytes(&name)
			}
			Tell::Recipe => w.put(11),
			Tell::Unfit { words } => w.put(8).bytes(&words),
			Tell::Listens { number } => w.put(9).signed(number),
			Tell::Ports { ports } => ports.into_iter().fold(w.put(10), |w, port| w.bytes(&port.to_ne_bytes())),
			Tell::Failed { step, errno } => w.put(6).put(step as u64).signed(errno),
		}
		.0
	}

	/// As it was received; `None` for bytes that are none of these.
	#[must_use]
	pub fn decode(bytes: &[u8]) -> Option<Tell> {
		let mut r = Reader(bytes);
		Some(match r.get()? {
			1 => Tell::Facts(Facts::read(&mut r)?),
			2 => Tell::Refused { reason: u8::try_from(r.get()?).ok()? },
			3 => Tell::Started { pid: r.signed().filter(|pid| *pid > 1)? },
			5 => Tell::Ended { status: r.signed()? },
			7 => Tell::Stale {
				why: Why::from_repr(r.get()?.try_into().ok()?)?,
				renews: r.get()? != 0,
				count: r.get()?,
				name: *r.0.first_chunk()?,
			},
			11 => Tell::Recipe,
			8 => Tell::Unfit { words: *r.0.first_chunk()? },
			9 => Tell::Listens { number: r.signed()? },
			10 => {
				let bytes = r.0.first_chunk::<{ 2 * PORTS }>()?;
				Tell::Ports { ports: core::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]])) }
			}
			6 => Tell::Failed { step: Step::from_repr(r.get()?.try_into().ok()?)?, errno: r.signed()? },
			_ => return None,
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::ReadyAt;

	#[test]
	fn every_answer_comes_back_as_it_was_sent() {
		let facts = Facts {
			pid: 77,
			at: ReadyAt::Python,
			sealed: 1 << 40,
			unsealed: Some(0),
			made: 3,
			running: 2,
			max: 0,
			changed: 4,
			unwatched: 5,
		};
		for tell in [
			Tell::Facts(facts),
			Tell::Facts(Facts { unsealed: None, at: ReadyAt::Ruby, ..facts }),
			Tell::Refused { reason: 28 },
			Tell::Started { pid: 1 << 22 },
			Tell::Ended { status: 0x7f00 },
			Tell::Failed { step: Step::Wait, errno: 12 },
			Tell::Failed { step: Step::Descriptors, errno: 0 },
			Tell::Failed { step: Step::Threads, errno: 11 },
			Tell::Failed { step: Step::Hooks, errno: 110 },
			Tell::Failed { step: Step::Scheduling, errno: 1 },
			Tell::Failed { step: Step::Prctl, errno: 1 },
			Tell::Unfit { words: [b'y'; WORDS_OF_UNFIT] },
			Tell::Listens { number: 12 },
			Tell::Ports { ports: core::array::from_fn(|i| 60_000 + i as u16) },
			Tell::stale(Why::File, true, 2, &[b'x'; NAME_OF_CHANGED + 1]),
			Tell::stale(Why::Variable, false, 1, b"PYTHONPATH"),
			Tell::stale(Why::LetGo, true, 1, b""),
			Tell::Recipe,
		] {
			assert_eq!(Tell::decode(&tell.encode()), Some(tell));
		}
	}

	#[test]
	fn nonsense_is_none() {
		assert_eq!(Tell::decode(&[]), None);
		assert_eq!(Tell::decode(&[0xff; Tell::LEN]), None);
		assert_eq!(Tell::decode(&Writer::<16>::new().put(6).put(99).0), None, "no such step");
		// A signal to the groups of these would reach more than a clone.
		for pid in [-1, 0, 1] {
			assert_eq!(Tell::decode(&Tell::Started { pid }.encode()), None);
		}
	}
}

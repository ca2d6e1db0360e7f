//! Of templates with threads: what their keeper, who talks with callers, and the maker in the program's memory say to
//! each other, over their own socket.

use crate::{Reader, Writer};

/// Descriptors that come with [`Order::Make`], in this order: the namespaces of processes, mounts and time, the socket
/// on which the clone says how it went ([`crate::Tell::Started`] or [`crate::Tell::Failed`]), then those of
/// [`crate::DESCRIPTORS`].
pub const MADE_FROM: usize = 4 + crate::DESCRIPTORS;

/// Bytes of the name of what stands against a template.
pub const NAME_OF_UNFIT: usize = 96;

/// Longest name of a directory in [`Order::Make`], with its NUL.
pub const PATH: usize = 4096;

/// Keeper to maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
	/// The program is ready. With a descriptor of the namespace of users in which clones are, if any.
	Freeze,
	/// A clone, whose process has this number. Behind the message the name of its directory, with a NUL.
	Make {
		/// Its number, in the namespace that is given.
		pid: i32,
		/// What libraries are told in its place that notice a new process by it, where it is the template's; else 0.
		told: i32,
		/// How many of the last [`Order::Listen`] are for it.
		listeners: u64,
	},
	/// Before [`Order::Make`]: the clone has the socket that comes with this in place of the program's descriptor of
	/// this number. At most [`crate::LISTENERS`].
	Listen {
		/// One of [`Word::Listens`].
		number: i32,
	},
	/// To let go of all that the program has open, and to make no clones any more: [`Word::LetGo`].
	LetGo,
}

impl Order {
	/// Bytes of a message, without the name of a directory.
	pub const LEN: usize = 32;

	/// As it is sent.
	#[must_use]
	pub fn encode(self) -> [u8; Self::LEN] {
		match self {
			Order::Freeze => Writer::new().put(1),
			Order::Make { pid, told, listeners } => Writer::new().put(2).signed(pid).signed(told).put(listeners),
			Order::Listen { number } => Writer::new().put(3).signed(number),
			Order::LetGo => Writer::new().put(4),
		}
		.0
	}

	/// As it was received; `None` for bytes that are none of these.
	#[must_use]
	pub fn decode(bytes: &[u8]) -> Option<Order> {
		let mut r = Reader(bytes);
		Some(match r.get()? {
			1 => Order::Freeze,
			2 => Order::Make { pid: r.signed()?, told: r.signed()?, listeners: r.get()? },
			3 => Order::Listen { number: r.signed()? },
			4 => Order::LetGo,
			_ => return None,
		})
	}
}

/// Maker to keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
	/// The threads stand still, and clones can be made.
	Frozen {
		/// Numbers that none of them has: above the first, and up to the second.
		free: [i32; 2],
		/// How many they are.
		threads: u64,
		/// Bytes that are sealed.
		sealed: u64,
		/// Why nothing could be sealed, as in [`crate::Facts`].
		unsealed: Option<u8>,
		/// `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` when they were stopped, in nanoseconds.
		clocks: [u64; 2],
	},
	/// No clone can be made: a number of `flashfork_core::forkall::What`, what it is about, and its name.
	Unfit {
		/// The reason.
		what: u8,
		/// A thread, descriptor or error.
		number: i32,
		/// Zeros behind it.
		name: [u8; NAME_OF_UNFIT],
	},
	/// Before [`Word::Frozen`]: the program listens on the socket of TCP that comes with this.
	Listens {
		/// Its descriptor.
		number: i32,
	},
	/// A clone was forked; a descriptor for it comes with this.
	Made {
		/// Its process, as the template's init sees it.
		pid: i32,
	},
	/// None could be forked.
	Failed {
		/// Why.
		errno: i32,
	},
	/// Nothing of the program's is open here any more.
	LetGo,
}

impl Word {
	/// Bytes of a message.
	pub const LEN: usize = 24 + NAME_OF_UNFIT;

	/// As it is sent.
	#[must_use]
	pub fn encode(self) -> [u8; Self::LEN] {
		let w = Writer::new();
		match self {
			Word::Frozen { free: [first, last], threads, sealed, unsealed, clocks: [monotonic, boottime] } => {
				let unsealed = unsealed.map_or(0, |reason| u64::from(reason) + 1);
				w.put(1).signed(first).signed(last).put(threads).put(sealed).put(unsealed).put(monotonic).put(boottime)
			}
			Word::Unfit { what, number, name } => w.put(2).put(u64::from(what)).signed(number).bytes(&name),
			Word::Made { pid } => w.put(3).signed(pid),
			Word::Failed { errno } => w.put(4).signed(errno),
			Word::Listens { number } => w.put(5).signed(number),
			Word::LetGo => w.put(6),
		}
		.0
	}

	/// As it was received; `None` for bytes that are none of these.
	#[must_use]
	pub fn decode(bytes: &[u8]) -> Option<Word> {
		let mut r = Reader(bytes);
		Some(match r.get()? {
			1 => Word::Frozen {
				free: [r.signed()?, r.signed()?],
				threads: r.get()?,
				sealed: r.get()?,
				unsealed: match r.get()? {
					0 => None,
					number => Some(u8::try_from(number - 1).ok()?),
				},
				clocks: [r.get()?, r.get()?],
			},
			2 => Word::Unfit { what: u8::try_from(r.get()?).ok()?, number: r.signed()?, name: *r.0.first_chunk()? },
			3 => Word::Made { pid: r.signed().filter(|pid| *pid > 1)? },
			4 => Word::Failed { errno: r.signed()? },
			5 => Word::Listens { number: r.signed()? },
			6 => Word::LetGo,
			_ => return None,
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_message_comes_back_as_it_was_sent() {
		let make = Order::Make { pid: 4711, told: 0, listeners: 2 };
		for order in [Order::Freeze, make, Order::Listen { number: 6 }, Order::LetGo] {
			assert_eq!(Order::decode(&order.encode()), Some(order));
		}
		let frozen =
			Word::Frozen { free: [300, 32767], threads: 17, sealed: 1 << 40, unsealed: Some(3), clocks: [1, 2] };
		let unfit = Word::Unfit { what: 7, number: -1, name: [b'x'; NAME_OF_UNFIT] };
		let [made, failed] = [Word::Made { pid: 2 }, Word::Failed { errno: 11 }];
		for word in [frozen, unfit, made, failed, Word::Listens { number: 4 }, Word::LetGo] {
			assert_eq!(Word::decode(&word.encode()), Some(word));
		}
	}

	#[test]
	fn nonsense_is_none() {
		assert_eq!((Order::decode(&[]), Word::decode(&[0xff; Word::LEN])), (None, None));
		assert_eq!(Word::decode(&Word::Made { pid: 0 }.encode()), None);
	}
}

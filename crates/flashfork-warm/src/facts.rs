//! What a template knows about itself.

use crate::{Reader, Writer};

/// Where a program counts as warm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum ReadyAt {
	/// After dynamic linking and constructors, before `main`.
	Main = 1,
	/// Where the program calls `flashfork_ready`.
	Call = 2,
	/// CPython, after the command's own code.
	Python = 3,
	/// Perl, after the command's modules.
	Perl = 4,
	/// Ruby, after the command's code.
	Ruby = 5,
	/// With all threads, when it had been idle for a while.
	Idle = 6,
	/// With all threads, when it listened on a socket.
	Listen = 7,
	/// With all threads, when it had printed a line.
	Line = 8,
	/// Node with all threads, when what its command line names had run.
	Node = 10,
	/// Where the runtime client of a function (AWS Lambda's) connects, which is when it asks for work. Each clone is
	/// locked into namespaces of its own.
	Runtime = 11,
}

impl ReadyAt {
	/// Of its number.
	#[must_use]
	pub fn new(number: u64) -> Option<ReadyAt> {
		u8::try_from(number).ok().and_then(ReadyAt::from_repr)
	}

	/// Where a program is ready with all its threads without a word about it, by the name of its file: the runtimes of
	/// which clones run what their callers name.
	#[must_use]
	pub fn of_runtime(program: &[u8]) -> Option<ReadyAt> {
		let mut name = program.rsplit(|b| *b == b'/').next()?;
		while let [rest @ .., b'0'..=b'9' | b'.'] = name {
			name = rest;
		}
		match name {
			b"python" => Some(ReadyAt::Python),
			b"node" | b"nodejs" => Some(ReadyAt::Node),
			_ => None,
		}
	}
}

/// The state of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
	/// Its process.
	pub pid: i32,
	/// Where it waits.
	pub at: ReadyAt,
	/// Bytes of its memory that are sealed.
	pub sealed: u64,
	/// Why nothing could be sealed, as a number of `flashfork_core::never_seal::Reason`; clones are plain forks then.
	pub unsealed: Option<u8>,
	/// Clones made so far.
	pub made: u64,
	/// Clones that run now.
	pub running: u64,
	/// Most clones it makes; 0 for any number.
	pub max: u64,
	/// Files that the program was made of and that have changed since.
	pub changed: u64,
	/// Such files of which a change would not be noticed.
	pub unwatched: u64,
}

impl Facts {
	pub(crate) fn write<const N: usize>(self, w: Writer<N>) -> Writer<N> {
		let unsealed = self.unsealed.map_or(0, |reason| u64::from(reason) + 1);
		let w = w.signed(self.pid).put(self.at as u64).put(self.sealed).put(unsealed);
		w.put(self.made).put(self.running).put(self.max).put(self.changed).put(self.unwatched)
	}

	pub(crate) fn read(r: &mut Reader<'_>) -> Option<Facts> {
		Some(Facts {
			pid: r.signed()?,
			at: ReadyAt::new(r.get()?)?,
			sealed: r.get()?,
			unsealed: match r.get()? {
				0 => None,
				number => Some(u8::try_from(number - 1).ok()?),
			},
			made: r.get()?,
			running: r.get()?,
			max: r.get()?,
			changed: r.get()?,
			unwatched: r.get()?,
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn runtimes_are_known_by_the_names_of_their_files() {
		for (program, at) in [
			(&b"/usr/bin/python3.11"[..], Some(ReadyAt::Python)),
			(b"node", Some(ReadyAt::Node)),
			(b"/opt/node20/bin/node", Some(ReadyAt::Node)),
			(b"nodejs", Some(ReadyAt::Node)),
			(b"nodemon", None),
			(b"", None),
		] {
			assert_eq!(ReadyAt::of_runtime(program), at);
		}
	}
}

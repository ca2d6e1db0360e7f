//! The store: a process of its own that holds what must outlive the daemon, by its descriptors. The daemon tells it
//! before anybody hears of what it holds, and the next daemon asks for all of it.
//!
//! | file | what |
//! |---|---|
//! | `held` | the daemon's side: what is held, and a store that ended is replaced |
//! | `serve` | the process |
//!
//! The store understands nothing of what it holds but [`Kind`]. When a daemon was killed, it ends the shells that were
//! waiting or half made into clones: nobody else could. All shells are on a leash, which store and daemon hold: when
//! both are gone, the kernel ends them.

mod held;
mod serve;

pub use held::{Descriptor, Held, Kept, Place, Store, StoreError};
pub use serve::serve;

use crate::state::{Envelope, StateError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;

/// Begins every conversation, with the version of these messages: a daemon may meet the store of an older one.
const HELLO: Hello = Hello { magic: *b"FLFKSTO\n", version: 2 };

/// How long either side may take to read or to answer, before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may wait for an earlier daemon's end.
const BACKLOG: i32 = 16;

/// Of what the daemon writes down. Shells speak their own protocol, which must be the next daemon's too.
const RECORD: Envelope = Envelope { magic: *b"FLFKREC\n", version: 1 << 16 | flashfork_proto::shell::VERSION as u32 };

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
	magic: [u8; 8],
	version: u32,
}

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
	/// A shell that is to end with the daemon. The first descriptor of a shell is its process (pidfd).
	Passing,
	/// A shell that is a clone.
	Clone,
	/// A clone that has ended: no descriptors.
	Ended,
	/// A template.
	Template,
	/// How many clones there were of templates.
	Quota,
	/// How often clones may still fork themselves.
	Budget,
	/// What shells are held by.
	Leash,
}

impl Kind {
	fn is_process(self) -> bool {
		matches!(self, Self::Passing | Self::Clone)
	}

	/// Whether the store lives on for it. All else is of use only beside such.
	fn lasts(self) -> bool {
		matches!(self, Self::Clone | Self::Template)
	}
}

#[derive(Debug, Serialize, Deserialize)]
enum ToStore {
	/// Holds this from now on, or what is held already as this; the descriptors that come along are added, and if any
	/// it is answered.
	Put { id: u64, kind: Kind, record: serde_bytes::ByteBuf },
	/// Ends the process, closes all descriptors, and keeps the record if any.
	Kill { id: u64, record: Option<serde_bytes::ByteBuf> },
	/// Is held no more.
	Remove { id: u64 },
	/// Ends all processes and forgets everything.
	End,
	/// Answered with all that is held.
	All,
}

#[derive(Debug, Serialize, Deserialize)]
enum FromStore {
	/// With its descriptors.
	Held { id: u64, kind: Kind, record: serde_bytes::ByteBuf },
	/// That was all, or it was done.
	End,
	/// There was no room for the descriptors, and nothing has changed.
	Full,
}

/// `record` as it is held, with a version.
pub(crate) fn seal(record: &impl Serialize) -> Vec<u8> {
	RECORD.seal(record).expect("what is written down is plain values")
}

/// The opposite of [`seal`].
///
/// # Errors
/// [`StateError`], above all if it is of another version.
pub(crate) fn open<T: DeserializeOwned>(record: &[u8]) -> Result<T, StateError> {
	RECORD.open(record)
}

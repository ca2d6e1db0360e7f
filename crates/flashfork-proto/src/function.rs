//! What `flashfork-agent function` says to `flashfork serve` of a function's runtime in its guest.
//!
//! It prints the numbers of two TCP ports of the guest's 127.0.0.1. The first is for these messages, as
//! [frames](crate::frame), over one connection at a time, the last that came. A connection to the second is one of the
//! runtime's to its Runtime API, in the order in which they were told of.
//!
//! After the first [`Said::Asks`] it closes the connection of messages, so that it has nothing to say when its guest is
//! frozen. Over a new one it tells of all requests that wait.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::agent::Exit;

/// What the first request of a runtime begins with that is warm.
pub const NEXT: &[u8] = b"GET /2018-06-01/runtime/invocation/next";

/// The program of a package, which is the runtime.
pub const BOOTSTRAP: &str = "bootstrap";

/// Greatest length of a frame, in bytes.
pub const MAX_FRAME: usize = 64 << 10;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
	/// The runtime has printed this.
	Printed(ByteBuf),
	/// A request waits for a connection, and begins so.
	Asks(ByteBuf),
	/// All has been told that was printed before the server sent a byte.
	Flushed,
	/// The runtime has ended.
	Ended(Exit),
}

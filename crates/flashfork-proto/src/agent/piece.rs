//! Files on their way between host and guest.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Part of a copy. First comes what the copy is of, a directory or a file; a directory's content follows it, in any
/// order, up to its [`Piece::Leave`]. Names are single names, never paths; that of the first is the receiver's to
/// choose. Nothing here can stand for a device, a pipe or a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
	/// A directory. What follows is in it.
	Directory {
		/// Its name.
		name: ByteBuf,
		/// Its permissions, the lower twelve bits of a mode.
		mode: u32,
	},
	/// The end of the directory entered last.
	Leave,
	/// A file. Its content follows.
	File {
		/// Its name.
		name: ByteBuf,
		/// As a directory's.
		mode: u32,
	},
	/// More of the file's content.
	Bytes(ByteBuf),
	/// The end of the file.
	FileEnd,
	/// A symbolic link.
	Link {
		/// Its name.
		name: ByteBuf,
		/// Where it leads.
		target: ByteBuf,
	},
	/// Something is left out, or the file that was begun can't be read to its end, which ends it: what and why, in one
	/// line.
	Trouble(String),
	/// All has been sent.
	End,
}

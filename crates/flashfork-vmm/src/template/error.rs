//! Why a template can't be saved or loaded.

use super::HostError;
use crate::{devices::virtio::blk::DiskError, memory::MemfdError, state::StateError};
use std::{io, path::PathBuf};

/// One line: what, why, and what to do. Nothing is left behind by a save that failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
	/// There is something already.
	#[error("cannot save the template to {0}: it exists and is not an empty directory; give another name")]
	Exists(PathBuf),
	/// Another save into the same directory is going on.
	#[error("cannot save the template to {0}: another save to it is going on")]
	Busy(PathBuf),
	/// What it would be written to first isn't this user's own.
	#[error(
		"cannot save the template: {path} is there and is not a directory that only this user may use; remove it, or save elsewhere",
		path = .0.display()
	)]
	Foreign(PathBuf),
	/// No name to make a directory of.
	#[error("cannot save the template to {0}: give the path of a directory that doesn't exist yet")]
	Name(PathBuf),
	/// A file can't be written; a full disk is the most frequent reason.
	#[error("cannot save the template: {path}: {cause}", path = path.display())]
	Write {
		/// Which.
		path: PathBuf,
		/// As the kernel says.
		cause: io::Error,
	},
	/// A file can't be read.
	#[error("cannot load the template: {path}: {cause}", path = path.display())]
	Read {
		/// Which.
		path: PathBuf,
		/// As the kernel says.
		cause: io::Error,
	},
	/// The manifest or the state in it.
	#[error("cannot load the template: {path}: {cause}", path = path.display())]
	State {
		/// Of the manifest.
		path: PathBuf,
		/// What is wrong.
		cause: StateError,
	},
	/// The state can't be written down.
	#[error("cannot save the template: {0}")]
	Encode(StateError),
	/// A file is not what was saved.
	#[error("cannot load the template: {path} is damaged: {why}; save the template again", path = path.display())]
	Damaged {
		/// Which.
		path: PathBuf,
		/// In which way.
		why: String,
	},
	/// This host isn't like the one it was made on.
	#[error("cannot load the template: {0}")]
	Host(HostError),
	/// This host can't be asked.
	#[error("cannot save the template: {0}")]
	ThisHost(HostError),
	/// The image of a disk.
	#[error(transparent)]
	Disk(DiskError),
	/// No memory file for it.
	#[error("cannot load the template: {0}")]
	Memory(#[from] MemfdError),
	/// It would not fit.
	#[error("cannot load the template: it needs {need} MB of memory, {free} MB are free ({limit})")]
	Room {
		/// In MB.
		need: u64,
		/// In MB.
		free: u64,
		/// What sets the limit.
		limit: String,
	},
}

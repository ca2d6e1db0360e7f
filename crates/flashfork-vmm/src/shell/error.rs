//! Why a shell ends before its guest does.

use crate::{jail::JailError, machine::MachineError, state::StateError};
use flashfork_proto::{shape::ShapeError, shell::ChannelError};
use std::io;

/// One line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
	/// The daemon is gone, or talks nonsense.
	#[error("the daemon's channel: {0}")]
	Channel(#[from] ChannelError),
	/// Such a machine can't be made.
	#[error(transparent)]
	Shape(#[from] ShapeError),
	/// The machine.
	#[error(transparent)]
	Machine(#[from] MachineError),
	/// The jail.
	#[error(transparent)]
	Jail(#[from] JailError),
	/// The template's state.
	#[error(transparent)]
	State(#[from] StateError),
	/// A message at the wrong time.
	#[error("the daemon sent {got} when {wanted} was due")]
	Order {
		/// What came.
		got: &'static str,
		/// What could have come.
		wanted: &'static str,
	},
	/// A message without what belongs to it, or with too much.
	#[error("{got} descriptors came with the message, {wanted} belong to it")]
	Descriptors {
		/// How many came.
		got: usize,
		/// How many should have.
		wanted: usize,
	},
	/// A thread, timer or poll.
	#[error("cannot {0}: {1}")]
	System(&'static str, io::Error),
}

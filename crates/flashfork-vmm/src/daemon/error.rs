//! Why a request was not done.

use crate::{
	boot::BootError,
	devices::virtio::blk::DiskError,
	kvm,
	memory::LayerError,
	pool::{PoolError, ShellFailure},
	state::StateError,
	store::StoreError,
	template::{DirectoryError, QuotaError},
};
use flashfork_image::ImageError;
use flashfork_proto::{
	api::{self, ErrorCode},
	shape::ShapeError,
};
use std::{io, path::PathBuf};

/// One line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
	/// A name that can be none.
	#[error("{0:?} is no name: {rule}", rule = api::NAME_RULE)]
	Name(String),
	/// The name is taken.
	#[error("there is a {kind} {name} already: remove it with `flashfork vm {}{name}`, or choose another name", if *.kind == "template" { "template rm " } else { "rm " })]
	Taken {
		/// Template or clone.
		kind: &'static str,
		/// Its name.
		name: String,
	},
	/// What has it isn't there yet.
	#[error("{kind} {name} is being made: try again, or choose another name")]
	Making {
		/// Template or clone.
		kind: &'static str,
		/// Its name.
		name: String,
	},
	/// Nothing has this name.
	#[error("there is no {kind} {name}: `flashfork vm {}ls` shows what there is", if *.kind == "template" { "template " } else { "" })]
	Unknown {
		/// Template or clone.
		kind: &'static str,
		/// The name.
		name: String,
	},
	/// The request contradicts itself.
	#[error("{0}")]
	Invalid(String),
	/// Such a machine can't be made.
	#[error(transparent)]
	Shape(#[from] ShapeError),
	/// The memory of the host or of a control group.
	#[error(
		"{asked} MiB of guest memory, but {available} MiB are free ({limit}): give less (--memory), or end something"
	)]
	Memory {
		/// Asked for.
		asked: u64,
		/// There.
		available: u64,
		/// What sets the limit.
		limit: String,
	},
	/// The same, for a fork.
	#[error(
		"the clone has {asked} MiB of its own, which a fork copies, but {available} MiB are free ({limit}): end something"
	)]
	ForkMemory {
		/// What it has.
		asked: u64,
		/// There.
		available: u64,
		/// What sets the limit.
		limit: String,
	},
	/// What a fork has copied.
	#[error(transparent)]
	Layers(#[from] LayerError),
	/// A file of the request.
	#[error("cannot open {}: {cause}", path.display())]
	File {
		/// The file.
		path: PathBuf,
		/// The system's reason.
		cause: io::Error,
	},
	/// Its image isn't what it was.
	#[error(transparent)]
	Disk(#[from] DiskError),
	/// The default guest.
	#[error(transparent)]
	Image(#[from] ImageError),
	/// No guest can run.
	#[error("{}; or use the lab: flashfork lab run --nested-kvm", kvm::unavailable(.0))]
	Kvm(kvm_ioctls::Error),
	/// No shell.
	#[error(transparent)]
	Pool(#[from] PoolError),
	/// A shell failed.
	#[error("{0}")]
	Shell(#[from] ShellFailure),
	/// The state of a template.
	#[error(transparent)]
	State(#[from] StateError),
	/// The template was used up.
	#[error(transparent)]
	Quota(#[from] QuotaError),
	/// Save or load.
	#[error(transparent)]
	Directory(#[from] DirectoryError),
	/// What a guest starts with.
	#[error(transparent)]
	Boot(#[from] BootError),
	/// A vCPU that KVM gives up on, why.
	#[error("the guest could not go on: {0}")]
	Unrunnable(String),
	/// The guest did something else.
	#[error("{0}")]
	Guest(String),
	/// Its state forbids it.
	#[error("{0}")]
	Conflict(String),
	/// Its shell doesn't read what it is sent.
	#[error("clone {0} doesn't listen: try again, or remove it with `flashfork vm rm {0}`")]
	Deaf(String),
	/// It would be lost with the daemon.
	#[error(transparent)]
	Store(#[from] StoreError),
	/// The next daemon may have more luck.
	#[error(
		"an earlier daemon's templates and clones go on, and can't be taken over: {0}; raise this one's limits (ulimit -n, ulimit -u)"
	)]
	Left(Box<Self>),
	/// A descriptor, thread or random number.
	#[error("cannot {0}: {1}")]
	System(&'static str, io::Error),
}

impl DaemonError {
	/// For programs.
	#[must_use]
	pub fn code(&self) -> ErrorCode {
		match self {
			Self::Name(_) | Self::Invalid(_) | Self::Shape(_) | Self::File { .. } | Self::Boot(_) => ErrorCode::Invalid,
			Self::Taken { .. } | Self::Making { .. } => ErrorCode::Exists,
			Self::Unknown { .. } => ErrorCode::NotFound,
			Self::Quota(_)
			| Self::Conflict(_)
			| Self::Deaf(_)
			| Self::Disk(_)
			| Self::Directory(DirectoryError::Disk(_)) => ErrorCode::Conflict,
			Self::Memory { .. } | Self::ForkMemory { .. } | Self::System(..) | Self::Store(_) | Self::Left(_) => {
				ErrorCode::Exhausted
			}
			Self::Kvm(_) | Self::Pool(_) | Self::Image(_) => ErrorCode::Unsupported,
			Self::Guest(_) => ErrorCode::Guest,
			Self::Unrunnable(_) => ErrorCode::Unrunnable,
			Self::Shell(_) | Self::State(_) | Self::Directory(_) | Self::Layers(_) => ErrorCode::Internal,
		}
	}
}

impl From<DaemonError> for api::Error {
	fn from(error: DaemonError) -> Self {
		Self { code: error.code(), message: error.to_string() }
	}
}

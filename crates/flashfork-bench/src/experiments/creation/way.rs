//! The ways to make a process, what it does then, and the phases that are timed.

use crate::prelude::*;

/// A way to make a process or thread.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Way {
	/// `pthread_create(3)` and join: the floor, nothing is copied.
	#[strum(serialize = "pthread_create")]
	Pthread,
	/// `clone(2)` with `CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_SIGHAND | CLONE_FILES`, as in the book's table.
	#[strum(serialize = "clone-vm")]
	Clone,
	/// `vfork(2)`.
	Vfork,
	/// `posix_spawn(3)`.
	#[strum(serialize = "posix_spawn")]
	PosixSpawn,
	/// `fork(3)` of the C library, memory on 4 KB pages.
	#[strum(serialize = "fork-4k")]
	Fork,
	/// `clone3(2)` without sharing anything: a fork without what the C library adds.
	Clone3,
	/// `fork(3)`, memory on transparent huge pages.
	ForkThp,
	/// `fork(3)`, memory on huge pages of the host's pool.
	ForkHugetlb,
	/// A fork of sealed memory.
	Seal,
	/// A fork on demand.
	Odf,
}

/// What the new process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Then {
	/// Exits at once.
	Exit,
	/// Becomes [`PROGRAM`], which exits at once.
	Exec,
}

/// The program of [`Then::Exec`].
pub const PROGRAM: &std::ffi::CStr = c"/bin/true";

/// What is timed, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Phase {
	/// All: from before the call until the child is reaped.
	Cycle,
	/// The call, as the parent sees it. After `vfork` and the like the parent sleeps until the child exits or execs.
	Call,
	/// From before the call until the child's first instruction of ours.
	#[strum(serialize = "first_instruction")]
	First,
	/// From the child's last instruction of ours until the parent learns that it is dead.
	Exit,
	/// The wait that removes it.
	Reap,
}

impl Way {
	/// How the parent holds its memory for this way.
	pub fn method(self) -> Method {
		match self {
			Self::ForkThp => Method::ForkThp,
			Self::ForkHugetlb => Method::Hugetlb,
			Self::Seal => Method::Seal,
			Self::Odf => Method::Odf,
			Self::Pthread | Self::Clone | Self::Vfork | Self::PosixSpawn | Self::Fork | Self::Clone3 => Method::Fork4k,
		}
	}

	/// What children of this way can be made to do.
	pub fn then(self) -> &'static [Then] {
		match self {
			Self::Pthread => &[Then::Exit],
			Self::PosixSpawn => &[Then::Exec],
			_ => &[Then::Exit, Then::Exec],
		}
	}
}

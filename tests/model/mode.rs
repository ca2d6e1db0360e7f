//! What a run surrounds its random steps with.

use crate::seeds::Seed;
use clap::ValueEnum;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
	/// Nothing: one process with one thread, its children and theirs.
	Alone,
	/// Threads work on memory of their own, each by steps of its own, while the first one seals.
	Threads,
	/// Another process writes into the memory while it is sealed, and looks whether its writes stay.
	Writers,
	/// Calls reach libc past the shim's symbols: through `dlsym` on libc's handle, or from an object bound to libc
	/// first.
	PastShim,
	/// From some step on, calls are made by system call instructions of an object loaded then.
	Raw,
	/// Blocks of an allocator; what a block held that was wiped and freed is nowhere in later ones.
	Heap,
	/// What memory is given after its seal: locks, advice for forks and dumps, guards, userfaults, `mseal`.
	Flags,
	/// Libraries are mapped, whose data is sealed too and stays memory of its file.
	Libraries,
	/// The main thread ends; the rest is done by another one.
	Leaderless,
	/// The steps lie between a snapshot and its restores, and the reference is a process that took them once.
	Rollback,
}

/// Whose `malloc` a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Allocator {
	Glibc,
	Jemalloc,
	Mimalloc,
	Tcmalloc,
}

impl Allocator {
	/// The library to load before the shim.
	pub fn library(self) -> Option<&'static str> {
		match self {
			Allocator::Glibc => None,
			Allocator::Jemalloc => Some("libjemalloc.so.2"),
			Allocator::Mimalloc => Some("libmimalloc.so.2"),
			Allocator::Tcmalloc => Some("libtcmalloc_minimal.so.4"),
		}
	}
}

pub fn name(value: impl ValueEnum) -> String {
	value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
}

impl Seed {
	/// Whether the shim stops the threads of this run to seal; without it a process with threads is not sealed.
	pub fn stops_threads(&self) -> bool {
		match self.mode {
			Mode::Threads => true,
			// Once refused from then on, once sealed on.
			Mode::Leaderless => !self.seed.is_multiple_of(3),
			_ => false,
		}
	}

	/// Whether the arena is a small one, for modes that compare it often.
	pub fn is_small(&self) -> bool {
		self.mode != Mode::Alone
	}
}

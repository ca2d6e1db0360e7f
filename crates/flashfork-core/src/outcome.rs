//! The words in which everybody speaks of a seal: what is asked for, where it may fail, what came of it.

use crate::{never_seal::Reason, sys::Errno};

/// Which pages the memfd is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
	/// 2 MB pages where the kernel gives them, 4 KB elsewhere.
	#[default]
	Auto,
	/// 4 KB pages only: slower to seal, slower to read in a clone.
	Small,
}

/// The step of a seal at which a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
	/// Blocking signals, mapping the scratch memory.
	Begin,
	/// Reading `/proc/self`: maps, page map, descriptors, limits.
	Look,
	/// Making the memfd.
	CreateMemfd,
	/// Turning sealed memory back.
	Unseal,
	/// Starting the process that stops this one's threads; `ESRCH`: it was killed.
	Helper,
}

/// Why nothing, or not all, was done. Memory is as it was, byte for byte, and a plain fork is correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
	/// The process must not be sealed.
	Refused(Reason),
	/// A seal of this process is under way (a signal handler called in the middle).
	Busy,
	/// A system call failed.
	System(Step, Errno),
}

/// What a seal did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
	/// Bytes sealed by this call.
	pub sealed: u64,
	/// Of these, bytes on 2 MB pages.
	pub huge: u64,
	/// Of these, bytes that held no page before: the price of whole blocks.
	pub filled: u64,
	/// Most extra memory held at any moment, in bytes: a prepared chunk and the filled bytes.
	pub peak_extra: u64,
	/// Nanoseconds the call took; signals were blocked meanwhile.
	pub elapsed_ns: u64,
	/// Of these, nanoseconds that went by while the memory was sealed: the rest is the same however much that is.
	pub sealing_ns: u64,
	/// Whether it ended before everything planned was done because a fork would have waited too long for that.
	pub late: bool,
	/// How often other threads were stopped: once for each step of 2 MB. 0 in a process without any.
	pub pauses: u32,
	/// Nanoseconds they were stopped in all, and at most at a time.
	pub paused_ns: u64,
	/// See `paused_ns`.
	pub longest_pause_ns: u64,
	/// Why the seal ended before everything planned was done: what came up among threads that went on running.
	pub cut_short: Option<Reason>,
	/// Number of this seal, from 1; 0 when there was nothing to seal.
	pub generation: u32,
	/// Whether the memfd, and the mount of what else there is, refuses every later write. Without that a process with
	/// the right to open `/proc/PID/map_files` could write to it; nobody else can.
	pub write_sealed: bool,
}

/// What memory is touched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
	/// Some of it is going to be sealed.
	Seal,
	/// Of a device nobody has asked anything while there is sealed memory
	/// ([`crate::kernel_writers::is_device_to_mind`]): everything may still be made anonymous, and should be.
	Unseal,
}

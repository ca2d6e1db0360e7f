//! What a clone takes over from its caller, beside the descriptors.

/// First word of a [`Start`], with its version.
pub const START_MAGIC: u64 = 0x0004_7472_6174_5346;

/// Resource limits there are on Linux (`RLIM_NLIMITS`).
pub const LIMITS: usize = 16;

/// Head of the memfd that comes with [`crate::Ask::Clone`]; of a pipe where the caller may not write files
/// (`RLIMIT_FSIZE`).
///
/// Behind it lie, as 64-bit words: the offset in the memfd of each argument, a zero, the offset of each string of the
/// environment, a zero. Behind these the strings, each with its NUL; the last byte of the memfd is a NUL. The clone
/// makes pointers of the offsets where they stand.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
	/// [`START_MAGIC`].
	pub magic: u64,
	/// Length of the memfd in bytes.
	pub len: u64,
	/// Number of arguments.
	pub arguments: u64,
	/// Number of strings of the environment.
	pub variables: u64,
	/// The caller's mask for new files.
	pub umask: u32,
	/// Its nice value, from -20 to 19.
	pub nice: i32,
	/// Signals it blocks: bit N-1 for signal N.
	pub blocked: u64,
	/// Signals it ignores.
	pub ignored: u64,
	/// Standard streams it was started without: bit N for descriptor N.
	pub closed: u64,
	/// Its scheduling policy: the first version of `struct sched_attr` (`sched_getattr(2)`), but for the nice value.
	pub scheduling: [u64; 6],
	/// Its I/O priority (`ioprio_get(2)`); -1 where the kernel doesn't tell.
	pub io_priority: i32,
	/// Its personality (`personality(2)`).
	pub personality: u32,
	/// What is in its core dumps (`/proc/self/coredump_filter`); all bits where the kernel doesn't tell.
	pub dump_filter: u32,
	/// 1 if no program that it starts gets privileges (`PR_SET_NO_NEW_PRIVS`), else 0.
	pub no_new_privs: u32,
	/// Its `PR_GET_MDWE`, secure bits, `PR_GET_THP_DISABLE` and timer slack (`prctl(2)`).
	pub prctl: [u64; 4],
	/// CPUs it may run on: bit N % 64 of word N / 64.
	pub cpus: [u64; 16],
	/// Soft and hard limits by number (`getrlimit(2)`).
	pub limits: [[u64; 2]; LIMITS],
}

impl Start {
	/// Of a caller of which nothing is known.
	pub const NOTHING: Start = Start {
		magic: START_MAGIC,
		len: 0,
		arguments: 0,
		variables: 0,
		umask: 0,
		nice: 0,
		blocked: 0,
		ignored: 0,
		closed: 0,
		scheduling: [0; 6],
		io_priority: 0,
		personality: 0,
		dump_filter: 0,
		no_new_privs: 0,
		prctl: [0; 4],
		cpus: [0; 16],
		limits: [[0; 2]; LIMITS],
	};

	/// Whether the numbers fit a memfd of that length: then every offset can be looked at, and every string ends within
	/// it.
	#[must_use]
	pub fn fits(&self, len: u64) -> bool {
		let words = self.arguments.checked_add(self.variables).and_then(|n| n.checked_add(2));
		let tables = words.and_then(|n| n.checked_mul(8)).and_then(|n| n.checked_add(size_of::<Start>() as u64));
		self.magic == START_MAGIC && self.len == len && tables.is_some_and(|end| end < len)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn counts_that_do_not_fit_are_seen() {
		let start = Start { len: 4096, arguments: 1, variables: 2, ..Start::NOTHING };
		assert!(start.fits(4096));
		assert!(!start.fits(4095) && !Start { magic: 0, ..start }.fits(4096));
		assert!(!Start { arguments: u64::MAX, ..start }.fits(4096));
		assert!(!Start { variables: u64::MAX / 8, ..start }.fits(4096));
		let tables = size_of::<Start>() as u64 + 5 * 8;
		assert!(!Start { len: tables, ..start }.fits(tables), "the strings need room");
	}
}

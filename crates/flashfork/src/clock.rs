//! The clock that forks are timed with.

/// `CLOCK_MONOTONIC` in nanoseconds, from libc: no system call on common hosts.
pub fn nanoseconds() -> u64 {
	let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: writes one struct timespec to a local. With a valid clock the call can't fail.
	unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
	t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

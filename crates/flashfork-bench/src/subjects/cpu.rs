//! What processors were used for.

/// Time of the processor in user and system mode, of this process and its reaped children, in microseconds.
/// `getrusage(2)`.
pub fn cpu_time() -> (f64, f64) {
	let mut sum = (0.0, 0.0);
	for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
		// SAFETY: all zeroes is a valid rusage, and the call fills it; it can't fail with these arguments.
		let usage = unsafe {
			let mut usage: libc::rusage = std::mem::zeroed();
			libc::getrusage(who, &mut usage);
			usage
		};
		let microseconds = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
		sum = (sum.0 + microseconds(usage.ru_utime), sum.1 + microseconds(usage.ru_stime));
	}
	sum
}

//! Clocks.

use crate::prelude::*;
use rustix::time::{ClockId, clock_gettime};

/// In microseconds.
pub fn us(time: Duration) -> f64 {
	time.as_nanos() as f64 / 1e3
}

/// Microseconds since then.
pub fn micros(begin: Instant) -> f64 {
	us(begin.elapsed())
}

pub fn nanoseconds(clock: ClockId) -> u64 {
	let now = clock_gettime(clock);
	now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds on the clock that all processes of the machine share.
pub fn monotonic() -> u64 {
	nanoseconds(ClockId::Monotonic)
}

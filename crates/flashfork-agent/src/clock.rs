//! The clocks.

use flashfork_proto::agent::{AgentError, ErrorKind, Stamp};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

const NANOS: i128 = 1_000_000_000;

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
	u64::try_from(nanoseconds(clock_gettime(ClockId::Monotonic))).unwrap_or_default()
}

/// The wall clock.
pub fn now() -> Stamp {
	let now = clock_gettime(ClockId::Realtime);
	Stamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or_default() }
}

/// Steps the wall clock and says by how many nanoseconds.
pub fn set(stamp: Stamp) -> Result<i64, AgentError> {
	let error = |kind, message| Err(AgentError { kind, message });
	if stamp.seconds < 0 || stamp.nanoseconds >= NANOS as u32 {
		return error(ErrorKind::Invalid, format!("{} s and {} ns are no time", stamp.seconds, stamp.nanoseconds));
	}
	let new = Timespec { tv_sec: stamp.seconds, tv_nsec: stamp.nanoseconds.into() };
	let old = clock_gettime(ClockId::Realtime);
	if let Err(errno) = clock_settime(ClockId::Realtime, new) {
		return error(ErrorKind::Denied, format!("the wall clock can't be set: {errno}"));
	}
	Ok(i64::try_from(nanoseconds(new) - nanoseconds(old)).unwrap_or(i64::MAX))
}

fn nanoseconds(time: Timespec) -> i128 {
	i128::from(time.tv_sec) * NANOS + i128::from(time.tv_nsec)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn times_that_are_none_are_refused_before_the_clock_is_touched() {
		for stamp in [Stamp { seconds: -1, nanoseconds: 0 }, Stamp { seconds: 1, nanoseconds: 1_000_000_000 }] {
			assert_eq!(set(stamp).unwrap_err().kind, ErrorKind::Invalid);
		}
	}
}

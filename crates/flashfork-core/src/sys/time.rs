//! Time.

use super::raw::{call, numeric};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
	read_ns(k::CLOCK_MONOTONIC)
}

/// The processor time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
	read_ns(k::CLOCK_THREAD_CPUTIME_ID)
}

fn read_ns(clock: u32) -> u64 {
	let mut t = [0u64; 2];
	// SAFETY: the kernel writes one struct timespec to a local. With a valid clock the call can't fail.
	let _ = unsafe { call(Sysno::clock_gettime, [clock as usize, t.as_mut_ptr() as usize]) };
	t[0] * 1_000_000_000 + t[1]
}

/// Lets other tasks run for about a millisecond; used between retries.
pub fn pause_briefly() {
	sleep_ns(1_000_000);
}

/// Lets others run first (`sched_yield(2)`).
pub fn give_way() {
	let _ = numeric(Sysno::sched_yield, []);
}

/// Sleeps for about so many nanoseconds, under a second. Waking early is harmless to every caller.
pub fn sleep_ns(ns: u64) {
	let t = [0u64, ns];
	// SAFETY: the kernel reads one struct timespec.
	let _ = unsafe { call(Sysno::nanosleep, [t.as_ptr() as usize, 0]) };
}

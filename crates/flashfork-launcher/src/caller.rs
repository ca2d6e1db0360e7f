//! What this process is to the kernel, for its clone.

use crate::system::{self, call, into};
use flashfork_core::inherited::Inherited;
use flashfork_warm::Start;
use linux_raw_sys::general as sys;
use syscalls::Sysno;

/// As the kernel gives a nice value, so that no answer is an error (`getpriority(2)`).
const NICE: i32 = 20;

pub fn describe() -> Option<Start> {
	let Inherited { scheduling, io_priority, personality, dump_filter, no_new_privs, prctl } = Inherited::look();
	// It can only be read by being set; nobody makes files meanwhile.
	let umask = system::ask(Sysno::umask, [0o077])?;
	system::ask(Sysno::umask, [umask]);
	let ignored = (1..=64).filter(|signal| system::is_ignored(*signal));
	let mut start = Start {
		umask: umask as u32,
		nice: NICE - system::ask(Sysno::getpriority, [sys::PRIO_PROCESS as usize, 0])? as i32,
		ignored: ignored.fold(0, |set, signal| set | 1 << (signal - 1)),
		blocked: system::block(sys::SIG_BLOCK, 0),
		scheduling,
		io_priority,
		personality,
		dump_filter,
		no_new_privs,
		prctl,
		..Start::NOTHING
	};
	// SAFETY: the kernel writes as many bytes as said.
	unsafe {
		call(Sysno::sched_getaffinity, [0, size_of_val(&start.cpus), into(&mut start.cpus)])?;
		for (which, limit) in start.limits.iter_mut().enumerate() {
			call(Sysno::prlimit64, [0, which, 0, into(limit)])?;
		}
	}
	Some(start)
}

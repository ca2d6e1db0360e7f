//! One child: made, ended, reaped, each moment taken down, its status checked.

use std::{
	ffi::c_void,
	ptr,
	sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitStatus, waitid};

use super::{
	make,
	way::{PROGRAM, Phase, Then, Way},
};
use crate::{prelude::*, subjects::engine};

/// What a child of ours exits with: not 0, so that a child that did something else is noticed.
const DONE: i32 = 7;

/// Moments in the child, in nanoseconds on the machine's monotonic clock, on memory shared with it.
#[repr(C)]
pub struct Moments {
	exec: AtomicU64,
	first: AtomicU64,
	last: AtomicU64,
}

/// What one child took, in microseconds; a phase that can't be seen from here is missing.
pub type Phases = Vec<(Phase, f64)>;

/// Makes, ends and reaps one child.
pub fn cycle(way: Way, then: Then, moments: &'static Moments) -> Result<Phases> {
	moments.exec.store(u64::from(then == Then::Exec), Ordering::Relaxed);
	moments.first.store(0, Ordering::Relaxed);
	let argument = ptr::from_ref(moments).cast_mut().cast::<c_void>();
	let failed = |error: std::io::Error| BenchError::system(way.as_ref(), error);
	let begin = monotonic();
	let (called, dead, reaped);
	match way {
		Way::Pthread => {
			let mut thread = 0;
			// SAFETY: the thread gets the shared moments and is joined below.
			let error = unsafe { libc::pthread_create(&mut thread, ptr::null(), threaded, argument) };
			called = monotonic();
			if error != 0 {
				return Err(failed(std::io::Error::from_raw_os_error(error)));
			}
			// SAFETY: made above, joined once.
			unsafe { libc::pthread_join(thread, ptr::null_mut()) };
			(dead, reaped) = (monotonic(), monotonic());
		}
		Way::PosixSpawn => {
			let pid = make::spawn().map_err(failed)?;
			called = monotonic();
			(dead, reaped) = bury(way, then, pid)?;
		}
		_ => {
			// SAFETY: `child` keeps to the clock, an atomic on shared memory, exec and exit.
			let pid = unsafe { make::process(way, child, argument) }.map_err(failed)?;
			called = monotonic();
			(dead, reaped) = bury(way, then, pid)?;
		}
	}
	let span = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
	let mut phases = vec![(Phase::Cycle, span(begin, reaped)), (Phase::Call, span(begin, called))];
	if way != Way::PosixSpawn {
		let (first, last) = (moments.first.load(Ordering::Relaxed), moments.last.load(Ordering::Relaxed));
		if first < begin {
			return Err(died(way, "it ended without a sign of life".to_owned()));
		}
		phases.push((Phase::First, span(begin, first)));
		phases.push((Phase::Exit, span(last, dead)));
	}
	if way != Way::Pthread {
		phases.push((Phase::Reap, span(dead, reaped)));
	}
	Ok(phases)
}

/// What a child does. Neither allocates nor locks; of shared memory it writes the moments only.
extern "C" fn child(argument: *mut c_void) -> ! {
	// SAFETY: the argument is the moments of `cycle`, which are never unmapped.
	let moments = unsafe { &*argument.cast::<Moments>() };
	sign(moments);
	if moments.exec.load(Ordering::Relaxed) == 1 {
		make::exec();
	}
	// SAFETY: ends the process without running anything of the parent's.
	unsafe { libc::_exit(DONE) }
}

extern "C" fn threaded(argument: *mut c_void) -> *mut c_void {
	// SAFETY: as in `child`.
	sign(unsafe { &*argument.cast::<Moments>() });
	ptr::null_mut()
}

fn sign(moments: &Moments) {
	moments.first.store(monotonic(), Ordering::Relaxed);
	moments.last.store(monotonic(), Ordering::Relaxed);
}

/// Waits until the child is dead, then reaps it: both moments. The status is checked.
fn bury(way: Way, then: Then, pid: i32) -> Result<(u64, u64)> {
	let pid = Pid::from_raw(pid).ok_or_else(|| died(way, format!("it has the process id {pid}")))?;
	loop {
		match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
			Ok(_) => break,
			Err(rustix::io::Errno::INTR) => {}
			Err(errno) => return Err(BenchError::system("wait for a child", errno)),
		}
	}
	let dead = monotonic();
	let status = engine::reap(pid)?;
	let reaped = monotonic();
	check(way, then, status).map(|()| (dead, reaped))
}

fn check(way: Way, then: Then, status: WaitStatus) -> Result {
	let wanted = if then == Then::Exec { 0 } else { DONE };
	let program = PROGRAM.to_string_lossy();
	match status.exit_status() {
		Some(code) if code == wanted => Ok(()),
		Some(127) if then == Then::Exec => Err(died(way, format!("{program} could not be started"))),
		Some(code) => Err(died(way, format!("exit status {code} instead of {wanted}"))),
		None => Err(died(way, engine::ending(status))),
	}
}

fn died(way: Way, status: String) -> BenchError {
	BenchError::Clone { what: format!("made by {way}"), status }
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_plain_way_makes_children_whose_phases_add_up() {
		// SAFETY: zeros are atomics.
		let moments = unsafe { crate::subjects::memory::shared().unwrap() };
		for way in Way::all().filter(|way| !matches!(way, Way::Seal | Way::Odf)) {
			for &then in way.then() {
				for _ in 0..3 {
					let phases = cycle(way, then, moments).unwrap();
					let of = |wanted| phases.iter().find(|(phase, _)| *phase == wanted).map(|&(_, time)| time);
					let whole = of(Phase::Cycle).unwrap();
					assert!(of(Phase::Call).unwrap() <= whole, "{way} {then:?} {phases:?}");
					assert!(phases.iter().all(|&(_, time)| time <= whole), "{way} {then:?} {phases:?}");
					assert_eq!(of(Phase::First).is_some(), way != Way::PosixSpawn);
					if matches!(way, Way::Vfork | Way::Clone) && then == Then::Exit {
						// The parent slept until the child was gone.
						assert!(of(Phase::First).unwrap() <= of(Phase::Call).unwrap(), "{phases:?}");
					}
				}
			}
		}
	}

	/// Reaps a shell that ends as `script` says, as if it were a child made by `way`.
	#[expect(clippy::zombie_processes, reason = "it is reaped by what is tested")]
	fn bury_shell(script: &str, way: Way, then: Then) -> Result<(u64, u64)> {
		let shell = std::process::Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
		bury(way, then, shell.id() as i32)
	}

	#[test]
	fn a_child_that_ends_otherwise_is_an_error() {
		for (script, said) in [
			("exit 0", "exit status 0 instead of 7"),
			("kill -9 $$", "killed by signal 9"),
			("exit 127", "127 instead"),
		] {
			let error = bury_shell(script, Way::Fork, Then::Exit).unwrap_err().to_string();
			assert!(error.contains(said) && error.contains("made by fork"), "{error}");
		}
		let missing = bury_shell("exit 127", Way::Vfork, Then::Exec).unwrap_err().to_string();
		assert!(missing.contains("/bin/true could not be started"), "{missing}");
		let (dead, reaped) = bury_shell("exit 7", Way::Fork, Then::Exit).unwrap();
		assert!(dead <= reaped);
	}
}

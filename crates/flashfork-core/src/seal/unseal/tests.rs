use super::*;
use crate::threads::{self, Threads};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// How often a thread of this process has gone to sleep.
fn sleeps(thread: i32) -> u64 {
	let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
	let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
	line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Asks a child, which has one thread and may do with its engine what it likes.
fn holds_in_child(f: impl FnOnce() -> bool) {
	// SAFETY: glibc keeps its allocator usable across fork; the child ends without the harness's exit handlers.
	let pid = unsafe { libc::fork() };
	assert!(pid >= 0);
	if pid == 0 {
		let right = f();
		// SAFETY: as above.
		unsafe { libc::_exit(i32::from(!right)) };
	}
	let mut status = 0;
	// SAFETY: waits for the child just made.
	assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
	assert_eq!(status, 0);
}

#[test]
fn what_has_no_time_makes_a_step_and_goes_on_there() {
	const STEPS: usize = 3;
	holds_in_child(|| {
		let mut words: Vec<usize> = (0..(STEPS * SHORT_CHUNK + 2 * HUGE) / size_of::<usize>()).collect();
		let sealed = crate::seal_template(crate::outcome::Pages::Small).outcome.map_or(0, |outcome| outcome.sealed);
		let mut gone = 0;
		let mut steps = 0;
		while STATE.holds_sealed() {
			let Ok(outcome) = unseal_within(Range::ALL, 0, Wait::No, 1) else { return false };
			let stuck = outcome.sealed == 0 || outcome.sealed > SHORT_CHUNK as u64 || !outcome.late;
			if stuck || words.iter().enumerate().any(|(i, word)| *word != i + gone) {
				return false;
			}
			// Goes on in memory sealed in part.
			words.iter_mut().for_each(|word| *word += 1);
			gone += 1;
			steps += outcome.sealed;
		}
		sealed >= (STEPS * SHORT_CHUNK) as u64 && gone >= STEPS && steps == sealed
	});
}

/// In a child, because the engine is taken and threads are allowed there.
#[test]
fn a_fork_waits_for_nobody_who_has_the_engine() {
	static OVER: AtomicBool = AtomicBool::new(false);
	holds_in_child(|| {
		threads::allow(Threads::Stop);
		let (me, taken) = (sys::gettid(), STATE.enter());
		let before = sleeps(me);
		let other = std::thread::spawn(move || {
			// The engine is given back only to somebody who waits for it.
			while !OVER.load(SeqCst) {
				if sleeps(me) > before + 50 {
					STATE.leave();
					return;
				}
			}
		});
		let said = unseal_for_policy(true, 0);
		OVER.store(true, SeqCst);
		taken && said.err() == Some(Error::Busy) && other.join().is_ok()
	});
}

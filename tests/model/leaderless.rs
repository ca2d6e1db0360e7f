//! The main thread ends, and another one goes on: what `/proc/self` says of memory is the main thread's, which has none
//! any more.

use flashfork_tests::Result;
use std::{fs, time::Duration};

/// Ends the calling thread, the main one, and lets another take its place, which ends the process with what `rest`
/// returns.
pub fn go_on(rest: impl FnOnce() -> i32 + Send + 'static) -> ! {
	std::thread::spawn(|| {
		let ended = wait_for_the_end_of_the_leader();
		if let Err(message) = &ended {
			eprintln!("model: {message}");
		}
		std::process::exit(if ended.is_ok() { rest() } else { 1 })
	});
	// SAFETY: ends this thread alone, as pthread_exit does in the end; its stack stays, and nothing on it is used by
	// the other one.
	unsafe { libc::syscall(libc::SYS_exit, 0) };
	unreachable!("the thread has ended")
}

fn wait_for_the_end_of_the_leader() -> Result {
	loop {
		let text = fs::read_to_string("/proc/self/stat").map_err(|e| format!("/proc/self/stat: {e}"))?;
		// The name may hold anything; the state comes behind it.
		match text.rsplit_once(") ") {
			Some((_, rest)) if rest.starts_with('Z') => return Ok(()),
			Some(_) => std::thread::sleep(Duration::from_millis(1)),
			None => return Err(format!("/proc/self/stat: {text}")),
		}
	}
}

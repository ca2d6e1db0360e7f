//! A child with a single thread for a test body: the engine refuses a process with more, as the test harness is.

use std::{fs::File, io::Write, mem::ManuallyDrop, os::fd::FromRawFd, sync::Once};

/// What a child holds while it does a test, and ends with.
pub struct Child(());

impl Child {
	/// Forks. In the parent, fails when the child panics, exits with another status or dies.
	pub fn fork() -> Option<Child> {
		tell_of_panics(std::process::id());
		// SAFETY: the child only runs the test body; glibc keeps its allocator usable across fork.
		let pid = unsafe { libc::fork() };
		assert!(pid >= 0);
		if pid == 0 {
			return Some(Child(()));
		}
		assert_eq!(wait(pid), 0, "the child failed; its message is above");
		None
	}
}

impl Drop for Child {
	fn drop(&mut self) {
		// SAFETY: ends the child without running the harness's exit handlers.
		unsafe { libc::_exit(i32::from(std::thread::panicking())) };
	}
}

/// Has a child do the rest of the function.
#[allow(unused_macros)] // each test program uses a part
macro_rules! in_child {
	() => {
		in_child!(Child::fork())
	};
	($child:expr) => {
		let Some(_child) = $child else { return };
	};
}

#[allow(dead_code)] // as above
pub fn in_child(body: impl FnOnce()) {
	in_child!();
	body();
}

/// Has children of the harness write what they panic with themselves: the harness would keep it in the child's own
/// memory, which ends with it. Set before there is any child, and past the lock of standard error: a child can't wait
/// for what another thread held while it was made.
fn tell_of_panics(harness: u32) {
	static SET: Once = Once::new();
	SET.call_once(|| {
		let usual = std::panic::take_hook();
		std::panic::set_hook(Box::new(move |info| {
			if std::process::id() == harness {
				return usual(info);
			}
			// SAFETY: standard error is open, and stays so.
			let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
			let _ = writeln!(stderr, "{info}");
		}));
	});
}

/// Does it in a plain fork of this process, in which it has to hold: a claim, by these words.
#[allow(dead_code)] // as above
#[track_caller]
pub fn holds_in_fork(claim: &str, holds: impl FnOnce() -> bool) {
	// SAFETY: one thread.
	let pid = unsafe { libc::fork() };
	if pid == 0 {
		// SAFETY: ends the child.
		unsafe { libc::_exit(i32::from(!holds())) };
	}
	assert_eq!(wait(pid), 0, "not so in a fork: {claim}");
}

/// Waits for a child; its exit status, or 128 plus the signal that ended it.
pub fn wait(pid: i32) -> i32 {
	let mut status = 0;
	// SAFETY: plain waitpid on our own child.
	assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
	if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

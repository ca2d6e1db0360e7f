//! The first process in the namespace of a call: it waits for orphans, and with it all of the call ends. The handler in
//! its place would ignore signals to itself.
//!
//! It shares the memory of the process outside, so it costs no copy. As that memory is beyond what a call may reach,
//! neither can be dumped: who has no rights where the template lives can't trace them (`ptrace(2)`). This one keeps
//! rights besides that the call gives up.

use super::{process::block_signals, template::Single};
use core::{
	ffi::{c_int, c_void},
	ptr::null_mut,
};
use flashfork_core::forkall::call;
use syscalls::Sysno;

/// Its stack, which is aligned to 16 bytes.
static STACK: Single<[u128; 1024]> = Single::new([0; _]);

/// A pipe, by which it says that it has begun, and a number in words.
struct Given {
	line: [c_int; 2],
	text: [u8; 12],
	len: usize,
}

/// Makes it, and returns when it has begun: from then on it ends with this process. What comes after it there has
/// higher numbers than `last`: by the template's libraries would take it for that.
///
/// # Safety
/// This process has one thread.
pub unsafe fn make(last: c_int) -> Option<c_int> {
	let mut given = Given { line: [-1; 2], text: [0; _], len: 0 };
	// SAFETY: as the caller says; structures are locals, which the other process reads before this goes on.
	unsafe {
		if libc::pipe2(given.line.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
			return None;
		}
		let text = given.text.as_mut_ptr().cast();
		given.len = libc::snprintf(text, given.text.len(), c"%d".as_ptr(), last) as usize;
		libc::prctl(libc::PR_SET_DUMPABLE, 0);
		let before = block_signals();
		let top = STACK.get().as_mut_ptr_range().end.cast();
		let pid = libc::clone(run, top, libc::CLONE_VM | libc::SIGCHLD, (&raw mut given).cast());
		libc::sigprocmask(libc::SIG_SETMASK, &raw const before, null_mut());
		libc::close(given.line[1]);
		let begun = pid > 0 && libc::read(given.line[0], text.cast(), 1) == 1;
		libc::close(given.line[0]);
		begun.then_some(pid)
	}
}

/// With every signal blocked, and without libc, whose state is the other process's.
extern "C" fn run(given: *mut c_void) -> c_int {
	const AGAIN: usize = (libc::WNOHANG | libc::__WALL) as usize;
	let child = 1u64 << (libc::SIGCHLD - 1);
	// SAFETY: `make` has given it, and waits; the calls read and write nothing else.
	unsafe {
		let Given { line, text, len } = &*given.cast::<Given>();
		let text = text.as_ptr() as usize;
		let _ = call(Sysno::prctl, [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize]);
		let path = c"/proc/sys/kernel/ns_last_pid".as_ptr() as usize;
		let file = call(Sysno::openat, [libc::AT_FDCWD as usize, path, libc::O_WRONLY as usize]);
		let numbered = file.and_then(|file| call(Sysno::write, [file, text, *len]));
		let _ = call(Sysno::close, [line[0] as usize]);
		// Fails where the other process has ended before it could take this one along.
		if numbered.and_then(|_| call(Sysno::write, [line[1] as usize, text, 1])).is_err() {
			return 1;
		}
		let _ = call(Sysno::close_range, [0, libc::c_uint::MAX as usize, 0]);
		loop {
			while call(Sysno::wait4, [usize::MAX, 0, AGAIN, 0]).is_ok_and(|pid| pid > 0) {}
			let _ = call(Sysno::rt_sigtimedwait, [(&raw const child) as usize, 0, 0, size_of::<u64>()]);
		}
	}
}

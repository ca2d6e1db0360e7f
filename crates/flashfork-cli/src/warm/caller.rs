//! What this process is to the kernel, for a clone that takes it over.

use flashfork_terminal::CliError;
use nix::sys::{
	signal::{SigSet, Signal, raise},
	signalfd::{SfdFlags, SignalFd},
};
use std::{
	os::unix::process::ExitStatusExt,
	process::ExitStatus,
	sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Signals ignored when this process was started; Rust's runtime ignores SIGPIPE for itself.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Standard streams this process was started without; Rust's runtime opens them.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// Run by the loader before Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = note_start;

/// Takes down which signals are ignored, and which streams closed.
extern "C" fn note_start() {
	let ignored = (1..=64).filter(|signal| is_ignored(*signal)).fold(0, |set, signal| set | bit(signal));
	IGNORED.store(ignored, Relaxed);
	// SAFETY: takes numbers.
	let closed = (0..3).filter(|stream| unsafe { libc::fcntl(*stream, libc::F_GETFD) } < 0);
	CLOSED.store(closed.fold(0, |set, stream| set | 1 << stream), Relaxed);
}

fn is_ignored(signal: i32) -> bool {
	// SAFETY: all zeros are a value of this plain C structure, which is writable; nothing is set.
	unsafe {
		let mut action: libc::sigaction = std::mem::zeroed();
		libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
	}
}

/// Where a signal is in a set of 64.
pub fn bit(signal: i32) -> u64 {
	1 << (signal - 1)
}

/// Signals ignored when this process was started.
pub fn ignored() -> u64 {
	IGNORED.load(Relaxed)
}

/// Whether this process was started without a standard stream.
pub fn was_closed(stream: i32) -> bool {
	CLOSED.load(Relaxed) & 1 << stream != 0
}

/// Whether a signal was ignored when this process was started.
pub fn is_ignored_here(signal: i32) -> bool {
	ignored() & bit(signal) != 0
}

/// From now on these signals are read, also those that are ignored: signals that are blocked wait all the same.
pub fn take_signals(wanted: impl IntoIterator<Item = Signal>) -> Result<SignalFd, CliError> {
	let wanted: SigSet = wanted.into_iter().collect();
	let failed = |e: nix::Error| CliError::Unable(format!("can't catch signals: {}", e.desc()));
	wanted.thread_block().map_err(failed)?;
	SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)
}

/// Ends this process by a signal whose default action that is, as if it had never been read.
pub fn end_by(signal: Signal) -> ! {
	let mut set = SigSet::empty();
	set.add(signal);
	// What they could fail with, numbers that don't exist, doesn't come up.
	let _ = raise(signal);
	let _ = set.thread_unblock();
	std::process::exit(128 + signal as i32)
}

/// Ends this process by the signal that has ended a program, if one has: a shell, make or xargs go on after a command
/// that ends with 130, and not after one that SIGINT has ended. Otherwise, and where the signal does nothing because
/// this is the first process of a container, gives the exit code: the program's own, or 128 plus the signal.
pub fn end_as(status: ExitStatus) -> u8 {
	if let Some(signal) = status.signal() {
		// SAFETY: numbers, and a set on the stack; nothing else runs in this process that a signal could disturb.
		unsafe {
			// The program's core is the one that was to be dumped. A failure of these does no more than keep this.
			libc::prctl(libc::PR_SET_DUMPABLE, 0);
			libc::signal(signal, libc::SIG_DFL);
			let mut set: libc::sigset_t = std::mem::zeroed();
			libc::sigaddset(&mut set, signal);
			libc::raise(signal);
			libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
		}
	}
	exit_code(status)
}

/// What a shell makes of it: a program's exit code, or 128 plus the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
	let code = status.code().or(status.signal().map(|signal| 128 + signal));
	code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The mask for new files.
pub fn umask() -> u32 {
	// SAFETY: takes and gives a number; it can only be read by being set.
	unsafe {
		let mask = libc::umask(0o077);
		libc::umask(mask);
		mask
	}
}

/// Signals blocked now.
pub fn blocked() -> u64 {
	// SAFETY: all zeros are a value of this plain C structure; nothing is set.
	unsafe {
		let mut set: libc::sigset_t = std::mem::zeroed();
		libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
		(1..=64).filter(|signal| libc::sigismember(&raw const set, *signal) == 1).fold(0, |all, s| all | bit(s))
	}
}

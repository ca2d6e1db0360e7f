//! Limits of a shell.

use super::JailError;
use linux_raw_sys::general::F_SETSIG;
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::{FileType, OFlags, fcntl_getfl, fstat},
	process::{
		DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, set_parent_process_death_signal,
		setrlimit,
	},
};

/// Descriptors: KVM's, eventfds, and one for each vsock connection. Never more than half of what the daemon may have:
/// who has more under way than that can send none (too_many_unix_fds in net/core/scm.c), and all processes of a user
/// are counted together.
const DESCRIPTORS: u64 = 1024;

/// What the kernel adds to a shell's badness when memory runs out (proc_pid_oom_score_adj(5)): more than systemd gives
/// any service by itself. Its clone is lost then; with the daemon all templates were.
const VICTIM: &str = "500";

/// Bytes of private memory of a monitor beside its guest's: heap, stacks (2 MB a thread), messages.
const MONITOR: u64 = 128 << 20;

/// Bytes of addresses beside the guest's: what the C library sets aside for heaps that are never made (64 MB a thread),
/// libraries.
const ADDRESSES: u64 = 4 << 30;

/// Has the kernel take this process when memory runs out, rather than its daemon. Anybody may ask for more of it.
pub(super) fn volunteer() -> Result<(), JailError> {
	let path = "/proc/self/oom_score_adj";
	let failed = |cause| JailError::Step { step: path, cause };
	let before = std::fs::read_to_string(path).map_err(failed)?;
	if before.trim().parse::<i32>().is_ok_and(|before| before >= 500) {
		return Ok(());
	}
	std::fs::write(path, VICTIM).map_err(failed)
}

/// Sets what holds from the start.
pub(super) fn set() -> Result<(), JailError> {
	let descriptors = getrlimit(Resource::Nofile).maximum.map_or(DESCRIPTORS, |most| DESCRIPTORS.min(most / 2));
	// A core would hold the guest's memory.
	limit(&[
		(Resource::Nofile, descriptors),
		(Resource::Core, 0),
		(Resource::Memlock, 0),
		(Resource::Msgqueue, 0),
		// Kicks need no room, and others have none where one that was taken over fills it.
		(Resource::Sigpending, 0),
	])?;
	set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(JailError::step("forbidding dumps"))?;
	if leash()? {
		return Ok(());
	}
	// After the change of user, which clears it.
	set_parent_process_death_signal(Some(Signal::KILL)).map_err(JailError::step("dying with who started it"))
}

/// Has the kernel kill this process when the leash is let go, which a daemon's shell has for its standard error: the
/// end for reading of a pipe, to which nobody writes. Whether there is one.
///
/// Its filter lets nobody here close it or make it another.
fn leash() -> Result<bool, JailError> {
	let leash = rustix::stdio::stderr();
	let step = || JailError::step("being on the daemon's leash");
	let is_pipe = FileType::from_raw_mode(fstat(leash).map_err(step())?.st_mode).is_fifo();
	if !is_pipe || fcntl_getfl(leash).map_err(step())? & OFlags::ACCMODE != OFlags::RDONLY {
		return Ok(false);
	}
	let calls = [
		(libc::F_SETOWN, std::process::id().cast_signed()),
		(F_SETSIG.cast_signed(), libc::SIGKILL),
		(libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
	];
	for (call, value) in calls {
		// SAFETY: takes numbers, and changes nothing but when this process is signalled.
		if unsafe { libc::fcntl(libc::STDERR_FILENO, call, value) } < 0 {
			return Err(JailError::Step {
				step: "being on the daemon's leash",
				cause: std::io::Error::last_os_error(),
			});
		}
	}
	// It may have been let go before.
	let mut end = [PollFd::new(&leash, PollFlags::empty())];
	let is_gone = poll(&mut end, Some(&Timespec::default())).map_err(step())? > 0;
	if is_gone { Err(step()(rustix::io::Errno::PIPE)) } else { Ok(true) }
}

/// Sets what holds when nothing is made any more: no process, no thread, no byte in any file.
pub(super) fn close() -> Result<(), JailError> {
	limit(&[(Resource::Nproc, 0), (Resource::Fsize, 0)])
}

/// Sets what holds while there is a guest, of which `bytes` are private memory. Twice as many addresses again are for
/// the copy that a fork makes of them, and for the template that a rollback copies from: memory files, which only the
/// daemon can make.
pub(super) fn promise(bytes: u64) -> Result<(), JailError> {
	let addresses = bytes.saturating_mul(3).saturating_add(ADDRESSES);
	limit(&[(Resource::Data, bytes.saturating_add(MONITOR)), (Resource::As, addresses)])
}

/// For good: nobody here may raise them again. Nor may we: a daemon that was given less has shells with less.
fn limit(limits: &[(Resource, u64)]) -> Result<(), JailError> {
	let set = |(resource, limit): &(Resource, u64)| {
		let limit = getrlimit(*resource).maximum.map_or(*limit, |given| given.min(*limit));
		setrlimit(*resource, Rlimit { current: Some(limit), maximum: Some(limit) })
	};
	limits.iter().try_for_each(set).map_err(JailError::step("limits"))
}

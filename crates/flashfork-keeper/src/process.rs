//! Processes, by system calls that std lacks.

use std::{
	io::{Error, Result},
	os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Forks (`clone3(2)`), into new namespaces if these flags say so. `None` in the child. To be called in a process with
/// one thread only.
pub fn fork(flags: i32) -> Result<Option<i32>> {
	// struct clone_args as of Linux 5.3: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
	let arguments = [flags as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
	// SAFETY: the kernel reads the structure. Without CLONE_VM both go on with memory of their own, and one thread has
	// no lock that another holds.
	match unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) } {
		-1 => Err(Error::last_os_error()),
		0 => Ok(None),
		pid => Ok(Some(pid as i32)),
	}
}

/// A word of another process's memory (`process_vm_readv(2)`).
pub fn read_word(pid: i32, at: usize) -> Result<u32> {
	let mut word = 0u32;
	let [here, there] = spans(&raw mut word, at);
	// SAFETY: the kernel writes four bytes to a local.
	transferred(unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) })?;
	Ok(word)
}

/// Writes one (`process_vm_writev(2)`).
pub fn write_word(pid: i32, at: usize, word: u32) -> Result<()> {
	let mut word = word;
	let [here, there] = spans(&raw mut word, at);
	// SAFETY: the kernel reads four bytes of a local.
	transferred(unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) })
}

fn spans(word: *mut u32, at: usize) -> [libc::iovec; 2] {
	[word.cast(), at as *mut libc::c_void].map(|iov_base| libc::iovec { iov_base, iov_len: size_of::<u32>() })
}

fn transferred(bytes: isize) -> Result<()> {
	match bytes {
		-1 => Err(Error::last_os_error()),
		4 => Ok(()),
		_ => Err(Error::from_raw_os_error(libc::EFAULT)),
	}
}

/// Whether a call of libc's has failed.
pub fn check(result: i32) -> Result<()> {
	if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Has this process end with the one that made it.
pub fn end_with_parent() -> Result<()> {
	// SAFETY: takes numbers.
	check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
}

/// Lives on without the one that made it.
pub fn outlive_parent() -> Result<()> {
	// SAFETY: takes numbers.
	check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) })
}

/// Gives the process another name, for lists.
pub fn set_name(name: &std::ffi::CStr) {
	// SAFETY: a string with its NUL.
	unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Mounts the processes of this namespace at /proc.
pub fn mount_proc() -> Result<()> {
	let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
	// SAFETY: strings with their NUL.
	check(unsafe { libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null()) })
}

/// Mounts an empty directory there, where there is one.
pub fn mount_own(place: &std::ffi::CStr) -> Result<()> {
	let (flags, options) = (libc::MS_NOSUID | libc::MS_NODEV, c"size=512m,mode=1777");
	// SAFETY: strings with their NUL.
	let done = check(unsafe {
		libc::mount(c"tmpfs".as_ptr(), place.as_ptr(), c"tmpfs".as_ptr(), flags, options.as_ptr().cast())
	});
	done.or_else(|e| if e.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(e) })
}

/// Ends as a process did that this one stands for.
pub fn end_as(status: i32) -> ! {
	if libc::WIFSIGNALED(status) {
		// SAFETY: the default action ends this process; no core of it is wanted.
		unsafe {
			let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
			libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
			libc::signal(libc::WTERMSIG(status), libc::SIG_DFL);
			let set: libc::sigset_t = std::mem::zeroed();
			libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
			libc::raise(libc::WTERMSIG(status));
		}
	}
	std::process::exit(libc::WEXITSTATUS(status))
}

/// /dev/null in place of the standard streams.
pub fn let_go_of_streams() -> Result<()> {
	let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
	for stream in 0..3 {
		// SAFETY: nothing of this process holds these descriptors.
		check(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
	}
	Ok(())
}

/// Closes all descriptors but the standard streams and one, which gets the number 3.
pub fn keep_only(kept: BorrowedFd<'_>) -> Result<OwnedFd> {
	const KEPT: RawFd = 3;
	// SAFETY: what is closed is used by nobody any more: its owners are never dropped, for this process doesn't return.
	unsafe {
		if kept.as_raw_fd() != KEPT {
			check(libc::dup3(kept.as_raw_fd(), KEPT, libc::O_CLOEXEC))?;
		}
		// By its number: glibc has the function from 2.34 on.
		check(libc::syscall(libc::SYS_close_range, KEPT as u32 + 1, u32::MAX, 0) as i32)?;
		Ok(OwnedFd::from_raw_fd(KEPT))
	}
}

/// A descriptor that can be read when one of these signals has come, which are blocked from now on.
pub fn signals(all: &[i32]) -> Result<OwnedFd> {
	// SAFETY: the set is a local of which all zeros are a value; the descriptor is new.
	unsafe {
		let mut set: libc::sigset_t = std::mem::zeroed();
		for signal in all {
			libc::sigaddset(&raw mut set, *signal);
		}
		check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
		let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
		check(fd)?;
		Ok(OwnedFd::from_raw_fd(fd))
	}
}

/// Takes what has come there: the numbers of the signals.
pub fn take_signals(from: BorrowedFd<'_>) -> Vec<i32> {
	let mut all = Vec::new();
	loop {
		// SAFETY: all zeros are a value of the structure; no more is read than it holds.
		let info = unsafe {
			let mut info: libc::signalfd_siginfo = std::mem::zeroed();
			let len = size_of::<libc::signalfd_siginfo>();
			let read = libc::read(from.as_raw_fd(), (&raw mut info).cast(), len);
			(read == len as isize).then_some(info.ssi_signo as i32)
		};
		match info {
			Some(signal) => all.push(signal),
			None => return all,
		}
	}
}

/// One child that has ended, stopped or gone on, without waiting.
pub fn next_child() -> Option<(i32, i32)> {
	let mut status = 0;
	// SAFETY: the status is a local.
	let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
	(pid > 0).then_some((pid, status))
}

/// Waits for the end of a child.
pub fn wait_for(pid: i32) -> Result<()> {
	// SAFETY: takes numbers.
	check(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) })
}

/// The parent of a process.
pub fn parent_of(pid: i32) -> Option<i32> {
	let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
	status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The number that a process has here, by a descriptor for it.
pub fn number_of(process: &OwnedFd) -> Option<i32> {
	let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd())).ok()?;
	let pid = about.lines().find_map(|line| line.strip_prefix("Pid:"))?;
	pid.trim().parse().ok().filter(|pid| *pid > 1)
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) {
	// SAFETY: takes numbers.
	unsafe { libc::kill(pid, signal) };
}

/// Whether a process has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
	let mut one = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
	rustix::event::poll(&mut one, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))
		.is_ok_and(|count| count == 1)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_parent_of_a_process_is_who_has_started_it() {
		let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
		let parent = parent_of(i32::try_from(child.id()).unwrap());
		child.kill().unwrap();
		child.wait().unwrap();
		assert_eq!(parent, i32::try_from(std::process::id()).ok());
	}
}

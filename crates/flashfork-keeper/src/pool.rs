//! Namespaces for clones, made ahead: of processes and of mounts, with /proc and their own init. A clone is not the
//! first process of its namespace: signals would not end it, and orphans would come to it.
//!
//! The call of a function has a namespace of users, too, in which its processes are counted, and /tmp and /dev/shm of
//! its own; and all that it has started ends with it.

use crate::{
	namespaces,
	process::{self, check},
	told::Told,
};
use flashfork_warm::ReadyAt;
use std::{
	fs::File,
	io::{Error, Read, Result, Write},
	os::fd::{AsFd, AsRawFd, OwnedFd},
};

/// A namespace, as the template's init has it.
pub struct Space {
	/// Its init.
	pub init: i32,
	/// Descriptors of its processes and mounts.
	pub processes: File,
	pub mounts: File,
	/// While this is open, its init waits.
	pub leash: OwnedFd,
}

/// Makes one in which the next number is above this one, by the template's init.
pub fn make(told: &Told, pid: i32) -> Result<Space> {
	let call = told.ready_at() == ReadyAt::Runtime;
	let user = call.then(namespaces::own_numbers);
	let kinds = libc::CLONE_NEWPID | libc::CLONE_NEWNS | if call { libc::CLONE_NEWUSER } else { 0 };
	let (theirs, leash) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
	let (mut begun, told) = std::io::pipe()?;
	let Some(init) = process::fork(kinds)? else {
		drop(leash);
		let mut told = told;
		let errno = match begin(pid, user) {
			Ok(()) => 0,
			Err(e) => e.raw_os_error().unwrap_or(libc::EIO),
		};
		let written = told.write_all(&errno.to_ne_bytes());
		if errno != 0 || written.is_err() {
			std::process::exit(1);
		}
		run(&theirs, call);
	};
	drop(told);
	let mut errno = [0; 4];
	let begun = begun.read_exact(&mut errno);
	let failed = i32::from_ne_bytes(errno);
	if begun.is_err() || failed != 0 {
		return Err(if failed != 0 { Error::from_raw_os_error(failed) } else { Error::from_raw_os_error(libc::EIO) });
	}
	let space = |kind: &str| File::open(format!("/proc/{init}/ns/{kind}"));
	Ok(Space { init, processes: space("pid")?, mounts: space("mnt")?, leash })
}

/// What the clone starts has higher numbers than the one chosen for it: none shall have that of a thread of the
/// template, by which libraries know their process again.
fn begin(pid: i32, user: Option<[u32; 2]>) -> Result<()> {
	if let Some(user) = user {
		namespaces::map_user(user)?;
		for place in [c"/tmp", c"/dev/shm"] {
			process::mount_own(place)?;
		}
	}
	process::mount_proc()?;
	std::fs::write("/proc/sys/kernel/ns_last_pid", pid.to_string())
}

/// The init of a clone's namespace: waits for what comes to it, and ends when the leash is gone and it is alone. Of a
/// call it doesn't wait for others: with it all processes of its namespace end.
fn run(leash: &OwnedFd, call: bool) -> ! {
	process::set_name(c"flashfork-init");
	let leash = process::keep_only(leash.as_fd());
	let signals = process::signals(&[libc::SIGCHLD]);
	let (Ok(leash), Ok(signals)) = (leash, signals) else { std::process::exit(1) };
	// Nobody's working directory, and nobody's streams.
	let _ = std::env::set_current_dir("/");
	let mut released = false;
	loop {
		process::take_signals(signals.as_fd());
		while process::next_child().is_some() {}
		if released && (call || !has_children()) {
			std::process::exit(0);
		}
		let wait = libc::POLLIN;
		let mut both = [
			libc::pollfd { fd: signals.as_raw_fd(), events: wait, revents: 0 },
			libc::pollfd { fd: if released { -1 } else { leash.as_raw_fd() }, events: wait, revents: 0 },
		];
		// SAFETY: two structures, locals.
		let polled = check(unsafe { libc::poll(both.as_mut_ptr(), 2, -1) });
		released |= polled.is_ok() && both[1].revents != 0;
	}
}

fn has_children() -> bool {
	// SAFETY: all zeros are a value of the structure; nothing is taken.
	unsafe {
		let mut info: libc::siginfo_t = std::mem::zeroed();
		libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) == 0
	}
}

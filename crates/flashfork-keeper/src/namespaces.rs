//! The namespaces that a template and its clones need, and in words what is missing where they can't be had.

use crate::process::check;
use std::{
	fs::File,
	io::{Error, Result, Write},
};

/// What goes on without them.
const STILL: &str = "; templates of programs with one thread (without --threads) need no namespaces";

/// Goes to a namespace of mounts, and of users where this process has no right to one otherwise: the program's user
/// keeps its number. Gives whether there is one of users: then the program has no capabilities.
pub fn enter() -> std::result::Result<bool, String> {
	let user = !may_administer();
	if user {
		new_users()?;
	}
	unshare(libc::CLONE_NEWNS).map_err(|e| no_others(&e))?;
	// What is mounted elsewhere later comes here, and nothing goes the other way.
	// SAFETY: strings with their NUL.
	check(unsafe {
		let flags = libc::MS_REC | libc::MS_SLAVE;
		libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
	})
	.map_err(|e| no_others(&e))?;
	Time::new().map_err(|e| format!("can't have a time namespace (Linux 5.6, CONFIG_TIME_NS): {e}{STILL}"))?;
	Ok(user)
}

/// Goes to a new namespace of users, in which this user keeps its number, and is the only one.
fn new_users() -> std::result::Result<(), String> {
	let own = own_numbers();
	unshare(libc::CLONE_NEWUSER).map_err(|e| no_users(&e))?;
	map_user(own).map_err(|e| format!("can't map this user in a namespace of users: {e}{STILL}"))
}

/// The numbers of this user and its group.
pub fn own_numbers() -> [u32; 2] {
	// SAFETY: asks for numbers.
	unsafe { [libc::geteuid(), libc::getegid()] }
}

/// In a new namespace of users: has these numbers, which are this process's outside, be the same there, and no others.
pub fn map_user([user, group]: [u32; 2]) -> Result<()> {
	// There is none before Linux 3.19.
	let _ = std::fs::write("/proc/self/setgroups", "deny");
	std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
	std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Goes to the namespace of users of a template's clones, below that of the program, which has no capabilities there.
/// It belongs to the program's user, who so has all of them in this one (user_namespaces(7)): whoever runs in the
/// program's memory may go there, and finds nothing there but namespaces of clones.
pub fn enter_that_of_clones() -> std::result::Result<File, String> {
	new_users()?;
	File::open("/proc/self/ns/user").map_err(|e| no_others(&e))
}

/// Goes to a namespace of users.
pub fn go_to_users(namespace: &impl std::os::fd::AsRawFd) -> Result<()> {
	// SAFETY: takes numbers; this process has one thread.
	check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWUSER) })
}

/// Why there is no user namespace.
fn no_users(e: &Error) -> String {
	let why = match e.raw_os_error() {
		Some(libc::ENOSPC) => "no user namespace is left: raise sysctl user.max_user_namespaces".into(),
		Some(libc::EPERM | libc::EACCES) => {
			"may not make user namespaces: a container's filter forbids it, or sysctl kernel.unprivileged_userns_clone \
			 or kernel.apparmor_restrict_unprivileged_userns does"
				.into()
		}
		_ => format!("can't make a user namespace: {e}"),
	};
	format!("{why}{STILL}")
}

/// Why there is no other namespace, although there is one of users.
pub fn no_others(e: &Error) -> String {
	let why = match e.raw_os_error() {
		Some(libc::ENOSPC) => {
			"no namespace is left: raise sysctl user.max_pid_namespaces and user.max_mnt_namespaces".into()
		}
		Some(libc::EPERM | libc::EACCES) => {
			"may not make namespaces of processes and mounts: a container or AppArmor (sysctl \
			 kernel.apparmor_restrict_unprivileged_userns) forbids it"
				.into()
		}
		Some(libc::ENOSYS) => "may not call clone3: a container's filter forbids it".into(),
		_ => format!("can't make namespaces of processes and mounts: {e}"),
	};
	format!("{why}{STILL}")
}

/// Why /proc could not be mounted.
pub fn no_proc(e: &Error) -> String {
	format!("can't mount /proc in a namespace of its own: {e}; a container hides parts of /proc, perhaps{STILL}")
}

fn unshare(what: i32) -> Result<()> {
	// SAFETY: takes a number; this process has one thread.
	check(unsafe { libc::unshare(what) })
}

/// Whether this process may make namespaces without one of users.
fn may_administer() -> bool {
	const CAP_SYS_ADMIN: u32 = 21;
	let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
	let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
	effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

/// Has programs started from here get no capabilities, whoever they are.
pub fn bound_capabilities() {
	for capability in 0..64 {
		// SAFETY: takes numbers. There are fewer of them.
		unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
	}
}

/// A namespace of time that nobody is in, the last that this process has made: the kernel has only the clocks of that
/// one set.
#[derive(Debug)]
pub struct Time {
	namespace: File,
	offsets: File,
}

impl Time {
	/// Made ahead of who will be in it.
	pub fn new() -> Result<Time> {
		unshare(libc::CLONE_NEWTIME)?;
		let offsets = File::options().write(true).open("/proc/self/timens_offsets")?;
		Ok(Time { namespace: File::open("/proc/self/ns/time_for_children")?, offsets })
	}

	/// Has `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` show these nanoseconds there now.
	pub fn show(mut self, clocks: [u64; 2]) -> Result<File> {
		let mut text = String::new();
		let all = [("monotonic", libc::CLOCK_MONOTONIC), ("boottime", libc::CLOCK_BOOTTIME)];
		for ((name, clock), wanted) in all.into_iter().zip(clocks) {
			let offset = wanted as i64 - now(clock);
			let (seconds, rest) = (offset.div_euclid(1_000_000_000), offset.rem_euclid(1_000_000_000));
			text += &format!("{name} {seconds} {rest}\n");
		}
		// In one piece, or the kernel would take part of it for all.
		self.offsets.write_all(text.as_bytes())?;
		Ok(self.namespace)
	}
}

fn now(clock: i32) -> i64 {
	let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: the kernel writes one structure.
	unsafe { libc::clock_gettime(clock, &raw mut time) };
	time.tv_sec * 1_000_000_000 + time.tv_nsec
}

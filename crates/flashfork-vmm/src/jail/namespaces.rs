//! An empty world: no files, no network, no privileges.

use super::{Isolation, JailError};
use rustix::{
	io::Errno,
	mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_move, unmount},
	process::{Gid, Uid, chdir, chroot, getegid, geteuid, getpid, pivot_root},
	thread::{
		CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs, set_thread_groups,
		set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
	},
};

/// With this and its process id, which is below 2^22, a shell's daemon as root makes the shell's user and group: one of
/// its own, that nobody else has. Behind the last user that systemd gives to containers (UIDS-GIDS.md: 524288 to
/// 1879048191), of which one must not be able to signal or trace a shell, and below 2^31.
pub const FIRST_USER: u32 = 0x7000_0000;

/// Any directory that is always there: the empty root is mounted over it for a moment.
const MOUNT_POINT: &str = "/proc";

const WORLD: UnshareFlags = UnshareFlags::NEWNS
	.union(UnshareFlags::NEWNET)
	.union(UnshareFlags::NEWIPC)
	.union(UnshareFlags::NEWUTS)
	.union(UnshareFlags::NEWCGROUP);

pub(super) fn enter() -> Result<Isolation, JailError> {
	let isolation = if geteuid().is_root() {
		unshare(WORLD, "namespaces for root")?;
		empty_root()?;
		let id = FIRST_USER + getpid().as_raw_pid().unsigned_abs();
		become_user(id)?;
		Isolation::User(id)
	} else {
		let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
		unshare(WORLD | UnshareFlags::NEWUSER, "user namespace")?;
		map_to_self(uid, gid)?;
		empty_root()?;
		Isolation::UserNamespace
	};
	set_no_new_privs(true).map_err(JailError::step("giving up new privileges"))?;
	let none = CapabilitySet::empty();
	set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
		.map_err(JailError::step("giving up capabilities"))?;
	Ok(isolation)
}

fn unshare(flags: UnshareFlags, kind: &'static str) -> Result<(), JailError> {
	// SAFETY: no descriptors are unshared, so nobody's idea of which is open changes.
	unsafe { unshare_unsafe(flags) }.map_err(|errno| JailError::Namespaces { kind, cause: errno.into() })
}

/// Lets the namespace know the one user and group that this process has; without it every id is the overflow id and
/// nothing can be mounted.
fn map_to_self(uid: u32, gid: u32) -> Result<(), JailError> {
	let write = |path: &'static str, text: String| {
		std::fs::write(path, text).map_err(|cause| JailError::Step { step: path, cause })
	};
	write("/proc/self/setgroups", "deny".into())?;
	write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
	write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

/// pivot_root(2), "pivot_root(".", ".")": no directory is needed for the old root.
fn empty_root() -> Result<(), JailError> {
	let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
	mount_change("/", private).map_err(JailError::step("making mounts private"))?;
	let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
	mount("none", MOUNT_POINT, "tmpfs", flags, c"size=4k,nr_inodes=1,mode=0555")
		.map_err(JailError::step("mounting an empty root"))?;
	let pivot = || -> Result<(), Errno> {
		chdir(MOUNT_POINT)?;
		match pivot_root(".", ".") {
			Ok(()) => unmount(".", UnmountFlags::DETACH)?,
			// The host runs from its initramfs, which is under everything for ever. What is moved over it hides it from
			// whoever has no descriptor of it and no privilege (switch_root(8) does the same).
			Err(Errno::INVAL) => {
				mount_move(".", "/")?;
				chroot(".")?;
			}
			Err(e) => return Err(e),
		}
		chdir("/")
	};
	pivot().map_err(JailError::step("changing to an empty root"))
}

fn become_user(id: u32) -> Result<(), JailError> {
	let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
	let become_it = || -> Result<(), Errno> {
		set_thread_groups(&[])?;
		set_thread_res_gid(gid, gid, gid)?;
		set_thread_res_uid(uid, uid, uid)
	};
	become_it().map_err(JailError::step("becoming an unprivileged user"))
}

#[cfg(test)]
mod tests {
	use super::FIRST_USER;

	/// `PID_MAX_LIMIT` of linux/threads.h.
	const PIDS: u32 = 4 << 20;
	/// Container and dynamic users, and those set aside or misread (systemd's UIDS-GIDS.md).
	const OTHERS: [(u32, u32); 4] = [(0, 65535), (61184, 65519), (524_288, 1_879_048_191), (1 << 31, u32::MAX)];

	#[test]
	fn users_of_shells_are_no_container_s() {
		let (first, last) = (FIRST_USER, FIRST_USER + PIDS);
		assert!(OTHERS.iter().all(|(low, high)| last < *low || *high < first), "{first} to {last}");
	}
}

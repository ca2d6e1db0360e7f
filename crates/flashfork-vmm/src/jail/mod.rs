//! What keeps a shell in: whoever takes a monitor over from inside its guest finds no file, no network, no other
//! process.
//!
//! | when | what |
//! |---|---|
//! | at start ([`enter`]) | own namespaces, an empty read-only root, no privileges, limits; dies with its parent |
//! | machine prepared ([`lock`]) | a system call filter on every thread: neither files, memory files nor sockets nor processes can be made, nor KVM objects |
//! | before a guest comes ([`promise`]) | limits of private memory and addresses |
//!
//! There are two ways to the namespaces. As root a shell becomes its own user ([`FIRST_USER`]); otherwise it makes a
//! user namespace, in which it is only itself. In both it ends without a single capability.

mod limits;
mod namespaces;
mod seccomp;

pub use namespaces::FIRST_USER;

use std::io;

/// Why a process can't be jailed. It must not run a guest then.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
	/// Some step was refused.
	#[error("cannot lock the shell in: {step}: {cause}")]
	Step {
		/// What was tried.
		step: &'static str,
		/// As the kernel says.
		cause: io::Error,
	},
	/// Namespaces were refused.
	#[error(
		"cannot lock the shell in: no {kind}: {cause}; run the daemon as root, or permit user namespaces \
		 (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0)"
	)]
	Namespaces {
		/// Which.
		kind: &'static str,
		/// As the kernel says.
		cause: io::Error,
	},
	/// The filter could not be made or installed.
	#[error("cannot install the shell's system call filter: {0}; the kernel needs CONFIG_SECCOMP_FILTER")]
	Filter(String),
}

impl JailError {
	fn step(step: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
		move |errno| Self::Step { step, cause: errno.into() }
	}
}

/// How a process became unprivileged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
	/// It was root and is this user now.
	User(u32),
	/// It is in a user namespace.
	UserNamespace,
}

/// Takes everything away from this process but its descriptors and its memory. To be called with a single thread. The
/// process dies when its daemon lets go of its leash; without one, with the thread that made it.
pub fn enter() -> Result<Isolation, JailError> {
	limits::volunteer()?;
	let isolation = namespaces::enter()?;
	limits::set()?;
	Ok(isolation)
}

/// Filters the system calls of all threads of this process for good: what a running shell doesn't need kills it.
pub fn lock() -> Result<(), JailError> {
	limits::close()?;
	seccomp::install()
}

/// Limits this process's private memory to `bytes` for its guest and some for the monitor: what a clone was promised,
/// whoever has taken its monitor over. Shared memory it can only map, not make.
pub fn promise(bytes: u64) -> Result<(), JailError> {
	limits::promise(bytes)
}

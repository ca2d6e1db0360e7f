//! What is done in a command's process before it becomes the program.

use std::{io, os::unix::process::CommandExt, process::Command, ptr::null_mut};

pub trait Before {
	/// Makes async-signal-safe calls only.
	fn before(&mut self, set: impl Fn() + Send + Sync + 'static) -> &mut Self;
}

impl Before for Command {
	fn before(&mut self, set: impl Fn() + Send + Sync + 'static) -> &mut Command {
		let set = move || {
			set();
			Ok(())
		};
		// SAFETY: as the trait says.
		unsafe { self.pre_exec(set) }
	}
}

/// Sets a limit, the hard one too.
pub fn limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) {
	let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
	// SAFETY: the structure is a local.
	assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

pub fn act(signals: &[i32], action: libc::sighandler_t) {
	assert!([libc::SIG_IGN, libc::SIG_DFL].contains(&action));
	for signal in signals {
		// SAFETY: neither action runs code of this process.
		unsafe { libc::signal(*signal, action) };
	}
}

pub fn block(signals: &[i32]) {
	// SAFETY: the set is a local.
	unsafe {
		let mut set = std::mem::zeroed();
		signals.iter().for_each(|signal| assert_eq!(libc::sigaddset(&raw mut set, *signal), 0));
		assert_eq!(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, null_mut()), 0);
	}
}

/// Enters a filter that refuses this call, as those of containers do.
pub fn forbid(call: i64, errno: i32) {
	let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
	let mut steps = [
		// Load the call's number; if it is not this one skip an instruction.
		step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
		step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
		step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
		step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
	];
	let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
	// SAFETY: takes numbers, and a filter that is a local.
	let failed = unsafe {
		libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			| libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
	};
	assert_eq!(failed, 0, "{}", io::Error::last_os_error());
}

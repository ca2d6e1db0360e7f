//! A VM in its own process, started by the daemon: standard input is the daemon's channel, standard output /dev/kvm.
//! Not for people.

use flashfork_proto::shell::{Channel, KVM_FD, SOCKET_FD};
use flashfork_vmm::{jail, kvm::two_dimensional, memory::Watch, shell};
use kvm_ioctls::Kvm;
use std::{
	os::fd::{FromRawFd, OwnedFd},
	process::ExitCode,
};

fn main() -> ExitCode {
	// SAFETY: asks about a descriptor, and writes to its own place.
	let is_channel = unsafe {
		let mut stat = std::mem::zeroed::<libc::stat>();
		libc::fstat(SOCKET_FD, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
	};
	if !is_channel {
		eprintln!("flashfork-shell: standard input is no socket: this program is started by flashfork's VM daemon");
		return ExitCode::from(2);
	}
	// Its own session: neither the daemon's terminal nor its end signals this process. Fails where it has one.
	let _ = rustix::process::setsid();
	// Whatever else the daemon had open is none of this process's business. Missing before Linux 5.9, where everything
	// there is closed on exec anyway.
	// SAFETY: this program has opened nothing yet.
	unsafe { libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0) };
	// SAFETY: both are open, and nothing else in this process, which has just begun, knows them.
	let (socket, kvm) = unsafe { (OwnedFd::from_raw_fd(SOCKET_FD), Kvm::from_raw_fd(KVM_FD)) };
	let channel = Channel::new(socket);
	// In the jail nothing can be opened. Without it a guest can't be forked while it runs, and all else goes well.
	let watch = Watch::find().ok();
	let two_dimensional = two_dimensional() == Some(true);
	let entered = jail::enter();
	// Told when the daemon listens, and before any guest of its comes.
	match shell::run(channel, kvm, watch, two_dimensional, || entered.and_then(|_| jail::lock())) {
		Ok(()) => ExitCode::SUCCESS,
		Err(e) => {
			eprintln!("flashfork-shell: {e}");
			ExitCode::FAILURE
		}
	}
}

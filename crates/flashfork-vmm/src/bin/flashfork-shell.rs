//! A VM in a process of its own, started by the daemon: descriptor 3 is the daemon's channel, 4 is /dev/kvm. Not for people.

use flashfork_proto::shell::{Channel, KVM_FD, SOCKET_FD};
use flashfork_vmm::{jail, shell};
use kvm_ioctls::Kvm;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

fn main() -> ExitCode {
    for fd in [SOCKET_FD, KVM_FD] {
        // SAFETY: asks about a number, which may be no descriptor's.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            eprintln!("flashfork-shell: descriptor {fd} is not open: this program is started by flashfork's VM daemon");
            return ExitCode::from(2);
        }
    }
    // SAFETY: both are open, and nothing else in this process, which has just begun, knows them.
    let (socket, kvm) = unsafe { (OwnedFd::from_raw_fd(SOCKET_FD), Kvm::from_raw_fd(KVM_FD)) };
    let channel = Channel::new(socket);
    let entered = jail::enter();
    // Told when the daemon listens, and before any guest of its comes.
    match shell::run(channel, kvm, || entered.and_then(|_| jail::lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("flashfork-shell: {e}");
            ExitCode::FAILURE
        }
    }
}

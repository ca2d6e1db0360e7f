//! The other side of tests/taken_over.rs: a shell from its start to what is done with it once it is taken over.

use flashfork_proto::shell::{Channel, ClaimTimes, FromShell, SOCKET_FD, ToShell};
use flashfork_vmm::{jail, shell};
use std::os::fd::{FromRawFd, OwnedFd};

/// In the environment of a process that is to be one.
pub const MARK: &str = "FLASHFORK_TEST_TAKEN_OVER";

/// So that a jail that fails harms nobody: what it takes at most, in MiB.
const MOST: usize = 1024;

/// Runs before `main`, when a process has a single thread, as a shell has at its start.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
	if std::env::var_os(MARK).is_some() {
		live();
		std::process::exit(0);
	}
}

fn live() {
	// SAFETY: the daemon has opened it for this process.
	let channel = Channel::new(unsafe { OwnedFd::from_raw_fd(SOCKET_FD) });
	jail::enter().unwrap();
	channel.greet().unwrap();
	channel.expect_greeting().unwrap();
	let (ToShell::Prepare(shape), _) = channel.receive().unwrap() else { panic!("not asked to prepare") };
	jail::lock().unwrap();
	channel.send(&FromShell::Ready, &[]).unwrap();
	let (ToShell::Claim(_), descriptors) = channel.receive().unwrap() else { return };
	shell::promise(&shape, []).unwrap();
	channel.send(&FromShell::Claimed(ClaimTimes::default()), &[]).unwrap();

	// A write to a file beyond the limit would else be the end.
	// SAFETY: no handler is set.
	unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
	let taken = take();
	let wrote = descriptors.iter().any(write);
	let wrote = if wrote { "wrote something" } else { "wrote nothing" };
	channel.send(&FromShell::Trouble(format!("took {taken} MiB, {wrote}")), &[]).unwrap();
	// Until it is asked for something: then it forks.
	let _ = channel.receive::<ToShell>();
	// SAFETY: the filter ends the process here.
	unsafe { libc::fork() };
}

/// Takes private memory until there is none, and touches it; gives MiB.
fn take() -> usize {
	const MIB: usize = 1 << 20;
	let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_POPULATE;
	let map = || {
		// SAFETY: a new mapping where the kernel finds room.
		unsafe { libc::mmap(std::ptr::null_mut(), MIB, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
	};
	(0..MOST).take_while(|_| map() != libc::MAP_FAILED).count()
}

/// Writes to what came with the claim.
fn write(to: &OwnedFd) -> bool {
	rustix::io::pwrite(to, &[1; 4096], 0).is_ok()
}

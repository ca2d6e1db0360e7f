//! What the experiments on virtual machines share: the monitor's shells, and templates.
//!
//! Shells are driven as the daemon drives them: `flashfork-shell` processes in their jail, each behind a Unix socket.
//! Nothing in between adds to what is timed.

pub mod code;
mod fork;
pub mod linux;
mod memory;
mod template;

pub use fork::Forked;
pub use memory::{MemoryPages, available};
use memory::{huge_share, resident};
pub use template::{Claimed, Template, renewal, roll_back};

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::prelude::*;
use flashfork_proto::{
	shape::{Pages, Shape},
	shell::{Boot, BootGuest, Ended, FromShell, ToShell},
};
use flashfork_vmm::{
	machine::Blank,
	pool::{Program, Shell},
	store::Store,
};
use kvm_ioctls::Kvm;

/// A guest that says nothing for so long is stuck. Booting Linux under emulation, on a busy machine, takes minutes.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The vsock context id of every guest here; they never meet.
pub const CID: u32 = 3;

/// KVM and the program that shells are.
pub struct Host {
	pub kvm: Kvm,
	descriptor: OwnedFd,
	program: Program,
}

impl Host {
	/// Opens `/dev/kvm`.
	pub fn open(here: &dyn Places) -> Result<Self> {
		let kvm = Kvm::new()
			.map_err(|error| unable!("no virtual machine runs here: {}", flashfork_vmm::kvm::unavailable(&error)))?;
		// SAFETY: open as long as `kvm`.
		let borrowed = unsafe { BorrowedFd::borrow_raw(kvm.as_raw_fd()) };
		let descriptor = borrowed.try_clone_to_owned().or_cant("duplicate /dev/kvm")?;
		let program = Program { path: here.shell()?, args: Vec::new() };
		Ok(Self { kvm, descriptor, program })
	}

	/// A shell of `shape`, prepared and locked in.
	pub fn shell(&self, shape: Shape) -> Result<Shell> {
		let store = Store::none().or_cant("make a pipe")?;
		Shell::start(&self.program, &self.descriptor, shape, None, &store).map_err(vm)
	}

	/// Boots a tiny guest in a new shell; it runs when this returns.
	pub fn boot(&self, shape: Shape, code: &[u8]) -> Result<Shell> {
		let shell = self.shell(shape)?;
		let guest = BootGuest::Tiny(code.to_vec());
		let blank = Blank::new(&shape, None).map_err(vm)?;
		let request = ToShell::Boot(Box::new(Boot { cid: CID, guest, disk: None }));
		shell.send(&request, &[blank.ram.as_fd()]).map_err(vm)?;
		until(&shell, |message| matches!(message, FromShell::Done), "start")?;
		Ok(shell)
	}
}

/// For a command line: a size whose memory lies in one piece, and has room for what guests write.
pub fn size(text: &str) -> Result<Size, String> {
	size_that(
		text,
		|bytes| bytes.is_multiple_of(2 << 20) && ((16 << 20)..=(3 << 30)).contains(&bytes),
		"is no multiple of 2M between 16M and 3G",
	)
}

/// A machine with one CPU and no disk.
pub fn shape(bytes: u64, pages: Pages) -> Shape {
	Shape { memory_mib: u32::try_from(bytes >> 20).unwrap_or(u32::MAX), vcpus: 1, pages, disk: false, disk_slots: 0 }
}

/// The next message that `wanted` takes; others that a running guest causes are passed over.
pub fn expect<T>(shell: &Shell, mut wanted: impl FnMut(FromShell) -> Option<T>, what: &str) -> Result<T> {
	loop {
		let (message, _) = shell.receive(PATIENCE).map_err(vm)?;
		let ended = match &message {
			FromShell::Ended(ended @ Ended::Kvm(_)) => {
				Some(format!("{ended}; where this KVM runs no such guests, the lab's does: docs/VIRTUAL_MACHINES.md"))
			}
			FromShell::Ended(ended) => Some(ended.to_string()),
			FromShell::Failed(why) => Some(why.clone()),
			_ => None,
		};
		match (wanted(message), ended) {
			(Some(found), _) => return Ok(found),
			(None, Some(ended)) => {
				return Err(unable!("a guest that should {what} did not: {ended}"));
			}
			(None, None) => {}
		}
	}
}

/// Waits for a message that `is` takes.
pub fn until(shell: &Shell, is: impl Fn(&FromShell) -> bool, what: &str) -> Result {
	expect(shell, |message| is(&message).then_some(()), what)
}

/// Waits until the guest has ended.
pub fn ended(shell: &Shell) -> Result<Ended> {
	expect(shell, |message| if let FromShell::Ended(ended) = message { Some(ended) } else { None }, "end")
}

/// For `map_err` on what the monitor says.
pub fn vm(error: impl std::fmt::Display) -> BenchError {
	unable!("a virtual machine failed: {error}")
}

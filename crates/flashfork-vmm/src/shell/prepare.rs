//! From an empty process to a machine that waits.

use super::{ShellError, claim::Waiting, console::Output, serve};
use crate::{jail::JailError, machine::Machine, memory::Watch};
use flashfork_proto::shell::{Channel, FromShell, MAX_MESSAGE, ToShell};
use kvm_ioctls::Kvm;
use std::sync::Arc;

/// Of this machine's memory, in bytes.
const PAGE: usize = 4096;

/// Makes everything a claim needs, and takes away what it doesn't.
pub(super) fn prepare(
	channel: &Arc<Channel>,
	kvm: Kvm,
	watch: Option<Watch>,
	two_dimensional: bool,
	lock: impl FnOnce() -> Result<(), JailError>,
) -> Result<Waiting, ShellError> {
	channel.greet()?;
	channel.expect_greeting()?;
	let shape = match channel.receive()? {
		(ToShell::Prepare(shape), _) => shape,
		(other, _) => return Err(ShellError::Order { got: super::claim::name(&other), wanted: "Prepare" }),
	};
	shape.check()?;
	let console = Output::new().map_err(|e| ShellError::System("make an eventfd", e))?;
	let (mut machine, mut vcpu0) = Machine::prepare(&kvm, shape, Box::new(console.clone()))?;
	if let Some(watch) = watch {
		machine.watch_with(watch);
		if two_dimensional {
			machine.copy_back();
		}
	}
	// The last use of /dev/kvm; nothing is opened any more.
	drop(kvm);
	machine.rehearse(vcpu0.vcpu())?;
	machine.vacate()?;
	let (handover, controller) = serve::spawn(channel.clone(), console)?;
	// Touched now: the first packet won't have to wait for its pages.
	let buffer = vec![0xff; MAX_MESSAGE];
	populate_heap();
	lock()?;
	channel.send(&FromShell::Ready, &[])?;
	Ok(Waiting { channel: channel.clone(), shape, machine, vcpu0, handover, controller, buffer })
}

/// What a claim takes for what it decodes.
const HEAP: usize = 64 << 10;

/// Has the pages from which the allocator serves the claim there before it: each is a fault of up to ten microseconds
/// else.
fn populate_heap() {
	// SAFETY: give an address and numbers.
	let (end, heap) = unsafe { (libc::sbrk(0) as usize, libc::mallinfo2()) };
	// The last chunk, which is cut when no other fits.
	let start = end.saturating_sub(heap.keepcost) & !(PAGE - 1);
	// SAFETY: changes nothing that memory holds. Where the heap is elsewhere it fails, and nothing is lost but time.
	unsafe { libc::madvise(start as *mut _, HEAP.min(end - start), libc::MADV_POPULATE_WRITE) };
}

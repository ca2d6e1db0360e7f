//! One vCPU and its way through the guest.

use super::{Exit, Msrs, RunError, state::VcpuState};
use crate::devices::{Action, Devices};
use kvm_bindings::{KVM_SYNC_X86_REGS, KVM_SYNC_X86_SREGS};
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::{
	Arc,
	atomic::{AtomicBool, Ordering},
};

/// A vCPU; belongs to one thread at a time.
#[derive(Debug)]
pub struct Vcpu {
	pub(crate) fd: VcpuFd,
	/// Number and APIC id.
	pub(crate) id: u8,
	pub(super) msrs: Arc<Msrs>,
	/// State before the next restore, looked at beforehand.
	pub(super) fresh: Option<Box<VcpuState>>,
	xsave_size: usize,
	/// AMD's virtualisation, not Intel's.
	pub(super) svm: bool,
	/// Whether KVM takes registers from the page it shares.
	pub(super) sync_regs: bool,
}

impl Vcpu {
	/// A vCPU just created, with its CPUID set. `xsave_size` is `KVM_CAP_XSAVE2` of its VM, 0 if it has none;
	/// `sync_regs` its `KVM_CAP_SYNC_REGS`.
	pub(crate) fn new(fd: VcpuFd, id: u8, msrs: Arc<Msrs>, xsave_size: usize, svm: bool, sync_regs: i32) -> Self {
		let all = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
		let sync_regs = sync_regs & all as i32 == all as i32;
		Self { fd, id, msrs, fresh: None, xsave_size, svm, sync_regs }
	}

	/// Remembers what this vCPU is, so that the restore, before it has run again, sets only what differs.
	pub fn note_fresh(&mut self) -> Result<(), super::VcpuStateError> {
		self.fresh = Some(Box::new(self.save()?));
		Ok(())
	}

	/// Looks again at what may have come since [`Self::note_fresh`] without the vCPU's doing: interrupts and NMIs.
	pub(crate) fn note_events(&mut self) -> Result<(), super::VcpuStateError> {
		if let Some(fresh) = &mut self.fresh {
			let failed = super::VcpuStateError::ioctl("KVM_GET_VCPU_EVENTS");
			fresh.events = self.fd.get_vcpu_events().map_err(failed)?;
		}
		Ok(())
	}

	pub(super) fn xsave_words(&self) -> usize {
		self.xsave_size.max(4096) / 4
	}

	/// Runs the guest until it does something the monitor must act on, or `stop` is set and the vCPU kicked. Afterwards
	/// no I/O instruction is half done. `first_exit` is called after the first exit, and not at all if KVM can't run
	/// the guest.
	pub fn run(
		&mut self,
		devices: &Devices,
		stop: &AtomicBool,
		mut first_exit: Option<Box<dyn FnOnce() + Send>>,
	) -> Result<Exit, RunError> {
		loop {
			if stop.load(Ordering::SeqCst) {
				self.finish_io(devices)?;
				return Ok(Exit::Stopped);
			}
			let exit = self.step(devices)?;
			if let Some(tell) = first_exit.take() {
				tell();
			}
			if let Some(exit) = exit {
				self.finish_io(devices)?;
				return Ok(exit);
			}
		}
	}

	/// Before a vCPU that was stopped goes on: tells a guest with kvmclock that it stood still, so that its watchdogs
	/// don't take the time for its own lockup (`KVM_KVMCLOCK_CTRL`; EINVAL: the guest has no kvmclock).
	pub(super) fn note_stop(&self) -> Result<(), RunError> {
		match self.fd.kvmclock_ctrl() {
			Err(e) if e.errno() != libc::EINVAL => Err(RunError::Clock(e)),
			_ => Ok(()),
		}
	}

	/// Runs the guest to its next exit and serves it. `None`: go on.
	pub fn step(&mut self, devices: &Devices) -> Result<Option<Exit>, RunError> {
		Ok(match self.enter(devices)? {
			Entered::Served(action) => Exit::for_action(action),
			Entered::Interrupted => {
				self.fd.set_kvm_immediate_exit(0);
				None
			}
		})
	}

	/// Lets KVM finish the I/O instruction of the last exit without entering the guest (Documentation/virt/kvm/api.rst,
	/// KVM_RUN): registers saved before that would repeat or lose it. An instruction of several accesses (a string
	/// instruction, MMIO over a page's end) is served to its end.
	pub(super) fn finish_io(&mut self, devices: &Devices) -> Result<(), RunError> {
		loop {
			self.fd.set_kvm_immediate_exit(1);
			let entered = self.enter(devices)?;
			self.fd.set_kvm_immediate_exit(0);
			match entered {
				Entered::Interrupted => return Ok(()),
				Entered::Served(_) => {}
			}
		}
	}

	fn enter(&mut self, devices: &Devices) -> Result<Entered, RunError> {
		let action = match self.fd.run() {
			Ok(VcpuExit::IoOut(port, data)) => devices.port_write(port, data),
			Ok(VcpuExit::IoIn(port, data)) => {
				devices.port_read(port, data);
				Action::None
			}
			Ok(VcpuExit::MmioWrite(address, data)) => {
				devices.mmio_write(address, data);
				Action::None
			}
			Ok(VcpuExit::MmioRead(address, data)) => {
				devices.mmio_read(address, data);
				Action::None
			}
			Ok(VcpuExit::Shutdown) => Action::Reset,
			Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => Action::None,
			Ok(other) => return Err(RunError::Unexpected(format!("{other:?}"))),
			Err(e) if e.errno() == libc::EINTR => return Ok(Entered::Interrupted),
			Err(e) if e.errno() == libc::EAGAIN => Action::None,
			Err(e) => return Err(RunError::Run(e)),
		};
		Ok(Entered::Served(action))
	}
}

enum Entered {
	Served(Action),
	/// A signal, or an immediate exit: no guest instruction is half done.
	Interrupted,
}

//! Saving a vCPU, in the order KVM demands.

use super::{
	msrs,
	state::{VcpuState, VcpuStateError, XSAVE_WORDS, Xsave},
	vcpu::Vcpu,
};
use kvm_bindings::Xsave as Wrapper;

impl Vcpu {
	/// Saves the state. No vCPU of the VM runs, and [`Vcpu::run`] has returned, so that no I/O instruction is half
	/// done.
	///
	/// The order has reasons: reading `MP_STATE` makes pending INIT and SIPI take effect, so everything that they
	/// change is read after it; reading the local APIC may deliver a posted interrupt; events come last, because
	/// all these may create one.
	pub fn save(&mut self) -> Result<VcpuState, VcpuStateError> {
		let fd = &self.fd;
		let mp_state = fd.get_mp_state().map_err(VcpuStateError::ioctl("KVM_GET_MP_STATE"))?;
		let regs = fd.get_regs().map_err(VcpuStateError::ioctl("KVM_GET_REGS"))?;
		let sregs = fd.get_sregs().map_err(VcpuStateError::ioctl("KVM_GET_SREGS"))?;
		let xsave = self.get_xsave()?;
		let xcrs = fd.get_xcrs().map_err(VcpuStateError::ioctl("KVM_GET_XCRS"))?;
		let debug = fd.get_debug_regs().map_err(VcpuStateError::ioctl("KVM_GET_DEBUGREGS"))?;
		let lapic = fd.get_lapic().map_err(VcpuStateError::ioctl("KVM_GET_LAPIC"))?;
		let tsc_khz = fd.get_tsc_khz().map_err(VcpuStateError::ioctl("KVM_GET_TSC_KHZ"))?;
		let mut msrs = self.msrs.read(fd)?;
		msrs::keep_due_deadline(&mut msrs, &lapic.regs);
		let events = fd.get_vcpu_events().map_err(VcpuStateError::ioctl("KVM_GET_VCPU_EVENTS"))?;
		Ok(VcpuState { mp_state, regs, sregs, xsave, xcrs, debug, lapic, tsc_khz, msrs, events })
	}

	fn get_xsave(&self) -> Result<Xsave, VcpuStateError> {
		let failed = VcpuStateError::ioctl("KVM_GET_XSAVE");
		let words = self.xsave_words();
		if words <= XSAVE_WORDS {
			return Ok(Xsave(self.fd.get_xsave().map_err(failed)?.region.to_vec()));
		}
		let mut wrapper = Wrapper::new(words - XSAVE_WORDS).expect("of the size KVM asked for");
		// SAFETY: the wrapper has the size KVM_CAP_XSAVE2 of this VM gives.
		unsafe { self.fd.get_xsave2(&mut wrapper) }.map_err(failed)?;
		let mut all = wrapper.as_fam_struct_ref().xsave.region.to_vec();
		all.extend_from_slice(wrapper.as_slice());
		Ok(Xsave(all))
	}
}

//! Restoring a vCPU, in the order KVM demands.

use super::{
	TscOffset, msrs,
	state::{VcpuState, VcpuStateError, XSAVE_WORDS, Xsave},
	vcpu::Vcpu,
};
use kvm_bindings::{KVM_MP_STATE_UNINITIALIZED, Xsave as Wrapper, kvm_sregs, kvm_xsave};
use kvm_ioctls::SyncReg;

/// Parts per million by which two TSC rates may differ and count as one: what NTP's slewing and calibration differ by.
const TSC_TOLERANCE_PPM: u64 = 250;

/// Task priority register of the local APIC, in its page.
const TPR: usize = 0x80;

/// Busy bit of a task segment's type.
const BUSY: u8 = 2;

impl Vcpu {
	/// Makes the vCPU what `state` says. Guest memory is mapped already: kvmclock and steal time write to it as their
	/// MSRs are set. What this vCPU has from the start anyway is not set again; each call costs 8 µs on some hosts.
	///
	/// The TSC goes on with `tsc`; without one it stays as it is.
	///
	/// Order: special registers before the local APIC (APIC base, x2APIC mode) and before XCRs (CR4.OSXSAVE), general
	/// registers before events (setting them clears pending exceptions); then all for which time goes on: the local
	/// APIC, which starts its timer, the TSC, and last a TSC deadline, which needs deadline mode and means nothing
	/// before the TSC is right. CPUID was set when the vCPU was made.
	pub fn restore(&mut self, state: &VcpuState, tsc: Option<TscOffset>) -> Result<(), VcpuStateError> {
		self.restore_timeless(state, false)?;
		self.restore_time(state, tsc)
	}

	/// As [`Vcpu::restore`] for a vCPU that runs next: registers wait in the page shared with KVM until `KVM_RUN`,
	/// which takes them from there (sync_regs, `KVM_CAP_SYNC_REGS`).
	pub fn restore_to_run(&mut self, state: &VcpuState, tsc: Option<TscOffset>) -> Result<(), VcpuStateError> {
		self.prime(state)?;
		self.restore_time(state, tsc)
	}

	/// The part of [`Vcpu::restore_to_run`] that may be done long before the guest runs.
	pub fn prime(&mut self, state: &VcpuState) -> Result<(), VcpuStateError> {
		self.restore_timeless(state, true)
	}

	/// The rest: what time goes on for, and the local APIC whole, so that no interrupt is left in it that came while
	/// the vCPU waited.
	pub fn restore_time(&mut self, state: &VcpuState, tsc: Option<TscOffset>) -> Result<(), VcpuStateError> {
		let fd = &self.fd;
		fd.set_lapic(&state.lapic).map_err(VcpuStateError::ioctl("KVM_SET_LAPIC"))?;
		if let Some(tsc) = tsc {
			tsc.set(fd)?;
		}
		msrs::write_deadline(fd, &state.msrs)
	}

	fn restore_timeless(&mut self, state: &VcpuState, to_run: bool) -> Result<(), VcpuStateError> {
		let fresh = match self.fresh.take() {
			Some(fresh) => fresh,
			None => Box::new(self.save()?),
		};
		let special = self.special(&state.sregs);
		// Events are never left in the page: an NMI or INIT that comes before the first KVM_RUN, from the I/O APIC or
		// another vCPU, would be overwritten. And general registers don't come after events. A vCPU that waits to be
		// woken takes nothing from the page.
		let waits = state.mp_state.mp_state == KVM_MP_STATE_UNINITIALIZED;
		let to_run = to_run && self.sync_regs && !waits && state.events == fresh.events;
		// What the local APIC and XCRs need of the special registers is there already, and CR8, which comes with them
		// and has four bits less than the local APIC's TPR, takes nothing away.
		let special_later = to_run
			&& state.sregs.apic_base == fresh.sregs.apic_base
			&& state.xcrs == fresh.xcrs
			&& state.lapic.regs[TPR] & 0xf == 0;
		let fd = &mut self.fd;
		check_rate(state.tsc_khz, fresh.tsc_khz)?;
		if state.mp_state != fresh.mp_state {
			fd.set_mp_state(state.mp_state).map_err(VcpuStateError::ioctl("KVM_SET_MP_STATE"))?;
		}
		if to_run {
			fd.sync_regs_mut().regs = state.regs;
			fd.set_sync_dirty_reg(SyncReg::Register);
		} else {
			fd.set_regs(&state.regs).map_err(VcpuStateError::ioctl("KVM_SET_REGS"))?;
		}
		if special_later {
			fd.sync_regs_mut().sregs = special;
			fd.set_sync_dirty_reg(SyncReg::SystemRegister);
		} else {
			fd.set_sregs(&special).map_err(VcpuStateError::ioctl("KVM_SET_SREGS"))?;
		}
		if state.xsave != fresh.xsave {
			self.set_xsave(&state.xsave)?;
		}
		let fd = &mut self.fd;
		if state.xcrs != fresh.xcrs {
			fd.set_xcrs(&state.xcrs).map_err(VcpuStateError::ioctl("KVM_SET_XCRS"))?;
		}
		if state.debug != fresh.debug {
			fd.set_debug_regs(&state.debug).map_err(VcpuStateError::ioctl("KVM_SET_DEBUGREGS"))?;
		}
		msrs::write(fd, &state.msrs, &fresh.msrs)?;
		if state.events != fresh.events {
			fd.set_vcpu_events(&state.events).map_err(VcpuStateError::ioctl("KVM_SET_VCPU_EVENTS"))?;
		}
		if msrs::has_kvmclock(&state.msrs) {
			// The guest learns that it stood still: its watchdogs mustn't take the time for its own lockup.
			fd.kvmclock_ctrl().map_err(VcpuStateError::ioctl("KVM_KVMCLOCK_CTRL"))?;
		}
		Ok(())
	}

	/// SVM keeps the task register without its busy bit; KVM adds it on reading (svm_get_segment) for VMX's sake.
	/// QEMU's emulation of SVM takes a busy task register for none at all, and refuses port I/O to user space.
	pub(super) fn special(&self, saved: &kvm_sregs) -> kvm_sregs {
		let mut sregs = *saved;
		if self.svm {
			sregs.tr.type_ &= !BUSY;
		}
		sregs
	}

	fn set_xsave(&self, Xsave(words): &Xsave) -> Result<(), VcpuStateError> {
		let failed = VcpuStateError::ioctl("KVM_SET_XSAVE");
		let expected = self.xsave_words();
		let (Some((region, extra)), true) = (words.split_first_chunk::<XSAVE_WORDS>(), words.len() == expected) else {
			return Err(VcpuStateError::Xsave { found: words.len() * 4, expected: expected * 4 });
		};
		if extra.is_empty() {
			let xsave = kvm_xsave { region: *region, ..Default::default() };
			// SAFETY: without AMX the area is the 4 KB given.
			return unsafe { self.fd.set_xsave(&xsave) }.map_err(failed);
		}
		let mut wrapper = Wrapper::new(extra.len()).expect("of the size KVM asked for");
		wrapper.as_mut_slice().copy_from_slice(extra);
		// SAFETY: the length, which is in front, stays as it is.
		unsafe { wrapper.as_mut_fam_struct() }.xsave.region = *region;
		// SAFETY: the wrapper has the size KVM_CAP_XSAVE2 of this VM gives, checked above.
		unsafe { self.fd.set_xsave2(&wrapper) }.map_err(failed)
	}
}

fn check_rate(template: u32, host: u32) -> Result<(), VcpuStateError> {
	if u64::from(template.abs_diff(host)) * 1_000_000 > u64::from(host) * TSC_TOLERANCE_PPM {
		return Err(VcpuStateError::TscRate { template, host });
	}
	Ok(())
}

//! The guest's page tables, which a rollback changes behind the back of the processor and of KVM.

use super::{
	state::{VcpuState, VcpuStateError},
	vcpu::Vcpu,
};

/// CR0.TS, which means nothing to KVM.
const TASK_SWITCHED: u64 = 1 << 3;

impl Vcpu {
	/// Has KVM and the processor forget what they know of the guest's page tables. [`Vcpu::restore`] of `state` must
	/// follow.
	///
	/// KVM empties the TLB when it is given another CR0 than the vCPU has (`__set_sregs` in arch/x86/kvm,
	/// `KVM_REQ_TLB_FLUSH_GUEST`), and a restore brings no other if the guest has changed none. So what is set here
	/// differs in a bit from what the restore sets.
	pub(crate) fn forget_translations(&self, state: &VcpuState) -> Result<(), VcpuStateError> {
		let mut sregs = self.special(&state.sregs);
		sregs.cr0 ^= TASK_SWITCHED;
		self.fd.set_sregs(&sregs).map_err(VcpuStateError::ioctl("KVM_SET_SREGS"))
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::{boot::Source, events::Event, machine::Machine, memory::Watch};
	use flashfork_proto::{
		agent::CloneIdentity,
		shape::{Pages, Shape},
		shell::Renewal,
	};
	use kvm_ioctls::Kvm;
	use std::{
		fs::File,
		os::{
			fd::{AsRawFd, FromRawFd},
			unix::fs::FileExt,
		},
	};

	/// `KVM_GET_STATS_FD` of linux/kvm.h.
	const STATISTICS: u64 = 0xaece;

	/// A number that KVM counts for each vCPU (Documentation/virt/kvm/api.rst, 4.133).
	fn counted(vcpu: &Vcpu, wanted: &str) -> u64 {
		// SAFETY: gives its own descriptor, or none.
		let file = unsafe { File::from_raw_fd(libc::ioctl(vcpu.fd.as_raw_fd(), STATISTICS)) };
		let word = |at: u64| {
			let mut word = [0; 4];
			file.read_exact_at(&mut word, at).unwrap();
			u32::from_ne_bytes(word)
		};
		let [name_size, count, descriptors, data] = [4, 8, 16, 20].map(word);
		let name = |at: u64| {
			let mut name = vec![0; name_size as usize];
			file.read_exact_at(&mut name, at + 16).unwrap();
			String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
		};
		let mut places = (0..count).map(|each| u64::from(descriptors + each * (16 + name_size)));
		let place = places.find(|at| name(*at) == wanted).unwrap();
		let mut value = [0; 8];
		file.read_exact_at(&mut value, u64::from(data + word(place + 8))).unwrap();
		u64::from_ne_bytes(value)
	}

	/// Whatever processor this is: KVM itself says that it emptied the TLB.
	#[test]
	fn kvm_empties_the_tlb_after_each_rollback_that_copies() {
		let (Ok(kvm), Ok(watch)) = (Kvm::new(), Watch::find()) else { return eprintln!("skipped: no /dev/kvm") };
		if !watch.scans() {
			return eprintln!("skipped: no PAGEMAP_SCAN");
		}
		let shape = Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 };
		let (mut machine, vcpu0) = Machine::prepare(&kvm, shape, Box::new(std::io::sink())).unwrap();
		machine.watch_with(watch);
		machine.copy_back();
		machine.spawn(vcpu0).unwrap();
		// mov dx, 0x1234; mov al, FORK; out dx, al; l: mov al, DONE; out dx, al; jmp l
		let code = [0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xb0, 0x20, 0xee, 0xeb, 0xfb];
		machine.boot(&Source::Tiny(code.to_vec()), None).unwrap();
		let run = |machine: &mut Machine| {
			machine.resume();
			while !matches!(machine.event(None), Some(Event::Exit { .. })) {}
			machine.pause().unwrap();
			machine.on_vcpu0(|vcpu| counted(vcpu, "tlb_flush"))
		};
		run(&mut machine);
		machine.freeze(true).unwrap();
		let identity = CloneIdentity { name: String::new(), index: 1, generation: [1; 16], job: Vec::new() };
		let renewal = Renewal { identity, entropy: [0; 32], disks: Vec::new() };
		let mut before = run(&mut machine);
		for round in 0..10 {
			machine.rollback(&renewal).unwrap();
			let now = run(&mut machine);
			assert!(round == 0 || now > before, "{now} after {before}");
			// More where a vCPU has moved to another processor.
			before = run(&mut machine);
		}
	}
}

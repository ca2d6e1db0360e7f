//! Which MSRs belong to a vCPU's state, and in which order they are set.

use super::state::VcpuStateError;
use kvm_bindings::{Msrs as Wrapper, kvm_msr_entry};
use kvm_ioctls::{Kvm, VcpuFd};

const TSC: u32 = 0x10;
const TSC_DEADLINE: u32 = 0x6e0;
const KVM_SYSTEM_TIME: [u32; 2] = [0x12, 0x4b56_4d01];
/// LVT timer register of the local APIC, in its page.
const LVT_TIMER: usize = 0x320;

/// Not state, or not ours to restore: machine check control (writable only once), VMX capabilities and SVM's save area
/// (no nested guests), Hyper-V (not announced).
fn excluded(index: u32) -> bool {
	matches!(index, 0x17b | 0x480..=0x493 | 0xc001_0117 | 0x4000_0000..=0x4000_01ff)
}

/// The list, for all vCPUs of a VM; the TSC deadline comes last.
#[derive(Debug)]
pub struct Msrs(Vec<u32>);

impl Msrs {
	/// What this host's KVM calls state.
	pub fn list(kvm: &Kvm) -> Result<Self, kvm_ioctls::Error> {
		let list = kvm.get_msr_index_list()?;
		let mut indices: Vec<u32> = list.as_slice().iter().copied().filter(|&msr| !excluded(msr)).collect();
		indices.sort_by_key(|&msr| msr == TSC_DEADLINE);
		Ok(Self(indices))
	}

	/// Reads all of them; what this guest's CPUID doesn't have is left out.
	pub(super) fn read(&self, fd: &VcpuFd) -> Result<Vec<kvm_msr_entry>, VcpuStateError> {
		let mut found = Vec::with_capacity(self.0.len());
		let mut left: &[u32] = &self.0;
		while !left.is_empty() {
			let entries: Vec<_> = left.iter().map(|&index| kvm_msr_entry { index, ..Default::default() }).collect();
			let mut wrapper = wrap(&entries);
			let count = fd.get_msrs(&mut wrapper).map_err(VcpuStateError::ioctl("KVM_GET_MSRS"))?;
			found.extend_from_slice(&wrapper.as_slice()[..count]);
			// KVM stops at the first MSR it can't read.
			left = left.get(count + 1..).unwrap_or_default();
		}
		Ok(found)
	}
}

/// Sets those of `entries` that differ from what a vCPU of this VM has from the start (`fresh`), but not the TSC, which
/// is set by its offset, nor its deadline.
pub(super) fn write(fd: &VcpuFd, entries: &[kvm_msr_entry], fresh: &[kvm_msr_entry]) -> Result<(), VcpuStateError> {
	let same = |entry: &kvm_msr_entry| fresh.iter().any(|f| f.index == entry.index && f.data == entry.data);
	let timeless = |entry: &&kvm_msr_entry| entry.index != TSC && entry.index != TSC_DEADLINE;
	let others: Vec<kvm_msr_entry> = entries.iter().filter(timeless).filter(|entry| !same(entry)).copied().collect();
	set(fd, &others)
}

/// Sets the TSC deadline, if any. After the local APIC, which drops it when it is not in deadline mode, and after the
/// TSC: one that has passed is due at once.
pub(super) fn write_deadline(fd: &VcpuFd, entries: &[kvm_msr_entry]) -> Result<(), VcpuStateError> {
	let deadline = entries.iter().find(|entry| entry.index == TSC_DEADLINE && entry.data != 0);
	deadline.map_or(Ok(()), |deadline| set(fd, std::slice::from_ref(deadline)))
}

fn set(fd: &VcpuFd, entries: &[kvm_msr_entry]) -> Result<(), VcpuStateError> {
	if entries.is_empty() {
		return Ok(());
	}
	let count = fd.set_msrs(&wrap(entries)).map_err(VcpuStateError::ioctl("KVM_SET_MSRS"))?;
	match entries.get(count) {
		// KVM sets those before the one it refuses.
		Some(refused) => Err(VcpuStateError::Msr { index: refused.index, value: refused.data }),
		None => Ok(()),
	}
}

/// A deadline that has passed when the state is saved has been cleared although its interrupt may not have been
/// delivered. With the TSC as deadline it is due at once in the clone: at worst the guest sees a timer interrupt too
/// many, which it must bear anyway.
pub(super) fn keep_due_deadline(entries: &mut [kvm_msr_entry], lapic: &[i8; 1024]) {
	let lvt = u32::from_le_bytes(std::array::from_fn(|i| lapic[LVT_TIMER + i] as u8));
	let (mode, masked) = (lvt >> 17 & 3, lvt >> 16 & 1 == 1);
	if mode != 2 || masked {
		return;
	}
	let Some(tsc) = entries.iter().find(|entry| entry.index == TSC).map(|entry| entry.data) else { return };
	if let Some(deadline) = entries.iter_mut().find(|entry| entry.index == TSC_DEADLINE && entry.data == 0) {
		deadline.data = tsc;
	}
}

/// Whether the guest uses kvmclock: bit 0 of MSR_KVM_SYSTEM_TIME, the old one or the new one.
pub(super) fn has_kvmclock(entries: &[kvm_msr_entry]) -> bool {
	entries.iter().any(|entry| KVM_SYSTEM_TIME.contains(&entry.index) && entry.data & 1 == 1)
}

pub(super) fn tsc(entries: &[kvm_msr_entry]) -> Option<u64> {
	entries.iter().find(|entry| entry.index == TSC).map(|entry| entry.data)
}

fn wrap(entries: &[kvm_msr_entry]) -> Wrapper {
	Wrapper::from_entries(entries).expect("KVM lists no more MSRs than it takes")
}

#[cfg(test)]
mod tests {
	use super::*;

	fn entry(index: u32, data: u64) -> kvm_msr_entry {
		kvm_msr_entry { index, data, ..Default::default() }
	}

	#[test]
	fn a_deadline_that_has_passed_is_due_in_the_clone() {
		let mut lapic = [0i8; 1024];
		let mut msrs = [entry(TSC, 1000), entry(TSC_DEADLINE, 0)];
		keep_due_deadline(&mut msrs, &lapic);
		assert_eq!(msrs[1].data, 0, "not in deadline mode");
		lapic[LVT_TIMER + 2] = 4;
		keep_due_deadline(&mut msrs, &lapic);
		assert_eq!(msrs[1].data, 1000);
		let mut armed = [entry(TSC, 1000), entry(TSC_DEADLINE, 2000)];
		keep_due_deadline(&mut armed, &lapic);
		assert_eq!(armed[1].data, 2000);
	}
}

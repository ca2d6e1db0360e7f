//! What a guest sees of the CPU: what KVM supports, less what clones can't carry over.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::{Cap, Kvm};
use serde::{Deserialize, Serialize};

/// CPUID leaves, at most [`KVM_MAX_CPUID_ENTRIES`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuidEntries(Vec<kvm_cpuid_entry2>);

impl CpuidEntries {
	/// For KVM.
	pub(crate) fn wrapper(&self) -> CpuId {
		let entries = &self.0[..self.0.len().min(KVM_MAX_CPUID_ENTRIES)];
		CpuId::from_entries(entries).expect("no more entries than the wrapper takes")
	}

	fn leaf(&mut self, function: u32, index: u32) -> Option<&mut kvm_cpuid_entry2> {
		self.0.iter_mut().find(|entry| entry.function == function && entry.index == index)
	}

	/// AMD's CPUs, or those made after them.
	pub(crate) fn is_amd(&self) -> bool {
		let amd = [*b"Auth", *b"Hygo"].map(u32::from_le_bytes);
		self.0.iter().any(|entry| entry.function == 0 && amd.contains(&entry.ebx))
	}

	/// The first leaf whose four registers differ, if the two have the same leaves; for a message.
	pub fn difference(&self, other: &Self) -> Option<u32> {
		if self == other {
			return None;
		}
		let pairs = self.0.iter().zip(&other.0);
		let leaf = pairs.into_iter().find(|(a, b)| a != b).map(|(a, _)| a.function);
		Some(leaf.unwrap_or_default())
	}
}

/// Leaf 1, ECX.
mod ecx1 {
	pub const VMX: u32 = 1 << 5;
	pub const TSC_DEADLINE: u32 = 1 << 24;
	pub const HYPERVISOR: u32 = 1 << 31;
}

/// Leaf 7, index 0, EDX: AMX-BF16, AMX-TILE, AMX-INT8.
const AMX_7_0_EDX: u32 = 1 << 22 | 1 << 24 | 1 << 25;
/// Leaf 7, index 1, EDX: AMX-COMPLEX.
const AMX_7_1_EDX: u32 = 1 << 8;
/// Leaf 7, index 1, EAX.
const AMX_FP16: u32 = 1 << 21;
/// Leaf 0xd, EAX: tile configuration and data.
const AMX_XCR0: u32 = 1 << 17 | 1 << 18;

/// Leaf 0x8000_0001, ECX.
const SVM: u32 = 1 << 2;

/// What every guest of this host sees, the same for all vCPUs.
///
/// Without virtualisation extensions: nested state is refused. Without performance counters, whose state is in no
/// template.
pub fn supported(kvm: &Kvm) -> Result<CpuidEntries, kvm_ioctls::Error> {
	let mut entries = CpuidEntries(kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?.as_slice().to_vec());
	let deadline = kvm.check_extension(Cap::TscDeadlineTimer);
	if let Some(leaf) = entries.leaf(1, 0) {
		leaf.ecx = leaf.ecx & !ecx1::VMX | ecx1::HYPERVISOR;
		if deadline {
			leaf.ecx |= ecx1::TSC_DEADLINE;
		}
		// Brand and CLFLUSH size; APIC id and count are per vCPU. KVM gives those of the CPU it happened to run on.
		leaf.ebx &= 0xffff;
	}
	if let Some(leaf) = entries.leaf(0xa, 0) {
		(leaf.eax, leaf.ebx, leaf.ecx, leaf.edx) = (0, 0, 0, 0);
	}
	if let Some(leaf) = entries.leaf(0x8000_0001, 0) {
		leaf.ecx &= !SVM;
	}
	hide_amx(&mut entries);
	hide_topology(&mut entries);
	Ok(entries)
}

/// Topology is ours to say. Besides, KVM gives that of the CPU it happens to run on (AMD's leaf 0x8000001e before Linux
/// 6.2): kept, a template would seem to be of another CPU model on every other CPU of its own host.
fn hide_topology(entries: &mut CpuidEntries) {
	entries.0.retain(|entry| !matches!(entry.function, 0xb | 0x1f));
	if let Some(leaf) = entries.leaf(0x8000_001e, 0) {
		(leaf.eax, leaf.ebx, leaf.ecx) = (0, 0, 0);
	}
}

/// AMX's state would be 8 KB of an XSAVE area that otherwise has 4. KVM lets only those have it who ask first
/// (`ARCH_REQ_XCOMP_GUEST_PERM`, arch_prctl(2)), and a shell doesn't, so `KVM_CAP_XSAVE2` stays at 4096; but KVM goes
/// on to list the instructions (`__do_cpuid_func`, arch/x86/kvm/cpuid.c), and a guest that looks no further would try
/// them.
fn hide_amx(entries: &mut CpuidEntries) {
	for (index, amx) in [(0, AMX_7_0_EDX), (1, AMX_7_1_EDX)] {
		if let Some(leaf) = entries.leaf(7, index) {
			leaf.edx &= !amx;
		}
	}
	if let Some(leaf) = entries.leaf(7, 1) {
		leaf.eax &= !AMX_FP16;
	}
	if let Some(leaf) = entries.leaf(0xd, 0) {
		leaf.eax &= !AMX_XCR0;
	}
	// State components 17 and 18, tile palettes, TMUL.
	entries.0.retain(|entry| !matches!((entry.function, entry.index), (0xd, 17 | 18) | (0x1d | 0x1e, _)));
}

/// `common` as vCPU `id` of `count` sees it: one package, one core each.
pub fn for_vcpu(common: &CpuidEntries, id: u8, count: u8) -> CpuidEntries {
	let mut own = common.clone();
	let (id, count) = (u32::from(id), u32::from(count));
	if let Some(leaf) = own.leaf(1, 0) {
		leaf.ebx = leaf.ebx & 0xffff | count << 16 | id << 24;
		leaf.edx |= u32::from(count > 1) << 28;
	}
	if let Some(leaf) = own.leaf(0x8000_0008, 0) {
		leaf.ecx = leaf.ecx & !0xff | (count - 1);
	}
	if let Some(leaf) = own.leaf(0x8000_001e, 0) {
		(leaf.eax, leaf.ebx, leaf.ecx) = (id, id, 0);
	}
	// Leaf 0xb, level SMT: one thread a core; level core: all in one package.
	let shift = count.next_power_of_two().trailing_zeros();
	for (index, eax, ebx, kind) in [(0, 0, 1, 1), (1, shift, count, 2)] {
		own.0.push(kvm_cpuid_entry2 {
			function: 0xb,
			index,
			flags: kvm_bindings::KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
			eax,
			ebx,
			ecx: index | kind << 8,
			edx: id,
			..Default::default()
		});
	}
	own
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn two_cpus_of_one_host_make_the_same_guests() {
		// An EPYC's extended APIC id, compute unit and node, as two of its CPUs say them.
		let on_cpu = |id: u32| {
			let leaf = |function, eax, ebx, ecx| kvm_cpuid_entry2 { function, eax, ebx, ecx, ..Default::default() };
			let mut entries = CpuidEntries(vec![
				leaf(1, 0x00a2_0f12, 0, 7),
				leaf(0xb, 1, 2, 0x100),
				leaf(0x8000_001e, id, 0x100 | (id / 2), id / 8),
			]);
			hide_topology(&mut entries);
			entries
		};
		assert_eq!(on_cpu(3).difference(&on_cpu(12)), None);
		let own = for_vcpu(&on_cpu(3), 1, 2);
		let topology = own.0.iter().find(|entry| entry.function == 0x8000_001e).unwrap();
		assert_eq!((topology.eax, topology.ebx, topology.ecx), (1, 1, 0));
	}

	#[test]
	fn amx_is_hidden_and_nothing_else() {
		let leaf = |function, index| kvm_cpuid_entry2 {
			function,
			index,
			eax: u32::MAX,
			ebx: u32::MAX,
			ecx: u32::MAX,
			edx: u32::MAX,
			..Default::default()
		};
		let all = [(7, 0), (7, 1), (0xd, 0), (0xd, 2), (0xd, 17), (0xd, 18), (0x1d, 0), (0x1d, 1), (0x1e, 0), (17, 0)];
		let mut entries = CpuidEntries(all.map(|(function, index)| leaf(function, index)).to_vec());
		hide_amx(&mut entries);
		let left: Vec<_> = entries.0.iter().map(|entry| (entry.function, entry.index)).collect();
		assert_eq!(left, [(7, 0), (7, 1), (0xd, 0), (0xd, 2), (17, 0)]);
		assert_eq!(entries.0[0], kvm_cpuid_entry2 { edx: !0x0340_0000, ..leaf(7, 0) });
		assert_eq!(entries.0[1], kvm_cpuid_entry2 { eax: !0x0020_0000, edx: !0x100, ..leaf(7, 1) });
		assert_eq!(entries.0[2], kvm_cpuid_entry2 { eax: !0x0006_0000, ..leaf(0xd, 0) });
		assert_eq!(entries.0[3..], [leaf(0xd, 2), leaf(17, 0)]);
	}
}

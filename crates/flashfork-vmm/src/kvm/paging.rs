//! How KVM maps guests' memory.

use std::fs;

/// Y where guests walk their own page tables. Before Linux 6.3 also elsewhere, unless KVM was told otherwise.
const TDP_MMU: &str = "/sys/module/kvm/parameters/tdp_mmu";

/// Whether KVM has two-dimensional paging (EPT, NPT), without records of a guest's pages; otherwise it keeps shadows of
/// guests' page tables. `None` where that can't be found out.
#[must_use]
pub fn two_dimensional() -> Option<bool> {
	Some(fs::read_to_string(TDP_MMU).ok()?.trim() == "Y")
}

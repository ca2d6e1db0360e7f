//! The methods compared.

use crate::prelude::*;
use flashfork::{Capability, Host};

/// A way to hold memory and clone the process that holds it.
#[derive(
	Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr, strum::Display, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Method {
	/// Plain fork, anonymous memory on 4 KB pages (`MADV_NOHUGEPAGE`).
	#[serde(rename = "fork-4k")]
	#[strum(serialize = "fork-4k")]
	Fork4k,
	/// Plain fork, anonymous memory on transparent huge pages (`MADV_HUGEPAGE`).
	ForkThp,
	/// Plain fork, anonymous memory on pages of 2 MB from the host's pool (`MAP_HUGETLB`).
	#[serde(rename = "fork-hugetlb")]
	#[strum(serialize = "fork-hugetlb")]
	Hugetlb,
	/// Sealed memory, 2 MB pages where possible.
	Seal,
	/// On-demand fork, anonymous memory on 4 KB pages (`MADV_NOHUGEPAGE`); needs a patched kernel.
	Odf,
}

impl Method {
	/// Those that work on any kernel.
	pub const STOCK: [Self; 3] = [Self::Fork4k, Self::ForkThp, Self::Seal];

	/// The methods this kernel can for any size, baseline first, and why it can't the others. [`Method::Hugetlb`] is
	/// not among them: that depends on how many pages are free at the moment.
	pub fn here() -> (Vec<Self>, Vec<(Self, String)>) {
		// Asked of a capability, not of this process: it shall go on with plain forks.
		match Host::probe().capability("on_demand_fork") {
			Some(Capability { available: false, detail, .. }) => {
				(Self::STOCK.to_vec(), vec![(Self::Odf, detail.clone())])
			}
			_ => (Self::STOCK.into_iter().chain([Self::Odf]).collect(), Vec::new()),
		}
	}

	/// Whether this method's memory must be on 4 KB pages.
	pub fn small_pages(self) -> bool {
		matches!(self, Self::Fork4k | Self::Odf)
	}

	/// Bytes of memory a worker of this method with `size` bytes of data may use at its peak.
	///
	/// Each page table page (8 bytes per 4 KB) exists twice while a child lives. Sealing works in chunks beside the
	/// data (at most 128 MB), and every page the parent writes afterwards (at most a tenth) exists twice.
	pub fn memory_needed(self, size: u64) -> u64 {
		const PROGRAM: u64 = 32 << 20;
		const SEALING: u64 = 160 << 20;
		let tables = 2 * (size / 512);
		if self == Self::Hugetlb {
			// The pool is taken from the machine's memory already.
			return PROGRAM;
		}
		let beside = if self == Self::Seal && size > 0 { SEALING.max(size / 10) } else { 0 };
		size + tables + beside + PROGRAM
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn records_and_messages_use_the_same_names() {
		for method in Method::all() {
			assert_eq!(serde_json::to_value(method).unwrap(), method.as_ref());
		}
	}

	#[test]
	fn what_this_kernel_can_not_is_said_in_one_line() {
		let (methods, missing) = Method::here();
		assert_eq!(methods[..3], Method::STOCK);
		assert_eq!(methods.contains(&Method::Odf), missing.is_empty());
		assert!(missing.iter().all(|(method, why)| *method == Method::Odf && !why.contains('\n')));
	}

	#[test]
	fn a_seal_needs_room_for_its_chunks_and_for_rewritten_pages() {
		assert!(Method::Seal.memory_needed(1 << 30) >= (1 << 30) + (128 << 20));
		assert!(Method::Seal.memory_needed(8 << 30) >= (8 << 30) + (8 << 30) / 10);
		assert!(Method::Fork4k.memory_needed(8 << 30) < (8 << 30) + (100 << 20));
	}
}

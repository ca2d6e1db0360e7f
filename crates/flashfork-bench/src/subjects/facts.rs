//! What a parent is made of: the figures without which a fork time means little.

use procfs::process::Process;

use super::region::Region;
use crate::prelude::*;

/// What smaps calls bytes mapped by 2 MB entries.
const HUGE_KEYS: [&str; 4] = ["AnonHugePages", "ShmemPmdMapped", "Private_Hugetlb", "Shared_Hugetlb"];

/// The calling process, and how its region is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Facts {
	/// Memory mappings.
	pub vmas: usize,
	/// Page tables, in bytes (`VmPTE`).
	pub page_table_bytes: u64,
	/// Resident memory, in bytes (`VmRSS`).
	pub resident_bytes: u64,
	/// The share of the region mapped by 2 MB entries, 0 to 1.
	pub huge_fraction: f64,
}

impl Facts {
	/// Reads them from `/proc/self`.
	pub fn read(region: &Region) -> Result<Self> {
		let doing = "read /proc/self";
		let process = Process::myself().or_cant(doing)?;
		let status = process.status().or_cant(doing)?;
		let maps = process.smaps().or_cant(doing)?;
		let (begin, end) = (region.address(), region.address() + region.bytes());
		let huge: u64 = maps
			.iter()
			.filter(|map| map.address.0 < end && map.address.1 > begin)
			.flat_map(|map| HUGE_KEYS.map(|key| map.extension.map.get(key)))
			.flatten()
			.sum();
		Ok(Self {
			vmas: maps.iter().count(),
			page_table_bytes: status.vmpte.unwrap_or(0) * 1024,
			resident_bytes: status.vmrss.unwrap_or(0) * 1024,
			huge_fraction: if region.bytes() == 0 { 0.0 } else { huge as f64 / region.bytes() as f64 },
		})
	}
}

#[cfg(test)]
mod tests {
	use super::{super::Method, *};

	#[test]
	fn a_filled_region_shows() {
		let region = Region::filled(Method::Fork4k, 8 << 20).unwrap();
		let facts = Facts::read(&region).unwrap();
		assert!(facts.vmas > 5 && facts.resident_bytes >= 8 << 20, "{facts:?}");
		// 8 MB on 4 KB pages need four page tables.
		assert!(facts.page_table_bytes >= 4 * 4096, "{facts:?}");
		assert_eq!(facts.huge_fraction, 0.0);
	}
}

//! What two virtual machines must have in common for a shell made for one to become the other.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Greatest number of virtual CPUs.
pub const MAX_VCPUS: u8 = 8;

/// Least guest memory in MiB: enough for a tiny guest; Linux wants some 128.
pub const MIN_MEMORY_MIB: u32 = 1;

/// Greatest guest memory in MiB: 1 TiB.
pub const MAX_MEMORY_MIB: u32 = 1 << 20;

/// Greatest number of disks that can be attached to a clone and its descendants: what interrupt lines are left for.
pub const MAX_DISK_SLOTS: u8 = 4;

/// The key of a pool of shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Shape {
	/// Guest memory, 1 to 1048576 MiB.
	pub memory_mib: u32,
	/// Virtual CPUs, 1 to 8.
	pub vcpus: u8,
	/// Pages of the host that guest memory is made of.
	pub pages: Pages,
	/// Whether there is a virtio-blk disk. Console, entropy device, vsock and VMGENID always are.
	pub disk: bool,
	/// virtio-blk disks of no size beside that, up to 4: a claim can give each an image.
	#[serde(default)]
	pub disk_slots: u8,
}

/// Host pages behind guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Pages {
	/// 4 KiB.
	#[default]
	Small,
	/// 2 MiB, from the host's hugetlb pool.
	Huge,
}

/// Why a shape is none that can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
	/// Memory is out of range.
	#[error("{0} MiB of guest memory: give {MIN_MEMORY_MIB} to {MAX_MEMORY_MIB}")]
	Memory(u32),
	/// Memory in 2 MiB pages is not a multiple of them.
	#[error("{0} MiB of guest memory in 2 MiB pages: give an even number")]
	Odd(u32),
	/// The number of CPUs is out of range.
	#[error("{0} virtual CPUs: give 1 to {MAX_VCPUS}")]
	Cpus(u8),
	/// More disks than there is room for.
	#[error("{0} disk slots: give up to {MAX_DISK_SLOTS}")]
	Slots(u8),
}

impl Shape {
	/// Whether such a machine can be made at all.
	pub fn check(&self) -> Result<(), ShapeError> {
		if !(MIN_MEMORY_MIB..=MAX_MEMORY_MIB).contains(&self.memory_mib) {
			return Err(ShapeError::Memory(self.memory_mib));
		}
		if self.pages == Pages::Huge && !self.memory_mib.is_multiple_of(2) {
			return Err(ShapeError::Odd(self.memory_mib));
		}
		if !(1..=MAX_VCPUS).contains(&self.vcpus) {
			return Err(ShapeError::Cpus(self.vcpus));
		}
		if self.disk_slots > MAX_DISK_SLOTS {
			return Err(ShapeError::Slots(self.disk_slots));
		}
		Ok(())
	}

	/// Block devices, of which the first is the disk that the machine boots with, if any.
	#[must_use]
	pub fn block_devices(&self) -> u8 {
		u8::from(self.disk) + self.disk_slots
	}

	/// Guest memory in bytes.
	#[must_use]
	pub fn memory_bytes(&self) -> u64 {
		u64::from(self.memory_mib) << 20
	}
}

impl fmt::Display for Shape {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		write!(f, "{} MiB, {} CPU{}", self.memory_mib, self.vcpus, if self.vcpus == 1 { "" } else { "s" })?;
		if self.pages == Pages::Huge {
			f.write_str(", 2 MiB pages")?;
		}
		f.write_str(if self.disk { ", disk" } else { ", no disk" })?;
		match self.disk_slots {
			0 => Ok(()),
			slots => write!(f, ", {slots} slot{}", if slots == 1 { "" } else { "s" }),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn shapes_out_of_range_are_refused_with_the_range() {
		let good = Shape { memory_mib: 256, vcpus: 2, pages: Pages::Small, disk: false, disk_slots: 0 };
		good.check().unwrap();
		assert_eq!(good.to_string(), "256 MiB, 2 CPUs, no disk");
		let error = Shape { vcpus: 9, ..good }.check().unwrap_err();
		assert_eq!(error.to_string(), "9 virtual CPUs: give 1 to 8");
		assert_eq!(Shape { disk_slots: 5, ..good }.check(), Err(ShapeError::Slots(5)));
		assert_eq!(Shape { disk_slots: 2, ..good }.to_string(), "256 MiB, 2 CPUs, no disk, 2 slots");
		assert_eq!(Shape { memory_mib: 0, ..good }.check(), Err(ShapeError::Memory(0)));
		assert_eq!(Shape { memory_mib: 3, pages: Pages::Huge, ..good }.check(), Err(ShapeError::Odd(3)));
	}
}

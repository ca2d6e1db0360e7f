//! What the guest is told of its memory, for both ways of telling (E820 and PVH).

use crate::layout;
use flashfork_proto::shape::Shape;

/// Usable, in both.
pub(super) const RAM: u32 = 1;
/// Not to be touched, in both.
pub(super) const RESERVED: u32 = 2;

/// (start, length, kind), ascending.
pub(super) fn of(shape: &Shape) -> Vec<(u64, u64, u32)> {
	let mut map = vec![
		(0, layout::LOW_RAM_END, RAM),
		// ACPI tables and VMGENID are in here.
		(layout::LOW_RAM_END, layout::KERNEL - layout::LOW_RAM_END, RESERVED),
	];
	for (start, length) in layout::ram(shape.memory_bytes()) {
		let above = start.max(layout::KERNEL);
		map.push((above, start + length - above, RAM));
	}
	map
}

#[cfg(test)]
mod tests {
	use super::*;
	use flashfork_proto::shape::Pages;

	#[test]
	fn the_map_has_no_gap_but_the_one_for_devices_and_no_overlap() {
		let map = of(&Shape { memory_mib: 4096, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 });
		assert_eq!(map.iter().map(|entry| entry.1).sum::<u64>(), 4 << 30);
		for pair in map.windows(2) {
			let end = pair[0].0 + pair[0].1;
			assert!(end == pair[1].0 || (end, pair[1].0) == (layout::GAP, layout::HIGH_RAM), "{pair:x?}");
		}
	}
}

//! Tables of jumps.

use super::memory::Memory;

const ENTRIES: usize = 4096;
/// Entries read at a time; 4 bytes each, so that they lie on one page.
const AT_A_TIME: usize = 16;

/// Calls `each` with all addresses that a table at `table` leads to, as compilers make them for `switch`: distances
/// from its own beginning, each of 4 bytes. It ends with the first for which `each` gives false.
pub fn each_target(memory: &mut impl Memory, table: usize, mut each: impl FnMut(usize) -> bool) {
	const BYTES: usize = 4;
	if !table.is_multiple_of(BYTES) {
		return;
	}
	let mut entry = 0;
	while entry < ENTRIES {
		let at = table.wrapping_add(BYTES * entry);
		let count = AT_A_TIME - at / BYTES % AT_A_TIME;
		let Some(bytes) = memory.peek(at, BYTES * count) else { return };
		for distance in bytes.as_chunks().0 {
			if !each(table.wrapping_add(i32::from_le_bytes(*distance) as usize)) {
				return;
			}
		}
		entry += count;
	}
}

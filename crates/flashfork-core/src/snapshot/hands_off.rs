//! What no restore touches.

use super::table::{self, MAX_NAMED, Table};
use crate::{own_pages, range::Range, sys};

/// Ranges of the engine's own.
const OWN: usize = 2 * table::OWN + own_pages::COUNT;

/// The addresses that belong to the engine and, page by page, those that the caller keeps: neither contents nor
/// mappings go back there.
pub fn hands_off(table: &Table) -> ([Range; MAX_NAMED + OWN], usize) {
	let mut out = [Range::default(); MAX_NAMED + OWN];
	out[..table::OWN].copy_from_slice(&table.own());
	out[table::OWN..2 * table::OWN].copy_from_slice(&table.before.ranges);
	out[2 * table::OWN..OWN].copy_from_slice(&own_pages::all());
	let mut count = OWN;
	for keep in &table.keep[..table.keep_count] {
		let whole = Range::new(keep.start.next_multiple_of(sys::PAGE), keep.end & !(sys::PAGE - 1));
		if !whole.is_empty() {
			out[count] = whole;
			count += 1;
		}
	}
	(out, count)
}

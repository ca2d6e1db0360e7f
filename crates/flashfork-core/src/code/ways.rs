//! All ways into one part of the code, for the flow through it.

use super::{
	Code,
	entries::Way,
	flow::{Flow, PART, TooMuch},
	instruction::Instruction,
	is_instruction,
	memory::{Memory, WINDOW},
	object::{self, Function},
	tables,
};
use crate::range::Range;

/// Most addresses that one part names.
const NAMES: usize = 1024;
/// Bytes that a jump with a distance of one byte leads over at most, with the jump.
const SHORT: usize = 130;

/// Follows all ways through part of the code; `entered` are those that lead into its middle from elsewhere.
pub fn solve(
	memory: &mut impl Memory,
	code: &Code,
	function: &Function,
	entered: &[Way],
	flow: &mut Flow,
) -> Result<(), TooMuch> {
	let part = function.range;
	if part.len() > PART {
		return Err(TooMuch);
	}
	flow.begin(memory.bytes(part.start, part.len()).ok_or(TooMuch)?)?;
	enter_from(memory, function, part, flow)?;
	// What a compiler has moved out of a function, and the function: a table of the one may lead into the other.
	for i in 0..flow.jumps().len() {
		let target = part.start.wrapping_add_signed(flow.jumps()[i]);
		enter_from_other(memory, code, target, part, flow)?;
	}
	for way in entered.iter().filter(|way| part.contains(way.to)) {
		// What is no function may be no code, and look like a way by chance.
		if code.function(memory, way.from).is_some() || flow.begins(way.to - part.start) {
			flow.enter(way.to - part.start)?;
			enter_from_other(memory, code, way.from, part, flow)?;
		}
	}
	let mut entered = Ok(());
	each_short_jump(memory, code, part, |to| entered = entered.and_then(|()| flow.enter(to - part.start)));
	entered?;
	flow.solve()
}

fn enter_from_other(
	memory: &mut impl Memory,
	code: &Code,
	at: usize,
	part: Range,
	flow: &mut Flow,
) -> Result<(), TooMuch> {
	match code.function(memory, at).filter(|other| other.range != part) {
		Some(other) => enter_from(memory, &other, part, flow),
		None => Ok(()),
	}
}

/// Adds what tables and exceptions of a function lead to in part of the code.
fn enter_from(memory: &mut impl Memory, function: &Function, part: Range, flow: &mut Flow) -> Result<(), TooMuch> {
	let mut names = [0; NAMES];
	let count = names_in(memory, function.range, &mut names)?;
	let mut entered = Ok(());
	for table in &names[..count] {
		tables::each_target(memory, *table, |target| {
			if !part.contains(target) {
				return function.range.contains(target);
			}
			let is_entry = flow.enter_by_table(target - part.start);
			entered = entered.and(is_entry.map(|_| ()));
			is_entry == Ok(true)
		});
	}
	let pads = object::landing_pads(memory, function, |pad| {
		if part.contains(pad) {
			entered = entered.and_then(|()| flow.enter(pad - part.start));
		}
	});
	pads.ok_or(TooMuch).and(entered)
}

/// The addresses outside that a function names; gives how many.
fn names_in(memory: &mut impl Memory, range: Range, names: &mut [usize]) -> Result<usize, TooMuch> {
	if range.len() > WINDOW {
		return Err(TooMuch);
	}
	let bytes = memory.bytes(range.start, range.len()).ok_or(TooMuch)?;
	let (mut here, mut count) = (0, 0);
	while here < bytes.len() {
		let Some(i) = Instruction::decode(&bytes[here..]) else {
			here += 1;
			continue;
		};
		here += i.len;
		let name = i.names().map(|by| range.start.wrapping_add(here).wrapping_add_signed(by));
		if let Some(name) = name.filter(|name| !range.contains(*name) && !names[..count].contains(name)) {
			*names.get_mut(count).ok_or(TooMuch)? = name;
			count += 1;
		}
	}
	Ok(count)
}

/// Whether a jump with a distance of one byte, which the search of the whole object doesn't see, leads into the middle
/// of a part.
pub fn has_short_jump(memory: &mut impl Memory, code: &Code, part: Range) -> bool {
	let mut has = false;
	each_short_jump(memory, code, part, |_| has = true);
	has
}

/// Calls `each` with the addresses in the middle of a part that such jumps from outside lead to.
fn each_short_jump(memory: &mut impl Memory, code: &Code, part: Range, mut each: impl FnMut(usize)) {
	let Some(all) = code.range(part.start) else { return };
	let sides = [Range::new(part.start.saturating_sub(SHORT), part.start), Range::new(part.end, part.end + SHORT)];
	for side in sides.map(|side| side.intersect(all)) {
		let mut bytes = [0; SHORT];
		let bytes = &mut bytes[..side.len()];
		let Some(there) = memory.bytes(side.start, side.len()) else { continue };
		bytes.copy_from_slice(there);
		for at in 0..bytes.len().saturating_sub(1) {
			let [0xeb | 0x70..=0x7f | 0xe0..=0xe3, by] = [bytes[at], bytes[at + 1]] else { continue };
			let next = side.start + at + 2;
			let to = next.wrapping_add_signed(by.cast_signed().into());
			if part.start < to && part.contains(to) && is_instruction(memory, code, next - 1, |i| i.jumps().is_some()) {
				each(to);
			}
		}
	}
}

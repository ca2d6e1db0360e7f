//! System calls that no libc makes: machine code that holds its own system call instruction.
//!
//! docs/SYSTEM_CALLS.md says what is looked for, by which rules, and why: before a seal, and when code is mapped later
//! ([`process`]). `int 0x80` reaches the same calls below 4 GB.
//!
//! [`search`] finds the two bytes, [`decode`] tells whether they are an instruction. [`object`] knows the parts of code
//! that the unwind table lists: [`flow`] follows all numbers through one, with [`value`] for what is known of a
//! register, and [`ways`] adds all ways into it: [`tables`] of jumps, exceptions, and what [`entries`] finds in the
//! whole object, which is searched only where a part has a system call that is harmless otherwise; [`distances`] makes
//! that fast.

mod decode;
mod distances;
mod entries;
pub mod file;
mod flow;
pub(crate) mod guard;
mod instruction;
pub(crate) mod mapped;
pub mod memory;
mod object;
pub(crate) mod own;
pub mod process;
pub(crate) mod remembered;
mod search;
mod tables;
pub mod times;
mod value;
mod versions;
mod ways;

use crate::{range::Range, scratch, sys};
use core::ops::ControlFlow;
use decode::Line;
use distances::Lookup;
use entries::{Entries, Failed};
use flow::{Flow, TooMuch};
use instruction::{Instruction, LONGEST};
use memory::{Memory, WINDOW};
use object::{Function, layout};

/// Calls that mean something else on sealed memory when the shim doesn't see them: number on x86-64, number of `int
/// 0x80`, name. Among them are those that may map code after a seal, unless the protection is proved to execute
/// nothing.
pub const CALLS: &[(u32, u32, &str)] = &[
	(25, 163, "mremap"),
	(28, 219, "madvise"),
	(206, 245, "io_setup"),
	(323, 374, "userfaultfd"),
	(425, 425, "io_uring_setup"),
	(440, 440, "process_madvise"),
	(462, 462, "mseal"),
	(MMAP, 192, "mmap"),
	// The older one, whose arguments are in memory.
	(NONE, 90, "mmap"),
	(MPROTECT, 125, "mprotect"),
	(PKEY_MPROTECT, 380, "pkey_mprotect"),
];

const MMAP: u32 = 9;
const MPROTECT: u32 = 10;
const PKEY_MPROTECT: u32 = 329;
/// No call of `syscall` has this number.
const NONE: u32 = u32::MAX;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
	/// One of [`CALLS`], by its number on x86-64.
	Number(u32),
	/// A call whose number is computed, loaded or passed.
	Unknown,
	/// The object was built by Go.
	Go,
	/// The code can't be read.
	Unreadable,
}

impl Call {
	/// As one word, not 0.
	pub fn to_word(self) -> u64 {
		match self {
			Call::Number(n) => 1 << 32 | u64::from(n),
			Call::Unknown => 2 << 32,
			Call::Go => 3 << 32,
			Call::Unreadable => 4 << 32,
		}
	}

	/// The other way; `None` for a word that is none of these.
	pub fn from_word(word: u64) -> Option<Call> {
		match word >> 32 {
			1 => Some(Call::Number(word as u32)),
			2 => Some(Call::Unknown),
			3 => Some(Call::Go),
			4 => Some(Call::Unreadable),
			_ => None,
		}
	}
}

impl core::fmt::Display for Call {
	fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
		match self {
			Call::Number(n) => {
				let name = CALLS.iter().find(|(number, ..)| number == n).map_or("?", |(.., name)| name);
				write!(f, "has a system call instruction of its own for {name}")
			}
			Call::Unknown => f.write_str("has a system call instruction of its own whose number can't be told"),
			Call::Go => f.write_str("was built by Go, which makes its system calls itself"),
			Call::Unreadable => f.write_str("has code that can't be read"),
		}
	}
}

/// A system call instruction of [`CALLS`], or one whose number can't be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
	/// Address of the instruction; 0 where the whole object counts.
	pub at: usize,
	/// What it calls.
	pub call: Call,
}

/// Bytes of a window that the one before has seen already: what is needed to decode the instructions before a match.
const OVERLAP: usize = 64;
/// Whether bytes are an instruction is told from the beginning of their function on, but from no farther away than
/// this: by then any decoding has fallen in step.
const FUNCTION: usize = 32 << 10;
/// What kind of code there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
	/// An object's, whose functions the table at this address lists.
	Listed(usize),
	/// An object's without such a table.
	Unlisted,
	/// Made by the program while it runs.
	Generated,
}

/// Code looked through.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
	/// Its addresses.
	pub ranges: &'a [Range],
	/// Those of its data, which may hold addresses in the code.
	pub data: &'a [Range],
	/// Its kind.
	pub kind: Kind,
	/// Whether its addresses may be constants in it.
	pub fixed: bool,
}

impl Code<'_> {
	fn function(&self, memory: &mut impl Memory, at: usize) -> Option<Function> {
		let Kind::Listed(table) = self.kind else { return None };
		let mut function = object::function(memory, table, at)?;
		function.range = self.range(at)?.intersect(function.range);
		Some(function)
	}

	fn range(&self, at: usize) -> Option<Range> {
		self.ranges.iter().copied().find(|range| range.contains(at))
	}

	/// The bytes around an address that is in no function, and the address of the first.
	fn around<'m, M: Memory>(&self, memory: &'m mut M, at: usize) -> Option<(&'m [u8], usize)> {
		let around = self.range(at)?.intersect(Range::new(at.saturating_sub(OVERLAP), at + OVERLAP));
		Some((memory.bytes(around.start, around.len())?, around.start))
	}
}

/// Scratch memory of [`sites`]. All zeros is a valid value.
pub struct Scratch {
	flow: Flow,
	entries: Entries,
	/// Whether harmless calls were found that may map memory.
	maps: bool,
}

impl Scratch {
	/// Maps it. Memory is used only where it is touched.
	pub fn map() -> sys::Result<&'static mut Scratch> {
		let at = scratch::map(size_of::<Scratch>())?;
		// SAFETY: a fresh mapping of the right size; all-zero bytes are a valid Scratch (integers, false, no bits).
		Ok(unsafe { &mut *(at as *mut Scratch) })
	}

	/// Runs `f` with one, which is there no longer than that: not every process has room for more (`RLIMIT_AS`).
	pub fn with<R>(f: impl FnOnce(&mut Scratch) -> R) -> sys::Result<R> {
		let scratch = Scratch::map()?;
		let result = f(scratch);
		scratch.unmap();
		Ok(result)
	}

	/// Gives the memory back.
	pub fn unmap(&'static mut self) {
		let at = &raw mut *self as usize;
		// SAFETY: this was the only reference, and it ends here. A failure would leak the mapping, no more.
		let _ = unsafe { sys::munmap(at, size_of::<Scratch>()) };
	}
}

/// Whether more is wanted.
type Next = ControlFlow<()>;

/// Calls `each` with every site in code until it gives false. False when some of it can't be read.
pub fn sites(
	memory: &mut impl Memory,
	code: &Code,
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> bool,
) -> bool {
	let mut each = |site| if each(site) { Next::Continue(()) } else { Next::Break(()) };
	scratch.entries.clear();
	scratch.maps = false;
	for range in code.ranges {
		match search(memory, code, *range, scratch, &mut each) {
			Some(Next::Continue(())) => {}
			Some(Next::Break(())) => return true,
			None => return false,
		}
	}
	if scratch.entries.parts().is_empty() {
		return true;
	}
	match scratch.entries.search(memory, code, Lookup::ask()) {
		Ok(()) => {}
		Err(Failed::Unreadable) => return false,
		Err(Failed::Full) => {
			let _ = each(Site { at: scratch.entries.parts()[0].start, call: Call::Unknown });
			return true;
		}
	}
	for i in 0..scratch.entries.parts().len() {
		let part = scratch.entries.parts()[i];
		let is_entered = scratch.entries.ways().iter().any(|way| part.contains(way.to));
		if is_entered && judge_entered(memory, code, part, scratch, &mut each).is_break() {
			break;
		}
	}
	true
}

/// Looks at all matches in a range. None: some of it can't be read.
fn search(
	memory: &mut impl Memory,
	code: &Code,
	range: Range,
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> Next,
) -> Option<Next> {
	let mut at = range.start;
	// The function looked at last: all its calls are known.
	let mut last = Range::new(0, 0);
	while at < range.end {
		// The last match of a window may begin at its last byte but one.
		let start = at.saturating_sub(OVERLAP).max(range.start);
		let end = (start + WINDOW).min(range.end);
		let window = memory.bytes(start, end - start)?;
		let mut matches = [0u32; 512];
		let (found, searched) = search::matches(window, at - start, &mut matches);
		// Most matches are no instruction: told without looking elsewhere.
		let mut kept = 0;
		for i in 0..found {
			let offset = matches[i] as usize;
			if decode::lands(window, offset, start + offset) {
				matches[kept] = matches[i];
				kept += 1;
			}
		}
		for found in &matches[..kept] {
			let at = start + *found as usize;
			if last.contains(at) {
				continue;
			}
			let Some(function) = code.function(memory, at) else {
				if judge_alone(memory, code, at, scratch, each).is_break() {
					return Some(Next::Break(()));
				}
				continue;
			};
			if is_instruction(memory, code, at + 1, Instruction::is_system_call) {
				last = function.range;
				if judge(memory, code, &function, at, scratch, each).is_break() {
					return Some(Next::Break(()));
				}
			}
		}
		at = if end == range.end && start + searched + 1 >= end { end } else { start + searched };
	}
	Some(Next::Continue(()))
}

/// Whether an instruction that is wanted may have its last byte at an address.
fn is_instruction(
	memory: &mut impl Memory,
	code: &Code,
	last: usize,
	is_wanted: impl Fn(&Instruction) -> bool,
) -> bool {
	if let Some(function) = code.function(memory, last) {
		let start = function.range.start.max(last.saturating_sub(FUNCTION));
		let in_step = if start == function.range.start { 0 } else { FUNCTION / 2 };
		let end = function.range.end.min(last + LONGEST);
		let bytes = memory.bytes(start, end - start);
		return bytes.is_some_and(|bytes| decode::comes_to(bytes, in_step, last + 1 - start, is_wanted));
	}
	// Decoded from any of 15 bytes in a row: at one of them an instruction begins.
	let Some((bytes, start)) = code.around(memory, last) else { return false };
	let end = last + 1 - start;
	(0..LONGEST.min(end)).any(|begin| decode::comes_to(&bytes[begin..], 0, end - begin, &is_wanted))
}

/// Looks at a function with a system call instruction at an address.
fn judge(
	memory: &mut impl Memory,
	code: &Code,
	function: &Function,
	at: usize,
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> Next,
) -> Next {
	let Scratch { flow, entries, maps } = scratch;
	let solved = ways::solve(memory, code, function, &[], flow);
	let told = solved.and_then(|()| tell(function, flow, maps, each));
	match told {
		Ok(Told::Refused(next)) => next,
		Ok(Told::Harmless) if entries.add(function.range).is_ok() => Next::Continue(()),
		_ => each(Site { at, call: Call::Unknown }),
	}
}

/// Looks again at what was harmless, now that ways into its middle are known.
fn judge_entered(
	memory: &mut impl Memory,
	code: &Code,
	part: Range,
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> Next,
) -> Next {
	let Scratch { flow, entries, maps } = scratch;
	// Of what is in no function the instruction's first byte is the last of the part.
	let Some(function) = code.function(memory, part.start).filter(|function| function.range == part) else {
		return each(Site { at: part.end - 1, call: Call::Unknown });
	};
	let solved = ways::solve(memory, code, &function, entries.ways(), flow);
	match solved.and_then(|()| tell(&function, flow, maps, each)) {
		Ok(Told::Refused(next)) => next,
		Ok(Told::Harmless) => Next::Continue(()),
		Err(TooMuch) => each(Site { at: part.start, call: Call::Unknown }),
	}
}

enum Told {
	/// Calls that count.
	Refused(Next),
	Harmless,
}

/// Calls `each` with all calls of a function that count. `maps`: see [`Scratch`].
fn tell(
	function: &Function,
	flow: &Flow,
	maps: &mut bool,
	each: &mut impl FnMut(Site) -> Next,
) -> Result<Told, TooMuch> {
	let mut told = Told::Harmless;
	flow.calls(|offset, call, is_listed| {
		*maps |= is_listed && call.is_none();
		let is_wanted = !matches!(told, Told::Refused(Next::Break(())));
		if let Some(call) = call.filter(|_| is_wanted) {
			told = Told::Refused(each(Site { at: function.range.start + offset, call }));
		}
	})?;
	Ok(told)
}

/// Looks at a system call instruction outside all functions.
fn judge_alone(
	memory: &mut impl Memory,
	code: &Code,
	at: usize,
	scratch: &mut Scratch,
	each: &mut impl FnMut(Site) -> Next,
) -> Next {
	let Some((bytes, start)) = code.around(memory, at) else { return Next::Continue(()) };
	let is_code = |offset: isize| code.range(start.wrapping_add_signed(offset)).is_some();
	let call = match decode::anywhere(bytes, at - start, is_code) {
		Line::Data => None,
		Line::Calls(call) => Some(call),
		Line::Harmless(..) if code.kind == Kind::Generated => None,
		Line::Harmless(from, is_listed) => {
			scratch.maps |= is_listed;
			// From the last byte of what loads the number to the first of the instruction.
			let line = Range::new(start + from - 1, at + 1);
			let holds = !ways::has_short_jump(memory, code, line) && scratch.entries.add(line).is_ok();
			(!holds).then_some(Call::Unknown)
		}
	};
	let counts = |call: &Call| match code.kind {
		_ if *call != Call::Unknown => true,
		Kind::Listed(table) => !object::is_unwind_data(memory, table, at),
		Kind::Unlisted => true,
		Kind::Generated => false,
	};
	match call.filter(counts) {
		Some(call) => each(Site { at, call }),
		None => Next::Continue(()),
	}
}
/// Whether the engine's own marker is soon behind the instruction at `at`.
fn is_own(code: &[u8], at: usize) -> bool {
	const SOON: usize = 40;
	let behind = code.get(at + 2..).unwrap_or_default();
	behind[..behind.len().min(SOON)].windows(OWN.len()).any(|bytes| bytes == OWN)
}

/// Stands soon behind each system call instruction of the engine itself: its calls mean what they should.
pub const OWN: &[u8; 16] = b"flashfork's call";

#[cfg(test)]
mod entries_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod tests;

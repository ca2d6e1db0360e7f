//! Whether the mappings are those of the last restore.
//!
//! The engine sees all calls that make mappings or change them ([`Hook::maps`](crate::calls)), while there is no code
//! that may make its own: trusted, made while the program runs, or with calls that are harmless otherwise. It sees none
//! that only takes some away (`munmap`, `shmdt`): without one that makes some, too, fewer pages are mapped then, unless
//! a stack has grown. So what lies below the stack is asked for, and the end of the heap, which `brk` may have given
//! back and taken again: that is a mapping of its own then, or one that isn't watched.
//!
//! After any such call all mappings are asked for, one by one and without names (`PROCMAP_QUERY`, Linux 6.11), which
//! takes half as long as reading `/proc/self/maps`.

use super::{
	calls_tell_of_mappings, compare,
	table::{Needs, Table},
};
use crate::{
	proc::{
		lookup::{self, Wanted},
		text::{decimal, words},
		vma::{Kind, Vma},
	},
	range::Range,
	region::watch::{File, WATCHED},
	state::STATE,
	sys::{self, PAGE, Result},
};

/// Most mappings compared so.
pub const MOST: usize = 4096;

/// One, as far as it is told without its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
	pub range: Range,
	prot: u32,
	pub shared: bool,
	offset: u64,
	inode: u64,
	device: [u32; 2],
}

impl Mapping {
	fn of(v: &Vma) -> Mapping {
		Mapping { range: v.range, prot: v.prot, shared: v.shared, offset: v.offset, inode: v.inode, device: v.device }
	}
}

/// What changes with any mapping of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Layout {
	calls: u32,
	/// Pages of all mappings (`total_vm`).
	pages: u64,
	program_break: usize,
}

impl Layout {
	/// None where not all calls are seen, a stack has grown, or the end of the heap is another mapping.
	fn now(table: &Table) -> Option<Layout> {
		if !calls_tell_of_mappings() || table.others_grow {
			return None;
		}
		let maps = WATCHED.file(File::Maps)?;
		let (below_stack, heap) = (table.below_stack?, table.heap?);
		// Nothing has come there, and nothing that came is gone.
		let stack = lookup::next(maps, below_stack.start).ok()?;
		let last = lookup::next(maps, heap.range.end - PAGE).ok()?;
		if stack.range.start != below_stack.end || Mapping::of(&last) != heap {
			return None;
		}
		let mut text = [0; 128];
		let len = sys::pread(WATCHED.file(File::Mapped)?, &mut text, 0).ok()?;
		let pages = words(&text[..len]).next().and_then(decimal)?;
		Some(Layout { calls: STATE.layout(), pages, program_break: sys::program_break() })
	}
}

/// Notes what there is now. None where that can't be told so, or is too much.
pub fn note(table: &mut Table) {
	(table.mapping_count, table.below_stack, table.heap) = (0, None, None);
	let mut count = 0;
	let mut needs = Needs::default();
	let Table { mappings, stack_pointer, below_stack, heap, entries, entry_count, .. } = table;
	let main = entries[..*entry_count].iter().find(|entry| entry.kind == Kind::Stack).map(|entry| entry.range);
	let end_of_heap = sys::program_break().next_multiple_of(PAGE);
	let mut end = 0;
	let told = each(|v| {
		if main.is_some_and(|main| v.range.contains(main.start)) {
			*below_stack = Some(Range::new(end, v.range.start));
		}
		if v.range.end == end_of_heap {
			*heap = Some(Mapping::of(v));
		}
		end = v.range.end;
		// The stack counts by itself, and here it has no name.
		compare::count(&mut needs, v, v.range.contains(*stack_pointer));
		if let Some(place) = mappings.get_mut(count) {
			*place = Mapping::of(v);
		}
		count += 1;
		true
	});
	if told == Ok(true) && count <= MOST {
		(table.mapping_count, table.noted) = (count, needs);
	}
	table.layout = Layout::now(table);
}

/// What has become of the mappings since they were noted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Since {
	/// Some are others, or that can't be told.
	Changed,
	/// They are the same, though there were calls for them, perhaps to give memory up.
	Same,
	/// There were no such calls, but for the break, which is where it was.
	Untouched,
}

/// Compares the mappings with what was noted.
pub fn since(table: &mut Table) -> Since {
	let noted = &table.mappings[..table.mapping_count];
	if noted.is_empty() {
		return Since::Changed;
	}
	let layout = Layout::now(table);
	if layout.is_some() && layout == table.layout {
		return Since::Untouched;
	}
	let (mut count, mut same) = (0, true);
	let told = each(|v| {
		same &= noted.get(count) == Some(&Mapping::of(v));
		count += 1;
		same
	}) == Ok(true);
	if !told || !same || count != noted.len() {
		return Since::Changed;
	}
	table.layout = layout;
	Since::Same
}

/// Calls `each` with all mappings while it says so; whether the kernel tells.
fn each(mut each: impl FnMut(&Vma) -> bool) -> Result<bool> {
	let mut told = |v: &Vma| Some(if each(v) { v.range.end } else { usize::MAX });
	let asked = lookup::ask(Range::ALL, Wanted::All, &mut [], Some(&mut told), &mut |_, _| Ok(()))?;
	Ok(asked.is_some())
}

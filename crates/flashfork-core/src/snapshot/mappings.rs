//! Whether the mappings are those of the last restore.
//!
//! The kernel tells of no change, so all of them are asked for, one by one and without names (`PROCMAP_QUERY`, Linux
//! 6.11), which takes half as long as reading `/proc/self/maps`. The engine follows some of the calls that change
//! mappings, but it needn't follow `munmap` and `brk`, and code that is trusted makes any by itself: by these nothing
//! can be told.

use super::compare;
use super::table::{Needs, Table};
use crate::proc::lookup::{self, Wanted};
use crate::proc::vma::Vma;
use crate::range::Range;
use crate::sys::Result;

/// Most mappings that are compared so.
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

/// Notes what there is now. None where that can't be told so, or is too much.
pub fn note(table: &mut Table) {
    table.mapping_count = 0;
    let mut count = 0;
    let mut needs = Needs::default();
    let Table { mappings, stack_pointer, .. } = table;
    let told = each(|v| {
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
}

/// Whether all is as it was noted. No where that can't be told.
pub fn are_as_noted(table: &Table) -> bool {
    let noted = &table.mappings[..table.mapping_count];
    let mut count = 0;
    let mut same = !noted.is_empty();
    let told = same
        && each(|v| {
            same &= noted.get(count) == Some(&Mapping::of(v));
            count += 1;
            same
        }) == Ok(true);
    told && same && count == noted.len()
}

/// Calls `each` with all mappings as long as it says so; whether the kernel tells.
fn each(mut each: impl FnMut(&Vma) -> bool) -> Result<bool> {
    let mut told = |v: &Vma| Some(if each(v) { v.range.end } else { usize::MAX });
    let asked = lookup::ask(Range::ALL, Wanted::All, &mut [], Some(&mut told), &mut |_, _| Ok(()))?;
    Ok(asked.is_some())
}

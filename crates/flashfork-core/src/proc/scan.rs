//! `PAGEMAP_SCAN` (Linux 6.7, `ioctl_pagemap_scan(2)`): runs of pages, by what the page table says of them.

use crate::{
	range::Range,
	sys::{self, Errno, Result},
};

const PAGEMAP_SCAN: usize = 0xc060_6610; // _IOWR('f', 16, struct pm_scan_arg)
const WP_MATCHING: u64 = 1;
const CHECK_WPASYNC: u64 = 2;

/// Memory that is watched: a userfaultfd is registered there by which the kernel notes writes
/// ([`crate::region::watch`]).
pub const WATCHED: u64 = 1;
/// Not protected by a userfaultfd.
pub const WRITTEN: u64 = 1 << 1;
/// A file's page, not a copy of it.
pub const FILE: u64 = 1 << 2;
pub const PRESENT: u64 = 1 << 3;
/// Not in memory: swapped out, or no page at all but a note in the page table (protected, or a guard).
pub const SWAPPED: u64 = 1 << 4;
/// The zero page.
pub const ZERO: u64 = 1 << 5;
/// Mapped as a huge page.
pub const HUGE_PAGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Arguments {
	size: u64,
	flags: u64,
	start: u64,
	end: u64,
	walk_end: u64,
	vec: u64,
	vec_len: u64,
	max_pages: u64,
	category_inverted: u64,
	category_mask: u64,
	category_anyof_mask: u64,
	return_mask: u64,
}

/// A run of pages (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Region {
	start: u64,
	end: u64,
	categories: u64,
}

impl Region {
	pub fn range(&self) -> Range {
		Range::new(self.start as usize, self.end as usize)
	}

	/// Whether its pages have this, of what was to be told.
	pub fn has(&self, category: u64) -> bool {
		self.categories & category != 0
	}
}

/// Which pages are looked for, by categories.
#[derive(Clone, Copy, Default)]
pub struct Ask {
	/// They have all of these,
	pub all: u64,
	/// none of these,
	pub none: u64,
	/// and one of these.
	pub any: u64,
	/// What is told of them. Runs that differ in it are apart.
	pub told: u64,
	/// They are protected as they are found.
	pub protect: bool,
	/// All the range must be watched: `EPERM` otherwise.
	pub watched: bool,
}

/// Calls `each` with the runs of pages looked for, in order of address; runs that touch may come apart. `pagemap` is an
/// open `/proc/self/pagemap`; `buf` is scratch, and must not be empty.
pub fn for_each(
	pagemap: i32,
	range: Range,
	ask: Ask,
	buf: &mut [Region],
	mut each: impl FnMut(Region) -> Result<()>,
) -> Result<()> {
	let mut at = range;
	while !at.is_empty() {
		let mut arguments = Arguments {
			size: size_of::<Arguments>() as u64,
			flags: if ask.protect { WP_MATCHING } else { 0 } | if ask.watched { CHECK_WPASYNC } else { 0 },
			start: at.start as u64,
			end: at.end as u64,
			vec: buf.as_mut_ptr() as u64,
			vec_len: buf.len() as u64,
			// An inverted category must be absent.
			category_inverted: ask.none,
			category_mask: ask.all | ask.none,
			category_anyof_mask: ask.any,
			return_mask: ask.told,
			..Arguments::default()
		};
		// SAFETY: the kernel's struct; `vec` points to `vec_len` runs of our own. Protecting changes no contents.
		let found = match unsafe { sys::ioctl(pagemap, PAGEMAP_SCAN, &raw mut arguments as usize) } {
			Err(Errno::EINTR) => continue,
			found => buf.get(..found?).ok_or(Errno::EIO)?,
		};
		let mut next = if found.len() < buf.len() { at.end } else { arguments.walk_end as usize };
		for run in found {
			each(*run)?;
			// `walk_end` stays behind once the kernel's own buffer of 512 runs was full (pagemap_scan in
			// fs/proc/task_mmu.c): what was reported is behind us all the same.
			next = next.max(run.end as usize);
		}
		// A filter that answers in the kernel's place (seccomp(2)) leaves it as it was.
		if arguments.walk_end == 0 || next <= at.start {
			return Err(Errno::EIO);
		}
		at.start = next;
	}
	Ok(())
}

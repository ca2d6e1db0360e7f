//! Compares the kernel's list of VMAs with the model: protections and flags, and what is never sealed.

use super::{World, space::pages, table::attr};
use crate::{content::PAGE, mode::Mode, template::Library};
use flashfork_tests::Result;
use std::{fs, ops::Range};

/// A VMA under test as `/proc/thread-self/smaps` shows it.
struct Vma {
	pages: Range<usize>,
	permissions: String,
	sealed: bool,
	flags: Vec<String>,
}

impl World {
	/// Compares every VMA; returns how many pages under test are sealed.
	pub fn check_maps(&mut self) -> Result<usize> {
		let (vmas, sealed) = self.vmas()?;
		// The allocator's too.
		self.most_sealed = self.most_sealed.max(sealed);
		let (mut sealed, mut of_libraries) = (0, 0);
		let mut at = 0;
		for vma in vmas {
			self.check_unmapped(at..vma.pages.start)?;
			at = vma.pages.end;
			if vma.sealed {
				sealed += vma.pages.len();
				of_libraries += vma.pages.clone().filter(|page| self.is_of_library(*page)).count();
			}
			for page in vma.pages.clone() {
				self.check_page_of(&vma, page)?;
			}
		}
		self.check_unmapped(at..pages())?;
		self.most_of_libraries = self.most_of_libraries.max(of_libraries);
		Ok(sealed)
	}

	fn is_of_library(&self, page: usize) -> bool {
		Library::is_data(self.table.content(page).file)
	}

	fn check_unmapped(&self, mut pages: Range<usize>) -> Result {
		match pages.find(|p| self.table.mapped(*p)) {
			Some(page) => Err(format!("page {page} at {:#x} is not mapped", self.space.addr(page))),
			None => Ok(()),
		}
	}

	fn check_page_of(&self, vma: &Vma, page: usize) -> Result {
		let a = self.table.attr(page);
		let has = |flag: &str| vma.flags.iter().any(|f| f == flag);
		let wrong = |what: &str| {
			Err(format!(
				"page {page} at {:#x}: {what} (attributes {a:#x}, VMA {:?} {} {:?})",
				self.space.addr(page),
				vma.pages,
				vma.permissions,
				vma.flags
			))
		};
		if a & attr::MAPPED == 0 {
			return wrong("is mapped and should not be");
		}
		let permission = |letter: char, bit: u32| vma.permissions.contains(letter) == (a & bit != 0);
		if !permission('r', attr::READ) || !permission('w', attr::WRITE) || !permission('x', attr::EXEC) {
			return wrong("protection");
		}
		if !permission('s', attr::SHARED) {
			return wrong("shared or private");
		}
		for (flag, bit) in [
			("dc", attr::DONTFORK),
			("wf", attr::WIPEONFORK),
			("dd", attr::DONTDUMP),
			("lo", attr::LOCKED),
			("mg", attr::MERGEABLE),
		] {
			if has(flag) != (a & bit != 0) {
				return wrong(flag);
			}
		}
		// A sealed VMA keeps this advice elsewhere until it is anonymous again; and another thread's seal may have
		// looked at the advice a moment before it was given, or something else was mapped there.
		if !vma.sealed
			&& self.mode != Mode::Threads
			&& a & attr::LATE == 0
			&& (has("hg") != (a & attr::HUGE != 0) || has("nh") != (a & attr::NOHUGE != 0))
		{
			return wrong("huge page advice");
		}
		let file = if self.is_of_library(page) { 0 } else { attr::FILE };
		let never = attr::SHARED
			| file | attr::DONTFORK
			| attr::WIPEONFORK
			| attr::DONTDUMP
			| attr::LOCKED
			| attr::MERGEABLE
			| attr::GUARD;
		if vma.sealed && a & never != 0 {
			return wrong("is sealed");
		}
		Ok(())
	}

	/// The VMAs under test, and how many pages of the process are sealed in all.
	fn vmas(&self) -> Result<(Vec<Vma>, usize)> {
		let text =
			fs::read_to_string("/proc/thread-self/smaps").map_err(|e| format!("/proc/thread-self/smaps: {e}"))?;
		let mut out: Vec<Vma> = Vec::new();
		let mut ours = false;
		let mut all_sealed = 0;
		for line in text.lines() {
			if line.starts_with(|c: char| c.is_ascii_uppercase()) {
				if let (true, Some(flags), Some(vma)) = (ours, line.strip_prefix("VmFlags: "), out.last_mut()) {
					vma.flags = flags.split_whitespace().map(str::to_string).collect();
				}
				continue;
			}
			let mut words = line.split_whitespace();
			let (start, end) = words.next().and_then(|w| w.split_once('-')).ok_or_else(|| format!("smaps: {line}"))?;
			let hex = |w| usize::from_str_radix(w, 16).map_err(|e| format!("smaps: {line}: {e}"));
			ours = false;
			let (start, end) = (hex(start)?, hex(end)?);
			let sealed = line.contains("/memfd:flashfork:");
			if sealed {
				all_sealed += (end - start) / PAGE;
			}
			if let Some(pages) = self.space.overlap(start, end) {
				ours = true;
				let permissions = words.next().unwrap_or_default().to_string();
				out.push(Vma { pages, permissions, sealed, flags: Vec::new() });
			}
		}
		out.sort_by_key(|v| v.pages.start);
		Ok((out, all_sealed))
	}
}

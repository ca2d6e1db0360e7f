//! Threads that read and write while their process forks: nobody sees another's bytes, and no write is lost.

use super::World;
use crate::{
	content::{Content, PAGE, Tag, WORDS, fill, holds},
	world::{check::Depth, choose::BLOCK, table::attr},
};
use flashfork_tests::Result;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Forks made meanwhile.
const FORKS: usize = 2;

/// Pages of one writer, with what it leaves in each.
type Written = Vec<(usize, Tag)>;

impl World {
	pub(super) fn visit_threads(&mut self) -> Result {
		let Some(range) = self.uniform() else { return Ok(()) };
		let range = range.start..range.end.min(range.start + BLOCK);
		let of = |world: &World, page: usize| {
			world.is_common(page) && world.writable(page) && world.readable(page) && !world.table.has(page, attr::FILE)
		};
		let pages: Vec<usize> = range.clone().filter(|page| of(self, *page)).collect();
		if pages.len() < 3 {
			return Ok(());
		}
		self.journal.note(&format!("threads on {range:?}"))?;
		// Neighbours belong to different threads: all of them share page tables.
		let mut writers: [Written; 2] = Default::default();
		let mut read = Vec::new();
		for (i, page) in pages.iter().enumerate() {
			match i % 3 {
				2 => read.push((self.space.addr(*page), *self.table.content(*page))),
				n => writers[n].push((*page, self.tag())),
			}
		}
		let places = writers
			.each_ref()
			.map(|own| -> Written { own.iter().map(|(page, tag)| (self.space.addr(*page), *tag)).collect() });
		let stop = AtomicBool::new(false);
		std::thread::scope(|scope| {
			let writing = places.each_ref().map(|own| scope.spawn(|| write(own, &stop)));
			let reading = scope.spawn(|| reread(&read, &stop));
			let forked = self.fork_beside(&writers);
			stop.store(true, Relaxed);
			let threads = writing.into_iter().chain([reading]);
			let ended = threads.map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
			ended.fold(forked, Result::and)
		})?;
		for (page, tag) in writers.concat() {
			self.note_overwritten(page, tag);
		}
		self.check(range, Depth::All)
	}

	/// Children, which overwrite what threads were writing to and compare all else.
	fn fork_beside(&mut self, writers: &[Written; 2]) -> Result {
		for _ in 0..FORKS {
			let theirs: Vec<usize> = writers.iter().flatten().map(|(page, _)| *page).collect();
			let visitor = self.invite("beside threads", move |w, _| {
				w.write_pages(theirs.into_iter());
				Ok(())
			})?;
			self.see_off(&visitor.child)?;
		}
		Ok(())
	}
}

/// Fills pages again and again, and looks whether they keep it.
fn write(own: &[(usize, Tag)], stop: &AtomicBool) -> Result {
	loop {
		let last = stop.load(Relaxed);
		for (at, tag) in own {
			for tag in [!tag, *tag] {
				// SAFETY: this page is written by this thread alone, and stays mapped.
				let words = unsafe { std::slice::from_raw_parts_mut(*at as *mut u64, WORDS) };
				fill(words, 0, tag);
			}
		}
		for (at, tag) in own {
			// SAFETY: as above.
			if !holds(unsafe { &*(*at as *const [u64; WORDS]) }, *tag) {
				return Err(format!("a write to page {:#x} was lost while the process forked", at / PAGE * PAGE));
			}
		}
		if last {
			return Ok(());
		}
	}
}

fn reread(pages: &[(usize, Content)], stop: &AtomicBool) -> Result {
	while !stop.load(Relaxed) {
		for (at, content) in pages {
			// SAFETY: the page stays mapped, and no thread of this process writes it.
			if let Some((i, is, should)) = content.difference(unsafe { &*(*at as *const [u64; WORDS]) }) {
				return Err(format!("a thread read {is:#x} in word {i} at {at:#x}, should be {should:#x}"));
			}
		}
	}
	Ok(())
}

//! Others that act on the memory under test: processes, threads, and the kernel on their behalf. An engine that shares
//! page tables must notice each of them, because none comes by a fault of the process whose memory it is.
//!
//! A step makes a visitor, a child for one purpose that lives beside its parent until both have done their part, and
//! sees it off.

mod direct;
mod ended;
pub mod fault;
mod others;
mod pipes;
mod threads;

use super::family::{DEPTH, Signal};
use crate::{
	journal::{Expect, Journal},
	world::{Child, World, check::Depth, table::attr},
};
use flashfork_tests::Result;
use std::ops::Range;

/// Pages acted on at once.
const FEW: usize = 8;

#[derive(Clone, Copy)]
enum Visit {
	WriteToParent,
	WriteToChild,
	PokeChild,
	TraceChild,
	SpliceInChild,
	SpliceBefore,
	DirectRead,
	Ring,
	Userfault,
	Exec,
	Orphan,
	Threads,
}

const VISITS: &[(usize, Visit)] = &[
	(3, Visit::WriteToParent),
	(3, Visit::WriteToChild),
	(3, Visit::PokeChild),
	(2, Visit::TraceChild),
	(4, Visit::SpliceInChild),
	(4, Visit::SpliceBefore),
	(2, Visit::DirectRead),
	(2, Visit::Ring),
	(2, Visit::Userfault),
	(1, Visit::Exec),
	(2, Visit::Orphan),
	(2, Visit::Threads),
];

/// A child and the signals it shares with its parent.
struct Visitor {
	child: Child,
	/// The child has done its first part.
	ready: Signal,
	/// The parent has done its own.
	go: Signal,
}

/// The same in the child.
struct Cue {
	ready: Signal,
	go: Signal,
}

impl World {
	pub fn step_visit(&mut self) -> Result {
		if self.depth == DEPTH {
			return Ok(());
		}
		match self.rng.weighted(VISITS) {
			Visit::WriteToParent => self.visit_write_to_parent(),
			Visit::WriteToChild => self.visit_write_to_child(),
			Visit::PokeChild => self.visit_poke_child(),
			Visit::TraceChild => self.visit_trace_child(),
			Visit::SpliceInChild => self.visit_splice_in_child(),
			Visit::SpliceBefore => self.visit_splice_before(),
			Visit::DirectRead => self.visit_direct_read(),
			Visit::Ring => self.visit_ring(),
			Visit::Userfault => self.visit_userfault(),
			Visit::Exec => self.visit_exec(),
			Visit::Orphan => self.visit_orphan(),
			Visit::Threads => self.visit_threads(),
		}
	}

	/// Forks a child that does `part`, compares everything, and takes up to five steps of its own.
	fn invite(&mut self, purpose: &str, part: impl FnOnce(&mut World, Cue) -> Result) -> Result<Visitor> {
		let seed = self.rng.next();
		let steps = self.rng.below(6);
		let name = format!("{}.{}", self.name, self.forks);
		self.forks += 1;
		self.journal.note(&format!("fork {name} {purpose}"))?;
		let (table, blocks) = (self.table.for_child(), self.blocks.for_child());
		let (ready, go) = (Signal::new()?, Signal::new()?);
		// SAFETY: the child goes on with a copy of everything; glibc keeps its allocator usable where there are
		// threads.
		let pid = unsafe { libc::fork() };
		if pid < 0 {
			return Err(format!("fork: {}", std::io::Error::last_os_error()));
		}
		if pid == 0 {
			let result = Journal::open(self.journal.places(), &name).and_then(|journal| {
				self.become_child(name, seed, table, blocks, journal);
				part(self, Cue { ready, go })?;
				self.check_all(Depth::Written)?;
				self.walk(steps)
			});
			self.end(result);
		}
		Ok(Visitor { child: Child { pid, name }, ready, go })
	}

	/// Waits for a visitor, which must have found everything right.
	fn see_off(&mut self, child: &Child) -> Result {
		self.journal
			.call(&format!("wait for {}", child.name), Expect::Exactly(Ok(0)), || {
				let mut status = 0;
				// SAFETY: waits for our own child.
				unsafe { libc::waitpid(child.pid, &raw mut status, 0) };
				Ok(status as u64)
			})
			.map(drop)
	}

	/// A private page, of the program's own, that parent and child both have, with contents that stay; `writable` by
	/// the program, or by a debugger alone.
	fn common_page(&mut self, writable: bool) -> Option<usize> {
		let range = self.range()?;
		let page = range.start + self.rng.below(range.len());
		(self.is_common(page) && (!writable || self.writable(page))).then_some(page)
	}

	/// Some of these in a row, of anonymous memory.
	fn common_pages(&mut self, most: usize) -> Option<Range<usize>> {
		let first = self.common_page(true)?;
		let good = |page: &usize| self.is_common(*page) && self.writable(*page) && !self.table.has(*page, attr::FILE);
		let count = (first..first + most).take_while(good).count();
		(count > 0).then(|| first..first + count)
	}

	fn is_common(&self, page: usize) -> bool {
		let hindrance = attr::SHARED | attr::GUARD | attr::FREED | attr::DONTFORK | attr::WIPEONFORK;
		page < crate::world::space::pages() && self.table.mapped(page) && self.table.attr(page) & hindrance == 0
	}
}

//! `vmsplice(2)`: pages in a pipe outlive their mapping, and must not show what others write to theirs afterwards.

use super::{Cue, World};
use crate::{
	content::{Content, PAGE, WORDS},
	journal::Expect,
	world::{check::Depth, memory::Pipe, space::heap, table::attr},
};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};

impl World {
	/// The child puts a page into a pipe and may unmap it; the parent writes its own; the pipe still has the old bytes.
	pub(super) fn visit_splice_in_child(&mut self) -> Result {
		let Some(page) = self.common_page(true).filter(|page| self.table.has(*page, attr::READ)) else { return Ok(()) };
		let unmaps = page < heap() && self.rng.chance(60);
		let visitor = self.invite("to splice", move |w, Cue { ready, go }| {
			let pipe = Pipe::new();
			w.splice(page, &pipe)?;
			let before = *w.table.content(page);
			if unmaps {
				let at = w.space.addr(page);
				let text = format!("munmap {page}");
				w.journal.call(&text, Expect::Exactly(Ok(0)), || super::super::map::unmap(at, 1))?;
				w.table.unmap(page..page + 1);
			}
			ready.give();
			go.wait();
			found(&pipe, &before)
		})?;
		visitor.ready.wait();
		self.journal.note(&format!("overwrite {page}"))?;
		self.write_pages(page..page + 1);
		visitor.go.give();
		self.see_off(&visitor.child)?;
		self.check(page..page + 1, Depth::All)
	}

	/// The parent puts a page into a pipe and forks; what the child writes is not in the pipe.
	pub(super) fn visit_splice_before(&mut self) -> Result {
		let Some(page) = self.common_page(true).filter(|page| self.table.has(*page, attr::READ)) else { return Ok(()) };
		let pipe = Pipe::new();
		self.splice(page, &pipe)?;
		let visitor = self.invite("to write what is in a pipe", move |w, Cue { ready, .. }| {
			w.journal.note(&format!("overwrite {page}"))?;
			w.write_pages(page..page + 1);
			ready.give();
			w.check(page..page + 1, Depth::All)
		})?;
		let at_once = self.rng.chance(50);
		if at_once {
			visitor.ready.wait();
			found(&pipe, self.table.content(page))?;
			self.see_off(&visitor.child)
		} else {
			drop((visitor.ready, visitor.go));
			self.see_off(&visitor.child)?;
			found(&pipe, self.table.content(page))
		}
	}

	fn splice(&mut self, page: usize, pipe: &Pipe) -> Result {
		let part = libc::iovec { iov_base: self.space.addr(page) as *mut _, iov_len: PAGE };
		self.journal
			.call(&format!("vmsplice {page}"), Expect::Exactly(Ok(PAGE as u64)), || {
				// SAFETY: a page under test that stays as it is until the pipe is read.
				let n = unsafe { libc::vmsplice(pipe.0[1], &raw const part, 1, 0) };
				if n < 0 { Err(errno()) } else { Ok(n as u64) }
			})
			.map(drop)
	}
}

fn found(pipe: &Pipe, should: &Content) -> Result {
	let mut words = [0u64; WORDS];
	let outcome: Outcome = {
		// SAFETY: our own buffer.
		let n = unsafe { libc::read(pipe.0[0], words.as_mut_ptr().cast(), PAGE) };
		if n < 0 { Err(errno()) } else { Ok(n as u64) }
	};
	if outcome != Ok(PAGE as u64) {
		return Err(format!("the pipe gave {outcome:?}"));
	}
	match should.difference(&words) {
		None => Ok(()),
		Some((i, is, should)) => Err(format!("word {i} in the pipe is {is:#x}, should be {should:#x}")),
	}
}

//! `userfaultfd(2)` on memory that was sealed: another process puts in what is missing after a discard, and must be
//! asked to.

use super::visit::fault::Faults;
use crate::{
	content::{PAGE, Tag, WORDS, fill},
	journal::Expect,
	world::{World, check::Depth},
};
use flashfork_tests::{Result, route::Via};
use std::ops::Range;

/// Pages that are discarded and come back.
const FEW: usize = 6;

impl World {
	pub fn step_faults(&mut self) -> Result {
		let Some(range) = self.plain_range() else { return Ok(()) };
		let (by_device, via) = (self.rng.chance(50), self.rng.pick(&[Via::Function, Via::Number]));
		let via = self.way(via);
		let mut pages: Vec<usize> = (0..FEW).map(|_| range.start + self.rng.below(range.len())).collect();
		pages.sort_unstable();
		pages.dedup();
		let first = self.tag();
		for _ in 0..range.len() {
			self.tag();
		}
		self.step_seal()?;
		let Some(faults) = (if by_device { Faults::open_device() } else { Faults::open() }) else { return Ok(()) };
		let handler = Handler::start(&faults, self.space.addr(range.start), first, range.len())?;
		let (start, len) = (self.space.addr(range.start), range.len() * PAGE);
		let text = format!("register faults of {range:?}, device {by_device}");
		let registered = self.journal.call(&text, Expect::AsPlain, || faults.register(start, len))?;
		if registered == Some(Ok(0)) {
			self.fault_in(&pages, &range, first, via)?;
			let text = format!("unregister faults of {range:?}");
			self.journal.call(&text, Expect::Exactly(Ok(0)), || faults.unregister(start, len))?;
		}
		drop(faults);
		drop(handler);
		self.check(range, Depth::Written)
	}

	fn fault_in(&mut self, pages: &[usize], range: &Range<usize>, first: Tag, via: Via) -> Result {
		for page in pages {
			self.advise(*page..*page + 1, libc::MADV_DONTNEED, via)?;
		}
		for page in pages {
			self.note_overwritten(*page, first + (page - range.start) as Tag);
			self.check(*page..*page + 1, Depth::All)?;
		}
		Ok(())
	}
}

/// A child that handles faults until it is dropped.
struct Handler(i32);

impl Handler {
	/// Page `i` of the range gets tag `first + i`.
	fn start(faults: &Faults, start: usize, first: Tag, pages: usize) -> Result<Handler> {
		// SAFETY: the child goes on with a copy, and does no more than handle faults.
		let pid = unsafe { libc::fork() };
		match pid {
			..0 => Err(format!("fork: {}", std::io::Error::last_os_error())),
			0 => {
				while let Some(at) = faults.next() {
					let page = (at - start) / PAGE;
					if page >= pages {
						break;
					}
					let mut words = [0; WORDS];
					fill(&mut words, 0, first + page as Tag);
					if faults.put(start + page * PAGE, &words).is_err() {
						break;
					}
				}
				// SAFETY: ends the process without the handlers of the one it was forked from.
				unsafe { libc::_exit(1) }
			}
			1.. => Ok(Handler(pid)),
		}
	}
}

impl Drop for Handler {
	fn drop(&mut self) {
		// SAFETY: our own child, not waited for yet.
		unsafe {
			libc::kill(self.0, libc::SIGKILL);
			libc::waitpid(self.0, std::ptr::null_mut(), 0);
		}
	}
}

//! Calls that are wrong: they must do nothing and say so as on plain memory.

use crate::{
	content::PAGE,
	journal::Expect,
	world::{World, check::Depth},
};
use flashfork_tests::{Result, route::Via};
use libc::c_int;

impl World {
	pub fn step_nonsense(&mut self) -> Result {
		let Some(range) = self.uniform() else { return Ok(()) };
		let (space, route) = (self.space, self.route);
		let start = space.addr(range.start);
		let len = range.len() * PAGE;
		let discards = [libc::MADV_DONTNEED, libc::MADV_FREE, 24];
		let advice = self.rng.pick(&discards);
		let bad: [(&str, usize, usize, c_int); 5] = [
			("unaligned", start + 1, len, advice),
			("no length", start, 0, advice),
			("a negative length", start, len.wrapping_neg(), advice),
			("a length that wraps", start, usize::MAX, advice),
			("no such advice", start, len, 77),
		];
		let (what, at, bytes, advice) = self.rng.pick(&bad);
		let via = self.way(Via::Function);
		let expected = if bytes == 0 { Ok(0) } else { Err(libc::EINVAL) };
		let text = format!("madvise {range:?} {advice} with {what}");
		self.journal.call(&text, Expect::Exactly(expected), || route.madvise(at, bytes, advice, via))?;
		let move_flags = self.rng.pick(&[libc::MREMAP_FIXED, libc::MREMAP_DONTUNMAP, 64, libc::MREMAP_MAYMOVE | 2]);
		// Onto itself: refused in every form.
		let text = format!("mremap {range:?} onto itself flags {move_flags}");
		self.journal.call(&text, Expect::Exactly(Err(libc::EINVAL)), || {
			route.mremap(start, len, len, move_flags, start, via)
		})?;
		self.check(range, Depth::All)
	}
}

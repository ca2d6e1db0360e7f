//! Fills the files of one generation: run by run, chunk by chunk, each step copied and put in place of what it is a
//! copy of.

use super::{
	aside::{Aside, STEP},
	copy::{self, CHUNK, DEAR, SHORT_CHUNK, Window},
	file::{self, Filled, Mounted},
	fold::plan_or_fold,
	limits::SLACK,
	offset, plan, remap,
};
use crate::{
	arena::{Arena, MAX_RUNS, Run},
	never_seal::Reason,
	outcome::{Error, Outcome, Pages, Step},
	proc::headroom::Limits,
	range::Range,
	state::STATE,
	sys::{self, Errno, HUGE},
	threads::pauses::Pauses,
};

pub(crate) struct Maker<'a> {
	/// The memfd, not yet sealed against writes.
	pub fd: i32,
	/// The other file, the bytes in it, and whether it gets no more: where files take turns each chunk is a mapping.
	mounted: Option<Mounted>,
	in_mount: u64,
	mount_ends: bool,
	memory: &'a Limits,
	window: Option<Window>,
	/// Where old pages stay for a while; none where threads run, whose stops are short.
	aside: Option<Aside>,
	/// Whether 2 MB pages are wanted, and to be had.
	huge: bool,
	/// Whether the last ones took the host long, or nothing is known of that.
	cold: bool,
	pauses: Option<Pauses<'a>>,
	fold: bool,
	outcome: Outcome,
}

impl<'a> Maker<'a> {
	/// Makes the memfd of the next generation.
	pub fn begin(memory: &'a Limits, pages: Pages) -> Result<Maker<'a>, Error> {
		let outcome = Outcome { generation: STATE.next_generation(), ..Outcome::default() };
		let fd = file::make_memfd(outcome.generation).map_err(|e| Error::System(Step::CreateMemfd, e))?;
		let places = Window::reserve().and_then(|window| Aside::reserve().map(|aside| (window, aside)));
		let (window, aside) = places.map_err(|e| {
			sys::close(fd);
			Error::System(Step::Begin, e)
		})?;
		let huge = pages == Pages::Auto && window.holds_chunk();
		Ok(Maker {
			fd,
			mounted: None,
			in_mount: 0,
			mount_ends: false,
			memory,
			window: Some(window),
			aside: Some(aside),
			huge,
			cold: true,
			pauses: None,
			fold: false,
			outcome,
		})
	}

	/// Seals while other threads run; `fold`: what was sealed before is sealed anew.
	pub fn with(&mut self, pauses: Option<Pauses<'a>>, fold: bool) {
		(self.pauses, self.fold) = (pauses, fold);
		let Some(pauses) = &mut self.pauses else { return };
		self.aside = None;
		*pauses.window = self.window.as_ref().map(Window::range).unwrap_or_default();
	}

	/// Has whole blocks lie in their own mount, where that is worth it: not beside threads, or in their memory.
	pub fn mount(&mut self, arena: &Arena) {
		let whole = self.aside.as_ref().is_some_and(|aside| aside.largest_step() == HUGE);
		if self.huge && whole && arena.stopped.is_none() {
			self.mounted = Mounted::make(self.outcome.generation, &arena.runs[..arena.run_count]);
		}
	}

	/// Seals the arena's runs, and tells in its records what became of each.
	pub fn seal_all(&mut self, arena: &mut Arena) {
		const IN_VAIN: usize = 8;
		const PLANS: usize = 64;
		let (mut first, mut in_vain, most) = (0, 0, arena.most);
		for plans in 1.. {
			let before = self.outcome.sealed;
			let stale = self.seal_plan(arena, first);
			first += arena.run_count;
			if !stale || first >= MAX_RUNS {
				return;
			}
			in_vain = if self.outcome.sealed == before { in_vain + 1 } else { 0 };
			// A thread that gives memory properties all the time makes every plan stale.
			if in_vain == IN_VAIN || plans == PLANS {
				self.outcome.cut_short = Some(Reason::CopyFailed);
				return;
			}
			if most != 0 {
				arena.most = most.saturating_sub(self.outcome.sealed as usize);
				if arena.most == 0 {
					// Which would mean everything.
					return;
				}
			}
			// Memory got properties that the plan knows nothing of. What is sealed by now is not written, and not
			// planned again.
			match plan_or_fold(arena, &mut self.pauses) {
				Ok(false) => arena.run_count = arena.run_count.min(MAX_RUNS - first),
				Err(Error::Refused(reason)) => {
					self.outcome.cut_short = Some(reason);
					return;
				}
				Ok(true) | Err(_) => return,
			}
		}
	}

	/// Gives up what sealing took beside the memfd. Nothing can be sealed any more.
	pub fn close_window(&mut self) {
		// It looks at what the window shows.
		self.aside = None;
		self.window = None;
	}

	/// Keeps everybody from writing to the files; gives the memfd first.
	pub fn finish(self) -> ((Filled, Option<Filled>), Outcome) {
		let Maker { fd, mounted, in_mount, window, aside, pauses, mut outcome, .. } = self;
		drop(aside); // it looks at what the window shows
		drop(window); // the memfd can't be sealed while it is mapped shared and writable
		if let Some(pauses) = pauses {
			*pauses.window = Range::default();
			(outcome.pauses, outcome.paused_ns) = (pauses.count, pauses.paused_ns);
			outcome.longest_pause_ns = pauses.longest_ns;
		}
		let protected = sys::add_seals(fd).or_else(|_| sys::add_seals(fd)).is_ok();
		let memfd = Filled { fd, bytes: outcome.sealed - in_mount, protected };
		outcome.write_sealed = protected;
		let mounted = mounted.map(|mounted| {
			let (fd, protected) = mounted.protect();
			Filled { fd, bytes: in_mount, protected: protected.is_ok() }
		});
		((memfd, mounted), outcome)
	}

	/// Whether `len` bytes more may be taken.
	pub fn has_room(&self, len: usize, buf: &mut [u8]) -> bool {
		self.memory.headroom(buf).is_ok_and(|free| free >= len as u64 + SLACK)
	}

	/// Seals the plan's runs; true when the plan must be made again before going on. The run of index 0 is the memfd's
	/// `first`.
	fn seal_plan(&mut self, arena: &mut Arena, first: usize) -> bool {
		for i in 0..arena.run_count {
			let run = arena.runs[i];
			let before = self.outcome.sealed;
			let result = self.seal_run(first + i, run, arena);
			let sealed = self.outcome.sealed - before;
			self.outcome.filled += plan::share_of(run.filled, run.range.len(), sealed as usize) as u64;
			let record = &mut arena.records[run.record as usize];
			record.sealed += sealed;
			record.kept = record.kept.saturating_sub(sealed);
			match result {
				Ok(()) => {}
				Err(Stop::Skipped(reason)) => record.reason = Some(reason),
				Err(Stop::Stale) => return true,
				Err(Stop::Late) => return false,
				Err(Stop::Over(reason)) => {
					record.reason = Some(reason);
					if self.pauses.is_some() {
						self.outcome.cut_short = Some(reason);
					}
					return false;
				}
			}
		}
		false
	}

	/// Seals a run chunk by chunk. On an error the rest, or the chunk that failed, is as it was.
	fn seal_run(&mut self, index: usize, run: Run, arena: &mut Arena) -> Result<(), Stop> {
		let Some(base) = offset::of_run(index, run.advice, run.range) else {
			return Err(Stop::Skipped(Reason::TooLarge));
		};
		let target = |at: usize| base + (at - run.range.start) as u64;
		let mut result = Ok(());
		let mut at = run.range.start;
		while at < run.range.end {
			let hurry = arena.late_at != 0;
			if hurry && self.outcome.sealed > 0 && sys::now_ns() > arena.late_at {
				self.outcome.late = true;
				return Err(Stop::Late);
			}
			let most = if hurry { SHORT_CHUNK } else { CHUNK };
			let mut chunk = next_chunk(Range::new(at, run.range.end), most);
			self.settle();
			let free = self.headroom(&mut arena.text)?;
			let ample = free >= chunk.len() as u64 + SLACK;
			let mounted =
				ample && !self.mount_ends && self.mounted.as_ref().is_some_and(|file| file.takes(&run, chunk));
			if mounted {
				at = self.seal_in_mount(chunk, &run, target(at));
				chunk = next_chunk(Range::new(at, chunk.end), most);
			}
			// Where the mount's pages are cold, the memfd's would be, too.
			let wanted = ample && chunk.len() >= HUGE && !(mounted && self.cold);
			let made = if wanted { self.make_huge(chunk, target(at)) } else { 0 };
			// A failed collapse may mean that memory is short: from there on small steps, each after a look. Small
			// steps too where threads wait meanwhile.
			let all = made == chunk.len();
			let step = if all && self.pauses.is_none() { chunk.len() } else { HUGE };
			let before = self.outcome.sealed;
			while at < chunk.end {
				let piece = Range::new(at, (at + step).min(chunk.end));
				if !ample && self.is_short_of(piece.len(), &mut arena.text)? {
					return Err(Stop::Over(Reason::LowMemory));
				}
				if self.pauses.is_none() && !all {
					self.show(self.fd, target(at), chunk.end - at);
				}
				let huge = piece.end <= chunk.start + made;
				match self.seal_step(arena, piece, &run, target(at), huge) {
					Ok(()) => {}
					Err(Stop::Skipped(reason)) => result = Err(Stop::Skipped(reason)),
					Err(over) => {
						// Pages made for what is not going to come.
						let _ = sys::punch_hole(self.fd, target(at), chunk.end - at);
						return Err(over);
					}
				}
				at = piece.end;
			}
			if made > 0 && self.outcome.sealed - before == chunk.len() as u64 {
				map_whole(Range::new(chunk.start, chunk.start + made));
			}
		}
		result
	}

	/// Whether so much more can't be taken, not even when what is kept for a last look is given up.
	fn is_short_of(&mut self, len: usize, buf: &mut [u8]) -> Result<bool, Stop> {
		let wanted = len as u64 + SLACK;
		if self.headroom(buf)? >= wanted {
			return Ok(false);
		}
		self.settle();
		Ok(self.headroom(buf)? < wanted)
	}

	/// Seals the blocks of a chunk in the mount; gives the address up to which that was done: its end, unless the host
	/// takes long for the first, where nothing is known or the last ones took long, or a block failed.
	fn seal_in_mount(&mut self, chunk: Range, run: &Run, target: u64) -> usize {
		let Some(file) = self.mounted.as_ref().map(|mounted| mounted.write) else { return chunk.start };
		self.show(file, target, chunk.len());
		let (mut at, begin, try_one) = (chunk.start, sys::thread_cpu_ns(), self.cold);
		while at < chunk.end {
			let (block, offset) = (Range::new(at, at + HUGE), target + (at - chunk.start) as u64);
			let before = self.outcome.sealed;
			let result = self.seal_piece(block, run.prot, offset, Way::Sent);
			let sealed = (self.outcome.sealed - before) as usize;
			at += sealed;
			// The copy takes as long as the page does at most.
			self.cold = sys::thread_cpu_ns() - begin > 2 * DEAR * ((at - chunk.start) / HUGE) as u64;
			if result.is_err() {
				// What the rest holds by now is of no use. If it can't be given back it goes with the file.
				let _ = sys::punch_hole(file, offset + sealed as u64, HUGE - sealed);
				break;
			}
			if try_one && self.cold && block.start == chunk.start {
				break;
			}
		}
		self.mount_ends = self.cold;
		// The window shows something else next.
		self.settle();
		self.in_mount += (at - chunk.start) as u64;
		self.outcome.huge += map_whole(Range::new(chunk.start, at & !(HUGE - 1))) as u64;
		at
	}

	/// Has the window show what is going to be written, a chunk at most. Where that fails nothing is sealed there.
	fn show(&mut self, file: i32, target: u64, len: usize) {
		if self.window.as_ref().is_some_and(|window| window.address(file, target, STEP.min(len)).is_some()) {
			return;
		}
		self.settle();
		if let Some(window) = &mut self.window {
			let _ = window.open(file, target, len);
		}
	}

	fn settle(&mut self) {
		if let Some(aside) = &mut self.aside {
			aside.settle();
		}
	}

	fn headroom(&self, buf: &mut [u8]) -> Result<u64, Stop> {
		self.memory.headroom(buf).map_err(|_| Stop::Over(Reason::LowMemory))
	}

	/// Prepares 2 MB pages for a chunk; gives up on them for good when the kernel can't make any. Gives the bytes at
	/// its beginning for which it did.
	fn make_huge(&mut self, chunk: Range, target: u64) -> usize {
		let Some(window) = self.window.as_mut().filter(|_| self.huge) else { return 0 };
		let extra = chunk.len() as u64 + self.outcome.filled;
		self.outcome.peak_extra = self.outcome.peak_extra.max(extra);
		match window.make_huge_timed(self.fd, target, chunk.len(), self.cold) {
			Ok(made) => {
				self.cold = made.slow;
				made.len
			}
			// No huge page free just now: the next chunk may find some.
			Err(Errno::ENOMEM | Errno::EAGAIN | Errno::EBUSY) => 0,
			Err(_) => {
				self.huge = false;
				0
			}
		}
	}

	/// Seals a piece, in a pause when there are other threads.
	fn seal_step(&mut self, arena: &mut Arena, piece: Range, run: &Run, target: u64, huge: bool) -> Result<(), Stop> {
		let before = self.outcome.sealed;
		let result = match self.pauses {
			Some(_) => self.seal_in_pause(arena, piece, run, target, huge),
			None => {
				let way = if huge && run.present { Way::MovedFirst } else { Way::CopiedFirst };
				self.seal_piece(piece, run.prot, target, way).map_err(|_| Stop::Skipped(Reason::CopyFailed))
			}
		};
		let sealed = (self.outcome.sealed - before) as usize;
		self.outcome.huge += if huge { sealed as u64 } else { 0 };
		if let Err(Stop::Skipped(_)) = result {
			// What was copied, or made for copies, is of no use. If it can't be given back it goes with the memfd.
			let _ = sys::punch_hole(self.fd, target + sealed as u64, piece.len() - sealed);
		}
		result
	}

	fn seal_in_pause(
		&mut self,
		arena: &mut Arena,
		piece: Range,
		run: &Run,
		target: u64,
		huge: bool,
	) -> Result<(), Stop> {
		let Some(pauses) = &mut self.pauses else { return Ok(()) };
		if let Some(window) = self.window.as_mut().filter(|_| !huge) {
			// So that the pause is for copying only. Where it fails the copy makes the pages, or fails too.
			let _ = window.populate(self.fd, target, piece.len());
		}
		// From here on the calls of the program's threads must ask whether memory is sealed.
		STATE.set_sealed(piece);
		pauses.stop(arena).map_err(Stop::Over)?;
		if pauses.plan_is_stale() {
			pauses.resume();
			return Err(Stop::Stale);
		}
		let sealed = match pauses.check(arena, piece, run, self.fold) {
			// Threads may have made pages unreadable since the plan.
			Ok(prot) => self.seal_piece(piece, prot, target, Way::CopiedFirst).map_err(|_| Reason::CopyFailed),
			Err(reason) => Err(reason),
		};
		if let Some(pauses) = &mut self.pauses {
			pauses.resume();
		}
		sealed.map_err(Stop::Skipped)
	}

	/// Seals a piece step by step. On an error what is sealed by then stays sealed, and counts.
	fn seal_piece(&mut self, piece: Range, prot: u32, target: u64, way: Way) -> sys::Result<()> {
		// From here on discarding this memory must go through the engine.
		STATE.set_sealed(piece);
		let len = match (way, &self.aside) {
			(Way::MovedFirst | Way::Sent, Some(aside)) => aside.largest_step(),
			_ => STEP,
		};
		let mut at = piece.start;
		while at < piece.end {
			let step = Range::new(at, piece.end.min(at + len));
			self.replace(step, prot, target + (at - piece.start) as u64, piece.end - at, way)?;
			self.outcome.sealed += step.len() as u64;
			at = step.end;
		}
		Ok(())
	}

	/// Copies a step and puts the copy in its place. On an error it is as it was. `rest`: bytes to come, this step
	/// among them.
	fn replace(&mut self, step: Range, prot: u32, target: u64, rest: usize, way: Way) -> sys::Result<()> {
		let kept = self.aside.as_ref().map_or(0, Aside::kept) + step.len();
		self.outcome.peak_extra = self.outcome.peak_extra.max(kept as u64 + self.outcome.filled);
		let (written, mapped) = match (way, &self.mounted) {
			(Way::Sent, Some(mounted)) => (mounted.write, mounted.read),
			_ => (self.fd, self.fd),
		};
		if way == Way::CopiedFirst {
			copy::copy(self.fd, step, target)?;
		}
		if self.aside.is_none() {
			// SAFETY: the copy was just made; all threads are stopped and nobody has written to the step since.
			return unsafe { remap::seal_range(step, prot, self.fd, target) };
		}
		self.show(written, target, rest);
		let (Some(aside), Some(window)) = (&mut self.aside, &self.window) else { return Err(Errno::ENOMEM) };
		let copy = window.address(written, target, step.len()).ok_or(Errno::ENOMEM)?;
		// SAFETY: on our own stack, with the caller's signals blocked, and with no other thread running, nobody in this
		// process uses the step until it is mapped again. What is shown at `copy` is the part of the file at `target`,
		// which nobody else has.
		unsafe {
			let old = aside.take(step)?;
			let sent = match way {
				Way::Sent => aside.send(old, written, target, step.len()),
				Way::CopiedFirst => {
					aside.amend(old, copy, step.len());
					Ok(())
				}
				Way::MovedFirst => {
					aside.transfer(old, copy, step.len());
					Ok(())
				}
			};
			match sent.and_then(|()| remap::map_sealed(step, prot, mapped, target)) {
				Ok(()) => aside.keep(step, prot, old, copy),
				Err(e) => {
					aside.put_back(step, prot, old);
					return Err(e);
				}
			}
		}
		Ok(())
	}
}

/// Has the kernel map the 2 MB pages of a chunk as such. What was replaced in steps has its old, empty page tables
/// still: every read would put small pages into them, and every fork after a write copy them. What has been written
/// since is left as it is. Where it can't be done forks cost more. Gives the bytes for which it could.
fn map_whole(chunk: Range) -> usize {
	// SAFETY: no byte changes, and the pages are there already.
	let map = |at, len| unsafe { sys::madvise(at, len, linux_raw_sys::general::MADV_COLLAPSE) }.is_ok();
	if map(chunk.start, chunk.len()) {
		return chunk.len();
	}
	// One that can't be mapped says so for all.
	(chunk.start..chunk.end).step_by(HUGE).filter(|block| map(*block, HUGE)).count() * HUGE
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
	/// By `pwrite`, from where they are: a page that can't be read is an errno. What is written meanwhile is brought
	/// along after the pages were moved aside.
	CopiedFirst,
	/// By plain loads and stores, after the pages were moved aside, where both can't fail: `pwrite` fills a 2 MB page
	/// 4 KB at a time and takes twice as long; and there is nothing to compare then.
	MovedFirst,
	/// By one `pwrite` into the mount, after the pages were moved aside.
	Sent,
}

enum Stop {
	/// The rest can be.
	Skipped(Reason),
	/// Nothing more can be.
	Over(Reason),
	/// The plan must be made again.
	Stale,
	/// The next part has it.
	Late,
}

/// The next bytes of a run to seal in one go: whole 2 MB blocks, or the odd end before or behind them.
fn next_chunk(rest: Range, most: usize) -> Range {
	let whole = rest.len().min(most) & !(HUGE - 1);
	let len = match rest.start % HUGE {
		0 if whole > 0 => whole,
		into => rest.len().min(HUGE - into),
	};
	Range::new(rest.start, rest.start + len)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn chunks_cover_a_run_and_align() {
		for (start, end) in
			[(HUGE, 2 * HUGE), (4096, 8192), (HUGE - 4096, 100 * HUGE + 8192), (3 * HUGE + 4096, 4 * HUGE)]
		{
			let mut at = start;
			while at < end {
				let c = next_chunk(Range::new(at, end), CHUNK);
				assert!(c.start == at && c.end <= end && !c.is_empty() && c.len() <= CHUNK);
				assert!(c.len() < HUGE || c.start.is_multiple_of(HUGE) && c.end.is_multiple_of(HUGE));
				at = c.end;
			}
		}
	}
}

//! Sealing a process while its threads run: what is looked at in each pause.
//!
//! The plan was made with threads running and is only a proposal. In each pause, before 2 MB are copied, everything is
//! asked again that a thread may have changed since: who uses the memory, which descriptors are open, what is mapped
//! there and how it is populated.

use super::{alone, stop::Others, stop_by_signal::Desk};
use crate::{
	arena::{Arena, Run},
	kernel_writers::{self, Process},
	never_seal::Reason,
	proc::{
		lookup::{self, Wanted},
		pagemap::{Pagemap, Which},
		text::{ProcPath, decimal, read_file, words},
		vma::{Kind, Vma},
	},
	range::Range,
	state::STATE,
	sys::{self, Errno},
};
use core::sync::atomic::AtomicU32;

/// Nanoseconds to wait for threads to leave the engine's own calls.
const PATIENCE: u64 = 1_000_000_000;
/// A process that a thread has made for something short is gone by then.
const SHORT: u64 = 5_000_000;

/// The stops of the other threads during one seal or unseal.
pub struct Pauses<'a> {
	others: &'a mut Others,
	/// Where the helper writes to a memfd; the program gives it back should the helper be killed.
	pub window: &'a mut Range,
	process: Process,
	asks: Option<Asks>,
	began: u64,
	properties: u32,
	/// How often threads were stopped, for how long in all, and for how long at most, in nanoseconds.
	pub count: u32,
	pub paused_ns: u64,
	pub longest_ns: u64,
}

/// How the program is asked about its descriptors where ptrace is refused.
#[derive(Clone, Copy)]
pub struct Asks {
	pub desk: &'static Desk,
	/// The word on which the program's thread waits for the helper.
	pub alive: &'static AtomicU32,
}

impl<'a> Pauses<'a> {
	pub fn new(others: &'a mut Others, window: &'a mut Range, process: Process, asks: Option<Asks>) -> Pauses<'a> {
		let properties = STATE.properties();
		Pauses { others, window, process, asks, began: 0, properties, count: 0, paused_ns: 0, longest_ns: 0 }
	}

	/// Whether all threads can be stopped and nothing else stands in the way, before any work is done.
	pub fn first_look(&mut self, arena: &mut Arena) -> Result<(), Reason> {
		// The helper, which this is, runs in the program's memory: a kernel or filter that doesn't say so hides others
		// as well.
		if !sys::same_memory(sys::getpid(), self.process.thread()) {
			return Err(Reason::Threads);
		}
		let began = sys::now_ns();
		while alone::is_shared(&mut arena.text, |pid| pid != self.process.pid()) {
			// It may be one of the engine's own, which works for a thread inside.
			STATE.close(true);
			let patience = if STATE.anybody_inside() { PATIENCE } else { SHORT };
			if sys::now_ns() > began + patience {
				STATE.close(false);
				return Err(Reason::Threads);
			}
			sys::sleep_ns(100_000);
		}
		STATE.close(false);
		self.stop(arena)?;
		self.resume();
		Ok(())
	}

	/// A plan is about to be made.
	pub fn plan_begins(&mut self) {
		self.properties = STATE.properties();
	}

	/// Whether memory was given properties since the plan was made that only a new plan would see.
	pub fn plan_is_stale(&self) -> bool {
		self.properties != STATE.properties()
	}

	/// Stops all threads, with none of them in the middle of a call of the engine and nobody else in this memory.
	pub fn stop(&mut self, arena: &mut Arena) -> Result<(), Reason> {
		let stopped = self.stop_outside();
		STATE.close(false);
		stopped?;
		self.look_around(arena).inspect_err(|_| self.resume())
	}

	fn stop_outside(&mut self) -> Result<(), Reason> {
		let deadline = sys::now_ns() + PATIENCE;
		loop {
			let began = sys::now_ns();
			self.others.stop()?;
			self.began = began;
			if !STATE.anybody_inside() {
				return Ok(());
			}
			STATE.close(true);
			self.resume();
			if sys::now_ns() > deadline {
				return Err(Reason::ThreadUnstoppable);
			}
			sys::sleep_ns(20_000);
		}
	}

	/// With threads stopped: whether one is about to execute an instruction in `range`.
	pub fn executes_in(&self, range: Range) -> bool {
		self.others.executes_in(range)
	}

	/// Lets them go.
	pub fn resume(&mut self) {
		self.others.resume();
		let ns = sys::now_ns() - self.began;
		self.count += 1;
		self.paused_ns += ns;
		self.longest_ns = self.longest_ns.max(ns);
	}

	/// Who may have come since: processes in this memory, descriptors, rings without one.
	fn look_around(&self, arena: &mut Arena) -> Result<(), Reason> {
		let mut shared = false;
		self.others.for_each(|tid| {
			let path = ProcPath::of(self.process.pid()).push(b"/task/").number(tid).push(b"/children");
			let room = arena.small.len();
			shared |= match read_file(path.as_c(), &mut arena.small) {
				Ok(children) if children.len() < room => {
					words(children).filter_map(decimal).any(|pid| self.is_foreign_user(pid as i32))
				}
				// Too many, or not to be known.
				_ => true,
			};
		});
		if shared {
			return Err(Reason::Threads);
		}
		let mut ring = None;
		let listed = lookup::for_each(Range::ALL, Wanted::Files, |v| {
			ring = ring.or(kernel_writers::of_mapping(v));
			Ok(())
		});
		let descriptors = listed.and_then(|()| match self.asks {
			Some(Asks { desk, alive }) => desk.ask(alive, arena.purpose()),
			None => kernel_writers::descriptors_of(&self.process, arena.purpose(), &mut arena.small),
		});
		match descriptors {
			Ok(found) => ring.or(found).map_or(Ok(()), Err),
			// Without knowing them nothing may be done.
			Err(_) => Err(Reason::ThreadTraced),
		}
	}

	/// Whether a process other than the program and the helper runs in this memory.
	fn is_foreign_user(&self, pid: i32) -> bool {
		let me = sys::getpid();
		pid != me && pid != self.process.pid() && sys::same_memory(me, pid)
	}

	/// With threads stopped: whether a planned piece may be sealed as it is now. Gives its protection.
	pub fn check(&self, arena: &mut Arena, piece: Range, run: &Run, fold: bool) -> Result<u32, Reason> {
		if self.others.lives_in(piece) {
			return Err(Reason::Excluded);
		}
		let changed = Reason::CopyFailed;
		let v = mapping_of(piece).map_err(|_| changed)?.ok_or(changed)?;
		if v.shared || v.prot & sys::PROT_READ == 0 {
			return Err(changed);
		}
		if sys::has_numa_policy(piece.start) {
			return Err(Reason::NumaPolicy);
		}
		let (which, enough) = match v.kind {
			Kind::Anonymous => (Which::Populated, piece.len() / 4 * 3),
			Kind::Sealed if fold => return Ok(v.prot),
			Kind::Sealed if run.resealed => (Which::Written, 1),
			_ => return Err(changed),
		};
		let mut populated = 0;
		Pagemap::open(&mut arena.regions)
			.and_then(|mut map| map.for_each(piece, which, |found| populated += found.len()))
			.map_err(|_| changed)?;
		if populated < enough { Err(Reason::Sparse) } else { Ok(v.prot) }
	}

	/// With threads stopped: the protection of a piece that is sealed, all of it, and may be turned back.
	pub fn check_sealed(&self, piece: Range) -> Option<u32> {
		if self.others.use_their_stacks() && self.others.lives_in(piece) {
			return None;
		}
		let v = mapping_of(piece).ok()??;
		(v.kind == Kind::Sealed).then_some(v.prot)
	}
}

/// The mapping that holds all of a piece, if one does.
fn mapping_of(piece: Range) -> Result<Option<Vma>, Errno> {
	let mut found = None;
	lookup::for_each(piece, Wanted::All, |v| {
		if v.range.intersect(piece).len() == piece.len() {
			found = Some(*v);
		}
		Ok(())
	})?;
	Ok(found)
}

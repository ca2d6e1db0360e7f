//! Stops threads by a signal, where ptrace is refused: each waits in a handler until it is let go.
//!
//! The signal is number 33; docs/THREADS.md says why no thread misses it, and what becomes of what others send.
//!
//! The handler uses no libc and no thread-local storage. What it writes lies near its stack pointer, which is left out
//! of the seal ([`crate::threads::stop::Others::lives_in`]), and at the helper's desk.

use crate::{
	kernel_writers,
	never_seal::{Reason, TABLE},
	outcome::Purpose,
	state::STATE,
	sys::{self, Action, Errno, Result},
};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};

const SIGNAL: i32 = 33;

/// How long a thread sleeps at most before it looks whether it may go, in nanoseconds.
const LOOK: u64 = 20_000_000;

/// Most threads a process may have.
pub const MAX_THREADS: usize = 4096;

/// Where one thread waits.
#[repr(C)]
struct Place {
	/// 0: nobody's.
	tid: AtomicI32,
	/// The thread goes on when this is 0.
	hold: AtomicU32,
	/// The last value of `hold` that it has seen: it waits since.
	waits: AtomicU32,
	stack: AtomicUsize,
	pointer: AtomicUsize,
	next: AtomicUsize,
}

/// What the helper and the handlers tell each other. In the helper's memory; all zeros is an empty one.
#[repr(C)]
pub struct Desk {
	places: [Place; MAX_THREADS],
	used: AtomicUsize,
	ticket: AtomicU32,
	/// Counts threads that have come.
	bell: AtomicU32,
	/// What the program's thread found among its descriptors, see [`Desk::ask`].
	answer: AtomicU32,
	unseals: AtomicBool,
}

/// A thread asked to wait.
#[derive(Clone, Copy, Default)]
pub struct Held {
	place: usize,
	ticket: u32,
}

/// What a waiting thread uses.
pub struct Waiting {
	/// Stack pointer, and thread pointer.
	pub stack: usize,
	/// See `stack`.
	pub pointer: usize,
	/// Address of the instruction that it executes next.
	pub next: usize,
}

impl Desk {
	/// Asks a thread to wait. `ESRCH`: there is no such thread any more.
	pub fn call(&self, pid: i32, tid: i32) -> Result<Held> {
		let place = self.place_of(pid, tid).ok_or(Errno::E2BIG)?;
		let ticket = self.ticket.fetch_add(1, SeqCst).wrapping_add(1).max(1);
		let p = &self.places[place];
		p.hold.store(ticket, SeqCst);
		p.tid.store(tid, SeqCst);
		sys::tgkill(pid, tid, SIGNAL).inspect_err(|_| p.hold.store(0, SeqCst))?;
		Ok(Held { place, ticket })
	}

	/// Whether it waits by now.
	pub fn waits(&self, held: Held) -> Option<Waiting> {
		let p = &self.places[held.place];
		(p.waits.load(SeqCst) == held.ticket).then(|| Waiting {
			stack: p.stack.load(SeqCst),
			pointer: p.pointer.load(SeqCst),
			next: p.next.load(SeqCst),
		})
	}

	/// Lets it go.
	pub fn release(&self, held: Held) {
		let p = &self.places[held.place];
		p.hold.store(0, SeqCst);
		sys::futex_wake(&p.hold);
	}

	/// To be read before looking who waits.
	pub fn bell(&self) -> u32 {
		self.bell.load(SeqCst)
	}

	/// Sleeps until the bell has rung since it was read, for so many nanoseconds at most.
	pub fn sleep(&self, bell: u32, ns: u64) {
		sys::futex_wait_for(&self.bell, bell, ns);
	}

	/// The place of a thread, the same for all its stops: it may not yet have noticed that it was let go.
	fn place_of(&self, pid: i32, tid: i32) -> Option<usize> {
		let used = self.used.load(SeqCst);
		if let Some(known) = self.places[..used].iter().position(|p| p.tid.load(SeqCst) == tid) {
			return Some(known);
		}
		if used < MAX_THREADS {
			self.used.store(used + 1, SeqCst);
			return Some(used);
		}
		// Those of threads that have ended.
		let ended = |p: &Place| sys::tgkill(pid, p.tid.load(SeqCst), 0) == Err(Errno::ESRCH);
		self.places.iter().position(ended)
	}

	/// For the helper: has the program look at its own descriptors, which a helper without ptrace can't do for it.
	/// `alive` is the word on which the program's thread waits for the helper.
	pub fn ask(&self, alive: &AtomicU32, purpose: Purpose) -> Result<Option<Reason>> {
		self.unseals.store(purpose == Purpose::Unseal, SeqCst);
		alive.store(ASKED, SeqCst);
		sys::futex_wake(alive);
		while alive.load(SeqCst) == ASKED {
			sys::futex_wait(alive, ASKED);
		}
		match self.answer.load(SeqCst) {
			0 => Ok(None),
			UNKNOWN => Err(Errno::EIO),
			n => TABLE.get(n as usize - 1).map(|row| Some(row.reason)).ok_or(Errno::EIO),
		}
	}

	/// For the program's thread: answers.
	pub fn answer(&self, alive: &AtomicU32) {
		let mut buf = [0; 4096];
		let purpose = if self.unseals.load(SeqCst) { Purpose::Unseal } else { Purpose::Seal };
		let answer = match kernel_writers::descriptors(purpose, &mut buf) {
			Ok(found) => found.map_or(0, |reason| reason as u32 + 1),
			Err(_) => UNKNOWN,
		};
		self.answer.store(answer, SeqCst);
		// The kernel may have written that the helper has ended.
		let _ = alive.compare_exchange(ASKED, 1, SeqCst, SeqCst);
		sys::futex_wake(alive);
	}
}

/// Value of the word `alive` while a question waits for its answer.
pub const ASKED: u32 = 2;
const UNKNOWN: u32 = u32::MAX;

/// The handler is in place.
pub struct Handler {
	before: Action,
}

impl Handler {
	/// Puts the handler before libc's. None where libc has none, as musl: what comes late would end the program.
	pub fn begin(desk: &'static Desk) -> Option<Handler> {
		let before = sys::action(SIGNAL, None).ok()?;
		if before.handler <= IGNORE {
			return None;
		}
		// A clone made during a seal has the engine's handler already, and what comes after it.
		if before.handler != handler as *const () as usize {
			STATE.after_handler.store(before.handler, SeqCst);
		}
		STATE.desk.store((&raw const *desk).cast_mut().cast(), SeqCst);
		let ours = Action::new(handler as *const () as usize);
		if !nobody_execs() || sys::action(SIGNAL, Some(&ours)).is_err() {
			STATE.desk.store(core::ptr::null_mut(), SeqCst);
			return None;
		}
		Some(Handler { before })
	}

	/// Lets everybody go, whatever became of the helper, and puts libc's handler back. False when a thread may still be
	/// on its way out: the desk has to stay.
	pub fn end(self, desk: &'static Desk) -> bool {
		const MILLISECONDS: usize = 10_000;
		STATE.desk.store(core::ptr::null_mut(), SeqCst);
		for p in &desk.places[..desk.used.load(SeqCst)] {
			p.hold.store(0, SeqCst);
			sys::futex_wake(&p.hold);
		}
		// It was valid a moment ago; were it to fail the engine's own would go on passing everything on.
		let _ = sys::action(SIGNAL, Some(&self.before));
		for _ in 0..MILLISECONDS {
			if STATE.handling.load(SeqCst) == 0 {
				return true;
			}
			sys::pause_briefly();
		}
		false
	}
}

/// Whether no thread is on its way into `execve(2)`, now that the desk is there for those that come later to see.
fn nobody_execs() -> bool {
	const MILLISECONDS: usize = 1000;
	(0..MILLISECONDS).any(|_| {
		let nobody = STATE.execs.load(SeqCst) == 0;
		if !nobody {
			sys::pause_briefly();
		}
		nobody
	})
}

/// Waits until no signal is sent any more. False in a child of `vfork(2)`: it gets none, and counts in its parent's
/// memory.
pub fn before_exec() -> bool {
	const MILLISECONDS: usize = 10_000;
	if !STATE.is_known_process() {
		return false;
	}
	// Counted before the desk is looked for: who puts it there looks in the other order.
	STATE.execs.fetch_add(1, SeqCst);
	for _ in 0..MILLISECONDS {
		if STATE.desk.load(SeqCst).is_null() {
			break;
		}
		// What has been sent by the end of the seal is taken here at the latest.
		after_exec();
		sys::pause_briefly();
		STATE.execs.fetch_add(1, SeqCst);
	}
	true
}

/// It failed, or waits.
pub fn after_exec() {
	// A clone made meanwhile by another thread has begun to count anew.
	let _ = STATE.execs.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}

/// `SIG_DFL` is 0, `SIG_IGN` 1.
const IGNORE: usize = 1;

/// The beginning of `siginfo_t`.
#[repr(C)]
struct Info {
	signal: i32,
	errno: i32,
	code: i32,
	_pad: i32,
	sender: i32,
}

extern "C" fn handler(signal: i32, info: *const Info, context: *mut u8) {
	const SI_TKILL: i32 = -6;
	// SAFETY: the kernel passes a siginfo_t (SA_SIGINFO).
	let info_seen = unsafe { &*info };
	if info_seen.code == SI_TKILL && info_seen.sender == STATE.helper() {
		// SAFETY: the kernel passes a ucontext_t, in which the registers stand from byte 40 on, rip as the seventeenth.
		wait_at_desk(unsafe { context.add(40 + 8 * 16).cast::<usize>().read() });
		return;
	}
	let next = STATE.after_handler.load(SeqCst);
	if next > IGNORE {
		// SAFETY: a handler installed for this signal before ours.
		let next: extern "C" fn(i32, *const Info, *mut u8) = unsafe { core::mem::transmute(next) };
		next(signal, info, context);
	}
}

fn wait_at_desk(next: usize) {
	// Counted before the desk is looked for: who takes it away looks in the other order.
	STATE.handling.fetch_add(1, SeqCst);
	let desk = STATE.desk.load(SeqCst).cast::<Desk>();
	if !desk.is_null() {
		// SAFETY: the desk stays while anybody is counted.
		let desk: &Desk = unsafe { &*desk };
		let tid = sys::gettid();
		let used = desk.used.load(SeqCst);
		if let Some(place) = desk.places[..used].iter().find(|p| p.tid.load(SeqCst) == tid) {
			place.next.store(next, SeqCst);
			place.wait(desk);
		}
	}
	// A clone made meanwhile by another thread has begun to count anew.
	let _ = STATE.handling.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}

impl Place {
	fn wait(&self, desk: &Desk) {
		let here = 0u8;
		self.stack.store(&raw const here as usize, SeqCst);
		// A thread without one has no control block to leave out.
		self.pointer.store(sys::thread_pointer().unwrap_or(0), SeqCst);
		loop {
			let ticket = self.hold.load(SeqCst);
			if ticket == 0 {
				return;
			}
			if self.waits.swap(ticket, SeqCst) != ticket {
				desk.bell.fetch_add(1, SeqCst);
				sys::futex_wake(&desk.bell);
			}
			// It is woken. Were that to fail, it would not wait for ever.
			sys::futex_wait_for(&self.hold, ticket, LOOK);
		}
	}
}

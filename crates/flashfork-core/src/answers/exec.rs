//! Programs that this one starts (`execve(2)`, `execveat(2)`): they have the filter of core dumps that they would have
//! plainly.
//!
//! The filter belongs to the memory, and the new program is given it as it is when the call begins. So what a seal has
//! added ([`crate::proc::dump`]) is taken away before, and put back where the call fails. A child of `vfork(2)` uses
//! its parent's memory. It tells nobody that it has become another program, but then its parent goes on, out of one of
//! the C library's places for `vfork`, `clone` and `clone3`, which lead here too ([`came_back`]). Where such a place
//! isn't understood, those children keep the wider filter.

use crate::{
	apart::Apart,
	proc::dump,
	state::STATE,
	sys::{self, Result},
	threads::{errand, table},
};
use core::sync::atomic::{
	AtomicBool, AtomicI32, AtomicU32,
	Ordering::{Relaxed, SeqCst},
};
use syscalls::Sysno;

/// Most tasks at once. One more keeps the wider filter.
const TASKS: usize = 16;

/// Who is on the way into another program.
#[repr(C)]
pub(crate) struct Leaving {
	/// Whether the filter may be the plain one because of them: machine code looks at this first word.
	plain: AtomicU32,
	/// Their processes; 0: none.
	tasks: [AtomicI32; TASKS],
	parents_are_seen: AtomicBool,
}

pub(crate) static LEAVING: Apart<Leaving> = Apart::new(Leaving {
	plain: AtomicU32::new(0),
	tasks: [const { AtomicI32::new(0) }; TASKS],
	parents_are_seen: AtomicBool::new(false),
});

/// Whether the C library's places are such that a parent comes here when it goes on.
pub(crate) fn know_parents(are_seen: bool) {
	if LEAVING.parents_are_seen.load(Relaxed) != are_seen {
		LEAVING.parents_are_seen.store(are_seen, Relaxed);
	}
}

/// `execve(2)` and `execveat(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn exec(number: Sysno, args: [usize; 6]) -> Result<usize> {
	let left = dump::is_widened() && leave();
	// The program's signals are as it wants them by now: the new program inherits the mask.
	// SAFETY: the program's own call.
	let failed = unsafe { sys::call(number, args) };
	// For a child of `vfork(2)` the parent does it: the program is looked for in one directory after another.
	if left && is_own_memory() {
		let _quiet = STATE.quiet();
		settle(sys::getpid());
	}
	failed
}

/// Whether no other process uses this memory. In a process that the engine knows, others that do are its own threads,
/// which end when it becomes another program.
fn is_own_memory() -> bool {
	STATE.is_known_process() || sys::unshare_memory().is_ok()
}

/// All that [`exec`] does but the call: what tries a filter must have done it.
pub(crate) fn rehearse() {
	if dump::is_widened() && leave() {
		settle(sys::getpid());
	}
}

/// Takes away what was added. False: it stays.
fn leave() -> bool {
	let _quiet = STATE.quiet();
	if !LEAVING.parents_are_seen.load(Relaxed) && !is_own_memory() {
		return false;
	}
	let me = sys::getpid();
	if LEAVING.tasks.iter().any(|task| task.load(SeqCst) == me) {
		// Since an earlier call that failed; or another thread is on its way too.
		return true;
	}
	let is_free = |task: &&AtomicI32| task.compare_exchange(0, me, SeqCst, SeqCst).is_ok();
	if LEAVING.tasks.iter().find(is_free).is_none() {
		return false;
	}
	// Before it is so: this task may be killed at any moment.
	LEAVING.plain.store(1, SeqCst);
	if ask(dump::narrow).is_err() {
		settle(me);
		return false;
	}
	true
}

/// A parent goes on, or anybody who has made a task. That one has become another program if it was about to.
pub(crate) fn came_back(child: i32) {
	let _quiet = STATE.quiet();
	settle(child);
}

/// In a clone: who was about to leave in its parent isn't here.
pub(crate) fn begin_anew() {
	if LEAVING.plain.load(SeqCst) != 0 {
		for task in &LEAVING.tasks {
			task.store(0, SeqCst);
		}
		came_back(0);
	}
}

/// Puts back what was taken away, unless others are still about to leave. `gone` is not, nor is who comes here.
fn settle(gone: i32) {
	let me = sys::getpid();
	// Early is no harm: a program has the wider filter then. A filter might end this one for the question.
	let is_here = |task: i32| !STATE.is_sandboxed() && sys::same_memory(me, task);
	for task in &LEAVING.tasks {
		let one = task.load(SeqCst);
		if one != 0 && (one == gone || one == me || !is_here(one)) {
			// Another thread may have taken it away, and a new one come in its place.
			let _ = task.compare_exchange(one, 0, SeqCst, SeqCst);
		}
	}
	let anybody = || LEAVING.tasks.iter().any(|task| task.load(SeqCst) != 0);
	if anybody() {
		return;
	}
	LEAVING.plain.store(0, SeqCst);
	// One who began meanwhile may have taken it away before this, and found the word set.
	if ask(dump::widen).is_err() || anybody() {
		LEAVING.plain.store(1, SeqCst);
	}
}

/// Has a file under `/proc` read and written with no descriptor of the program's that others could see. A child of
/// `vfork(2)` has its own table.
fn ask(f: fn() -> Result<()>) -> Result<()> {
	if !STATE.is_known_process() && !table::may_be_shared() && f().is_ok() {
		return Ok(());
	}
	errand::ask(f)
}

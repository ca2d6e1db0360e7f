//! What the processes of a fork server have in common: its open files. Nobody undoes the last round of a process, nor
//! one that has crashed, so the next process would find offsets and flags where that one has left them.
//!
//! The first process notes what it finds in memory that the fork server has mapped for all of them, when the program
//! began. Each later one has that again.

use crate::descriptors::{Descriptors, Found};
use std::{
	mem::MaybeUninit,
	ptr,
	sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst},
};

/// As many as may be open when a snapshot is taken.
const MOST: usize = 4096;

struct Noted {
	/// None yet: 0, else one more than there are.
	count: AtomicUsize,
	all: [MaybeUninit<Found>; MOST],
}

/// None where it couldn't be mapped.
static NOTED: AtomicPtr<Noted> = AtomicPtr::new(ptr::null_mut());

/// Whether there were other threads at the last fork, and at the one that has made this process.
static THREADS: AtomicBool = AtomicBool::new(false);
static THREADS_LEFT: AtomicBool = AtomicBool::new(false);

/// Before `main`, and before a fork server started later on.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
	let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
	// SAFETY: a fresh mapping; handlers that live as long as the program.
	unsafe {
		let at = libc::mmap(ptr::null_mut(), size_of::<Noted>(), prot, flags, -1, 0);
		if at != libc::MAP_FAILED {
			NOTED.store(at.cast(), SeqCst);
		}
		libc::pthread_atfork(Some(before_fork), None, Some(in_child));
	}
}

extern "C" fn before_fork() {
	// SAFETY: unshares nothing: it fails where there are other threads (unshare(2)).
	THREADS.store(unsafe { libc::unshare(libc::CLONE_THREAD) } != 0, SeqCst);
}

extern "C" fn in_child() {
	THREADS_LEFT.store(THREADS.load(SeqCst), SeqCst);
}

/// Whether the process that this one was forked from had other threads, which this one hasn't.
pub fn has_lost_threads() -> bool {
	THREADS_LEFT.load(SeqCst)
}

/// Has descriptors with the offsets and flags that the first process found. False where they can't be noted.
pub fn begin_alike() -> bool {
	// SAFETY: mapped while the program runs, with a count of 0; the processes of a fork server run one after another.
	let Some(noted) = (unsafe { NOTED.load(SeqCst).as_mut() }) else { return false };
	match noted.count.load(SeqCst) {
		0 => {
			let open = Descriptors::open_now();
			if open.found().len() > MOST {
				return false;
			}
			noted.all.iter_mut().zip(open.found()).for_each(|(place, found)| *place = MaybeUninit::new(found));
			noted.count.store(open.found().len() + 1, SeqCst);
		}
		// SAFETY: as many were noted before that was counted.
		count => noted.all[..count - 1].iter().for_each(|found| unsafe { found.assume_init_ref() }.put_back()),
	}
	true
}

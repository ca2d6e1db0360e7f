//! Whose table of descriptors it is.
//!
//! A descriptor of the engine's in a table that others use is inherited by their children, takes the number that one of
//! them is about to get, and may be another file by the next call: `dup2(2)` asks nobody. So the engine opens nothing
//! there. Threads share a table, and so do processes made by `clone(2)` with `CLONE_FILES`, whose memory may be their
//! own. Of these no call tells for certain; hence two rules. What writes through descriptors, every seal and unseal,
//! does so in its own table whatever is known ([`super::exclusive::run`]). And who may share a table is not sealed, and
//! asks the kernel through somebody with another ([`super::errand::ask`]).

use crate::{
	proc::{directory::for_each_process, text},
	state::STATE,
	sys::{self, Errno, Result},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicPtr, Ordering::SeqCst},
};
use linux_raw_sys::general as k;

const OWN: u8 = 1;
const SHARED: u8 = 2;

/// Where the C library says that there is one thread (`__libc_single_threaded` of glibc); null where it says nothing.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// See [`super::know_single_threaded`].
pub fn know_single_threaded(word: *mut u8) {
	SINGLE_THREADED.store(word, SeqCst);
}

/// Whether the C library knows of threads, or may do so: for where a filter might forbid to ask the kernel.
pub fn libc_knows_threads() -> bool {
	let word = SINGLE_THREADED.load(SeqCst);
	// SAFETY: it is there (`know_single_threaded`). Others write to it only as they come and go.
	!word.is_null() && unsafe { word.read_volatile() } == 0
}

/// Whether nobody else uses the calling thread's table now. No where that can't be told.
pub fn is_own() -> bool {
	!may_be_shared() && sys::unshare_memory().is_ok()
}

/// Whether it is known that no other process uses it; threads may.
pub fn is_known_own() -> bool {
	STATE.table.load(SeqCst) == OWN
}

/// Whether another process may use it.
pub fn may_be_shared() -> bool {
	STATE.table.load(SeqCst) == SHARED
}

/// Reads a small file by a descriptor of this table before anybody knows whose that is. Another who uses it may put its
/// own file in place of this one meanwhile (`EBADF`): that is not closed, and the other is known from then on. `buf`
/// must be longer than the file.
pub fn read_file<'a>(path: &CStr, buf: &'a mut [u8]) -> Result<&'a [u8]> {
	let fd = text::open(path, sys::O_RDONLY)?;
	let read = text::read_whole(fd, buf);
	// While it is open it has one inode.
	if STATE.table.load(SeqCst) != OWN
		&& let (Ok(found), Ok(own)) = (sys::fstatus(fd), sys::status_at(k::AT_FDCWD, path))
		&& (found.device, found.inode) != (own.device, own.inode)
	{
		STATE.table.store(SHARED, SeqCst);
		return Err(Errno::EBADF);
	}
	sys::close(fd);
	read
}

/// A task is about to be made, with these flags of `clone(2)`: one that shares the table, but is no thread of this
/// process, goes unseen later.
pub fn note(flags: u64) {
	let flags = flags as u32;
	if flags & k::CLONE_FILES != 0 && flags & k::CLONE_THREAD == 0 {
		STATE.table.store(SHARED, SeqCst);
	}
}

/// In a clone with its own table.
pub fn begin_anew() {
	if STATE.table.load(SeqCst) == SHARED {
		STATE.table.store(OWN, SeqCst);
	}
}

/// Asks whether another process uses the table of the thread `of` already: before a first seal nobody has seen its
/// calls. So an answer of no lasts only if they were followed by then. For who has its own table. `buf` is scratch.
pub fn look_around(of: i32, buf: &mut [u8]) {
	if STATE.table.load(SeqCst) != 0 || !sys::same_descriptors(of, of) {
		return;
	}
	let pid = sys::getpid();
	let found = for_each_process(buf, |other| (other != pid && sys::same_descriptors(of, other)).then_some(()));
	match found {
		Ok(Some(())) => STATE.table.store(SHARED, SeqCst),
		Ok(None) if STATE.followed.load(SeqCst) => STATE.table.store(OWN, SeqCst),
		// Also where the list can't be read.
		_ => {}
	}
}

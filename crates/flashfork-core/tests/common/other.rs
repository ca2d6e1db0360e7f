//! Another process, which does things to this one's memory when it is asked: no page fault of them is this one's.

use std::{
	ptr::null_mut,
	sync::atomic::{AtomicU64, Ordering::SeqCst},
};

const PAGE: usize = 4096;
const WRITE: u64 = 1;
const PAGE_OUT: u64 = 2;

struct Shared {
	/// What is to be done, and where; 0 once it is done.
	asked: AtomicU64,
	at: AtomicU64,
}

pub struct Other(&'static Shared);

impl Other {
	/// Begins to wait; it ends with this process.
	pub fn beside_this() -> Other {
		let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
		// SAFETY: a fresh mapping, never unmapped, of zeros, which are valid; the child makes system calls only.
		unsafe {
			let at = libc::mmap(null_mut(), PAGE, prot, flags, -1, 0);
			assert_ne!(at, libc::MAP_FAILED);
			let shared = &*at.cast::<Shared>();
			let parent = libc::getpid();
			if libc::fork() == 0 {
				libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
				work(shared, parent);
				libc::_exit(0);
			}
			Other(shared)
		}
	}

	pub fn write(&self, at: *mut u8) {
		self.ask(WRITE, at);
	}

	pub fn page_out(&self, page: *mut u8) {
		self.ask(PAGE_OUT, page);
	}

	fn ask(&self, what: u64, at: *mut u8) {
		self.0.at.store(at as u64, SeqCst);
		self.0.asked.store(what, SeqCst);
		while self.0.asked.load(SeqCst) != 0 {
			std::hint::spin_loop();
		}
	}
}

/// # Safety
/// In a child of `parent` that has just begun.
unsafe fn work(shared: &Shared, parent: i32) {
	// SAFETY: plain calls, about memory of the parent's that it wants written or paged out.
	unsafe {
		let process = libc::syscall(libc::SYS_pidfd_open, parent, 0);
		while libc::getppid() == parent {
			let at = shared.at.load(SeqCst) as *mut libc::c_void;
			let byte = [at as u8 | 1];
			let own = libc::iovec { iov_base: byte.as_ptr().cast_mut().cast(), iov_len: 1 };
			let there = libc::iovec { iov_base: at, iov_len: 1 };
			let page = libc::iovec { iov_base: at, iov_len: PAGE };
			// Whether it works makes no difference to who asked.
			match shared.asked.load(SeqCst) {
				WRITE => drop(libc::process_vm_writev(parent, &raw const own, 1, &raw const there, 1, 0)),
				PAGE_OUT => {
					libc::syscall(libc::SYS_process_madvise, process, &raw const page, 1, libc::MADV_PAGEOUT, 0);
				}
				_ => {
					libc::sched_yield();
					continue;
				}
			}
			shared.asked.store(0, SeqCst);
		}
	}
}

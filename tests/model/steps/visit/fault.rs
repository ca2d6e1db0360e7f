//! `userfaultfd(2)`: pages put in by another thread of the program, and write-protected for it, behind the page tables'
//! back.

use super::World;
use crate::{
	content::{PAGE, WORDS, fill},
	journal::Expect,
	world::{check::Depth, choose::BLOCK, space::heap, table::attr},
};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};
use std::{fs::File, ops::Range, os::fd::AsRawFd};

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xaa00;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01;
const UFFDIO_COPY: libc::Ioctl = 0xc028_aa03;
const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06;

impl World {
	/// A child registers memory that its parent has too, drops a page of it, and puts another in.
	pub(super) fn visit_userfault(&mut self) -> Result {
		let Some(range) = self.plain_range() else { return Ok(()) };
		let page = range.start + self.rng.below(range.len());
		let protects = self.rng.chance(50);
		let own = range.clone();
		let visitor = self.invite("to handle its faults", move |w, _| {
			let Some(faults) = Faults::open() else { return Ok(()) };
			let (start, len) = (w.space.addr(own.start) as u64, (own.len() * PAGE) as u64);
			let mode = if protects { MODE_MISSING | MODE_WP } else { MODE_MISSING };
			let mut register = [start, len, mode, 0];
			let registered = w.journal.call(&format!("register faults of {own:?} {mode}"), Expect::AsPlain, || {
				faults.call(UFFDIO_REGISTER, &mut register)
			})?;
			if registered != Some(Ok(0)) {
				return Ok(());
			}
			if protects {
				for wp in [1, 0] {
					let mut arg = [start, len, wp];
					let text = format!("write-protect {own:?} {wp}");
					w.journal.call(&text, Expect::Exactly(Ok(0)), || faults.call(UFFDIO_WRITEPROTECT, &mut arg))?;
				}
			}
			w.replace(page, &faults)?;
			let mut arg = [start, len];
			let text = format!("unregister faults of {own:?}");
			w.journal.call(&text, Expect::Exactly(Ok(0)), || faults.call(UFFDIO_UNREGISTER, &mut arg))?;
			w.check(own, Depth::Written)
		})?;
		self.see_off(&visitor.child)?;
		self.check(range, Depth::Written)
	}

	fn replace(&mut self, page: usize, faults: &Faults) -> Result {
		let (tag, at) = (self.tag(), self.space.addr(page));
		self.journal.call(&format!("drop {page}"), Expect::Exactly(Ok(0)), || {
			// SAFETY: a page under test.
			let result = unsafe { libc::madvise(at as *mut _, PAGE, libc::MADV_DONTNEED) };
			if result < 0 { Err(errno()) } else { Ok(0) }
		})?;
		let mut words = [0; WORDS];
		fill(&mut words, 0, tag);
		let mut copy = [at as u64, words.as_ptr() as u64, PAGE as u64, 0, 0];
		let text = format!("put a page at {page}");
		self.journal.call(&text, Expect::Exactly(Ok(0)), || faults.call(UFFDIO_COPY, &mut copy))?;
		self.note_overwritten(page, tag);
		self.check(page..page + 1, Depth::All)
	}

	/// Ordinary anonymous memory of one VMA that can be read and written.
	pub fn plain_range(&mut self) -> Option<Range<usize>> {
		let range = self.uniform()?;
		let range = range.start..range.end.min(range.start + 2 * BLOCK);
		let good = |page: usize| {
			self.is_common(page)
				&& self.writable(page)
				&& self.readable(page)
				&& self.table.attr(page) & (attr::FILE | attr::LOCKED) == 0
		};
		(range.end < heap() && range.clone().all(good)).then_some(range)
	}
}

pub struct Faults(i32);

impl Faults {
	/// `None` where the kernel has none or gives none to this user.
	pub fn open() -> Option<Faults> {
		// SAFETY: no memory is passed.
		Faults::begin(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY) } as i32)
	}

	/// The same by `/dev/userfaultfd` (Linux 6.1).
	pub fn open_device() -> Option<Faults> {
		let device = File::open("/dev/userfaultfd").ok()?;
		// SAFETY: the argument is a number.
		Faults::begin(unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, libc::O_CLOEXEC) })
	}

	fn begin(fd: i32) -> Option<Faults> {
		let faults = (fd >= 0).then_some(Faults(fd))?;
		faults.call(UFFDIO_API, &mut [UFFD_API, 0, 0]).ok()?;
		Some(faults)
	}

	/// Faults where nothing is, from now on.
	pub fn register(&self, start: usize, len: usize) -> Outcome {
		self.call(UFFDIO_REGISTER, &mut [start as u64, len as u64, MODE_MISSING, 0])
	}

	pub fn unregister(&self, start: usize, len: usize) -> Outcome {
		self.call(UFFDIO_UNREGISTER, &mut [start as u64, len as u64])
	}

	pub fn put(&self, at: usize, words: &[u64; WORDS]) -> Outcome {
		self.call(UFFDIO_COPY, &mut [at as u64, words.as_ptr() as u64, PAGE as u64, 0, 0])
	}

	/// Waits for a fault; its address.
	pub fn next(&self) -> Option<usize> {
		let mut message = [0u64; 4];
		// SAFETY: the kernel writes one `struct uffd_msg` of 32 bytes.
		let n = unsafe { libc::read(self.0, message.as_mut_ptr().cast(), size_of_val(&message)) };
		// The address is the second word of a fault's argument.
		(n == size_of_val(&message) as isize && message[0] as u8 == UFFD_EVENT_PAGEFAULT).then_some(message[2] as usize)
	}

	fn call(&self, request: libc::Ioctl, arg: &mut [u64]) -> Outcome {
		// SAFETY: each request is made with its struct, whose fields are 64-bit words.
		let result = unsafe { libc::ioctl(self.0, request, arg.as_mut_ptr()) };
		if result < 0 { Err(errno()) } else { Ok(result as u64) }
	}
}

impl Drop for Faults {
	fn drop(&mut self) {
		// SAFETY: our own descriptor. Nothing could be done about an error.
		unsafe { libc::close(self.0) };
	}
}

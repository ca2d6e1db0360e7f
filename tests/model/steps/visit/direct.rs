//! Devices write: `O_DIRECT`, and an io_uring with registered buffers. A process that has pinned memory once is copied
//! in full by its later forks, so this happens in children only.

use super::{Cue, FEW, World};
use crate::{
	content::PAGE,
	journal::Expect,
	template::{TEMPLATE_PAGES, Template, tag},
	world::check::Depth,
};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};
use io_uring::{IoUring, opcode, types};
use std::{ops::Range, os::fd::AsRawFd};

impl World {
	/// A child reads from a disk into pages that its parent has too.
	pub(super) fn visit_direct_read(&mut self) -> Result {
		let Some(pages) = self.common_pages(FEW) else { return Ok(()) };
		let file_page = self.rng.below(TEMPLATE_PAGES - FEW);
		let range = pages.clone();
		let visitor = self.invite("to read from a disk", move |w, _| {
			let Some(disk) = w.disk.as_ref().map(AsRawFd::as_raw_fd) else { return Ok(()) };
			let (at, len) = (w.space.addr(pages.start), pages.len() * PAGE);
			let text = format!("O_DIRECT into {pages:?} from {file_page}");
			w.journal.call(&text, Expect::Exactly(Ok(len as u64)), || {
				// SAFETY: the pages are writable and under test.
				let n = unsafe { libc::pread(disk, at as *mut _, len, Template::offset(file_page)) };
				if n < 0 { Err(errno()) } else { Ok(n as u64) }
			})?;
			w.note_read(pages.clone(), file_page);
			w.check(pages, Depth::All)
		})?;
		self.see_off(&visitor.child)?;
		self.check(range, Depth::All)
	}

	/// A child registers pages with a ring and forks; what the ring reads is the child's alone, what the grandchild
	/// writes its own.
	pub(super) fn visit_ring(&mut self) -> Result {
		let Some(pages) = self.common_pages(FEW) else { return Ok(()) };
		if self.depth > 0 {
			return Ok(());
		}
		let file_page = self.rng.below(TEMPLATE_PAGES - FEW);
		let range = pages.clone();
		let visitor = self.invite("to use a ring", move |w, _| {
			// A sandbox or a sysctl may forbid rings: then there is nothing to see.
			let Ok(mut ring) = IoUring::new(2) else { return Ok(()) };
			let (at, len) = (w.space.addr(pages.start), pages.len() * PAGE);
			let part = libc::iovec { iov_base: at as *mut _, iov_len: len };
			// SAFETY: the pages stay mapped until the ring is closed.
			let registered = unsafe { ring.submitter().register_buffers(&[part]) };
			let text = format!("register {pages:?}");
			w.journal.call(&text, Expect::Exactly(Ok(0)), || outcome(registered.map(|()| 0)))?;
			let own = pages.clone();
			let grandchild = w.invite("while a ring holds pages", move |w, Cue { ready, go }| {
				w.write_pages(own.clone());
				ready.give();
				go.wait();
				w.check(own, Depth::All)
			})?;
			grandchild.ready.wait();
			let text = format!("read into {pages:?} from {file_page} by a ring");
			let read = read_fixed(&mut ring, w.template.fd(), &pages, at, file_page);
			w.journal.call(&text, Expect::Exactly(Ok(len as u64)), || read)?;
			w.note_read(pages.clone(), file_page);
			w.check(pages.clone(), Depth::All)?;
			grandchild.go.give();
			w.see_off(&grandchild.child)?;
			drop(ring);
			w.check(pages, Depth::All)
		})?;
		self.see_off(&visitor.child)?;
		self.check(range, Depth::All)
	}

	fn note_read(&mut self, pages: Range<usize>, file_page: usize) {
		for (i, page) in pages.enumerate() {
			self.note_overwritten(page, tag(file_page + i));
		}
	}
}

fn read_fixed(ring: &mut IoUring, fd: i32, pages: &Range<usize>, at: usize, file_page: usize) -> Outcome {
	let len = (pages.len() * PAGE) as u32;
	let read = opcode::ReadFixed::new(types::Fd(fd), at as *mut u8, len, 0).offset(Template::offset(file_page) as u64);
	// SAFETY: the buffer is registered and under test; it is waited for.
	unsafe { ring.submission().push(&read.build()) }.map_err(|_| libc::EBUSY)?;
	outcome(ring.submit_and_wait(1).map(|_| 0))?;
	let result = ring.completion().next().map_or(-libc::EIO, |done| done.result());
	if result < 0 { Err(-result) } else { Ok(result as u64) }
}

fn outcome(result: std::io::Result<u64>) -> Outcome {
	result.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

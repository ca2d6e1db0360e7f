//! Another process writes: `process_vm_writev(2)`, `/proc/PID/mem`, `ptrace(2)`.

use super::{Cue, World};
use crate::{
	content::{PAGE, Tag, WORDS, fill},
	journal::Expect,
	world::{check::Depth, memory::bytes},
};
use flashfork_tests::{
	Result,
	route::{Outcome, errno},
};
use std::{fs::File, os::unix::fs::FileExt};

impl World {
	/// A grandchild writes to its parent, whose memory it has a copy of. Not to the first process: such writes pin
	/// pages, and the kernel remembers that of a process for good.
	pub(super) fn visit_write_to_parent(&mut self) -> Result {
		if self.depth > 0 {
			return Ok(());
		}
		let Some(page) = self.common_page(true) else { return Ok(()) };
		let visitor = self.invite("to be written to by its child", move |w, _| w.written_by_child(page))?;
		self.see_off(&visitor.child)?;
		self.check(page..page + 1, Depth::All)
	}

	fn written_by_child(&mut self, page: usize) -> Result {
		let tag = self.tag();
		// Where Yama lets only ancestors write (ptrace_scope 1).
		// SAFETY: no memory is passed; without Yama it is EINVAL, and not needed.
		unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
		let visitor = self.invite("to write to its parent", move |w, _| {
			let at = w.space.addr(page);
			// SAFETY: no memory is passed.
			let parent = unsafe { libc::getppid() };
			let text = format!("write to page {page} of the parent");
			w.journal.call(&text, Expect::Exactly(Ok(PAGE as u64)), || write_to(parent, at, tag))?;
			w.check(page..page + 1, Depth::All)
		})?;
		self.see_off(&visitor.child)?;
		self.note_overwritten(page, tag);
		self.check(page..page + 1, Depth::All)
	}

	pub(super) fn visit_write_to_child(&mut self) -> Result {
		let Some(page) = self.common_page(true) else { return Ok(()) };
		self.act_on_child(page, "process_vm_writev", write_to)
	}

	pub(super) fn visit_poke_child(&mut self) -> Result {
		let Some(page) = self.common_page(false) else { return Ok(()) };
		self.act_on_child(page, "/proc/PID/mem", |pid, at, tag| {
			let words = filled(tag);
			let write =
				|| File::options().write(true).open(format!("/proc/{pid}/mem"))?.write_at(bytes(&words), at as u64);
			write().map(|n| n as u64).map_err(|e| e.raw_os_error().unwrap_or(0))
		})
	}

	pub(super) fn visit_trace_child(&mut self) -> Result {
		let Some(page) = self.common_page(false) else { return Ok(()) };
		self.act_on_child(page, "ptrace", trace)
	}

	/// Writes one page of a child that waits meanwhile; nobody else may see it.
	fn act_on_child(&mut self, page: usize, by: &str, act: fn(i32, usize, Tag) -> Outcome) -> Result {
		let tag = self.tag();
		let visitor = self.invite("to be written to", move |w, Cue { ready, go }| {
			ready.give();
			go.wait();
			w.note_overwritten(page, tag);
			w.check(page..page + 1, Depth::All)
		})?;
		visitor.ready.wait();
		let at = self.space.addr(page);
		let text = format!("write to page {page} of {} by {by}", visitor.child.name);
		self.journal.call(&text, Expect::Exactly(Ok(PAGE as u64)), || act(visitor.child.pid, at, tag))?;
		visitor.go.give();
		self.see_off(&visitor.child)?;
		self.check(page..page + 1, Depth::All)
	}
}

fn filled(tag: Tag) -> [u64; WORDS] {
	let mut words = [0; WORDS];
	fill(&mut words, 0, tag);
	words
}

fn write_to(pid: i32, at: usize, tag: Tag) -> Outcome {
	let words = filled(tag);
	let ours = libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: PAGE };
	let theirs = libc::iovec { iov_base: at as *mut _, iov_len: PAGE };
	// SAFETY: the kernel reads our page, and writes to memory under test of another process.
	let n = unsafe { libc::process_vm_writev(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
	if n < 0 { Err(errno()) } else { Ok(n as u64) }
}

/// Word by word, as debuggers set breakpoints.
fn trace(pid: i32, at: usize, tag: Tag) -> Outcome {
	let done = |result: libc::c_long| if result < 0 { Err(errno()) } else { Ok(()) };
	// SAFETY: the child is ours, and memory under test is what is written.
	unsafe {
		done(libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0))?;
		let mut status = 0;
		if libc::waitpid(pid, &raw mut status, 0) != pid || !libc::WIFSTOPPED(status) {
			return Err(libc::ECHILD);
		}
		for (i, word) in filled(tag).iter().enumerate() {
			done(libc::ptrace(libc::PTRACE_POKEDATA, pid, at + 8 * i, *word))?;
		}
		done(libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0))?;
	}
	Ok(PAGE as u64)
}

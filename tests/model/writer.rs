//! Another process that writes into the tested one's memory, by `process_vm_writev(2)` and `/proc/PID/mem`, while it is
//! told to, and looks before each write whether the one before is still there.
//!
//! Which pages it writes to, and how, the seed decides; how often it comes by depends on time, so what the pages hold
//! in the end is told by the writer, and nothing else depends on that.

use crate::{
	content::{PAGE, Tag, WORDS, fill, holds},
	world::memory::bytes,
};
use flashfork_tests::{Result, route::errno};
use std::{
	fs::File,
	io::{PipeReader, PipeWriter, Read, Write},
	os::unix::fs::FileExt,
	sync::atomic::{AtomicU32, Ordering::SeqCst},
};

/// Pages written to at once.
pub const MOST: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
pub enum How {
	/// `process_vm_writev`.
	Vector,
	/// `/proc/PID/mem`.
	File,
}

/// One page to write to.
#[derive(Clone, Copy)]
struct Order {
	at: usize,
	how: How,
	/// What it holds once it was written to; each write adds one.
	tag: Tag,
	/// Writes that said they went well.
	done: u64,
}

/// In memory that both share.
#[repr(C)]
struct Desk {
	stop: AtomicU32,
	/// Whole rounds.
	rounds: AtomicU32,
	count: usize,
	orders: [Order; MOST],
	/// What went wrong.
	failure: [u8; 256],
	failure_len: usize,
}

pub struct Writer {
	desk: &'static mut Desk,
	pid: i32,
	/// One byte there: begin, and the end; one byte back: done.
	begin: Option<PipeWriter>,
	done: PipeReader,
}

impl Writer {
	pub fn start() -> Result<Writer> {
		let pipe = || std::io::pipe().map_err(|e| format!("pipe: {e}"));
		let ((told, begin), (done, tells)) = (pipe()?, pipe()?);
		// SAFETY: a fresh mapping, of zeros, which are a valid desk with no orders; the child of a process with one
		// thread goes on with a copy.
		unsafe {
			let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
			let at = libc::mmap(std::ptr::null_mut(), size_of::<Desk>(), prot, flags, -1, 0);
			if at == libc::MAP_FAILED {
				return Err("no memory for the writer".into());
			}
			let desk = &mut *at.cast::<Desk>();
			// Where Yama lets only ancestors write.
			libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
			let target = libc::getpid();
			let pid = libc::fork();
			if pid < 0 {
				return Err(format!("fork: {}", std::io::Error::last_os_error()));
			}
			if pid == 0 {
				drop((begin, done));
				serve(desk, target, told, tells);
			}
			Ok(Writer { desk, pid, begin: Some(begin), done })
		}
	}

	/// Lets it write to these pages, each with the tag that the first write puts there, until `meanwhile` is over and
	/// it has been everywhere at least once. Returns what the pages hold.
	pub fn write_while(
		&mut self,
		pages: impl Iterator<Item = (usize, How, Tag)>,
		meanwhile: impl FnOnce() -> Result,
	) -> Result<Vec<Tag>> {
		self.desk.count = 0;
		for (order, (at, how, tag)) in self.desk.orders.iter_mut().zip(pages) {
			*order = Order { at, how, tag, done: 0 };
			self.desk.count += 1;
		}
		self.desk.stop.store(0, SeqCst);
		self.desk.rounds.store(0, SeqCst);
		let gone = |e| format!("the writer is gone: {e}");
		self.begin.iter_mut().try_for_each(|begin| begin.write_all(&[0])).map_err(gone)?;
		let result = meanwhile();
		self.desk.stop.store(1, SeqCst);
		self.done.read_exact(&mut [0]).map_err(gone)?;
		result?;
		if self.desk.failure_len > 0 {
			return Err(String::from_utf8_lossy(&self.desk.failure[..self.desk.failure_len]).into_owned());
		}
		Ok(self.desk.orders[..self.desk.count].iter().map(|o| o.tag + o.done - 1).collect())
	}
}

impl Drop for Writer {
	fn drop(&mut self) {
		self.begin = None;
		// SAFETY: our own child, which ends when it reads no more orders.
		unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
	}
}

/// The writer's own life.
fn serve(desk: &mut Desk, target: i32, mut told: PipeReader, mut tells: PipeWriter) -> ! {
	// The end of the pipe is the end of the tested process.
	while told.read_exact(&mut [0]).is_ok() {
		if let Err(message) = write_all(desk, target) {
			let text = message.as_bytes();
			let len = text.len().min(desk.failure.len());
			desk.failure[..len].copy_from_slice(&text[..len]);
			desk.failure_len = len;
		}
		if tells.write_all(&[0]).is_err() {
			break;
		}
	}
	// SAFETY: ends the process without the handlers of the one it was forked from.
	unsafe { libc::_exit(0) }
}

fn write_all(desk: &mut Desk, target: i32) -> Result {
	let path = format!("/proc/{target}/mem");
	let file = File::options().read(true).write(true).open(&path).map_err(|e| format!("{path}: {e}"))?;
	loop {
		let first = desk.rounds.load(SeqCst) == 0;
		for order in &mut desk.orders[..desk.count] {
			if !first && desk.stop.load(SeqCst) != 0 {
				return Ok(());
			}
			order.write(target, &file)?;
		}
		desk.rounds.fetch_add(1, SeqCst);
		if desk.stop.load(SeqCst) != 0 {
			return Ok(());
		}
	}
}

impl Order {
	fn write(&mut self, target: i32, file: &File) -> Result {
		let mut words = [0; WORDS];
		if self.done > 0 {
			self.transfer(target, file, &mut words, false)?;
			let before = self.tag + self.done - 1;
			if !holds(&words, before) {
				return Err(format!(
					"a write by another process to {:#x}, which said that it went well, is lost",
					self.at
				));
			}
		}
		fill(&mut words, 0, self.tag + self.done);
		self.transfer(target, file, &mut words, true)?;
		self.done += 1;
		Ok(())
	}

	/// Reads or writes the page. Where memory is replaced at this moment nothing is mapped, and the kernel says so:
	/// then once more.
	fn transfer(&self, target: i32, file: &File, words: &mut [u64; WORDS], write: bool) -> Result {
		const ATTEMPTS: usize = 100_000;
		let mut result = Ok(());
		for _ in 0..ATTEMPTS {
			result = self.attempt(target, file, words, write);
			if result.is_ok() {
				break;
			}
			std::thread::yield_now();
		}
		result
	}

	fn attempt(&self, target: i32, file: &File, words: &mut [u64; WORDS], write: bool) -> Result {
		let failed = |what: &str, error: String| Err(format!("{what} at {:#x}: {error}", self.at));
		if self.how == How::Vector {
			let ours = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: PAGE };
			let theirs = libc::iovec { iov_base: self.at as *mut _, iov_len: PAGE };
			let call = if write { libc::process_vm_writev } else { libc::process_vm_readv };
			// SAFETY: our own page; the other one is another process's, under test.
			let n = unsafe { call(target, &raw const ours, 1, &raw const theirs, 1, 0) };
			return match n {
				n if n == PAGE as isize => Ok(()),
				n => failed(
					if write { "process_vm_writev" } else { "process_vm_readv" },
					format!("{n}, errno {}", errno()),
				),
			};
		}
		if write {
			return match file.write_at(bytes(words), self.at as u64) {
				Ok(PAGE) => Ok(()),
				other => failed("a write to /proc/PID/mem", format!("{other:?}")),
			};
		}
		let mut page = [0; PAGE];
		if let Err(error) = file.read_exact_at(&mut page, self.at as u64) {
			return failed("a read of /proc/PID/mem", error.to_string());
		}
		for (word, eight) in words.iter_mut().zip(page.as_chunks().0) {
			*word = u64::from_ne_bytes(*eight);
		}
		Ok(())
	}
}

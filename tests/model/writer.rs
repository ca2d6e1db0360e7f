//! Another process that writes into the tested one's memory, by `process_vm_writev(2)` and `/proc/PID/mem`, while it is
//! told to, and looks before each write whether the one before is still there.
//!
//! Which pages it writes to, and how, the seed decides; how often it comes by depends on time, so what the pages hold
//! in the end is told by the writer, and nothing else depends on that.

use crate::content::{PAGE, Tag, WORDS, fill, holds};
use crate::world::memory::bytes;
use flashfork_tests::{Result, route::errno};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::{fs::File, os::unix::fs::FileExt};

/// Pages written to at once.
pub const MOST: usize = 4096;

/// How it writes to a page.
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

/// See the module.
pub struct Writer {
    desk: &'static mut Desk,
    pid: i32,
    /// One byte there: begin; one byte back: done.
    begin: i32,
    done: i32,
}

impl Writer {
    pub fn start() -> Result<Writer> {
        let (mut begin, mut done) = ([0; 2], [0; 2]);
        // SAFETY: the kernel writes descriptors; a fresh mapping, of zeros, which are a valid desk with no orders; the
        // child of a process with one thread goes on with a copy.
        unsafe {
            if libc::pipe2(begin.as_mut_ptr(), libc::O_CLOEXEC) < 0
                || libc::pipe2(done.as_mut_ptr(), libc::O_CLOEXEC) < 0
            {
                return Err(format!("pipe: {}", std::io::Error::last_os_error()));
            }
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
                libc::close(begin[1]);
                libc::close(done[0]);
                serve(desk, target, begin[0], done[1]);
            }
            libc::close(begin[0]);
            libc::close(done[1]);
            Ok(Writer { desk, pid, begin: begin[1], done: done[0] })
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
        let mut byte = [0u8];
        // SAFETY: one byte of our own.
        if unsafe { libc::write(self.begin, byte.as_ptr().cast(), 1) } != 1 {
            return Err("the writer is gone".into());
        }
        let result = meanwhile();
        self.desk.stop.store(1, SeqCst);
        // SAFETY: one byte into a local.
        if unsafe { libc::read(self.done, byte.as_mut_ptr().cast(), 1) } != 1 {
            return Err("the writer is gone".into());
        }
        result?;
        if self.desk.failure_len > 0 {
            return Err(String::from_utf8_lossy(&self.desk.failure[..self.desk.failure_len]).into_owned());
        }
        Ok(self.desk.orders[..self.desk.count].iter().map(|o| o.tag + o.done - 1).collect())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: our own descriptors, then our own child, which ends when it reads no more orders.
        unsafe {
            libc::close(self.begin);
            libc::close(self.done);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The writer's own life.
fn serve(desk: &mut Desk, target: i32, begin: i32, done: i32) -> ! {
    let mut byte = [0u8];
    // SAFETY: one byte into a local; the end of the pipe is the end of the tested process.
    while unsafe { libc::read(begin, byte.as_mut_ptr().cast(), 1) } == 1 {
        if let Err(message) = write_all(desk, target) {
            let text = message.as_bytes();
            let len = text.len().min(desk.failure.len());
            desk.failure[..len].copy_from_slice(&text[..len]);
            desk.failure_len = len;
        }
        // SAFETY: one byte of our own.
        unsafe { libc::write(done, byte.as_ptr().cast(), 1) };
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

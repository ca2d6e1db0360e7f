//! What `/proc/PID/stat` and `/proc/PID/status` say about threads.

use crate::{
	proc::text::{self, ProcPath, decimal, read_file, words},
	sys,
};

/// Numbers of fields in /proc/PID/stat (proc_pid_stat(5)).
const STATE: usize = 3;
const FLAGS: usize = 9;
const THREADS: usize = 20;

/// A field of /proc/PID/stat from the third on; the second, the name, may hold anything.
fn field(stat: &[u8], number: usize) -> Option<&[u8]> {
	let rest = stat.rsplit(|b| *b == b')').next()?;
	words(rest).nth(number - STATE)
}

/// How many threads of a process run, by the number that the kernel counts; none where it doesn't say.
pub fn running(pid: i32) -> Option<u64> {
	let mut buf = [0; 512];
	let path = ProcPath::of(pid).push(b"/stat");
	let stat = read_file(path.as_c(), &mut buf).unwrap_or(b"");
	let leader_has_ended = field(stat, STATE) == Some(b"Z");
	field(stat, THREADS).and_then(decimal).map(|counted| counted.saturating_sub(u64::from(leader_has_ended)))
}

/// Whether a process's main thread is stopped by a signal (`SIGSTOP`).
pub fn is_stopped(pid: i32) -> bool {
	let mut buf = [0; 512];
	let path = ProcPath::of(pid).push(b"/stat");
	field(read_file(path.as_c(), &mut buf).unwrap_or(b""), STATE) == Some(b"T")
}

/// How long a thread may take to stop. What it waits for a processor isn't counted: a machine may be busy.
pub struct Patience {
	begun: u64,
	deadline: u64,
}

impl Patience {
	/// Nanoseconds that it may wait for something else.
	const ONCE: u64 = 3_000_000_000;
	/// Nanoseconds in all.
	const WHOLE: u64 = 60_000_000_000;

	/// Begins now.
	pub fn begin() -> Patience {
		let now = sys::now_ns();
		Patience { begun: now, deadline: now + Patience::ONCE }
	}

	/// Whether a thread of a process, which hasn't stopped yet, has had its time.
	pub fn is_over(&mut self, pid: i32, tid: i32) -> bool {
		let now = sys::now_ns();
		if now <= self.deadline {
			return false;
		}
		if now - self.begun > Patience::WHOLE || !is_runnable(pid, tid) {
			return true;
		}
		self.deadline = now + Patience::ONCE;
		false
	}
}

/// Whether a thread runs, or would if it had a processor.
fn is_runnable(pid: i32, tid: i32) -> bool {
	let mut buf = [0; 512];
	let path = ProcPath::of(pid).push(b"/task/").number(tid).push(b"/stat");
	field(read_file(path.as_c(), &mut buf).unwrap_or(b""), STATE) == Some(b"R")
}

/// What is to be said about a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Condition {
	/// Only its name is left.
	Ended,
	/// A worker of the kernel's own.
	Kernels,
	Ordinary,
}

impl Condition {
	/// Of a thread of a process.
	pub fn of(pid: i32, tid: i32) -> Condition {
		const PF_IO_WORKER: u64 = 0x10;
		const PF_USER_WORKER: u64 = 0x4000;
		let mut buf = [0; 512];
		let path = ProcPath::of(pid).push(b"/task/").number(tid).push(b"/stat");
		let stat = read_file(path.as_c(), &mut buf).unwrap_or(b"");
		let flags = field(stat, FLAGS).and_then(decimal).unwrap_or(0);
		match field(stat, STATE).unwrap_or(b"X") {
			b"Z" | b"X" => Condition::Ended,
			_ if flags & (PF_IO_WORKER | PF_USER_WORKER) != 0 => Condition::Kernels,
			_ => Condition::Ordinary,
		}
	}
}

/// Whether somebody else traces a thread.
pub fn is_traced(pid: i32, tid: i32) -> bool {
	// The tracer is among the first lines.
	let mut buf = [0; 512];
	let path = ProcPath::of(pid).push(b"/task/").number(tid).push(b"/status");
	let status = read_file(path.as_c(), &mut buf).unwrap_or(b"");
	text::field(status, b"TracerPid").is_some_and(|tracer| tracer != 0 && tracer != sys::getpid() as u64)
}

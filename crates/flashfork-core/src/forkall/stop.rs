//! Stops all threads of a program, for good.

use super::{
	frozen::{Frozen, THREADS},
	pending,
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::{
		directory::for_each_entry,
		text::{ProcPath, decimal, read_file},
	},
	sys::{self, Errno},
	threads::status::{self, Condition, Patience},
};

const PTRACE_SEIZE: usize = 0x4206;
const PTRACE_INTERRUPT: usize = 0x4207;
/// `PTRACE_O_TRACESYSGOOD` and `PTRACE_O_EXITKILL`: without the maker the program must not run.
const OPTIONS: usize = 1 | 1 << 20;
const PTRACE_EVENT_STOP: i32 = 128;
const WNOHANG: u32 = 1;
const WALL: u32 = 0x4000_0000;

/// Stops them all. A stopped thread starts no new one: it is over when a whole list holds none that isn't stopped.
pub fn stop(frozen: &mut Frozen) -> Fit {
	let mut patience = Patience::begin();
	frozen.count = 0;
	frozen.pending.count = 0;
	loop {
		let new = seize_new(frozen)?;
		let waiting = wait(frozen)?;
		if !new && waiting.is_none() && status::running(frozen.pid) == Some(frozen.count as u64) {
			return Ok(());
		}
		let tid = waiting.unwrap_or(frozen.pid);
		if patience.is_over(frozen.pid, tid) {
			return Err(named(What::Unstoppable, frozen.pid, tid));
		}
		if waiting.is_some() {
			sys::sleep_ns(50_000);
		}
	}
}

fn named(what: What, pid: i32, tid: i32) -> Unfit {
	let mut name = [0; 32];
	let path = ProcPath::of(pid).push(b"/task/").number(tid).push(b"/comm");
	Unfit::named(what, tid, read_file(path.as_c(), &mut name).unwrap_or(b"").trim_ascii_end())
}

/// Whether there were any that aren't on the list.
fn seize_new(frozen: &mut Frozen) -> Fit<bool> {
	let Frozen { list, threads, count, pid, .. } = frozen;
	let pid = *pid;
	let mut new = false;
	let found = for_each_entry(ProcPath::of(pid).push(b"/task").as_c(), list, |name| {
		let tid = decimal(name)? as i32;
		if threads[..*count].iter().any(|t| t.tid == tid) {
			return None;
		}
		// SAFETY: numbers are passed.
		let seized = unsafe {
			sys::ptrace(PTRACE_SEIZE, tid, 0, OPTIONS).and_then(|()| sys::ptrace(PTRACE_INTERRUPT, tid, 0, 0))
		};
		match seized {
			Ok(()) => {}
			Err(Errno::ESRCH) => return None,
			Err(e) => match Condition::of(pid, tid) {
				Condition::Ended if tid == pid => return Some(Unfit::new(What::MainEnded, tid)),
				Condition::Ended => return None,
				Condition::Kernels => return Some(named(What::Unstoppable, pid, tid)),
				Condition::Ordinary if status::is_traced(pid, tid) => return Some(named(What::Traced, pid, tid)),
				// The main thread has made the maker, which has its rights.
				Condition::Ordinary if tid == pid => return Some(Unfit::forbidden(b"ptrace", e)),
				Condition::Ordinary if e == Errno::EPERM => return Some(Unfit::new(What::Credentials, tid)),
				Condition::Ordinary => return Some(Unfit::from(e)),
			},
		}
		new = true;
		if *count == THREADS {
			return Some(Unfit::new(What::ManyThreads, THREADS as i32));
		}
		let thread = &mut threads[*count];
		(thread.tid, thread.stopped) = (tid, false);
		*count += 1;
		None
	});
	match found? {
		None => Ok(new),
		Some(unfit) => Err(unfit),
	}
}

/// Takes down who has stopped, and takes off the list who has ended. One that hasn't is given.
fn wait(frozen: &mut Frozen) -> Result<Option<i32>, Unfit> {
	let (mut waiting, mut left) = (None, 0);
	for i in 0..frozen.count {
		let tid = frozen.threads[i].tid;
		let mut stays = true;
		if !frozen.threads[i].stopped {
			match sys::wait(tid, WNOHANG | WALL) {
				Ok((0, _)) => waiting = Some(tid),
				Ok((_, status)) if status & 0xff == 0x7f => {
					frozen.threads[i].stopped = true;
					// Anything but our interrupt, or a stop of the whole process, is a signal on its way.
					if status >> 16 != PTRACE_EVENT_STOP {
						pending::taken(&mut frozen.pending, tid)?;
					}
				}
				Ok(_) | Err(Errno::ECHILD) => stays = false,
				Err(e) => return Err(e.into()),
			}
		}
		if stays {
			if left != i {
				frozen.threads[left] = frozen.threads[i];
			}
			left += 1;
		} else if tid == frozen.pid {
			return Err(Unfit::new(What::MainEnded, tid));
		}
	}
	frozen.count = left;
	Ok(waiting)
}

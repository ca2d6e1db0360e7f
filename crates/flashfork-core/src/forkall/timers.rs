//! POSIX timers and interval timers, which a fork leaves out.

use super::{
	frozen::{Frozen, TIMERS, Timer},
	inject::inject,
	raw::{at, call, into},
	unfit::{Fit, Unfit, What},
};
use crate::{
	proc::text::{Lines, ProcPath, decimal, number},
	sys::{self, Result},
};
use linux_raw_sys::general::CLOCK_PROCESS_CPUTIME_ID;
use syscalls::Sysno;

/// The highest number reached by counting.
const HIGHEST: i32 = 1 << 16;

const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD_ID: i32 = 4;

/// By the kernel's list (`proc_pid_timers(5)`) and the main thread.
pub fn look(frozen: &mut Frozen) -> Fit {
	let answers = (&raw mut frozen.answers) as usize;
	let Some(main) = frozen.main().copied() else { return Err(Unfit::new(What::MainEnded, frozen.pid)) };
	// SAFETY: memory of the maker's, where nobody else writes meanwhile.
	let answer = || unsafe { (answers as *const [u64; 4]).read_volatile() };
	let Frozen { text, timers, pid, .. } = frozen;
	timers.count = 0;
	let mut lines = Lines::open(ProcPath::of(*pid).push(b"/timers").as_c(), text)?;
	while let Some(line) = lines.next()? {
		if let Some(id) = line.strip_prefix(b"ID: ").and_then(decimal) {
			let place = timers.all.get_mut(timers.count).ok_or(Unfit::new(What::Timer, TIMERS as i32))?;
			*place = Timer { id: id as i32, ..Timer::default() };
			timers.count += 1;
		} else if let Some(last) = timers.count.checked_sub(1) {
			timers.all[last].field(line)?;
		}
	}
	drop(lines);
	let all = &mut timers.all[..timers.count];
	// The newest first.
	all.sort_unstable_by_key(|timer| timer.id);
	for timer in all {
		if timer.clock < 0 || timer.id > HIGHEST {
			return Err(Unfit::new(What::Timer, timer.id));
		}
		inject(main.tid, &main.registers, Sysno::timer_gettime, [timer.id as usize, answers, 0, 0])?;
		timer.left = answer();
	}
	for (which, interval) in timers.intervals.iter_mut().enumerate() {
		inject(main.tid, &main.registers, Sysno::getitimer, [which, answers, 0, 0])?;
		*interval = answer();
		let [seconds, micros, value @ ..] = *interval;
		if value == [0; 2] && [seconds, micros] != [0; 2] {
			// It has just gone off, and its signal has not been taken, which would start it again.
			interval[2..].copy_from_slice(&[seconds, micros]);
		}
	}
	Ok(())
}

impl Timer {
	fn field(&mut self, line: &[u8]) -> Fit {
		let unfit = Unfit::new(What::Timer, self.id);
		if let Some(rest) = line.strip_prefix(b"signal: ") {
			let slash = rest.iter().position(|b| *b == b'/').ok_or(unfit)?;
			self.signal = number(&rest[..slash], 10).ok_or(unfit)? as i32;
			// The kernel writes a pointer: with 0x, or without.
			let value = &rest[slash + 1..];
			self.value = number(value.strip_prefix(b"0x").unwrap_or(value), 16).ok_or(unfit)?;
		} else if let Some(rest) = line.strip_prefix(b"notify: ") {
			let dot = rest.iter().position(|b| *b == b'.').ok_or(unfit)?;
			self.tid = number(&rest[dot + 1..], 10).ok_or(unfit)? as i32;
			let how = if rest.starts_with(b"none") { SIGEV_NONE } else { SIGEV_SIGNAL };
			self.how = if rest[..dot].ends_with(b"/tid") { SIGEV_THREAD_ID | how } else { how };
		} else if let Some(rest) = line.strip_prefix(b"ClockID: ") {
			self.clock = match rest {
				// That of the CPU time of whoever asks (process_cpu_timer_create).
				b"-6" => CLOCK_PROCESS_CPUTIME_ID as i32,
				[b'-', ..] => -1,
				_ => decimal(rest).ok_or(unfit)? as i32,
			};
		}
		Ok(())
	}
}

/// Makes them in a clone, whose threads are all there. `old`: the template's process.
pub fn renew(frozen: &Frozen, old: i32) -> Result<()> {
	let timers = &frozen.timers;
	for timer in &timers.all[..timers.count] {
		timer.make(old)?;
	}
	for (which, interval) in timers.intervals.iter().enumerate() {
		if interval[2] != 0 || interval[3] != 0 {
			// SAFETY: the kernel reads one structure.
			unsafe { call(Sysno::setitimer, [which, at(interval)]) }?;
		}
	}
	Ok(())
}

impl Timer {
	/// Numbers count up: it is made until it has its own.
	fn make(&self, old: i32) -> Result<()> {
		/// `struct sigevent`.
		#[repr(C)]
		struct Event {
			value: u64,
			signal: i32,
			how: i32,
			tid: i32,
			rest: [i32; 11],
		}
		let tid = if self.how & SIGEV_THREAD_ID != 0 && self.tid == old { sys::getpid() } else { self.tid };
		let event = Event { value: self.value, signal: self.signal, how: self.how, tid, rest: [0; 11] };
		for _ in 0..=HIGHEST {
			let mut id = 0i32;
			// SAFETY: the kernel reads one structure and writes one number.
			unsafe {
				call(Sysno::timer_create, [self.clock as usize, at(&event), into(&mut id)])?;
				if id == self.id {
					return call(Sysno::timer_settime, [id as usize, 0, at(&self.left)]).map(drop);
				}
				call(Sysno::timer_delete, [id as usize])?;
			}
		}
		Err(sys::Errno::EAGAIN)
	}
}

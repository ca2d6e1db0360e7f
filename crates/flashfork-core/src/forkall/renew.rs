//! In a clone: what it must have for itself takes the place of what its template has.

use super::{
	deleted,
	frozen::{Entry, Files, Frozen, Kind},
	open::{duplicate_to, open_again, place, set_flags},
	pairs,
	raw::{call, into, numeric},
	sockets,
};
use crate::sys::{self, Result};
use syscalls::Sysno;

/// Makes them all anew; the standard streams are the caller's already. No other descriptor of the template's, nor of
/// the maker's, stays open, but the one `kept`.
pub fn all(frozen: &Frozen, kept: i32) -> Result<()> {
	let files = &frozen.files;
	let all = &files.all[..files.count];
	for (i, entry) in all.iter().enumerate() {
		match entry.kind {
			Kind::Shared => set_close_on_exec(entry)?,
			Kind::Same | Kind::Stream => {}
			Kind::File => place(open_again(entry)?, entry)?,
			Kind::Deleted => deleted::renew(all, i)?,
			Kind::Event => event(entry)?,
			Kind::Epoll => made(Sysno::epoll_create1, [0, 0, 0, 0], entry)?,
			Kind::Timer => timer(entry)?,
			Kind::Signal => made(Sysno::signalfd4, [usize::MAX, (&raw const entry.info.count) as usize, 8, 0], entry)?,
			Kind::Inotify => made(Sysno::inotify_init1, [0; 4], entry)?,
			Kind::Reads | Kind::Writes => pairs::pipe(entry, all)?,
			Kind::Pair => pairs::sockets(entry, all, i)?,
			Kind::Outside | Kind::Closed => pairs::closed(entry)?,
			Kind::Fresh => fresh(entry)?,
		}
	}
	for entry in all.iter().filter(|entry| entry.kind == Kind::Same) {
		duplicate_to(all[entry.other].number, entry.number, entry.close_on_exec())?;
	}
	close_others(all, kept)?;
	for set in all.iter().filter(|entry| entry.kind == Kind::Epoll) {
		fill(set, files)?;
	}
	Ok(())
}

/// A new object of a call whose flags are none.
fn made(number: Sysno, arguments: [usize; 4], entry: &Entry) -> Result<()> {
	// SAFETY: the arguments are numbers, or the address of a mask.
	let new = unsafe { call(number, arguments) }? as i32;
	set_flags(new, entry);
	place(new, entry)
}

fn fresh(entry: &Entry) -> Result<()> {
	let new = sockets::new(entry.socket)?;
	sockets::copy_options(entry.number, new, entry.socket)?;
	set_flags(new, entry);
	place(new, entry)
}

fn set_close_on_exec(entry: &Entry) -> Result<()> {
	const F_SETFD: usize = 2;
	let on = usize::from(entry.close_on_exec() != 0);
	numeric(Sysno::fcntl, [entry.number as usize, F_SETFD, on]).map(drop)
}

fn event(entry: &Entry) -> Result<()> {
	const EFD_SEMAPHORE: usize = 1;
	// SAFETY: takes numbers; one word is written.
	unsafe {
		let new = call(Sysno::eventfd2, [0, usize::from(entry.semaphore)])?;
		const _: () = assert!(EFD_SEMAPHORE == 1);
		if entry.info.count > 0 {
			call(Sysno::write, [new, (&raw const entry.info.count) as usize, 8])?;
		}
		set_flags(new as i32, entry);
		place(new as i32, entry)
	}
}

fn timer(entry: &Entry) -> Result<()> {
	const TFD_IOC_SET_TICKS: usize = 0x4008_5400;
	let (time, mut ticks) = (entry.info.time, entry.info.count);
	// SAFETY: the kernel reads locals.
	unsafe {
		let new = call(Sysno::timerfd_create, [entry.info.clock as usize, 0])?;
		call(Sysno::timerfd_settime, [new, entry.info.how as usize, time.as_ptr() as usize, 0])?;
		if ticks > 0 {
			call(Sysno::ioctl, [new, TFD_IOC_SET_TICKS, into(&mut ticks)])?;
		}
		set_flags(new as i32, entry);
		place(new as i32, entry)
	}
}

fn fill(set: &Entry, files: &Files) -> Result<()> {
	const EPOLL_CTL_ADD: usize = 1;
	for item in &files.items[set.first..set.first + set.count] {
		// struct epoll_event is packed.
		let mut event = [0u8; 12];
		event[..4].copy_from_slice(&item.events.to_ne_bytes());
		event[4..].copy_from_slice(&item.data.to_ne_bytes());
		// SAFETY: the kernel reads a local.
		unsafe {
			call(Sysno::epoll_ctl, [set.number as usize, EPOLL_CTL_ADD, item.number as usize, event.as_ptr() as usize])
		}?;
	}
	Ok(())
}

/// Closes what is neither the program's nor `kept`, which is above all the program's.
fn close_others(all: &[Entry], kept: i32) -> Result<()> {
	let mut from = 3;
	let close = |from: i32, to: i32| if from <= to { sys::close_range(from, to) } else { Ok(()) };
	for entry in all.iter().filter(|entry| entry.number >= 3) {
		close(from, entry.number - 1)?;
		from = entry.number + 1;
	}
	close(from, kept - 1)?;
	close(kept + 1, i32::MAX)
}

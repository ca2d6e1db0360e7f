//! What the kernel tells of an open file (`/proc/PID/fdinfo`, proc_pid_fdinfo(5)).

use super::raw::{call, into};
use crate::{
	proc::text::{Lines, ProcPath, decimal, number, words},
	sys::Result,
};
use syscalls::Sysno;

/// A file of a set of `epoll(7)`.
#[derive(Clone, Copy, Default)]
pub struct Item {
	/// By this descriptor it was added.
	pub number: i32,
	pub events: u32,
	pub data: u64,
	pub inode: u64,
}

/// What is told; zeros where nothing is.
#[derive(Clone, Copy, Default)]
pub struct Info {
	pub position: u64,
	/// `O_*`, `O_CLOEXEC` of the descriptor among them.
	pub flags: u32,
	pub locked: bool,
	/// Whether `inotify(7)` watches something.
	pub watches: bool,
	/// The count of an eventfd, the ticks of a timerfd, the mask of a signalfd.
	pub count: u64,
	pub clock: i32,
	/// Flags with which a timerfd was set.
	pub how: u32,
	/// `struct itimerspec` of a timerfd: the time left, or the moment ([`Info::keep_moment`]).
	pub time: [u64; 4],
}

impl Info {
	/// Of a descriptor of a process; `item` is called with each file of an epoll set.
	pub fn read(pid: i32, fd: i32, text: &mut [u8], mut item: impl FnMut(Item) -> Result<()>) -> Result<Info> {
		let mut info = Info::default();
		let mut lines = Lines::open(ProcPath::of(pid).push(b"/fdinfo/").number(fd).as_c(), text)?;
		while let Some(line) = lines.next()? {
			match part(line) {
				(b"pos", rest) => info.position = decimal(rest).unwrap_or(0),
				(b"flags", rest) => info.flags = words(rest).next().and_then(octal).unwrap_or(0),
				(b"lock", _) => info.locked = true,
				(b"eventfd-count" | b"sigmask", rest) => {
					info.count = words(rest).next().and_then(|word| number(word, 16)).unwrap_or(0);
				}
				(b"ticks", rest) => info.count = decimal(rest).unwrap_or(0),
				(b"clockid", rest) => info.clock = decimal(rest).unwrap_or(0) as i32,
				(b"settime flags", rest) => info.how = words(rest).next().and_then(octal).unwrap_or(0),
				(b"it_interval", rest) => info.time[..2].copy_from_slice(&span(rest)),
				(b"it_value", rest) => info.time[2..].copy_from_slice(&span(rest)),
				(b"tfd", rest) => item(member(rest))?,
				(key, _) if key.starts_with(b"inotify wd") => info.watches = true,
				_ => {}
			}
		}
		Ok(info)
	}
}

impl Info {
	/// Makes the time that a timerfd has left the moment that it was set to, on a clock that goes on while a template
	/// waits, and forgets the flags of any other. One that has just gone off has a whole interval left.
	pub fn keep_moment(&mut self) {
		const ABSOLUTE: u32 = 1;
		const REALTIME: i32 = 0;
		const REALTIME_ALARM: i32 = 8;
		let (interval, left) = self.time.split_at_mut(2);
		if left == [0, 0] && self.count > 0 {
			left.copy_from_slice(interval);
		}
		if self.how & ABSOLUTE == 0 || ![REALTIME, REALTIME_ALARM].contains(&self.clock) || left == [0, 0] {
			self.how = 0;
			return;
		}
		let mut now = [0u64; 2];
		// SAFETY: the kernel writes one struct timespec to a local.
		let _ = unsafe { call(Sysno::clock_gettime, [REALTIME as usize, into(&mut now)]) };
		let nanoseconds = left[1] + now[1];
		left[0] += now[0] + nanoseconds / 1_000_000_000;
		left[1] = nanoseconds % 1_000_000_000;
	}
}

/// What stands before a line's first colon, and behind it.
fn part(line: &[u8]) -> (&[u8], &[u8]) {
	match line.iter().position(|b| *b == b':') {
		Some(colon) => (&line[..colon], &line[colon + 1..]),
		None => (line, b""),
	}
}

fn octal(word: &[u8]) -> Option<u32> {
	word.iter().try_fold(0u32, |n, b| n.checked_mul(8)?.checked_add(u32::from(b.checked_sub(b'0').filter(|d| *d < 8)?)))
}

/// `(seconds, nanoseconds)`.
fn span(text: &[u8]) -> [u64; 2] {
	let mut numbers = text.split(|b| !b.is_ascii_digit()).filter(|word| !word.is_empty());
	[(); 2].map(|()| numbers.next().and_then(|word| number(word, 10)).unwrap_or(0))
}

/// `8 events: 19 data: 8  pos:0 ino:4b4e sdev:9`, behind `tfd:`.
fn member(rest: &[u8]) -> Item {
	let mut item = Item { number: decimal(rest).unwrap_or(0) as i32, ..Item::default() };
	let mut key: &[u8] = b"";
	for word in words(rest) {
		let (name, value) = part(word);
		// The kernel puts a blank behind some colons.
		let (name, value) = if name.len() == word.len() { (key, word) } else { (name, value) };
		key = name;
		let value = number(value, 16).unwrap_or(0);
		match name {
			b"events" => item.events = value as u32,
			b"data" => item.data = value,
			b"ino" => item.inode = value,
			_ => {}
		}
	}
	item
}

#[cfg(test)]
mod tests {
	use super::*;

	fn read(fd: i32) -> (Info, Vec<Item>) {
		let mut items = Vec::new();
		let info = Info::read(std::process::id() as i32, fd, &mut [0; 4096], |item| {
			items.push(item);
			Ok(())
		});
		(info.unwrap(), items)
	}

	#[test]
	fn the_kernel_tells_of_a_set_what_was_added() {
		// SAFETY: new descriptors of this test's own, and structures of the right type.
		let (set, event, timer) = unsafe {
			let (set, event) = (libc::epoll_create1(libc::EPOLL_CLOEXEC), libc::eventfd(7, libc::EFD_NONBLOCK));
			let mut what =
				libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0xfeed_beef_0000_0001 };
			assert_eq!(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, event, &raw mut what), 0);
			let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
			let time = |sec| libc::timespec { tv_sec: sec, tv_nsec: 0 };
			let when = libc::itimerspec { it_interval: time(5), it_value: time(1000) };
			assert_eq!(libc::timerfd_settime(timer, 0, &raw const when, std::ptr::null_mut()), 0);
			(set, event, timer)
		};
		let (info, items) = read(set);
		assert_ne!(info.flags & libc::O_CLOEXEC as u32, 0);
		assert_eq!(items.len(), 1);
		assert_eq!((items[0].number, items[0].data), (event, 0xfeed_beef_0000_0001));
		assert_eq!(items[0].events & 0xffff_0001, (libc::EPOLLIN | libc::EPOLLET) as u32);
		let (info, items) = read(event);
		assert_eq!((info.count, items.len(), info.flags & libc::O_NONBLOCK as u32), (7, 0, libc::O_NONBLOCK as u32));
		let (info, _) = read(timer);
		assert_eq!((info.clock, info.time[0]), (libc::CLOCK_MONOTONIC, 5));
		assert!((900..1000).contains(&info.time[2]), "{:?}", info.time);
		for fd in [set, event, timer] {
			// SAFETY: the test's own.
			unsafe { libc::close(fd) };
		}
	}
}

//! The userfaultfds by which the kernel notes which pages are written: one for each region, and one for a process that
//! goes back to a snapshot ([`crate::snapshot`]).
//!
//! Registered so (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7), a protected page that is written loses its protection, and that
//! is all: nobody waits and nobody is told. Whether pages are protected is in the page tables, for `PAGEMAP_SCAN` to
//! find. The descriptor is only kept open, with a high number. A clone has neither the
//! registration nor the protection (there is no `UFFD_FEATURE_EVENT_FORK`), only the descriptor: a scan that asks for
//! registered memory (`PM_SCAN_CHECK_WPASYNC`) fails there, as it does when the program has closed the descriptor.
//!
//! The list of them lies apart: a restore of the process leaves it, as it leaves descriptors open.

use crate::{
	apart::Apart,
	range::Range,
	sys::{self, Errno, Result},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
};
use linux_raw_sys::general as k;

const MOST: usize = 16;

const UFFDIO_API: usize = 0xc018_aa3f; // _IOWR(0xAA, 0x3F, struct uffdio_api)
const UFFDIO_REGISTER: usize = 0xc020_aa00; // _IOWR(0xAA, 0x00, struct uffdio_register)
const UFFDIO_UNREGISTER: usize = 0x8010_aa01; // _IOR(0xAA, 0x01, struct uffdio_range)
const UFFD_API: u64 = 0xaa;
/// Faults of the program's own only. The kernel's own writes come through, because nobody waits for anything.
const UFFD_USER_MODE_ONLY: usize = 1;
const REGISTER_MODE_WP: u64 = 1 << 1;
/// Of memory that a file backs, pages that are not there can be protected too.
const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const WP_ASYNC: u64 = 1 << 15;
/// Two more, about messages that never come (`THREAD_ID`, `EXACT_ADDRESS`): nobody else asks for just these, so a watch
/// is known by them from outside.
const MARK: u64 = 1 << 8 | 1 << 11;
const FEATURES: u64 = WP_ASYNC | WP_HUGETLBFS_SHMEM | MARK;
/// What the kernel adds by itself (`UFFD_FEATURE_WP_UNPOPULATED`, and its own bit).
const ADDED: u64 = 1 << 13 | 1 << 31;

/// A file about this process that is kept open while it is watched: to open it takes several microseconds.
#[derive(Clone, Copy)]
pub(crate) enum File {
	Pagemap,
	/// Pages that are mapped (`statm`).
	Mapped,
	Maps,
	/// The directory of descriptors, whose size is their number (Linux 6.2).
	Descriptors,
}

const FILES: [(&CStr, u32); 4] = [
	(c"/proc/thread-self/pagemap", k::O_RDONLY),
	(c"/proc/thread-self/statm", k::O_RDONLY),
	(c"/proc/thread-self/maps", k::O_RDONLY),
	(c"/proc/thread-self/fd", k::O_PATH),
];

/// An open userfaultfd, or another file.
struct Descriptor {
	fd: AtomicI32,
	/// Which file it is: whatever else gets the number is none of ours.
	device: AtomicU64,
	inode: AtomicU64,
}

impl Descriptor {
	const fn none() -> Descriptor {
		Descriptor { fd: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
	}

	fn open(&self) -> Result<()> {
		let fd = sys::userfaultfd(UFFD_USER_MODE_ONLY)?;
		begin(fd).inspect_err(|_| sys::close(fd)).and_then(|()| self.keep(fd))
	}

	fn keep(&self, fd: i32) -> Result<()> {
		let fd = sys::out_of_the_way(fd);
		let known = sys::identity(fd).inspect_err(|_| sys::close(fd))?;
		self.fd.store(fd, SeqCst);
		self.device.store(known.0, SeqCst);
		self.inode.store(known.1, SeqCst);
		Ok(())
	}

	fn is_open(&self) -> bool {
		let fd = self.fd.load(SeqCst);
		fd >= 0 && sys::identity(fd) == Ok((self.device.load(SeqCst), self.inode.load(SeqCst)))
	}

	fn number(&self) -> Option<i32> {
		self.is_open().then(|| self.fd.load(SeqCst))
	}

	fn close(&self) {
		if self.is_open() {
			sys::close(self.fd.load(SeqCst));
		}
		self.fd.store(-1, SeqCst);
	}

	fn register(&self, range: Range) -> Result<()> {
		let range = k::uffdio_range { start: range.start as u64, len: range.len() as u64 };
		let mut ask = k::uffdio_register { range, mode: REGISTER_MODE_WP, ioctls: 0 };
		// SAFETY: the kernel's struct. What the memory holds doesn't change, nor who may write to it.
		unsafe { sys::ioctl(self.fd.load(SeqCst), UFFDIO_REGISTER, &raw mut ask as usize) }.map(drop)
	}

	/// What was protected is writable again. Not only by the last close: a clone may have the descriptor too.
	fn unregister(&self, range: Range) {
		let range = [range.start as u64, range.len() as u64];
		// SAFETY: a struct uffdio_range.
		let _ = unsafe { sys::ioctl(self.fd.load(SeqCst), UFFDIO_UNREGISTER, range.as_ptr() as usize) };
	}
}

struct Entry {
	/// Where the region begins; 0: nothing is here.
	region: AtomicUsize,
	len: AtomicUsize,
	descriptor: Descriptor,
}

struct Process {
	descriptor: Descriptor,
	/// Files that each restore looks into, in the order of [`FILES`].
	files: [Descriptor; FILES.len()],
	/// What was registered: a list that is there while the watch is.
	ranges: AtomicPtr<Range>,
	count: AtomicUsize,
	most: AtomicUsize,
	/// Whose it is: a clone that nobody has told that it is one has all of this, too.
	owner: AtomicI32,
}

pub(crate) struct Watched {
	entries: [Entry; MOST],
	process: Process,
	stopped: AtomicBool,
	forks: AtomicU32,
}

pub(crate) static WATCHED: Apart<Watched> = Apart::new(Watched {
	entries: [const { Entry { region: AtomicUsize::new(0), len: AtomicUsize::new(0), descriptor: Descriptor::none() } };
		MOST],
	process: Process {
		descriptor: Descriptor::none(),
		files: [const { Descriptor::none() }; FILES.len()],
		ranges: AtomicPtr::new(core::ptr::null_mut()),
		count: AtomicUsize::new(0),
		most: AtomicUsize::new(0),
		owner: AtomicI32::new(0),
	},
	stopped: AtomicBool::new(false),
	forks: AtomicU32::new(0),
});

impl Entry {
	/// Ends the watch. In a clone that doesn't know that it is one it is the parent's that ends: the next scan there
	/// fails, and it begins anew.
	fn end(&self) {
		if self.descriptor.is_open() {
			self.descriptor
				.unregister(Range::new(self.region.load(SeqCst), self.region.load(SeqCst) + self.len.load(SeqCst)));
		}
		self.leave();
	}

	fn leave(&self) {
		self.descriptor.close();
		self.region.store(0, SeqCst);
	}
}

impl Process {
	fn end(&self) {
		if self.owner.load(SeqCst) == sys::getpid() && self.descriptor.is_open() {
			let (ranges, count) = (self.ranges.load(SeqCst), self.count.load(SeqCst));
			for index in 0..count {
				// SAFETY: the list is there while the watch is, and has so many ranges.
				self.descriptor.unregister(unsafe { ranges.add(index).read() });
			}
		}
		self.leave();
	}

	fn leave(&self) {
		self.descriptor.close();
		self.files.iter().for_each(Descriptor::close);
		self.count.store(0, SeqCst);
	}
}

impl Watched {
	fn of(&self, region: Range) -> Option<&Entry> {
		self.entries.iter().find(|entry| entry.region.load(SeqCst) == region.start)
	}

	/// Begins to watch a region, of which nothing is protected at first.
	pub fn begin(&self, region: Range) -> Result<()> {
		self.end(region);
		if self.stopped.load(SeqCst) {
			return Err(Errno::EBUSY);
		}
		let entry = self.entries.iter().find(|entry| entry.region.load(SeqCst) == 0).ok_or(Errno::ENOSPC)?;
		entry.descriptor.open()?;
		entry.descriptor.register(region).inspect_err(|_| entry.descriptor.close())?;
		entry.len.store(region.len(), SeqCst);
		entry.region.store(region.start, SeqCst);
		Ok(())
	}

	/// Whether the descriptor is still there that [`Watched::begin`] has opened.
	pub fn watches(&self, region: Range) -> bool {
		self.of(region).is_some_and(|entry| entry.descriptor.is_open())
	}

	#[cfg(test)]
	pub fn descriptor(&self, region: Range) -> Option<i32> {
		self.of(region).map(|entry| entry.descriptor.fd.load(SeqCst))
	}

	/// Ends a region's watch, if any.
	pub fn end(&self, region: Range) {
		self.of(region).inspect(|entry| entry.end());
	}

	/// In a clone: the descriptor is its parent's watch.
	pub fn leave(&self, region: Range) {
		self.of(region).inspect(|entry| entry.leave());
	}

	/// Begins to watch the process, nothing of it at first. What is watched is noted in `ranges`, which must be there
	/// until the watch has ended.
	pub fn begin_process(&self, ranges: &mut [Range]) -> Result<()> {
		self.end_process();
		if self.stopped.load(SeqCst) {
			return Err(Errno::EBUSY);
		}
		let Process { descriptor, files, ranges: list, count, most, owner } = &self.process;
		descriptor.open()?;
		owner.store(sys::getpid(), SeqCst);
		for (file, (path, flags)) in files.iter().zip(FILES) {
			// Without it things are only slower.
			let _ = sys::open(path, flags | k::O_CLOEXEC).and_then(|fd| file.keep(fd));
		}
		list.store(ranges.as_mut_ptr(), SeqCst);
		count.store(0, SeqCst);
		most.store(ranges.len(), SeqCst);
		Ok(())
	}

	/// Watches a mapping of the process, if it isn't watched already. It should be a whole one: the kernel would make
	/// two of it.
	pub fn watch(&self, mapping: Range) -> Result<()> {
		let Process { descriptor, ranges, count, most, .. } = &self.process;
		let (ranges, known) = (ranges.load(SeqCst), count.load(SeqCst));
		// SAFETY: the list is there while the watch is, and has so many ranges.
		let is_listed = (0..known).any(|index| unsafe { ranges.add(index).read() } == mapping);
		if !is_listed && known == most.load(SeqCst) {
			return Err(Errno::E2BIG);
		}
		descriptor.register(mapping)?;
		if !is_listed {
			// SAFETY: as above; there is room.
			unsafe { ranges.add(known).write(mapping) };
			count.store(known + 1, SeqCst);
		}
		Ok(())
	}

	/// Whether the descriptor is still there that [`Watched::begin_process`] has opened.
	pub fn watches_process(&self) -> bool {
		self.process.descriptor.is_open()
	}

	/// One of the files that are kept open meanwhile.
	pub fn file(&self, file: File) -> Option<i32> {
		self.process.files[file as usize].number()
	}

	/// Leaves such a file to the caller, and to the end of the watch nothing to close.
	pub fn hand_over(&self, file: File) {
		self.process.files[file as usize].fd.store(-1, SeqCst);
	}

	/// All these descriptors.
	pub fn of_process(&self) -> [Option<i32>; 1 + FILES.len()] {
		let Process { descriptor, files: [a, b, c, d], .. } = &self.process;
		[descriptor, a, b, c, d].map(Descriptor::number)
	}

	/// Ends the process's watch, if any.
	pub fn end_process(&self) {
		self.process.end();
	}

	/// In a clone: the descriptor is its parent's watch.
	pub fn leave_process(&self) {
		self.process.leave();
	}

	fn all(&self) -> impl Iterator<Item = &Entry> {
		self.entries.iter().filter(|entry| entry.region.load(SeqCst) != 0)
	}

	/// The same for all.
	pub fn leave_all(&self) {
		self.all().for_each(Entry::leave);
		self.process.leave();
	}

	/// Ends all: before a seal or a snapshot, which look at descriptors and at what the page tables say.
	pub fn end_all(&self) {
		self.all().for_each(Entry::end);
		self.process.end();
	}

	/// For good: the program has userfaultfds of its own, which must find nothing registered.
	pub fn stop(&self) {
		self.stopped.store(true, SeqCst);
		self.end_all();
	}

	/// This process has forked.
	pub fn note_fork(&self) {
		self.forks.fetch_add(1, SeqCst);
	}

	/// How often it has.
	pub fn forks(&self) -> u32 {
		self.forks.load(SeqCst)
	}
}

/// Whether a userfaultfd is a region's watch, by what `/proc/PID/fdinfo` says of it.
pub(crate) fn is_watch(info: &[u8]) -> bool {
	let line = info.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"API:\taa:"));
	let features = line.and_then(|line| line.split(|b| *b == b':').next());
	let number = features.and_then(|digits| u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok());
	number.is_some_and(|number| number & !ADDED == FEATURES)
}

fn begin(fd: i32) -> Result<()> {
	let mut api = k::uffdio_api { api: UFFD_API, features: FEATURES, ioctls: 0 };
	// SAFETY: the kernel's struct.
	unsafe { sys::ioctl(fd, UFFDIO_API, &raw mut api as usize) }.map(drop)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_watch_is_told_from_other_userfaultfds() {
		assert!(is_watch(b"pos:\t0\nflags:\t02004002\npending:\t0\ntotal:\t0\nAPI:\taa:8000b900:1ffff\n"));
		for other in ["API:\taa:8000b000:1ffff\n", "API:\taa:8000b901:1ffff\n", "API:\taa:", "pending:\t0\n", ""] {
			assert!(!is_watch(other.as_bytes()), "{other}");
		}
	}
}

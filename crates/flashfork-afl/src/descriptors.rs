//! Descriptors that were open before the first round.

use rustix::{
	fd::{AsRawFd, BorrowedFd, OwnedFd},
	fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, seek},
	io::fcntl_dupfd_cloexec,
};

/// What was open.
#[derive(Debug)]
pub struct Descriptors(Vec<Descriptor>);

#[derive(Debug)]
struct Descriptor {
	found: Found,
	/// The same once more, if it is an object without its own inode (an epoll set, an eventfd): these all have one
	/// identity.
	object: Option<OwnedFd>,
}

/// A descriptor, and what of it a round can change.
#[derive(Debug, Clone, Copy)]
pub struct Found {
	number: i32,
	identity: (u64, u64),
	/// Of files and directories.
	offset: Option<u64>,
	flags: OFlags,
}

impl Descriptors {
	/// What is open now.
	pub fn open_now() -> Descriptors {
		let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
		let numbers: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
		// The one that this directory was read with is closed by now.
		let found = numbers.into_iter().filter_map(Found::of).collect::<Vec<_>>();
		Descriptors(found.into_iter().map(|found| Descriptor { found, object: found.object() }).collect())
	}

	/// All of them.
	pub fn found(&self) -> impl ExactSizeIterator<Item = Found> {
		self.0.iter().map(|descriptor| descriptor.found)
	}

	/// Those with an offset that a round can change.
	pub fn offsets(&self) -> Vec<i32> {
		self.found().filter(|found| found.offset.is_some()).map(|found| found.number).collect()
	}

	/// Gives each the flags that it had (`O_NONBLOCK`, `O_APPEND`), up to one that is not what it was: that is told.
	pub fn put_flags_back(&self) -> Option<i32> {
		self.0.iter().find(|descriptor| !descriptor.put_flags_back()).map(|descriptor| descriptor.found.number)
	}
}

impl Found {
	fn of(number: i32) -> Option<Found> {
		let fd = borrow(number);
		let stat = fstat(fd).ok()?;
		let of_files = matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory);
		let offset = if of_files { seek(fd, SeekFrom::Current(0)).ok() } else { None };
		let flags = fcntl_getfl(fd).ok()?;
		Some(Found { number, identity: (stat.st_dev, stat.st_ino), offset, flags })
	}

	fn object(&self) -> Option<OwnedFd> {
		let fd = borrow(self.number);
		let without_inode = |mode| FileType::from_raw_mode(mode) == FileType::Unknown;
		// With a high number, so that the target's own are what they would be.
		let object = || fcntl_dupfd_cloexec(fd, 255).ok();
		fstat(fd).is_ok_and(|stat| without_inode(stat.st_mode)).then(object).flatten()
	}

	/// Gives it offset and flags as they were found, where it is the same file.
	pub fn put_back(&self) {
		if self.is_there() {
			self.put_flags_back();
			if let Some(offset) = self.offset {
				// What has no offset any more had none.
				let _ = seek(borrow(self.number), SeekFrom::Start(offset));
			}
		}
	}

	fn is_there(&self) -> bool {
		fstat(borrow(self.number)).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
	}

	fn put_flags_back(&self) {
		let fd = borrow(self.number);
		if fcntl_getfl(fd).is_ok_and(|flags| flags != self.flags) {
			// What it can't have any more it hasn't had, either.
			let _ = fcntl_setfl(fd, self.flags);
		}
	}
}

impl Descriptor {
	/// Whether it is what it was.
	fn put_flags_back(&self) -> bool {
		let Descriptor { found, object } = self;
		if !found.is_there() || object.as_ref().is_some_and(|object| !are_one_file(found.number, object.as_raw_fd())) {
			return false;
		}
		found.put_flags_back();
		true
	}
}

/// For the moment, in which nobody closes it.
fn borrow(number: i32) -> BorrowedFd<'static> {
	// SAFETY: used for a call or two here; where it isn't open these fail.
	unsafe { BorrowedFd::borrow_raw(number) }
}

/// Whether two descriptors are of one open file, as far as the system lets that be asked.
fn are_one_file(a: i32, b: i32) -> bool {
	const KCMP_FILE: libc::c_long = 0;
	// SAFETY: compares, no more.
	unsafe {
		let process = libc::c_long::from(libc::getpid());
		libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, libc::c_long::from(a), libc::c_long::from(b)) <= 0
	}
}

//! Descriptors that were open before the first round.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, seek};
use rustix::io::fcntl_dupfd_cloexec;

/// What was open.
#[derive(Debug)]
pub struct Descriptors(Vec<Descriptor>);

#[derive(Debug)]
struct Descriptor {
    number: i32,
    identity: (u64, u64),
    has_offset: bool,
    flags: OFlags,
    /// The same once more, if it is an object without an inode of its own (an epoll set, an eventfd): these all have
    /// one identity.
    object: Option<OwnedFd>,
}

impl Descriptors {
    /// What is open now.
    pub fn open_now() -> Descriptors {
        let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The one that this directory was read with is closed by now.
        let mut all = Descriptors(numbers.into_iter().filter_map(Descriptor::of).collect());
        all.0.iter_mut().for_each(Descriptor::keep_object);
        all
    }

    /// Those with an offset that a round can change.
    pub fn offsets(&self) -> Vec<i32> {
        self.0.iter().filter(|descriptor| descriptor.has_offset).map(|descriptor| descriptor.number).collect()
    }

    /// Gives each the flags that it had (`O_NONBLOCK`, `O_APPEND`), up to one that is not what it was: that is told.
    pub fn put_flags_back(&self) -> Option<i32> {
        self.0.iter().find(|descriptor| !descriptor.put_flags_back()).map(|descriptor| descriptor.number)
    }
}

impl Descriptor {
    fn of(number: i32) -> Option<Descriptor> {
        let fd = borrow(number);
        let stat = fstat(fd).ok()?;
        let of_files = matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory);
        let has_offset = of_files && seek(fd, SeekFrom::Current(0)).is_ok();
        let flags = fcntl_getfl(fd).ok()?;
        Some(Descriptor { number, identity: (stat.st_dev, stat.st_ino), has_offset, flags, object: None })
    }

    fn keep_object(&mut self) {
        let fd = borrow(self.number);
        let without_inode = |mode| FileType::from_raw_mode(mode) == FileType::Unknown;
        if fstat(fd).is_ok_and(|stat| without_inode(stat.st_mode)) {
            // With a high number, so that the target's own are what they would be.
            self.object = fcntl_dupfd_cloexec(fd, 255).ok();
        }
    }

    /// Whether it is what it was.
    fn put_flags_back(&self) -> bool {
        let fd = borrow(self.number);
        let same = fstat(fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity);
        if !same || self.object.as_ref().is_some_and(|object| !are_one_file(self.number, object.as_raw_fd())) {
            return false;
        }
        if fcntl_getfl(fd).is_ok_and(|flags| flags != self.flags) {
            // What it can't have any more it hasn't had, either.
            let _ = fcntl_setfl(fd, self.flags);
        }
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

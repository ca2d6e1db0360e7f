//! Descriptors that were open before the first round.

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, SeekFrom, fstat, seek};

/// What was open.
#[derive(Debug)]
pub struct Descriptors(Vec<Descriptor>);

#[derive(Debug)]
struct Descriptor {
    number: i32,
    identity: (u64, u64),
    has_offset: bool,
}

impl Descriptors {
    /// What is open now.
    pub fn open_now() -> Descriptors {
        let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The one that this directory was read with is closed by now.
        Descriptors(numbers.into_iter().filter_map(Descriptor::of).collect())
    }

    /// Those with an offset that a round can change.
    pub fn offsets(&self) -> Vec<i32> {
        self.0.iter().filter(|descriptor| descriptor.has_offset).map(|descriptor| descriptor.number).collect()
    }

    /// One that is not what it was.
    pub fn changed(&self) -> Option<i32> {
        let same = |was: &Descriptor| Descriptor::of(was.number).is_some_and(|now| now.identity == was.identity);
        self.0.iter().find(|descriptor| !same(descriptor)).map(|descriptor| descriptor.number)
    }
}

impl Descriptor {
    fn of(number: i32) -> Option<Descriptor> {
        // SAFETY: used within this function only, where nobody closes it.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let stat = fstat(fd).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let has_offset = regular && seek(fd, SeekFrom::Current(0)).is_ok();
        Some(Descriptor { number, identity: (stat.st_dev, stat.st_ino), has_offset })
    }
}

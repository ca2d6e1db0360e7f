//! A file with known contents, mapped and read by the tests.

use crate::content::{PAGE, Tag, WORDS, fill};
use crate::world::memory::bytes;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

/// Pages in the file (4 MB).
pub const TEMPLATE_PAGES: usize = 1024;

/// See the module.
pub struct Template(File);

impl Template {
    pub fn new() -> std::io::Result<Template> {
        // SAFETY: a plain call with a constant name.
        let fd = unsafe { libc::memfd_create(c"template".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is nobody else's.
        let mut file = unsafe { File::from_raw_fd(fd) };
        write(&mut file)?;
        Ok(Template(file))
    }

    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Bytes of a page's offset.
    pub fn offset(page: usize) -> i64 {
        (page * PAGE) as i64
    }
}

/// Writes the template's contents to a file, or to a disk.
pub fn write(file: &mut File) -> std::io::Result<()> {
    let mut words = [0; WORDS];
    for page in 0..TEMPLATE_PAGES {
        fill(&mut words, 0, tag(page));
        file.write_all(bytes(&words))?;
    }
    Ok(())
}

/// What a page of the file holds.
pub fn tag(page: usize) -> Tag {
    1 + page as Tag
}

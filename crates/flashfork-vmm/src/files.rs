//! Files that users name.

use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens what can be read without waiting for somebody who writes: a file or a block device.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::other("it is neither a file nor a block device"));
    }
    // The flag has done its work.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

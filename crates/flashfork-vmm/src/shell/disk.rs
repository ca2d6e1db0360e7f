//! Disks as they come through the channel.

pub(super) use crate::devices::virtio::blk::Image;

use crate::devices::virtio::blk::FrozenDisk;
use std::fs::File;
use std::os::fd::OwnedFd;

/// What guests find as their disk's serial number.
const SERIAL: &str = "flashfork";

/// A disk to boot with. A guest may write as much as its host has memory for: the daemon's limits are the shell's.
pub(super) fn image(file: File) -> Image {
    Image { file, read_only: false, serial: SERIAL.to_owned(), limit: u64::MAX }
}

/// A template's disk.
pub(super) fn frozen(image: OwnedFd, overlay: OwnedFd) -> FrozenDisk {
    FrozenDisk { image, overlay }
}

//! Disks as they come through the channel.

pub(super) use crate::devices::virtio::blk::Image;

use crate::devices::virtio::blk::FrozenDisk;
use crate::memory::Layered;
use flashfork_proto::shell::BootDisk;
use std::fs::File;
use std::os::fd::OwnedFd;

/// A disk to boot with.
pub(super) fn image(file: File, disk: &BootDisk) -> Image {
    Image { file, read_only: disk.read_only, serial: disk.serial.clone(), limit: disk.limit }
}

/// A template's disk.
pub(super) fn frozen(image: OwnedFd, overlay: Layered) -> FrozenDisk {
    FrozenDisk { image, overlay }
}

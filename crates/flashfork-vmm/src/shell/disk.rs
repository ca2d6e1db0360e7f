//! Disks as they come through the channel.

pub(super) use crate::devices::virtio::blk::Image;

use super::ShellError;
use crate::{
	devices::virtio::blk::{FrozenDisk, length, overlay_bytes},
	machine::MachineError,
	memory::Layered,
};
use flashfork_proto::shell::{BootDisk, Extent};
use std::{fs::File, os::fd::OwnedFd};

pub(super) fn image(file: File, disk: &BootDisk) -> Image {
	Image { file, read_only: disk.read_only, serial: disk.serial.clone(), limit: disk.limit }
}

pub(super) fn frozen(image: OwnedFd, overlay: Vec<OwnedFd>, extents: &[Extent]) -> FrozenDisk {
	FrozenDisk { image, overlay: Layered::of(overlay, extents.to_vec()), attached: None, seen: None }
}

/// One attached to a clone, with its empty overlay.
pub(super) fn attached(image: OwnedFd, overlay: OwnedFd, disk: &BootDisk) -> Result<FrozenDisk, ShellError> {
	let image = File::from(image);
	let bytes = length(&image).map_err(MachineError::from)?;
	let overlay = Layered::single(overlay, overlay_bytes(bytes));
	Ok(FrozenDisk { image: image.into(), overlay, attached: Some(disk.clone()), seen: None })
}

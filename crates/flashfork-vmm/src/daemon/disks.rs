//! Disks that clones get at their claim, beside what their template has.

use super::{error::DaemonError, kept};
use crate::{
	devices::virtio::blk::{DiskError, DiskState, FrozenDisk, SECTOR, Seen, empty_overlay, length},
	files,
	store::Descriptor,
};
use flashfork_proto::{
	api::{AttachDisk, CreateClones},
	shape::Shape,
	shell::BootDisk,
	signal::{AttachedDisk, MAX_JOB},
};
use std::{
	os::fd::{AsFd, BorrowedFd},
	path::{Component, Path},
	sync::Arc,
};

/// The serial number of a disk that is given none.
pub(super) const SERIAL: &str = "flashfork";

/// Greatest length of a path where one is mounted, in bytes.
const MAX_MOUNT: usize = 255;

/// Those of a request: its clones share the images, and each writes for itself.
#[derive(Debug, Default)]
pub(super) struct Attached {
	pub(super) disks: Vec<FrozenDisk>,
	/// What guests are told of them.
	pub(super) told: Vec<AttachedDisk>,
}

impl Attached {
	pub(super) fn open(request: &CreateClones, shape: &Shape, taken: usize) -> Result<Arc<Self>, DaemonError> {
		let free = usize::from(shape.block_devices()).saturating_sub(taken);
		if request.disks.len() > free {
			return Err(DaemonError::Conflict(format!(
				"{} disks, but {free} empty slots for them: make the template with more (--disk-slots)",
				request.disks.len()
			)));
		}
		let mut attached = Self::default();
		for (disk, number) in request.disks.iter().zip(taken..) {
			let (frozen, bytes) = open(disk)?;
			attached.disks.push(frozen);
			attached.told.push(AttachedDisk {
				// There are no more than a few.
				number: number as u8,
				read_only: disk.read_only,
				sectors: bytes / SECTOR,
				mount: mount(disk)?,
			});
		}
		let room = MAX_JOB - attached.told.iter().map(AttachedDisk::length).sum::<usize>();
		if request.job.len() > room {
			return Err(DaemonError::Invalid(format!("a job of {} bytes: {room} fit", request.job.len())));
		}
		Ok(Arc::new(attached))
	}

	pub(super) fn is_empty(&self) -> bool {
		self.disks.is_empty()
	}

	/// What shells are told of them.
	pub(super) fn request(&self) -> Vec<BootDisk> {
		self.disks.iter().filter_map(|disk| disk.attached.clone()).collect()
	}

	/// Whether the images are what they were.
	pub(super) fn check(&self) -> Result<(), DiskError> {
		self.disks.iter().try_for_each(FrozenDisk::check)
	}

	/// For who holds them for the next daemon.
	pub(super) fn shared(&self) -> Result<Vec<Arc<dyn Descriptor>>, DaemonError> {
		self.disks.iter().map(kept::of_disk).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
	}

	/// What goes to a shell with a claim.
	pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
		self.disks.iter().flat_map(descriptors)
	}

	/// As the states of machines have them.
	pub(super) fn states(&self) -> impl Iterator<Item = DiskState> {
		let of = |(told, disk): (&AttachedDisk, BootDisk)| {
			DiskState::new(told.sectors * SECTOR, disk.read_only, &disk.serial, disk.limit)
		};
		self.told.iter().zip(self.request()).map(of)
	}

	pub(super) fn limit(&self) -> u64 {
		self.states().fold(0, |sum, disk| sum.saturating_add(disk.limit()))
	}
}

/// What shells get of a disk: its image, and the files of what was written to it.
pub(super) fn descriptors(disk: &FrozenDisk) -> impl Iterator<Item = BorrowedFd<'_>> {
	std::iter::once(disk.image.as_fd()).chain(disk.overlay.files().iter().map(AsFd::as_fd))
}

/// Opens an image; also gives its length in bytes.
fn open(disk: &AttachDisk) -> Result<(FrozenDisk, u64), DaemonError> {
	let failed = |cause| DaemonError::File { path: disk.image.clone(), cause };
	let file = files::open(&disk.image).map_err(failed)?;
	let unfit = |e: DiskError| failed(std::io::Error::other(e));
	let seen = Some(Arc::new(Seen::now(&disk.image, &file).map_err(unfit)?));
	let bytes = length(&file).map_err(unfit)?;
	let limit = disk.limit_mib.saturating_mul(1 << 20);
	let attached = Some(BootDisk { limit, serial: SERIAL.into(), read_only: disk.read_only });
	let overlay = empty_overlay(bytes).map_err(unfit)?;
	Ok((FrozenDisk { image: file.into(), overlay, attached, seen }, bytes))
}

/// Where it is mounted; nowhere is an empty path.
fn mount(disk: &AttachDisk) -> Result<String, DaemonError> {
	let Some(path) = &disk.mount else { return Ok(String::new()) };
	let names: Vec<_> = Path::new(path).components().skip(1).collect();
	let leads_down = !names.is_empty() && names.iter().all(|name| matches!(name, Component::Normal(_)));
	if path.starts_with('/') && leads_down && path.len() <= MAX_MOUNT && !path.contains(char::is_control) {
		return Ok(path.clone());
	}
	Err(DaemonError::Invalid(format!(
		"{path:?} is no place for a disk: give an absolute path without `..`, of up to {MAX_MOUNT} bytes"
	)))
}

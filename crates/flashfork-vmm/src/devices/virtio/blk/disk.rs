//! A disk: an image that never changes, and what was written over it.

use super::{
	Seen,
	overlay::{self, BLOCK, NoPlace, Overlay},
};
use crate::{
	events::{Event, Outbox},
	memory::{self, Copying, LayerError, Layered, MemfdError, Watch},
};
use flashfork_proto::{
	api::{DEFAULT_DISK_LIMIT_MIB, MAX_SERIAL},
	shell::BootDisk,
};
use serde::{Deserialize, Serialize};
use std::{
	fs::File,
	io::{self, Seek, SeekFrom},
	ops::Range,
	os::{
		fd::{AsFd, OwnedFd},
		unix::fs::FileExt,
	},
	path::PathBuf,
	sync::Arc,
};

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Greatest disk: 16 TiB.
const MAX_BYTES: u64 = 16 << 40;
/// Bytes of a serial number.
pub const SERIAL: usize = MAX_SERIAL;

/// What a guest may write to its disk if nothing else is said: 1 GiB.
pub const DEFAULT_LIMIT: u64 = DEFAULT_DISK_LIMIT_MIB << 20;

/// What a VM boots with.
#[derive(Debug)]
pub struct Image {
	/// A raw disk image, opened for reading, which must not change while template or clones live.
	pub file: File,
	/// The guest may not write.
	pub read_only: bool,
	/// What the guest finds as its serial number (/sys/block/vda/serial); only the first 20 bytes.
	pub serial: String,
	/// Bytes that each VM may write, in blocks of 4 KB; beyond it the guest gets I/O errors.
	pub limit: u64,
}

/// A template's disk.
#[derive(Debug)]
pub struct FrozenDisk {
	/// Its image, opened for reading.
	pub image: OwnedFd,
	/// What the template wrote: sealed memory files.
	pub overlay: Layered,
	/// How a clone sees it, if it is attached to the clone and no disk of the template: then nothing was written.
	pub attached: Option<BootDisk>,
	/// The image as it was, for whoever makes clones.
	pub seen: Option<Arc<Seen>>,
}

impl FrozenDisk {
	/// Whether the image is what it was.
	///
	/// # Errors
	/// [`DiskError::Changed`].
	pub fn check(&self) -> Result<(), DiskError> {
		self.seen.as_ref().map_or(Ok(()), |seen| seen.check(&self.image))
	}
}

/// Why a disk can't be had.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
	/// Its length can't be found out.
	#[error("cannot read the disk image: {0}")]
	Image(io::Error),
	/// No disk has it.
	#[error("the disk image has {0} bytes; a whole number of 512-byte sectors up to 16 TiB is needed")]
	Size(u64),
	/// Somebody has written to it.
	#[error(
		"the disk image {} has changed since it was first used: make anew what was made of it",
		.0.display()
	)]
	Changed(PathBuf),
	/// What is written has no place, or isn't a template's.
	#[error("the disk's overlay: {0}")]
	Overlay(#[from] MemfdError),
	/// What was written, in several files.
	#[error("the disk's overlay: {0}")]
	Layers(#[from] LayerError),
	/// No room for it.
	#[error("cannot map the disk's overlay: {0}")]
	Map(io::Error),
	/// The shape says otherwise.
	#[error("{0}")]
	Shape(&'static str),
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
	/// The host can't read the image.
	#[error("cannot read the disk image: {0}")]
	Image(io::Error),
	/// The VM has written as much as it may.
	#[error(
		"the disk is full: the VM has written all it may ({0} MiB); more takes a greater --disk-limit where the disk is given"
	)]
	Full(u64),
}

/// What a template keeps of a disk, besides image and overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskState {
	bytes: u64,
	read_only: bool,
	serial: [u8; SERIAL],
	limit: u64,
}

impl DiskState {
	/// Of a disk of `bytes` that a VM boots with.
	pub fn new(bytes: u64, read_only: bool, serial: &str, limit: u64) -> Self {
		let mut name = [0; SERIAL];
		name.iter_mut().zip(serial.bytes()).for_each(|(to, from)| *to = from);
		Self { bytes, read_only, serial: name, limit }
	}

	/// Bytes that a VM with this disk may write.
	pub fn limit(&self) -> u64 {
		if self.read_only { 0 } else { self.limit }
	}
}

/// A VM's disk.
#[derive(Debug)]
pub struct Disk {
	image: File,
	overlay: Overlay,
	state: DiskState,
	/// No template had it.
	attached: bool,
	/// Who hears of faults.
	events: Option<Outbox>,
	/// Faults of each kind are told once: the guest can make as many as it likes.
	told: [bool; 2],
}

impl Disk {
	/// A disk to boot with.
	pub fn new(image: Image) -> Result<Self, DiskError> {
		let overlay = blank_overlay(&image.file)?;
		Self::over(image, overlay)
	}

	/// A disk to boot with, that keeps what is written in `overlay`, a [blank one](blank_overlay).
	pub fn over(image: Image, overlay: OwnedFd) -> Result<Self, DiskError> {
		let Image { file, read_only, serial, limit } = image;
		let bytes = length(&file)?;
		let overlay = Overlay::over(overlay, bytes.div_ceil(BLOCK as u64))?;
		Ok(Self {
			image: file,
			overlay,
			state: DiskState::new(bytes, read_only, &serial, limit),
			attached: false,
			events: None,
			told: [false; 2],
		})
	}

	/// A copy of a template's, or one that is attached. Whether a template's may be written to, and how much, comes
	/// with the template's state; until then it may not.
	pub fn copy(template: &FrozenDisk) -> Result<Self, DiskError> {
		let image = File::from(template.image.as_fd().try_clone_to_owned().map_err(DiskError::Image)?);
		let bytes = length(&image)?;
		let overlay = Overlay::copy(&template.overlay, bytes.div_ceil(BLOCK as u64))?;
		let state = match &template.attached {
			Some(disk) => DiskState::new(bytes, disk.read_only, &disk.serial, disk.limit),
			None => DiskState::new(bytes, true, "", 0),
		};
		Ok(Self { image, overlay, state, attached: template.attached.is_some(), events: None, told: [false; 2] })
	}

	/// Makes the disk immutable and goes on as a copy of it.
	pub fn freeze(&mut self) -> Result<FrozenDisk, DiskError> {
		let image = self.image.try_clone().map_err(DiskError::Image)?.into();
		let overlay = Layered::single(self.overlay.freeze()?, overlay_bytes(self.state.bytes));
		Ok(FrozenDisk { image, overlay, attached: None, seen: None })
	}

	/// Begins to copy what was written since the template into `file`; see [`Copying::begin`].
	pub fn copy_writes(&self, watch: &Watch, file: impl AsFd) -> Result<Copying, DiskError> {
		self.overlay.copy_writes(watch, file)
	}

	/// Drops every write since the template.
	pub fn discard_writes(&mut self) -> Result<(), DiskError> {
		self.told = [false; 2];
		self.overlay.discard_writes()
	}

	/// Tells the machine's events of faults from now on.
	pub fn report_to(&mut self, events: Outbox) {
		self.events = Some(events);
	}

	/// The guest got an I/O error for `fault`.
	pub(super) fn note(&mut self, fault: &Fault) {
		let told = &mut self.told[usize::from(matches!(fault, Fault::Full(_)))];
		if !std::mem::replace(told, true)
			&& let Some(events) = &self.events
		{
			events.put(Event::Trouble(fault.to_string()));
		}
	}

	/// Its length.
	pub fn bytes(&self) -> u64 {
		self.state.bytes
	}

	/// Whether writes are refused.
	pub fn read_only(&self) -> bool {
		self.state.read_only
	}

	/// Its serial number, padded with zeros.
	pub fn serial(&self) -> &[u8; SERIAL] {
		&self.state.serial
	}

	/// Whether it came with the clone and not with its template.
	pub fn is_attached(&self) -> bool {
		self.attached
	}

	/// For a template.
	pub fn state(&self) -> &DiskState {
		&self.state
	}

	/// What a template kept; it must be of the same disk.
	pub fn set_state(&mut self, state: DiskState) -> Result<(), String> {
		if state.bytes != self.state.bytes {
			return Err(format!("its disk had {} bytes, the image has {}", state.bytes, self.state.bytes));
		}
		self.state = state;
		Ok(())
	}

	/// Reads from `offset`; the range is inside the disk.
	pub fn read(&self, mut offset: u64, mut to: &mut [u8]) -> Result<(), Fault> {
		while !to.is_empty() {
			let (block, skip) = split(offset);
			let mut length = (BLOCK - skip).min(to.len());
			if let Some(written) = self.overlay.get(block) {
				to[..length].copy_from_slice(&written[skip..skip + length]);
			} else {
				// All blocks up to the next written one in a single call.
				let mut next = block + 1;
				while length < to.len() && self.overlay.get(next).is_none() {
					length = (length + BLOCK).min(to.len());
					next += 1;
				}
				self.image.read_exact_at(&mut to[..length], offset).map_err(Fault::Image)?;
			}
			to = &mut to[length..];
			offset += length as u64;
		}
		Ok(())
	}

	/// Writes at `offset`; the range is inside the disk. If it fails, blocks before the one that failed are written.
	pub fn write(&mut self, mut offset: u64, mut from: &[u8]) -> Result<(), Fault> {
		let Self { image, overlay, state, .. } = self;
		while !from.is_empty() {
			let (block, skip) = split(offset);
			let length = (BLOCK - skip).min(from.len());
			let start = block * BLOCK as u64;
			let end = (state.bytes - start).min(BLOCK as u64) as usize;
			let limit = state.limit / BLOCK as u64;
			let place = overlay.get_mut(block, limit, |fresh| {
				// All of it is about to be written, or the rest comes from the image.
				if length < end { image.read_exact_at(&mut fresh[..end], start) } else { Ok(()) }
			});
			let place = place.map_err(|no| match no {
				NoPlace::Full => Fault::Full(state.limit >> 20),
				NoPlace::Fill(cause) => Fault::Image(cause),
			})?;
			place[skip..skip + length].copy_from_slice(&from[..length]);
			from = &from[length..];
			offset += length as u64;
		}
		Ok(())
	}

	/// Makes bytes of the disk zeros, and frees the memory of whole blocks; of others only if it is to be `exact`.
	pub fn clear(&mut self, range: Range<u64>, exact: bool) -> Result<(), Fault> {
		let block = BLOCK as u64;
		// The last block of the disk may be shorter.
		let end = if range.end == self.state.bytes { range.end.next_multiple_of(block) } else { range.end };
		let whole = range.start.div_ceil(block)..end / block;
		let mut edges = [range.clone(), range.end..range.end];
		if !whole.is_empty() {
			edges = [range.start..whole.start * block, (whole.end * block).min(range.end)..range.end];
			self.overlay.discard(whole).map_err(|e| Fault::Image(io::Error::other(e)))?;
		}
		for edge in edges.into_iter().filter(|edge| exact && !edge.is_empty()) {
			self.write(edge.start, &vec![0; (edge.end - edge.start) as usize])?;
		}
		Ok(())
	}

	/// Bytes of memory that what this VM wrote takes.
	pub fn written(&self) -> u64 {
		self.overlay.written() * BLOCK as u64
	}
}

fn split(offset: u64) -> (u64, usize) {
	(offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}

/// Where what is written to a disk of `image` can be kept.
pub fn blank_overlay(image: &File) -> Result<OwnedFd, DiskError> {
	Ok(overlay::create(length(image)?.div_ceil(BLOCK as u64))?)
}

/// For a disk of `bytes` to be attached: a sealed overlay in which nothing was written.
pub fn empty_overlay(bytes: u64) -> Result<Layered, DiskError> {
	let file = overlay::create(bytes.div_ceil(BLOCK as u64))?;
	memory::seal(&file)?;
	Ok(Layered::single(file, overlay_bytes(bytes)))
}

/// Bytes of the overlay of a disk of `bytes`.
pub fn overlay_bytes(bytes: u64) -> u64 {
	overlay::length(bytes.div_ceil(BLOCK as u64))
}

/// Of a file or a block device, in bytes, if it can be a disk's.
pub fn length(image: &File) -> Result<u64, DiskError> {
	let bytes = (&*image).seek(SeekFrom::End(0)).map_err(DiskError::Image)?;
	if bytes == 0 || bytes > MAX_BYTES || !bytes.is_multiple_of(SECTOR) {
		return Err(DiskError::Size(bytes));
	}
	Ok(bytes)
}

//! One request: read from the guest's memory, checked, carried out, answered.

use super::{
	super::device::Broken,
	disk::{Disk, SECTOR, SERIAL},
};
use crate::memory::GuestMemory;
use std::io::{Read, Write};
use virtio_bindings::virtio_blk::{
	VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
	VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_queue::{DescriptorChain, Reader, Writer};

/// Greatest length of a request's data. A driver that keeps to what the device says makes none of it (see `config`);
/// it bounds how long a pause waits.
pub(super) const MAX_DATA: usize = 8 << 20;
/// Greatest number of sectors of a piece that is made zeros, and of pieces in a request: they bound the same.
pub(super) const MAX_CLEARED: u32 = 1 << 19;
pub(super) const MAX_PIECES: u32 = 16;
/// Bytes of a disk of which nothing is made zeros: the bits that say so would take memory that nobody has promised.
const VAST: u64 = 1 << 40;
/// What is copied at once.
const CHUNK: usize = 64 << 10;

/// Carries out the request in `chain`; gives the number of bytes written to the guest.
///
/// [`Broken`] only if there is no place for an answer: a chain that leaves memory, or has no room for a status.
pub(super) fn serve(
	disk: Option<&mut Disk>,
	chain: DescriptorChain<&GuestMemory>,
	memory: &GuestMemory,
) -> Result<u32, Broken> {
	let broken = |e: virtio_queue::Error| Broken(e.to_string());
	let mut reader = chain.clone().reader(memory).map_err(broken)?;
	let mut data = chain.writer(memory).map_err(broken)?;
	let room = data.available_bytes().checked_sub(1).ok_or_else(|| Broken("a request without a status".into()))?;
	let mut answer = data.split_at(room).map_err(broken)?;
	let status = match disk {
		Some(disk) => carry_out(disk, &mut reader, &mut data),
		None => VIRTIO_BLK_S_IOERR,
	};
	answer.write_all(&[status as u8]).map_err(|e| Broken(e.to_string()))?;
	Ok(data.bytes_written() as u32 + 1)
}

/// Gives `VIRTIO_BLK_S_*`.
fn carry_out(disk: &mut Disk, reader: &mut Reader<'_>, data: &mut Writer<'_>) -> u32 {
	let mut header = [0; 16];
	if reader.read_exact(&mut header).is_err() {
		return VIRTIO_BLK_S_IOERR;
	}
	let [a, b, c, d, _, _, _, _, sector @ ..] = header;
	let sector = u64::from_le_bytes(sector);
	let done = match u32::from_le_bytes([a, b, c, d]) {
		VIRTIO_BLK_T_IN => read(disk, sector, data),
		VIRTIO_BLK_T_OUT => write(disk, sector, reader),
		// It is only a hint.
		VIRTIO_BLK_T_DISCARD if disk.bytes() > VAST => Some(()),
		kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) if disk.bytes() <= VAST => {
			return clear(disk, kind, reader).unwrap_or(VIRTIO_BLK_S_IOERR);
		}
		// What was answered before is where it stays: there is no cache.
		VIRTIO_BLK_T_FLUSH => Some(()),
		VIRTIO_BLK_T_GET_ID => {
			let room = data.available_bytes().min(SERIAL);
			data.write_all(&disk.serial()[..room]).ok()
		}
		_ => return VIRTIO_BLK_S_UNSUPP,
	};
	if done.is_some() { VIRTIO_BLK_S_OK } else { VIRTIO_BLK_S_IOERR }
}

fn read(disk: &mut Disk, sector: u64, data: &mut Writer<'_>) -> Option<()> {
	let mut offset = place(disk, sector, data.available_bytes())?;
	let mut chunk = vec![0; data.available_bytes().min(CHUNK)];
	while data.available_bytes() > 0 {
		let length = data.available_bytes().min(CHUNK);
		disk.read(offset, &mut chunk[..length]).map_err(|fault| disk.note(&fault)).ok()?;
		data.write_all(&chunk[..length]).ok()?;
		offset += length as u64;
	}
	Some(())
}

fn write(disk: &mut Disk, sector: u64, reader: &mut Reader<'_>) -> Option<()> {
	if disk.read_only() {
		return None;
	}
	let mut offset = place(disk, sector, reader.available_bytes())?;
	let mut chunk = vec![0; reader.available_bytes().min(CHUNK)];
	while reader.available_bytes() > 0 {
		let length = reader.available_bytes().min(CHUNK);
		reader.read_exact(&mut chunk[..length]).ok()?;
		disk.write(offset, &chunk[..length]).map_err(|fault| disk.note(&fault)).ok()?;
		offset += length as u64;
	}
	Some(())
}

/// Makes zeros of what each piece says: sector, number of sectors, flags (1: may be unmapped).
fn clear(disk: &mut Disk, kind: u32, reader: &mut Reader<'_>) -> Option<u32> {
	let exact = kind == VIRTIO_BLK_T_WRITE_ZEROES;
	let pieces = reader.available_bytes() / 16;
	if disk.read_only() || !(1..=MAX_PIECES as usize).contains(&pieces) || !reader.available_bytes().is_multiple_of(16)
	{
		return None;
	}
	for _ in 0..pieces {
		let mut piece = [0; 16];
		reader.read_exact(&mut piece).ok()?;
		let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| piece[at + n]));
		let (sector, sectors) = (u64::from(half(0)) | u64::from(half(4)) << 32, half(8));
		if half(12) > u32::from(exact) {
			return Some(VIRTIO_BLK_S_UNSUPP);
		}
		let bytes = u64::from(sectors) * SECTOR;
		let offset = inside(disk, sector, bytes).filter(|_| sectors <= MAX_CLEARED)?;
		disk.clear(offset..offset + bytes, exact).map_err(|fault| disk.note(&fault)).ok()?;
	}
	Some(VIRTIO_BLK_S_OK)
}

/// Where `length` bytes from `sector` on are, if they are whole sectors inside the disk and not too many.
fn place(disk: &Disk, sector: u64, length: usize) -> Option<u64> {
	inside(disk, sector, length as u64).filter(|_| (length as u64).is_multiple_of(SECTOR) && length <= MAX_DATA)
}

fn inside(disk: &Disk, sector: u64, bytes: u64) -> Option<u64> {
	let offset = sector.checked_mul(SECTOR)?;
	(offset.checked_add(bytes)? <= disk.bytes()).then_some(offset)
}

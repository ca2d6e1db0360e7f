//! One request: read from the guest's memory, checked, carried out, answered.

use super::super::device::Broken;
use super::disk::{Disk, SECTOR, SERIAL};
use crate::memory::GuestMemory;
use std::io::{Read, Write};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT,
};
use virtio_queue::{DescriptorChain, Reader, Writer};

/// Greatest length of a request's data. A driver that keeps to what the device says makes none of it (see `config`);
/// it bounds how long a pause waits.
pub(super) const MAX_DATA: usize = 8 << 20;
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

/// Where `length` bytes from `sector` on are, if they are whole sectors inside the disk and not too many.
fn place(disk: &Disk, sector: u64, length: usize) -> Option<u64> {
    let offset = sector.checked_mul(SECTOR)?;
    let end = offset.checked_add(length as u64)?;
    (end <= disk.bytes() && (length as u64).is_multiple_of(SECTOR) && length <= MAX_DATA).then_some(offset)
}

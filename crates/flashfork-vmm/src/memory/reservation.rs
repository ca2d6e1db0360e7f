//! A range of addresses with nothing behind it, for memory slots that exist before their memory does.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{io, ptr};

/// Reservations are aligned to this, in bytes, so that 2 MB pages fit.
const ALIGN: usize = 2 << 20;

/// A range of addresses that belongs to this value. Freshly made, every access to it faults.
#[derive(Debug)]
pub struct Reservation {
    start: *mut u8,
    length: usize,
}

// SAFETY: a range of addresses; nothing in it belongs to a thread.
unsafe impl Send for Reservation {}
// SAFETY: as above; the methods give out addresses only.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `length` bytes, a multiple of the page size.
    pub fn new(length: usize) -> io::Result<Self> {
        let whole = length.checked_add(ALIGN).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping where the kernel finds room.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags) }?.cast::<u8>();
        let skip = base.align_offset(ALIGN);
        // SAFETY: the parts before and after the aligned range belong to the mapping just made and nobody uses them.
        unsafe {
            if skip > 0 {
                munmap(base.cast(), skip)?;
            }
            munmap(base.add(skip + length).cast(), ALIGN - skip)?;
            Ok(Self { start: base.add(skip), length })
        }
    }

    /// First address.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Takes everything out of the range again: every access faults.
    pub fn clear(&self) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range belongs to `self`; who had memory mapped in it is told by `Ram` that it is gone.
        unsafe { mmap_anonymous(self.start.cast(), self.length, ProtFlags::empty(), flags) }?;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range belongs to `self`, and everything that knows its addresses is gone with `Ram`.
        // It fails only for ranges that are none.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_aligned_and_goes_away() {
        let reservation = Reservation::new(4 << 20).unwrap();
        let start = reservation.start();
        assert_eq!(start.align_offset(ALIGN), 0);
        assert_eq!(reservation.length(), 4 << 20);
        drop(reservation);
        let mut resident = [0u8; 1];
        // SAFETY: mincore writes one byte per page into `resident` and reads nothing of the range.
        let result = unsafe { libc::mincore(start.cast(), 4096, resident.as_mut_ptr()) };
        assert_eq!((result, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOMEM)));
    }
}

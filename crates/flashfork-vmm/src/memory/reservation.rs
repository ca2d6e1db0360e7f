//! A range of addresses with nothing behind it, for memory slots that exist before their memory does.

use flashfork_proto::shape::MAX_MEMORY_MIB;
use rustix::{
	io::Errno,
	mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
	rand::{GetRandomFlags, getrandom},
};
use std::{
	io, iter,
	ops::Range,
	os::fd::{AsFd, BorrowedFd},
	ptr,
};

/// Reservations no larger than a guest's memory are aligned to this, in bytes, so that 2 MB pages fit.
const ALIGN: usize = 2 << 20;

/// A range of addresses that belongs to this value. Freshly made, every access to it faults.
#[derive(Debug)]
pub struct Reservation {
	start: *mut u8,
	length: usize,
	/// The range is not mapped at all: see [`Reservation::vacate`].
	vacant: bool,
}

/// Vacant ranges are taken from these addresses, far below all that the kernel places by itself, which it does from the
/// top down: it comes here after 100 TB.
const LOW: Range<u64> = 1 << 40..16 << 40;

/// Larger ones, for disks, the kernel places: they might find no room there, and are never vacant.
const LARGEST: usize = (MAX_MEMORY_MIB as usize) << 20;

/// How many random places in [`LOW`] are tried. Two would do: a process has a few ranges in 15 TB.
const TRIES: u32 = 16;

// SAFETY: a range of addresses; nothing in it belongs to a thread.
unsafe impl Send for Reservation {}
// SAFETY: as above; the methods give out addresses only.
unsafe impl Sync for Reservation {}

impl Reservation {
	/// Reserves `length` bytes, a multiple of the page size.
	pub fn new(length: usize) -> io::Result<Self> {
		let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
		if length > LARGEST {
			// SAFETY: a new mapping.
			let start = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags) }?;
			return Ok(Self { start: start.cast(), length, vacant: false });
		}
		for _ in 0..TRIES {
			let mut random = [0; 8];
			getrandom(&mut random, GetRandomFlags::empty())?;
			let place = LOW.start + u64::from_ne_bytes(random) % (LOW.end - LOW.start);
			let start = (place as usize & !(ALIGN - 1)) as *mut u8;
			let flags = flags | MapFlags::FIXED_NOREPLACE;
			// SAFETY: a new mapping, which replaces nothing.
			match unsafe { mmap_anonymous(start.cast(), length, ProtFlags::empty(), flags) } {
				Ok(_) => return Ok(Self { start, length, vacant: false }),
				Err(Errno::EXIST | Errno::NOMEM) => {}
				Err(errno) => return Err(errno.into()),
			}
		}
		Err(io::ErrorKind::OutOfMemory.into())
	}

	/// First address.
	pub fn start(&self) -> *mut u8 {
		self.start
	}

	/// In bytes.
	pub fn length(&self) -> usize {
		self.length
	}

	/// Gives the range back to the kernel, but keeps it in mind: mapping something into a hole doesn't make KVM look
	/// through what it knows of the range, which costs 0.2 ms per GB where it has shadow page tables. Every access
	/// still faults.
	///
	/// Nothing else takes the place unless it asks for it by address; [`Reservation::fill`] would find out.
	pub fn vacate(&mut self) -> io::Result<()> {
		// SAFETY: the range belongs to `self`; nothing is mapped in it that somebody would use.
		unsafe { munmap(self.start.cast(), self.length) }?;
		self.vacant = true;
		Ok(())
	}

	/// Maps `file` over the range.
	pub fn fill(&mut self, access: ProtFlags, flags: MapFlags, file: impl AsFd) -> io::Result<()> {
		self.fill_with(access, flags, iter::once((0..self.length as u64, file.as_fd())))
	}

	/// Maps parts of files over the range, each where it lies in its file. Together they are the range, in order.
	pub fn fill_with<'a>(
		&mut self,
		access: ProtFlags,
		flags: MapFlags,
		parts: impl Iterator<Item = (Range<u64>, BorrowedFd<'a>)>,
	) -> io::Result<()> {
		// In a hole somebody else may live by now.
		let fixed = if self.vacant { MapFlags::FIXED_NOREPLACE } else { MapFlags::FIXED };
		for (part, file) in parts {
			assert!(part.start <= part.end && part.end <= self.length as u64, "a part lies in the range");
			let (at, length) = (self.start.wrapping_add(part.start as usize), (part.end - part.start) as usize);
			// SAFETY: over the range that belongs to `self`, or where nothing is.
			if let Err(e) = unsafe { mmap(at.cast(), length, access, flags | fixed, file, part.start) } {
				if self.vacant {
					// SAFETY: what was mapped just now, and nobody knows of. It fails only for ranges that are none.
					let _ = unsafe { munmap(self.start.cast(), part.start as usize) };
				}
				return Err(e.into());
			}
		}
		self.vacant = false;
		Ok(())
	}

	/// Takes everything out of the range again: every access faults.
	pub fn clear(&self) -> io::Result<()> {
		let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
		if self.vacant {
			return Ok(());
		}
		// SAFETY: the range belongs to `self`; who had memory mapped in it is told by `Ram` that it is gone.
		unsafe { mmap_anonymous(self.start.cast(), self.length, ProtFlags::empty(), flags) }?;
		Ok(())
	}
}

impl Drop for Reservation {
	fn drop(&mut self) {
		if self.vacant {
			return;
		}
		// SAFETY: the range belongs to `self`, and everything that knows its addresses is gone with `Ram`.
		// It fails only for ranges that are none.
		let _ = unsafe { munmap(self.start.cast(), self.length) };
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_took_a_vacant_range_is_not_mapped_over_and_stays_when_the_reservation_goes() {
		let file = crate::memory::create("flashfork:test", 4 << 20, flashfork_proto::shape::Pages::Small).unwrap();
		let mut reservation = Reservation::new(4 << 20).unwrap();
		reservation.vacate().unwrap();
		let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
		// SAFETY: a new mapping where nothing is.
		let other = unsafe { mmap_anonymous(reservation.start().cast(), 4096, ProtFlags::READ, flags) }.unwrap();
		let refused = reservation.fill(ProtFlags::READ, MapFlags::PRIVATE, &file).unwrap_err();
		assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
		drop(reservation);
		// SAFETY: mapped above.
		assert_eq!(unsafe { other.cast::<u8>().read() }, 0);
	}

	#[test]
	fn a_vacant_range_can_be_filled() {
		let file = crate::memory::create("flashfork:test", 4 << 20, flashfork_proto::shape::Pages::Small).unwrap();
		let mut reservation = Reservation::new(4 << 20).unwrap();
		reservation.vacate().unwrap();
		reservation.fill(ProtFlags::READ, MapFlags::PRIVATE, &file).unwrap();
		// SAFETY: mapped above.
		assert_eq!(unsafe { reservation.start().read() }, 0);
	}

	#[test]
	fn parts_of_files_fill_a_vacant_range_or_nothing_stays() {
		let files = [7, 9].map(|byte| {
			let file = crate::memory::create("flashfork:test", 4 << 20, flashfork_proto::shape::Pages::Small).unwrap();
			rustix::io::pwrite(&file, &[byte], 4096).unwrap();
			rustix::io::pwrite(&file, &[byte], 8192).unwrap();
			file
		});
		let parts = || [(0..8192, files[0].as_fd()), (8192..4 << 20, files[1].as_fd())].into_iter();
		let mut reservation = Reservation::new(4 << 20).unwrap();
		reservation.vacate().unwrap();
		let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
		let place = reservation.start().wrapping_add(1 << 20);
		// SAFETY: a new mapping where nothing is.
		unsafe { mmap_anonymous(place.cast(), 4096, ProtFlags::READ, flags) }.unwrap();
		reservation.fill_with(ProtFlags::READ, MapFlags::PRIVATE, parts()).unwrap_err();
		// SAFETY: mapped above.
		unsafe { munmap(place.cast(), 4096) }.unwrap();
		// Fails if anything of the first try was left.
		reservation.fill_with(ProtFlags::READ, MapFlags::PRIVATE, parts()).unwrap();
		// SAFETY: mapped just now.
		assert_eq!([4096, 8192].map(|at| unsafe { reservation.start().add(at).read() }), [7, 9]);
	}

	#[test]
	fn there_is_room_for_several_of_the_largest_disks() {
		let _all = [(); 4].map(|()| Reservation::new(17 << 40).unwrap());
	}

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

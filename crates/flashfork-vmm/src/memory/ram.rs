//! A guest's RAM: a reservation whose addresses KVM's memory slots hold, and what is mapped over it at the moment.

use super::{Copying, Layered, MemfdError, Reservation, Undo, Watch, pagemap::PAGE};
use crate::layout;
use flashfork_proto::{
	shape::Shape,
	shell::{MAX_POPULATED, MAX_RUNS, Run},
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise};
use std::{fmt, io, os::fd::AsFd};
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap, mmap::MmapRegionBuilder};

/// Guest RAM as devices see it. Its addresses are those of the reservation: while nothing is mapped an access is a
/// fault of this process, never another memory.
pub type GuestMemory = GuestMemoryMmap<()>;

/// RAM of one VM.
pub struct Ram {
	// First, so that what knows the addresses goes before they do.
	guest: GuestMemory,
	reservation: Reservation,
	mapped: Mapped,
}

/// What is behind the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mapped {
	Nothing,
	Shared,
	Private,
}

/// Why RAM can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RamError {
	/// No room for the addresses.
	#[error(
		"cannot reserve {mib} MB of addresses: {cause}; give the guest less memory, or raise the limit (ulimit -v)"
	)]
	Reserve {
		/// Asked for.
		mib: u64,
		/// As the kernel says.
		cause: io::Error,
	},
	/// The file is not what it should be.
	#[error(transparent)]
	File(#[from] MemfdError),
	/// `mmap` refused.
	#[error("cannot map guest memory: {0}{hint}", hint = room_hint(.0))]
	Map(io::Error),
	/// There is memory where there must be none.
	#[error("the machine has memory already")]
	InUse,
	/// Pages that it doesn't have, or too many.
	#[error("pages that are to be there beforehand are none of a template's memory, or too many")]
	Runs,
	/// A rollback needs a template below.
	#[error("the memory is not a copy of a template's")]
	NotPrivate,
}

/// 2 MB pages are set aside when they are mapped; others when they are touched.
fn room_hint(cause: &io::Error) -> &'static str {
	match cause.raw_os_error() {
		Some(libc::ENOMEM) => "; with 2 MB pages, reserve more in /proc/sys/vm/nr_hugepages",
		_ => "",
	}
}

impl Ram {
	/// Addresses for the RAM of `shape`, with nothing mapped.
	pub fn reserve(shape: &Shape) -> Result<Self, RamError> {
		let reserve = |cause| RamError::Reserve { mib: u64::from(shape.memory_mib), cause };
		let reservation = Reservation::new(shape.memory_bytes() as usize).map_err(reserve)?;
		let mut offset = 0;
		let mut regions = Vec::new();
		for (guest, length) in layout::ram(shape.memory_bytes()) {
			let builder = MmapRegionBuilder::new(length as usize)
				.with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
				.with_mmap_flags(libc::MAP_NORESERVE | libc::MAP_PRIVATE);
			// SAFETY: the range lies in the reservation, which lives as long as `self.guest`; vm-memory doesn't unmap
			// it.
			let region = unsafe { builder.with_raw_mmap_pointer(reservation.start().add(offset)) };
			let region = region.build().map_err(|e| RamError::Map(io::Error::other(e)))?;
			regions.extend(GuestRegionMmap::new(region, GuestAddress(guest)));
			offset += length as usize;
		}
		let guest = GuestMemory::from_regions(regions).map_err(|e| RamError::Map(io::Error::other(e)))?;
		Ok(Self { guest, reservation, mapped: Mapped::Nothing })
	}

	/// RAM as devices see it; nothing of it may be touched while nothing is mapped.
	pub fn guest(&self) -> &GuestMemory {
		&self.guest
	}

	/// The parts of RAM for memory slots: guest-physical start, length, address here.
	pub fn slots(&self) -> impl Iterator<Item = (u64, u64, u64)> {
		let start = self.reservation.start() as u64;
		let mut offset = 0;
		layout::ram(self.reservation.length() as u64).map(move |(guest, length)| {
			let slot = (guest, length, start + offset);
			offset += length;
			slot
		})
	}

	/// Maps a memory file that the guest writes to: a VM on its way to become a template.
	pub fn map_shared(&mut self, file: impl AsFd) -> Result<(), RamError> {
		self.map(file, MapFlags::SHARED)?;
		self.mapped = Mapped::Shared;
		Ok(())
	}

	/// Maps a template's memory, copy on write. KVM's slots hold addresses, so they need no change; KVM drops what it
	/// had mapped by itself (the MMU notifier).
	///
	/// The file must have been [checked](super::check), or made here: it must not shrink.
	pub fn map_private(&mut self, file: impl AsFd) -> Result<(), RamError> {
		self.map(file, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
		self.mapped = Mapped::Private;
		Ok(())
	}

	/// As [`Self::map_private`], of the files of a template that may have been forked while it ran.
	pub fn map_layers(&mut self, layers: &Layered) -> Result<(), RamError> {
		let access = ProtFlags::READ | ProtFlags::WRITE;
		let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
		self.reservation.fill_with(access, flags, layers.ranges()).map_err(RamError::Map)?;
		self.mapped = Mapped::Private;
		Ok(())
	}

	/// Begins to copy what was written since [`Self::map_private`] into `file`; see [`Copying::begin`].
	pub fn copy_writes(&self, watch: &Watch, file: impl AsFd) -> Result<Copying, RamError> {
		if self.mapped != Mapped::Private {
			return Err(RamError::NotPrivate);
		}
		let start = self.reservation.start() as usize;
		Copying::begin(watch, start..start + self.reservation.length(), file).map_err(RamError::Map)
	}

	/// While nothing is mapped: makes the next mapping as cheap as can be. For a process with one VM, which does
	/// nothing else until then.
	pub fn vacate(&mut self) -> Result<(), RamError> {
		match self.mapped {
			Mapped::Nothing => self.reservation.vacate().map_err(RamError::Map),
			Mapped::Shared | Mapped::Private => Err(RamError::InUse),
		}
	}

	/// Takes the memory away: afterwards the file has no mapping here and can be sealed.
	pub fn unmap(&mut self) -> Result<(), RamError> {
		self.reservation.clear().map_err(RamError::Map)?;
		self.mapped = Mapped::Nothing;
		Ok(())
	}

	/// Drops every write since [`Self::map_private`]: the memory is the template's again.
	pub fn discard_writes(&mut self) -> Result<(), RamError> {
		if self.mapped != Mapped::Private {
			return Err(RamError::NotPrivate);
		}
		// SAFETY: the whole reservation, a private file mapping: its pages go back to the file's. No reference into
		// guest memory exists; vm-memory accesses it through volatile copies.
		unsafe { madvise(self.reservation.start().cast(), self.reservation.length(), Advice::LinuxDontNeed) }
			.map_err(|e| RamError::Map(e.into()))
	}

	/// As [`Self::discard_writes`], but if it can be done and pays, pages that were written stay, with the content of
	/// `template`, which is what was mapped. Gives whether they did. Nobody writes meanwhile.
	///
	/// KVM and the processor may know of guest page tables what is true no more: see `Vcpu::forget_translations`.
	pub fn undo_writes(&mut self, undo: &mut Undo, watch: &Watch, template: &Layered) -> Result<bool, RamError> {
		let copied = self.mapped == Mapped::Private && undo.copy_back(&self.reservation, watch, template);
		if !copied {
			self.discard_writes()?;
		}
		Ok(copied)
	}

	/// The pages written since [`Self::map_private`]; nothing if they are more than [`MAX_POPULATED`] or in more than
	/// [`MAX_RUNS`] of runs. Writers may go on meanwhile.
	pub fn written(&self, watch: &Watch) -> Result<Vec<Run>, RamError> {
		let start = self.reservation.start() as usize;
		let (mut runs, mut all): (Vec<Run>, _) = (Vec::new(), 0);
		let found = watch.copies(start..start + self.reservation.length(), |run| {
			let (first, pages) = (((run.start - start) / PAGE) as u32, (run.len() / PAGE) as u32);
			all += pages;
			let many = runs.len() > MAX_RUNS;
			match runs.last_mut() {
				Some(last) if last.first + last.pages == first => last.pages += pages,
				_ if !many => runs.push(Run { first, pages }),
				_ => {}
			}
		});
		found.map_err(RamError::Map)?;
		Ok(if all > MAX_POPULATED || runs.len() > MAX_RUNS { Vec::new() } else { runs })
	}

	/// Has the pages `runs` there as this process's own, with what the file has in them, as far as there is memory for
	/// that: whoever writes one that isn't there has a fault.
	pub fn populate(&self, runs: &[Run]) -> Result<(), RamError> {
		if self.mapped != Mapped::Private || !Run::fit(runs, (self.reservation.length() / PAGE) as u64) {
			return Err(RamError::Runs);
		}
		for run in runs {
			// SAFETY: pages of the reservation, over all of which a private mapping lies; what they hold stays.
			let done = unsafe {
				let start = self.reservation.start().add(run.first as usize * PAGE);
				libc::madvise(start.cast(), run.pages as usize * PAGE, libc::MADV_POPULATE_WRITE)
			};
			if done < 0 {
				break;
			}
		}
		Ok(())
	}

	fn map(&mut self, file: impl AsFd, flags: MapFlags) -> Result<(), RamError> {
		self.reservation.fill(ProtFlags::READ | ProtFlags::WRITE, flags, file).map_err(RamError::Map)
	}
}

impl fmt::Debug for Ram {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Ram")
			.field("reservation", &self.reservation)
			.field("mapped", &self.mapped)
			.finish_non_exhaustive()
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::memory;
	use flashfork_proto::shape::Pages;
	use vm_memory::Bytes;

	const SHAPE: Shape = Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 };

	fn read(ram: &Ram) -> u64 {
		ram.guest().read_obj(GuestAddress(0x1000)).unwrap()
	}

	#[test]
	fn what_a_clone_has_written_is_told_and_is_the_next_one_s_own_before_it_writes() {
		let watch = Watch::find().unwrap();
		let file = memory::create("flashfork:test", SHAPE.memory_bytes(), SHAPE.pages).unwrap();
		rustix::io::pwrite(&file, &[7; 3 * PAGE], 0).unwrap();
		let mut clones = [(); 2].map(|()| Ram::reserve(&SHAPE).unwrap());
		assert!(matches!(clones[0].populate(&[]), Err(RamError::Runs)), "nothing is mapped");
		clones.iter_mut().for_each(|clone| clone.map_private(&file).unwrap());
		for page in [0, 1, 700] {
			clones[0].guest().write_obj(8_u8, GuestAddress(page * PAGE as u64)).unwrap();
		}
		let written = [Run { first: 0, pages: 2 }, Run { first: 700, pages: 1 }];
		assert_eq!(clones[0].written(&watch).unwrap(), written);
		assert_eq!(clones[1].written(&watch).unwrap(), []);
		clones[1].populate(&written).unwrap();
		assert_eq!(clones[1].written(&watch).unwrap(), written);
		assert_eq!(read(&clones[1]), u64::from_ne_bytes([7; 8]), "as the file has it");
		let [last, beyond] = [1023, 1024].map(|first| Run { first, pages: 1 });
		clones[1].populate(&[last]).unwrap();
		for wrong in [beyond, Run { first: u32::MAX, pages: u32::MAX }, Run { first: 0, pages: MAX_POPULATED + 1 }] {
			assert!(matches!(clones[1].populate(&[wrong]), Err(RamError::Runs)), "{wrong:?}");
		}
	}

	#[test]
	fn siblings_and_template_do_not_see_each_others_writes() {
		let file = memory::create("flashfork:test", SHAPE.memory_bytes(), SHAPE.pages).unwrap();
		let mut parent = Ram::reserve(&SHAPE).unwrap();
		parent.map_shared(&file).unwrap();
		parent.guest().write_obj(1u64, GuestAddress(0x1000)).unwrap();
		assert!(matches!(memory::seal(&file), Err(MemfdError::Seal(_))), "still mapped for writing");
		parent.unmap().unwrap();
		memory::seal(&file).unwrap();

		let mut clones = [(); 2].map(|()| Ram::reserve(&SHAPE).unwrap());
		for (n, clone) in clones.iter_mut().enumerate() {
			clone.map_private(&file).unwrap();
			assert_eq!(read(clone), 1);
			clone.guest().write_obj(n as u64 + 2, GuestAddress(0x1000)).unwrap();
		}
		parent.map_private(&file).unwrap();
		assert_eq!((read(&parent), read(&clones[0]), read(&clones[1])), (1, 2, 3));
	}
}

//! Loading a Linux kernel: a bzImage by its 64-bit entry (Documentation/arch/x86/boot.rst), an ELF file by PVH.

use super::{BootError, Entry, acpi, memory_map, pvh, tables};
use crate::{layout, memory::GuestMemory};
use flashfork_proto::shape::Shape;
use kvm_bindings::kvm_regs;
use linux_loader::{
	bootparam::{boot_e820_entry, boot_params},
	cmdline::Cmdline,
	configurator::{BootConfigurator, BootParams, linux::LinuxBootConfigurator},
	loader::{
		BzImage, Elf, Error, KernelLoader, KernelLoaderResult, bzimage, elf, elf::PvhBootCapability, load_cmdline,
	},
};
use std::{
	fs::File,
	io::{Seek, SeekFrom},
};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion, ReadVolatile};

/// Where the 64-bit entry of a bzImage is, from its load address on.
const ENTRY_64: u64 = 0x200;
/// `xloadflags`: there is one.
const XLF_KERNEL_64: u16 = 1;
/// `type_of_loader`: none of those with a number.
const LOADER_UNKNOWN: u8 = 0xff;
/// An initramfs must end below, unless the kernel says otherwise.
const INITRD_MAX: u64 = 0x37ff_ffff;

/// Puts kernel, initramfs, command line and tables into RAM.
pub(super) fn load(
	kernel: &File,
	initrd: Option<&File>,
	cmdline: &str,
	shape: &Shape,
	memory: &GuestMemory,
) -> Result<Entry, BootError> {
	let mut kernel = kernel.try_clone().map_err(|e| BootError::Kernel(e.to_string()))?;
	let loaded = load_kernel(&mut kernel, memory)?;
	let limit = loaded.setup_header.map_or(INITRD_MAX, |header| u64::from(header.initrd_addr_max));
	let initrd = match initrd {
		Some(file) => Some(load_initrd(file, loaded.kernel_end, limit, memory)?),
		None => None,
	};
	write_cmdline(cmdline, memory)?;
	acpi::write(shape, memory)?;
	match (loaded.setup_header, loaded.pvh_boot_cap) {
		(Some(mut header), _) => {
			if header.xloadflags & XLF_KERNEL_64 == 0 {
				return Err(BootError::Kernel("it has no 64-bit entry".into()));
			}
			header.type_of_loader = LOADER_UNKNOWN;
			header.cmd_line_ptr = layout::CMDLINE as u32;
			header.cmdline_size = cmdline.len() as u32 + 1;
			if let Some((start, length)) = initrd {
				(header.ramdisk_image, header.ramdisk_size) = (start as u32, length as u32);
			}
			write_boot_params(header, shape, memory)?;
			tables::write(memory)?;
			let regs = kvm_regs {
				rip: loaded.kernel_load.0 + ENTRY_64,
				rsi: layout::BOOT_PARAMS,
				rsp: layout::BOOT_STACK,
				rflags: 2,
				..Default::default()
			};
			Ok(Entry { regs, sregs: tables::long_mode })
		}
		(None, PvhBootCapability::PvhEntryPresent(entry)) => {
			pvh::write(shape, initrd, memory)?;
			tables::write(memory)?;
			let regs = kvm_regs { rip: entry.0, rbx: layout::BOOT_PARAMS, rflags: 2, ..Default::default() };
			Ok(Entry { regs, sregs: tables::protected_mode })
		}
		(None, _) => Err(BootError::Kernel("it has no PVH entry".into())),
	}
}

fn load_kernel(kernel: &mut File, memory: &GuestMemory) -> Result<KernelLoaderResult, BootError> {
	let high = Some(GuestAddress(layout::KERNEL));
	let failed = |e: std::io::Error| BootError::Kernel(e.to_string());
	let length = kernel.seek(SeekFrom::End(0)).map_err(failed)?;
	kernel.seek(SeekFrom::Start(0)).map_err(failed)?;
	let end = low_end(memory);
	let loaded = BzImage::load(memory, None, kernel, high).or_else(|bzimage| {
		Elf::load(memory, None, kernel, high).map_err(|elf| {
			let unread = matches!(bzimage, Error::Bzimage(bzimage::Error::ReadBzImageCompressedKernel))
				|| matches!(elf, Error::Elf(elf::Error::ReadKernelImage));
			// The loaders tell no lack of memory from a damaged file.
			if unread && layout::KERNEL + length > end {
				return BootError::Memory { what: "the kernel" };
			}
			BootError::Kernel(format!("as a bzImage: {bzimage}; as ELF: {elf}"))
		})
	})?;
	if let Some(header) = &loaded.setup_header {
		// What a kernel needs to unpack itself, where it would be if all memory were free (boot.rst, init_size).
		let start = loaded.kernel_load.0.max(header.pref_address);
		if start.saturating_add(header.init_size.into()) > end {
			return Err(BootError::Memory { what: "the kernel" });
		}
	}
	Ok(loaded)
}

/// Where memory ends, or its gap below 4 GB begins.
fn low_end(memory: &GuestMemory) -> u64 {
	memory.iter().next().map_or(0, |region| region.len())
}

/// As high as it may be, so that the kernel can unpack itself below.
fn load_initrd(file: &File, kernel_end: u64, limit: u64, memory: &GuestMemory) -> Result<(u64, u64), BootError> {
	let failed = |e: std::io::Error| BootError::Initrd(e.to_string());
	let mut file = file.try_clone().map_err(failed)?;
	let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
	file.seek(SeekFrom::Start(0)).map_err(failed)?;
	let top = low_end(memory).min(limit + 1);
	let start = top.checked_sub(length).map(|start| start & !0xfff).filter(|start| *start >= kernel_end);
	let start = start.ok_or(BootError::Memory { what: "the initramfs" })?;
	let slice = memory.get_slice(GuestAddress(start), length as usize);
	let mut slice = slice.map_err(|_| BootError::Memory { what: "the initramfs" })?;
	file.read_exact_volatile(&mut slice).map_err(|e| BootError::Initrd(e.to_string()))?;
	Ok((start, length))
}

fn write_cmdline(text: &str, memory: &GuestMemory) -> Result<(), BootError> {
	let failed = |e: &dyn std::fmt::Display| BootError::Cmdline(e.to_string());
	let mut cmdline = Cmdline::new(layout::CMDLINE_MAX).map_err(|e| failed(&e))?;
	if !text.is_empty() {
		cmdline.insert_str(text).map_err(|e| failed(&e))?;
	}
	load_cmdline(memory, GuestAddress(layout::CMDLINE), &cmdline).map_err(|e| failed(&e))
}

fn write_boot_params(
	header: linux_loader::bootparam::setup_header,
	shape: &Shape,
	memory: &GuestMemory,
) -> Result<(), BootError> {
	let mut params = boot_params { hdr: header, acpi_rsdp_addr: layout::ACPI, ..Default::default() };
	let map = memory_map::of(shape);
	params.e820_entries = map.len() as u8;
	for (entry, (addr, size, type_)) in params.e820_table.iter_mut().zip(map) {
		*entry = boot_e820_entry { addr, size, r#type: type_ };
	}
	let params = BootParams::new(&params, GuestAddress(layout::BOOT_PARAMS));
	LinuxBootConfigurator::write_bootparams(&params, memory).map_err(|e| BootError::Kernel(e.to_string()))
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::os::unix::fs::FileExt;

	/// The head of a bzImage for protocol 2.15, and nothing but zeros behind it.
	fn bzimage(length: u64, init_size: u32) -> File {
		let file = tempfile::tempfile().unwrap();
		file.set_len(length).unwrap();
		for (offset, bytes) in [
			(0x202, &b"HdrS\x0f\x02"[..]),
			(0x211, &[1]), // loadflags: high
			(0x214, &0x10_0000_u32.to_le_bytes()),
			(0x236, &1_u16.to_le_bytes()), // xloadflags: a 64-bit entry
			(0x258, &0x100_0000_u64.to_le_bytes()),
			(0x260, &init_size.to_le_bytes()),
		] {
			file.write_all_at(bytes, offset).unwrap();
		}
		file
	}

	#[test]
	fn too_little_memory_is_no_bad_kernel() {
		let memory = GuestMemory::from_ranges(&[(GuestAddress(0), 32 << 20)]).unwrap();
		let load = |mut kernel: File| load_kernel(&mut kernel, &memory).map(drop).map_err(|e| e.to_string());
		assert_eq!(load(bzimage(8 << 20, 16 << 20)), Ok(()));
		let more = "the kernel does not fit into the guest's memory: give it more";
		for (length, init_size) in [(40 << 20, 16 << 20), (8 << 20, (16 << 20) + 1)] {
			assert_eq!(load(bzimage(length, init_size)).unwrap_err(), more);
		}
		let nothing = tempfile::tempfile().unwrap();
		nothing.set_len(40 << 20).unwrap();
		assert!(load(nothing).unwrap_err().contains("cannot load the kernel"));
	}
}

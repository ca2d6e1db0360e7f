//! Loading a Linux kernel: a bzImage by its 64-bit entry (Documentation/arch/x86/boot.rst), an ELF file by PVH.

use super::{BootError, Entry, acpi, memory_map, pvh, tables};
use crate::layout;
use crate::memory::GuestMemory;
use flashfork_proto::shape::Shape;
use kvm_bindings::kvm_regs;
use linux_loader::bootparam::{boot_e820_entry, boot_params};
use linux_loader::cmdline::Cmdline;
use linux_loader::configurator::{BootConfigurator, BootParams, linux::LinuxBootConfigurator};
use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::{BzImage, Elf, KernelLoader, KernelLoaderResult, load_cmdline};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use vm_memory::{GuestAddress, ReadVolatile};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

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
    kernel.seek(SeekFrom::Start(0)).map_err(|e| BootError::Kernel(e.to_string()))?;
    match BzImage::load(memory, None, kernel, high) {
        Ok(loaded) => Ok(loaded),
        Err(bzimage) => Elf::load(memory, None, kernel, high)
            .map_err(|elf| BootError::Kernel(format!("as a bzImage: {bzimage}; as ELF: {elf}"))),
    }
}

/// As high as it may be, so that the kernel can unpack itself below.
fn load_initrd(file: &File, kernel_end: u64, limit: u64, memory: &GuestMemory) -> Result<(u64, u64), BootError> {
    let failed = |e: std::io::Error| BootError::Initrd(e.to_string());
    let mut file = file.try_clone().map_err(failed)?;
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let low_end = memory.iter().next().map_or(0, |region| region.len());
    let top = low_end.min(limit + 1);
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

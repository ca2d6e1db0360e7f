//! What a PVH kernel finds at its start: start info, memory map, initramfs as its only module
//! (https://xenbits.xen.org/docs/unstable/misc/pvh.html).

use super::{BootError, memory_map};
use crate::{layout, memory::GuestMemory};
use flashfork_proto::shape::Shape;
use linux_loader::{
	configurator::{BootConfigurator, BootParams, pvh::PvhBootConfigurator},
	start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info},
};
use vm_memory::GuestAddress;

/// "xEn3" with the top bit set.
const MAGIC: u32 = 0x336e_c578;
/// The module list comes first, then, a module's size later, the memory map.
const MEMORY_MAP: u64 = layout::PVH_TABLES + 64;

pub(super) fn write(shape: &Shape, initrd: Option<(u64, u64)>, memory: &GuestMemory) -> Result<(), BootError> {
	let map: Vec<_> = memory_map::of(shape)
		.into_iter()
		.map(|(addr, size, type_)| hvm_memmap_table_entry { addr, size, type_, reserved: 0 })
		.collect();
	let start = hvm_start_info {
		magic: MAGIC,
		version: 1,
		cmdline_paddr: layout::CMDLINE,
		rsdp_paddr: layout::ACPI,
		memmap_paddr: MEMORY_MAP,
		memmap_entries: map.len() as u32,
		nr_modules: u32::from(initrd.is_some()),
		modlist_paddr: if initrd.is_some() { layout::PVH_TABLES } else { 0 },
		..Default::default()
	};
	let mut params = BootParams::new(&start, GuestAddress(layout::BOOT_PARAMS));
	params.set_sections(&map, GuestAddress(MEMORY_MAP));
	if let Some((paddr, size)) = initrd {
		params
			.set_modules(&[hvm_modlist_entry { paddr, size, ..Default::default() }], GuestAddress(layout::PVH_TABLES));
	}
	PvhBootConfigurator::write_bootparams(&params, memory).map_err(|e| BootError::Kernel(e.to_string()))
}

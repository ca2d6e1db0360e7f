//! Where things are in a guest: physical memory, I/O ports, interrupt lines.
//!
//! Part of what a template freezes: a change here is a new [`crate::state::VERSION`].

/// RAM below 4 GB ends here at the latest; the rest of it goes on at [`HIGH_RAM`].
pub const GAP: u64 = 0xc000_0000;
/// Where RAM goes on that doesn't fit below [`GAP`].
pub const HIGH_RAM: u64 = 1 << 32;

/// Boot GDT.
pub const GDT: u64 = 0x500;
/// Linux boot parameters (the "zero page"), or the PVH start info.
pub const BOOT_PARAMS: u64 = 0x7000;
/// First stack, growing down.
pub const BOOT_STACK: u64 = 0x8ff0;
/// Boot page tables: PML4, PDPT, then four page directories that map 4 GB one to one.
pub const PAGE_TABLES: u64 = 0x9000;
/// PVH module list and memory map.
pub const PVH_TABLES: u64 = 0x6000;
/// Kernel command line.
pub const CMDLINE: u64 = 0x2_0000;
/// Longest command line with its NUL.
pub const CMDLINE_MAX: usize = 2048;
/// RAM below 1 MB that the guest may use ends here.
pub const LOW_RAM_END: u64 = 0x9_fc00;
/// ACPI tables, RSDP first: where Linux looks for it without being told.
pub const ACPI: u64 = 0xe_0000;
/// First byte after the tables.
pub const ACPI_END: u64 = 0xe_8000;
/// The 16 bytes of VMGENID, in a page the guest knows as reserved.
pub const VMGENID: u64 = 0xe_8000;
/// RAM from 1 MB on; a bzImage is loaded here.
pub const KERNEL: u64 = 0x10_0000;

/// First virtio-mmio window.
pub const VIRTIO: u64 = 0xd000_0000;
/// From one window to the next, and size of each.
pub const VIRTIO_STRIDE: u64 = 0x1000;
/// KVM's I/O APIC.
pub const IOAPIC: u32 = 0xfec0_0000;
/// Local APIC.
pub const LAPIC: u32 = 0xfee0_0000;
/// One page KVM needs on Intel without unrestricted guest.
pub const IDENTITY_MAP: u64 = 0xfffb_c000;
/// Three pages KVM needs on Intel.
pub const TSS: u64 = 0xfffb_d000;

/// First serial port.
pub const SERIAL_PORT: u16 = 0x3f8;
/// ACPI sleep control register.
pub const SLEEP_PORT: u16 = 0x600;
/// ACPI sleep status register.
pub const SLEEP_STATUS_PORT: u16 = 0x601;
/// ACPI reset register.
pub const RESET_PORT: u16 = 0x602;

/// Interrupt of the serial port.
pub const SERIAL_IRQ: u32 = 4;
/// Interrupt of the ACPI event device: VMGENID has changed.
pub const VMGENID_IRQ: u32 = 5;
/// Interrupt of the first virtio device; the I/O APIC has pins up to 23.
pub const VIRTIO_IRQ: u32 = 16;

/// Start of the window of virtio device `index`.
pub const fn virtio_window(index: u8) -> u64 {
	VIRTIO + VIRTIO_STRIDE * index as u64
}

/// Interrupt of virtio device `index`.
pub const fn virtio_irq(index: u8) -> u32 {
	VIRTIO_IRQ + index as u32
}

/// RAM of a guest with `bytes` of it: (guest-physical start, length), one part or two.
pub fn ram(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
	let low = (0, bytes.min(GAP));
	let high = (HIGH_RAM, bytes.saturating_sub(GAP));
	[low, high].into_iter().filter(|(_, length)| *length > 0)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn ram_leaves_the_gap_free() {
		assert_eq!(ram(256 << 20).collect::<Vec<_>>(), [(0, 256 << 20)]);
		assert_eq!(ram(GAP).collect::<Vec<_>>(), [(0, GAP)]);
		assert_eq!(ram(4 << 30).collect::<Vec<_>>(), [(0, GAP), (HIGH_RAM, 1 << 30)]);
	}
}

//! ACPI tables: hardware-reduced, so no fixed hardware must be there. CPUs, I/O APIC, serial port, virtio windows, the
//! generation id with its event device, power off and reset.

use super::BootError;
use crate::{layout, memory::GuestMemory};
use acpi_tables::{
	Aml,
	aml::{
		Arg, Device, EISAName, Equal, IO, If, Interrupt, Memory32Fixed, Method, Name, Notify, Package, Path,
		ResourceTemplate, Scope,
	},
	fadt::{FADTBuilder, Flags},
	gas::{AccessSize, AddressSpace, GAS},
	madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic},
	rsdp::Rsdp,
	sdt::Sdt,
	xsdt::XSDT,
};
use flashfork_proto::shape::Shape;
use vm_memory::{Bytes, GuestAddress};

const OEM: [u8; 6] = *b"FLASHF";
const TABLE: [u8; 8] = *b"FLASHFRK";
/// `iapc_boot_arch`: no VGA, no CMOS clock; by their absence: no i8042, no legacy devices.
const NO_VGA_NO_RTC: u16 = 1 << 2 | 1 << 5;
/// The slot of the sleep state "off" in the sleep control register.
const S5: u8 = 5;

/// Writes all tables, RSDP first.
pub(super) fn write(shape: &Shape, memory: &GuestMemory) -> Result<(), BootError> {
	let mut at = layout::ACPI + 64;
	let mut place = |bytes: &[u8]| -> Result<u64, BootError> {
		let here = at;
		at = (at + bytes.len() as u64).next_multiple_of(16);
		if at > layout::ACPI_END {
			return Err(BootError::Acpi("they are larger than the place they have".into()));
		}
		memory.write_slice(bytes, GuestAddress(here)).map_err(|e| BootError::Acpi(e.to_string()))?;
		Ok(here)
	};
	let dsdt = place(dsdt(shape).as_slice())?;
	let fadt = place(&bytes(&fadt(dsdt)))?;
	let madt = place(&bytes(&madt(shape)))?;
	let mut xsdt = XSDT::new(OEM, TABLE, 1);
	xsdt.add_entry(fadt);
	xsdt.add_entry(madt);
	let xsdt = place(&bytes(&xsdt))?;
	let rsdp = bytes(&Rsdp::new(OEM, xsdt));
	memory.write_slice(&rsdp, GuestAddress(layout::ACPI)).map_err(|e| BootError::Acpi(e.to_string()))
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
	let mut bytes = Vec::new();
	table.to_aml_bytes(&mut bytes);
	bytes
}

fn fadt(dsdt: u64) -> impl Aml {
	let port = |port: u16| GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into());
	let mut fadt = FADTBuilder::new(OEM, TABLE, 1)
		.dsdt_64(dsdt)
		.flag(Flags::HwReducedAcpi)
		.flag(Flags::ResetRegSup)
		.flag(Flags::PwrButton)
		.flag(Flags::SlpButton);
	fadt.iapc_boot_arch = NO_VGA_NO_RTC.into();
	fadt.reset_reg = port(layout::RESET_PORT);
	fadt.reset_value = 1;
	fadt.sleep_control_reg = port(layout::SLEEP_PORT);
	fadt.sleep_status_reg = port(layout::SLEEP_STATUS_PORT);
	fadt.finalize()
}

fn madt(shape: &Shape) -> MADT {
	let mut madt = MADT::new(OEM, TABLE, 1, LocalInterruptController::Address(layout::LAPIC));
	for id in 0..shape.vcpus {
		madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled));
	}
	madt.add_structure(IoApic::new(shape.vcpus, layout::IOAPIC, 0));
	madt
}

fn dsdt(shape: &Shape) -> Sdt {
	let mut dsdt = Sdt::new(*b"DSDT", 36, 2, OEM, TABLE, 1);
	// \_S5: what is written to the sleep control register to power off.
	let sleep = Name::new("_S5_".into(), &Package::new(vec![&S5, &0u8, &0u8, &0u8]));
	dsdt.append_slice(&bytes(&sleep));
	for device in [serial(), generation_id()] {
		dsdt.append_slice(&device);
	}
	for index in 0..crate::devices::virtio_devices(shape) {
		dsdt.append_slice(&virtio(index));
	}
	dsdt
}

fn in_scope(device: &dyn Aml) -> Vec<u8> {
	bytes(&Scope::new("_SB_".into(), vec![device]))
}

/// An edge-triggered, active-high line of the device's own.
fn line(number: u32) -> Interrupt {
	Interrupt::new(true, true, false, false, number)
}

fn serial() -> Vec<u8> {
	let ports = IO::new(layout::SERIAL_PORT, layout::SERIAL_PORT, 1, 8);
	in_scope(&Device::new(
		"COM1".into(),
		vec![
			&Name::new("_HID".into(), &EISAName::new("PNP0501")),
			&Name::new("_UID".into(), &0u8),
			&Name::new("_CRS".into(), &ResourceTemplate::new(vec![&line(layout::SERIAL_IRQ), &ports])),
		],
	))
}

/// Both names Linux's driver goes by; ADDR is where the id is. The event device raises its notification.
fn generation_id() -> Vec<u8> {
	let (low, high) = (layout::VMGENID as u32, (layout::VMGENID >> 32) as u32);
	let mut both = in_scope(&Device::new(
		"VGEN".into(),
		vec![
			&Name::new("_HID".into(), &"VMGENCTR"),
			&Name::new("_CID".into(), &"VM_Gen_Counter"),
			&Name::new("_DDN".into(), &"VM_Gen_Counter"),
			&Name::new("ADDR".into(), &Package::new(vec![&low, &high])),
		],
	));
	let device = Path::new("\\_SB_.VGEN");
	let notify = Notify::new(&device, &0x80u8);
	let ours = Equal::new(&Arg(0), &layout::VMGENID_IRQ);
	both.extend(in_scope(&Device::new(
		"GED_".into(),
		vec![
			&Name::new("_HID".into(), &"ACPI0013"),
			&Name::new("_UID".into(), &0u8),
			&Name::new("_CRS".into(), &ResourceTemplate::new(vec![&line(layout::VMGENID_IRQ)])),
			&Method::new("_EVT".into(), 1, true, vec![&If::new(&ours, vec![&notify])]),
		],
	)));
	both
}

fn virtio(index: u8) -> Vec<u8> {
	let window = Memory32Fixed::new(true, layout::virtio_window(index) as u32, layout::VIRTIO_STRIDE as u32);
	let line = line(layout::virtio_irq(index));
	in_scope(&Device::new(
		Path::new(&format!("VIO{index}")),
		vec![
			&Name::new("_HID".into(), &"LNRO0005"),
			&Name::new("_UID".into(), &index),
			// Cache-coherent.
			&Name::new("_CCA".into(), &1u8),
			&Name::new("_CRS".into(), &ResourceTemplate::new(vec![&window, &line])),
		],
	))
}

//! The first page tables and segments: flat, 4 GB mapped one to one.

use super::BootError;
use crate::{layout, memory::GuestMemory};
use kvm_bindings::{kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress};

/// Null, 64-bit code, data, task, 32-bit code. Linux wants code at 0x10 and data at 0x18 (boot.rst); PVH doesn't say.
const GDT: [u64; 6] =
	[0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x008f_8b00_0000_ffff, 0x00cf_9b00_0000_ffff];
const CODE_64: u16 = 0x10;
const DATA: u16 = 0x18;
const TASK: u16 = 0x20;
const CODE_32: u16 = 0x28;

/// Present, writable; and for a 2 MB page also its size bit.
const TABLE: u64 = 0b11;
const LARGE_PAGE: u64 = TABLE | 1 << 7;

const CR0_PE: u64 = 1;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

pub(super) fn write(memory: &GuestMemory) -> Result<(), BootError> {
	let failed = |_| BootError::Memory { what: "the first page tables" };
	for (at, entry) in (layout::GDT..).step_by(8).zip(GDT) {
		memory.write_obj(entry, GuestAddress(at)).map_err(failed)?;
	}
	let [top, middle] = [layout::PAGE_TABLES, layout::PAGE_TABLES + 0x1000];
	memory.write_obj(middle | TABLE, GuestAddress(top)).map_err(failed)?;
	for gigabyte in 0..4u64 {
		let directory = middle + 0x1000 * (gigabyte + 1);
		memory.write_obj(directory | TABLE, GuestAddress(middle + 8 * gigabyte)).map_err(failed)?;
		for page in 0..512u64 {
			let entry = gigabyte << 30 | page << 21 | LARGE_PAGE;
			memory.write_obj(entry, GuestAddress(directory + 8 * page)).map_err(failed)?;
		}
	}
	Ok(())
}

/// 64-bit mode with paging, as boot.rst's 64-bit protocol asks.
pub(super) fn long_mode(sregs: &mut kvm_sregs) {
	flat(sregs, CODE_64);
	sregs.cr3 = layout::PAGE_TABLES;
	sregs.cr4 |= CR4_PAE;
	sregs.cr0 |= CR0_PE | CR0_PG;
	sregs.efer |= EFER_LME | EFER_LMA;
}

/// 32-bit protected mode without paging, as PVH asks.
pub(super) fn protected_mode(sregs: &mut kvm_sregs) {
	flat(sregs, CODE_32);
	sregs.cr0 = sregs.cr0 & !CR0_PG | CR0_PE;
	sregs.cr4 = 0;
}

fn flat(sregs: &mut kvm_sregs, code: u16) {
	sregs.gdt.base = layout::GDT;
	sregs.gdt.limit = size_of_val(&GDT) as u16 - 1;
	sregs.idt.base = 0;
	sregs.idt.limit = 0;
	sregs.cs = segment(code);
	for segment_register in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs, &mut sregs.ss] {
		*segment_register = segment(DATA);
	}
	sregs.tr = segment(TASK);
}

/// The descriptor of `selector`, taken apart (SDM 3A, 3.4.5).
fn segment(selector: u16) -> kvm_segment {
	let entry = GDT[usize::from(selector / 8)];
	let bits = |at: u32, count: u32| (entry >> at & ((1 << count) - 1)) as u8;
	let limit = (entry & 0xffff | entry >> 32 & 0xf_0000) as u32;
	let granular = bits(55, 1);
	kvm_segment {
		base: entry >> 16 & 0xff_ffff | entry >> 32 & 0xff00_0000,
		limit: if granular == 1 { limit << 12 | 0xfff } else { limit },
		selector,
		type_: bits(40, 4),
		s: bits(44, 1),
		dpl: bits(45, 2),
		present: bits(47, 1),
		avl: bits(52, 1),
		l: bits(53, 1),
		db: bits(54, 1),
		g: granular,
		..Default::default()
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn descriptors_are_taken_apart_right() {
		let code = segment(CODE_64);
		assert_eq!((code.type_, code.s, code.l, code.db, code.limit, code.present), (0xb, 1, 1, 0, u32::MAX, 1));
		let data = segment(DATA);
		assert_eq!((data.type_, data.l, data.db, data.base), (3, 0, 1, 0));
		let task = segment(TASK);
		assert_eq!((task.type_, task.s), (0xb, 0));
	}
}

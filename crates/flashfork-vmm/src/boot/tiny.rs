//! A few bytes of real-mode code: a guest on which every step of a clone can be seen and measured, and which runs where
//! no Linux guest does.

use super::{BootError, Entry};
use crate::memory::Ram;
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::{Bytes, GuestAddress};

/// Where the code is and starts; its data segments begin at 0.
pub const ADDRESS: u64 = 0x1000;

pub(super) fn load(code: &[u8], ram: &Ram) -> Result<Entry, BootError> {
	let failed = |_| BootError::Memory { what: "the code" };
	ram.guest().write_slice(code, GuestAddress(ADDRESS)).map_err(failed)?;
	let regs = kvm_regs { rip: ADDRESS, rsp: 0x8000, rflags: 2, ..Default::default() };
	Ok(Entry { regs, sregs: flat_real_mode })
}

fn flat_real_mode(sregs: &mut kvm_sregs) {
	for segment in [&mut sregs.cs, &mut sregs.ds, &mut sregs.es, &mut sregs.ss] {
		(segment.base, segment.selector) = (0, 0);
	}
}

//! Pieces of which guests without a kernel are made.

use flashfork_vmm::boot::TINY_ADDRESS as ADDRESS;

pub const FORK: u8 = 0x10;
pub const DONE: u8 = 0x20;
pub const RESET: u8 = 0x30;

/// From real mode to flat 32-bit segments.
pub fn protected_mode() -> Vec<u8> {
	// cli; lgdt [table]; mov eax, cr0; or al, 1; mov cr0, eax; jmp 8:after
	const LEAD: usize = 1 + 5 + 3 + 2 + 3 + 8;
	const TABLE: usize = 3 * 8;
	let table = ADDRESS as u16 + LEAD as u16;
	// The table's own place comes after it.
	let pointer = table + TABLE as u16;
	let after = u32::from(pointer) + 6;
	let mut code = vec![0xfa, 0x0f, 0x01, 0x16];
	code.extend(pointer.to_le_bytes());
	code.extend([0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0, 0x66, 0xea]);
	code.extend(after.to_le_bytes());
	code.extend([0x08, 0x00]);
	code.extend([0u64, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff].iter().flat_map(|entry| entry.to_le_bytes()));
	code.extend((TABLE as u16 - 1).to_le_bytes());
	code.extend(u32::from(table).to_le_bytes());
	// mov ax, 0x10; mov ds, ax; mov es, ax
	code.extend([0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8, 0x8e, 0xc0]);
	code
}

/// mov dx, 0x1234; mov al, number; out dx, al
pub fn signal(code: &mut Vec<u8>, number: u8) {
	code.extend([0x66, 0xba, 0x34, 0x12, 0xb0, number, 0xee]);
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_way_to_32_bits_finds_its_table_and_its_end() {
		let lead = protected_mode();
		let pointer = u16::from_le_bytes([lead[4], lead[5]]) as usize - ADDRESS as usize;
		let table = u32::from_le_bytes(lead[pointer + 2..pointer + 6].try_into().unwrap()) as usize - ADDRESS as usize;
		assert_eq!((lead[table..table + 8].to_vec(), pointer - table), (vec![0; 8], 24));
		let entry = u32::from_le_bytes(lead[16..20].try_into().unwrap()) as usize - ADDRESS as usize;
		assert_eq!(&lead[entry..entry + 2], &[0x66, 0xb8]);
	}
}

//! The guest: 32-bit code without paging, that stores words over the borders of pages, two pages each, without a loop:
//! where KVM emulates instructions, each of them takes half a microsecond, which is no cost of a rollback's.

use crate::subjects::vm_host::code::{DONE, FORK, protected_mode, signal};
use flashfork_vmm::boot::TINY_ADDRESS as ADDRESS;

/// Most pages that can be written: an even number.
pub const MOST: u32 = 2000;
const STORES: u32 = MOST / 2;

/// Where the first page can be.
const FIRST: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// From one store's place to the next one's: no neighbours, and all places are met. Prime to [`STORES`].
const STEP: u32 = 377;
const STORE: usize = 6;

/// Writes so many words, each to two pages, which are new each time, and is done. Without a number it forks, and its
/// clones write as many as their number says.
pub fn writes(size: u64, stores: Option<u32>) -> Vec<u8> {
	let mut code = protected_mode();
	match stores {
		Some(stores) => {
			code.push(0xb9); // mov ecx, stores
			code.extend(stores.to_le_bytes());
		}
		None => {
			signal(&mut code, FORK);
			// mov dx, 0x123c; in eax, dx, three times: role, zero, number; mov ecx, eax
			code.extend([0x66, 0xba, 0x3c, 0x12, 0xed, 0xed, 0xed, 0x89, 0xc1]);
		}
	}
	code.extend([0x0f, 0x31, 0x89, 0xc3]); // rdtsc; mov ebx, eax
	let end = ADDRESS as usize + code.len() + 3 + 2 + 6 + 2 + STORES as usize * STORE;
	// imul ecx, ecx, STORE; neg ecx; add ecx, end
	code.extend([0x6b, 0xc9, STORE as u8, 0xf7, 0xd9, 0x81, 0xc1]);
	code.extend((end as u32).to_le_bytes());
	code.extend([0xff, 0xe1]); // jmp ecx
	for place in places(size) {
		code.extend([0x89, 0x1d]);
		code.extend(place.to_le_bytes());
	}
	signal(&mut code, DONE);
	code.push(0xf4); // hlt
	code
}

/// The address of each store; a guest that makes fewer makes the last ones.
pub fn places(size: u64) -> impl Iterator<Item = u32> {
	let apart = (size - FIRST) / u64::from(STORES) / PAGE * PAGE;
	(0..STORES).map(move |store| (FIRST + u64::from(store * STEP % STORES) * apart + PAGE - 2) as u32)
}

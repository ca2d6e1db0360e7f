//! The guest: 32-bit code without paging, so that it reaches all its memory.

use crate::subjects::vm_host::code::{DONE, FORK, RESET, protected_mode, signal};

/// The first byte that is touched.
pub const FIRST: u32 = 2 << 20;
/// From one access to the next.
pub const PAGE: u32 = 4096;

/// What is done to each page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Access {
	Write,
	Read,
}

/// Goes over memory up to `end` twice, forks, and over it twice more. A reset signal before and after every pass tells
/// its time.
pub fn passes(access: Access, end: u32) -> Vec<u8> {
	let mut code = protected_mode();
	for pass in 0..4 {
		// The first of them, and the first of the clone's, only starts the timer.
		if pass % 2 == 0 {
			signal(&mut code, RESET);
		}
		go_over(&mut code, access, end);
		signal(&mut code, RESET);
		if pass == 1 {
			signal(&mut code, FORK);
		}
	}
	// xor eax, eax; mov dx, 0x123c; out dx, eax: status 0.
	code.extend([0x31, 0xc0, 0x66, 0xba, 0x3c, 0x12, 0xef]);
	signal(&mut code, DONE);
	code.push(0xf4); // hlt
	code
}

/// One word of every page.
fn go_over(code: &mut Vec<u8>, access: Access, end: u32) {
	code.push(0xbf); // mov edi, FIRST
	code.extend(FIRST.to_le_bytes());
	// mov [edi], edi, or mov eax, [edi]
	code.extend(match access {
		Access::Write => [0x89, 0x3f],
		Access::Read => [0x8b, 0x07],
	});
	code.extend([0x81, 0xc7]); // add edi, PAGE
	code.extend(PAGE.to_le_bytes());
	code.extend([0x81, 0xff]); // cmp edi, end
	code.extend(end.to_le_bytes());
	code.extend([0x72, 0xf0]); // jb to the access
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::prelude::*;

	#[test]
	fn the_code_fits_its_page_and_its_jumps_fit_the_code() {
		for access in Access::all() {
			let code = passes(access, 256 << 20);
			assert!(code.len() < 4096, "{}", code.len());
		}
		let mut pass = Vec::new();
		go_over(&mut pass, Access::Write, 4 << 20);
		// The jump's distance counts from its end to the access behind the first instruction.
		let distance = i8::from_le_bytes([*pass.last().unwrap()]);
		assert_eq!(pass.len() as i64 + i64::from(distance), 5);
	}
}

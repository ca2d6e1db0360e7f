//! The guests: 32-bit code without paging, so that it reaches all its memory.

use crate::subjects::vm_host::code::{DONE, FORK, RESET, protected_mode, signal};

/// The first byte that is written.
const FIRST: u32 = 2 << 20;
const PAGE: u32 = 4096;

/// Where [`keeps_writing`] says how many pages it has written.
pub const COUNT: u32 = 1 << 20;

/// Where a guest writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
	/// All over its memory, no page beside the last one.
	Wide,
	/// One page after the other.
	Together,
}

/// Places of a guest's memory, in the order in which it writes to them: all pages from [`FIRST`] on, then again.
#[derive(Clone, Copy)]
struct Places {
	end: u32,
	step: u32,
}

impl Places {
	/// `end` is a multiple of 2 MB, at most 3 GB.
	fn new(end: u32, spread: Spread) -> Self {
		let pages = pages(end);
		// The golden section's third power: places lie evenly, however many there are, and no address is too high.
		let wide = (f64::from(pages) * (5_f64.sqrt() - 2.0)) as u32;
		let mut step = if spread == Spread::Wide { wide } else { 1 };
		while common_divisor(step, pages) != 1 {
			step += 1;
		}
		Self { end, step: step * PAGE }
	}

	/// Takes edi from one place to the next.
	fn next(self, code: &mut Vec<u8>) {
		code.extend([0x81, 0xc7]); // add edi, step
		code.extend(self.step.to_le_bytes());
		code.extend([0x81, 0xff]); // cmp edi, end
		code.extend(self.end.to_le_bytes());
		code.extend([0x72, 0x06, 0x81, 0xef]); // jb after; sub edi, end - FIRST
		code.extend((self.end - FIRST).to_le_bytes());
	}
}

/// Pages that can be written of a guest whose memory ends there.
pub fn pages(end: u32) -> u32 {
	(end - FIRST) / PAGE
}

fn common_divisor(a: u32, b: u32) -> u32 {
	if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Forks; its clone writes `first` pages, reads all its memory up to `end`, gives a reset signal and then writes a page
/// every `ticks` of its TSC for ever. One that comes late makes up for it.
pub fn keeps_writing(end: u32, spread: Spread, first: u32, ticks: u32) -> Vec<u8> {
	let places = Places::new(end, spread);
	let write = |code: &mut Vec<u8>| {
		code.extend([0x43, 0x89, 0x1f]); // inc ebx; mov [edi], ebx
		places.next(code);
	};
	let count = |code: &mut Vec<u8>| {
		code.extend([0x89, 0x1d]); // mov [COUNT], ebx
		code.extend(COUNT.to_le_bytes());
	};
	let mut code = protected_mode();
	signal(&mut code, FORK);
	// mov dx, 0x123c; in eax, dx: leaves the guest, so that its claim is over before its signal, whatever this takes.
	code.extend([0x66, 0xba, 0x3c, 0x12, 0xed]);
	load(&mut code, EDI, FIRST);
	load(&mut code, EBX, 0);
	load(&mut code, ECX, first);
	times(&mut code, write);
	count(&mut code);
	load(&mut code, ESI, FIRST);
	let again = code.len();
	code.extend([0x8b, 0x06, 0x81, 0xc6]); // mov eax, [esi]; add esi, PAGE
	code.extend(PAGE.to_le_bytes());
	code.extend([0x81, 0xfe]); // cmp esi, end
	code.extend(end.to_le_bytes());
	back(&mut code, JB, again);
	signal(&mut code, RESET);
	code.extend([0x0f, 0x31, 0x89, 0xc6]); // rdtsc; mov esi, eax
	let wait = code.len();
	code.extend([0x0f, 0x31, 0x29, 0xf0, 0x3d]); // rdtsc; sub eax, esi; cmp eax, ticks
	code.extend(ticks.to_le_bytes());
	back(&mut code, JB, wait);
	code.extend([0x81, 0xc6]); // add esi, ticks
	code.extend(ticks.to_le_bytes());
	write(&mut code);
	count(&mut code);
	back(&mut code, JMP, wait);
	code
}

/// Writes the first level's number to `pages` places all over its memory and forks. A clone with number 0 writes the
/// next level's number to as many, of which the first half are the last level's second, and forks. One with another
/// number adds up what is in so many places and gives it back.
pub fn levels(end: u32, pages: u32) -> Vec<u8> {
	let places = Places::new(end, Spread::Wide);
	let write = |code: &mut Vec<u8>| {
		code.extend([0x89, 0x1f]); // mov [edi], ebx
		places.next(code);
	};
	let mut code = protected_mode();
	load(&mut code, EDI, FIRST);
	load(&mut code, EBX, 0);
	let level = code.len();
	code.push(0x43); // inc ebx
	load(&mut code, ECX, pages / 2);
	times(&mut code, write);
	code.extend([0x89, 0xfd]); // mov ebp, edi
	load(&mut code, ECX, pages / 2);
	times(&mut code, write);
	code.extend([0x89, 0xef]); // mov edi, ebp
	signal(&mut code, FORK);
	// mov dx, 0x123c; in eax, dx, three times: role, zero, number; test eax, eax
	code.extend([0x66, 0xba, 0x3c, 0x12, 0xed, 0xed, 0xed, 0x85, 0xc0]);
	back(&mut code, JZ, level);
	code.extend([0x89, 0xc1, 0x31, 0xf6]); // mov ecx, eax; xor esi, esi
	load(&mut code, EDI, FIRST);
	times(&mut code, |code| {
		code.extend([0x03, 0x37]); // add esi, [edi]
		places.next(code);
	});
	// mov dx, 0x123c; xor eax, eax; out dx, eax: status; mov eax, esi; out dx, eax: the sum
	code.extend([0x66, 0xba, 0x3c, 0x12, 0x31, 0xc0, 0xef, 0x89, 0xf0, 0xef]);
	signal(&mut code, DONE);
	code.push(0xf4); // hlt
	code
}

/// In how many places the first levels have written, up to that of this depth (the first is 0).
pub fn written(depth: u32, pages: u32) -> u32 {
	(depth + 2) * (pages / 2)
}

/// What that adds up to: half of its places are every level's own, and the last has another half.
pub fn sum(depth: u32, pages: u32) -> u32 {
	let levels: u32 = (1..=depth + 1).sum();
	(levels + depth + 1) * (pages / 2)
}

const ECX: u8 = 1;
const EBX: u8 = 3;
const ESI: u8 = 6;
const EDI: u8 = 7;

fn load(code: &mut Vec<u8>, register: u8, value: u32) {
	code.push(0xb8 + register);
	code.extend(value.to_le_bytes());
}

/// `what` so often as ecx says.
fn times(code: &mut Vec<u8>, what: impl Fn(&mut Vec<u8>)) {
	let again = code.len();
	what(code);
	code.push(0x49); // dec ecx
	back(code, JNZ, again);
}

const JMP: u8 = 0xeb;
const JB: u8 = 0x72;
const JZ: u8 = 0x74;
const JNZ: u8 = 0x75;

fn back(code: &mut Vec<u8>, jump: u8, to: usize) {
	let distance = code.len() + 2 - to;
	assert!(distance <= 128, "a short jump goes no further");
	code.extend([jump, (distance as u8).wrapping_neg()]);
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::collections::HashSet;

	const MB: u32 = 1 << 20;

	#[test]
	fn places_are_all_pages_and_lie_apart_or_together() {
		let sizes = [16 * MB, 256 * MB, 1024 * MB, 3072 * MB];
		for (end, spread) in sizes.into_iter().flat_map(|end| [(end, Spread::Wide), (end, Spread::Together)]) {
			let places = Places::new(end, spread);
			let next = |place: &u32| {
				let next = place.checked_add(places.step).expect("an address");
				Some(if next < end { next } else { next - (end - FIRST) })
			};
			let all: Vec<u32> = std::iter::successors(Some(FIRST), next).take(pages(end) as usize).collect();
			assert!(all.iter().all(|place| (FIRST..end).contains(place) && place.is_multiple_of(PAGE)));
			assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
			let mut first: Vec<_> = all[..all.len() / 20].to_vec();
			first.sort_unstable();
			let together = spread == Spread::Together;
			assert!(first.windows(2).all(|two| (two[1] - two[0] == PAGE) == together), "{end}");
		}
	}

	#[test]
	fn the_code_fits_its_page() {
		for code in [keeps_writing(1024 * MB, Spread::Wide, 1000, 1000), levels(1024 * MB, 512)] {
			assert!(code.len() < 4096, "{}", code.len());
		}
	}

	#[test]
	fn the_sum_is_of_what_each_level_has_left() {
		let pages = 6;
		let mut words = vec![0; 100];
		for depth in 0..5 {
			let first = depth as usize * 3;
			words[first..first + 6].fill(depth + 1);
			assert_eq!(words.iter().sum::<u32>(), sum(depth, pages));
			assert_eq!(words.iter().filter(|word| **word > 0).count(), written(depth, pages) as usize);
		}
	}
}

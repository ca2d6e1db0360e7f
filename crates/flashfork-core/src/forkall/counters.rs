//! Handlers of `pthread_atfork(3)` that do nothing but count: by such a counter a generator of random numbers linked
//! into a program notices a new process (Rust's `rand` 0.8, GnuTLS). They can be called in any thread and at any
//! moment, and take nothing apart; all others can't.
//!
//! What one does is read from its code, as compilers make it (Intel's manual, volume 2).

use crate::sys;

const MOST: usize = 64;

/// Whether a function does nothing but count.
pub fn counts(function: usize) -> bool {
	// What lies behind it may end there.
	let mut code = [0; MOST];
	let page = 4096 - function % 4096;
	let len = if sys::read_own(function, &mut code).is_ok() { MOST } else { page.min(MOST) };
	sys::read_own(function, &mut code[..len]).is_ok() && is_counter(&code[..len])
}

/// An instruction before and behind a count, which does nothing else.
const FRAMES: [&[u8]; 5] = [
	// endbr64; push rbp; mov rbp, rsp; pop rbp; nop.
	&[0xf3, 0x0f, 0x1e, 0xfa],
	&[0x55],
	&[0x48, 0x89, 0xe5],
	&[0x5d],
	&[0x90],
];

const RETURN: u8 = 0xc3;

fn is_counter(mut code: &[u8]) -> bool {
	let mut counted = false;
	while code.first() != Some(&RETURN) {
		let frame = FRAMES.iter().find_map(|bytes| code.strip_prefix(*bytes));
		let Some(rest) = frame.or_else(|| count(code).inspect(|_| counted = true)) else { return false };
		code = rest;
	}
	counted
}

/// What is behind an instruction, or three, by which 1 is added to a word at a fixed address.
fn count(code: &[u8]) -> Option<&[u8]> {
	// Of 8 bytes.
	let wide: &[u8] = if code.first() == Some(&0x48) { &[0x48] } else { &[] };
	let load = strip(code, wide).and_then(|code| strip(code, &[0x8b, 0x05]));
	let Some((from, rest)) = load.and_then(relative) else { return add_one(code, 0x05, 4) };
	// mov eax, [rip + x]; add eax, 1; mov [rip + x], eax.
	let Some(added) = strip(rest, wide).and_then(|code| strip(code, &[0x83, 0xc0, 1])) else {
		// The address was loaded from a table, as of what other objects may have.
		return if wide.is_empty() { None } else { add_one(rest, 0x00, 0) };
	};
	let (to, end) = relative(strip(strip(added, wide)?, &[0x89, 0x05])?)?;
	// Both count from the ends of their instructions.
	let between = (rest.len() - end.len()) as i32;
	(from.wrapping_sub(to) == between).then_some(end)
}

/// `lock`, or none; of 8 bytes, or of 4; `inc`, or `add` of 1. `operand`: what names the word, with so many bytes of an
/// address behind.
fn add_one(code: &[u8], operand: u8, address: usize) -> Option<&[u8]> {
	let code = strip(code, &[0xf0]).unwrap_or(code);
	let code = strip(code, &[0x48]).unwrap_or(code);
	if let Some(rest) = strip(code, &[0xff, operand]) {
		return rest.get(address..);
	}
	strip(strip(code, &[0x83, operand])?.get(address..)?, &[1])
}

fn relative(code: &[u8]) -> Option<(i32, &[u8])> {
	let (bytes, rest) = code.split_first_chunk()?;
	Some((i32::from_le_bytes(*bytes), rest))
}

fn strip<'a>(code: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
	code.strip_prefix(prefix)
}

#[cfg(test)]
mod tests {
	use super::*;
	use core::arch::naked_asm;

	macro_rules! function {
		($name:ident: $($line:literal),* $(; $place:ident)?) => {
			#[unsafe(naked)]
			extern "C" fn $name() {
				naked_asm!($($line),* $(, x = sym $place)?)
			}
		};
	}

	static WORD: u64 = 0;
	static OTHER: u64 = 0;

	function!(rust: "lock inc qword ptr [rip + {x}]", "ret"; WORD);
	function!(c: "endbr64", "add dword ptr [rip + {x}], 1", "ret"; WORD);
	function!(plain: "push rbp", "mov rbp, rsp", "mov eax, [rip + {x}]", "add eax, 1", "mov [rip + {x}], eax", "nop",
		"pop rbp", "ret"; WORD);
	function!(wide: "mov rax, [rip + {x}]", "add rax, 1", "mov [rip + {x}], rax", "ret"; WORD);
	function!(by_table: "mov rax, [rip + {x}]", "add dword ptr [rax], 1", "ret"; WORD);

	function!(nothing: "ret");
	function!(sets: "mov dword ptr [rip + {x}], 1", "ret"; WORD);
	function!(calls: "add dword ptr [rip + {x}], 1", "call rax", "ret"; WORD);
	function!(adds_two: "add dword ptr [rip + {x}], 2", "ret"; WORD);
	function!(asks: "cmp dword ptr [rip + {x}], 0", "je 2f", "inc dword ptr [rip + {x}]", "2: ret"; WORD);

	#[unsafe(naked)]
	extern "C" fn copies() {
		naked_asm!("mov eax, [rip + {x}]", "add eax, 1", "mov [rip + {y}], eax", "ret", x = sym WORD, y = sym OTHER)
	}

	#[test]
	fn what_only_counts_is_told_by_its_code() {
		for function in [rust, c, plain, wide, by_table] {
			assert!(counts(function as *const () as usize));
		}
		for function in [nothing, sets, calls, adds_two, asks, copies] {
			assert!(!counts(function as *const () as usize));
		}
		assert!(!counts(0x10), "nothing is there");
	}
}

//! Where a C library makes a system call, as its machine code shows it.
//!
//! A site is an instruction of at least five bytes, most often `mov $number,%eax`, from which a straight line of
//! instructions leads to `syscall`. The five bytes are room for a jump: whoever is about to execute the instruction
//! finds it whole or the jump, and whoever is past it goes on in bytes that stay as they are. The instructions of the
//! line are executed elsewhere, so only those count that mean the same at any address.

/// Bytes of a jump, and least length of the instruction that it replaces.
pub const JUMP: usize = 5;
/// Most bytes from the first instruction to `syscall`.
pub const LINE: usize = 64;

pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Most bytes from the beginning of the function `syscall` to the instruction.
const BY_NUMBER: usize = 256;
/// Marks where a function may be called from elsewhere (`endbr64`).
const CALLED_FROM_ELSEWHERE: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// One system call in a piece of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
	/// Where its first instruction begins.
	pub at: usize,
	/// Bytes from there to `syscall`.
	pub line: usize,
}

/// A call that can't be told from others, at this place: whoever rewrites the rest would miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclear(pub usize);

/// The number of the call to which a site's instructions lead. `None`: it takes any.
pub fn number(line: &[u8]) -> Option<u32> {
	let number = line.get(1..JUMP).filter(|_| line[0] == 0xb8)?.try_into().ok()?;
	Some(u32::from_le_bytes(number))
}

/// Whether the sites of a number are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
	No,
	/// Those that are understood.
	WhereClear,
	/// All.
	Must,
}

/// Calls `each` with every site of a number that is `wanted`, and with the one in the function `syscall`, when that
/// begins at `by_number` and is understood.
pub fn for_each(
	code: &[u8],
	by_number: Option<usize>,
	wanted: impl Fn(u32) -> Want,
	mut each: impl FnMut(Site) -> Result<(), Unclear>,
) -> Result<(), Unclear> {
	for at in places_of(0xb8, code) {
		let Some(number) = number(&code[at..]) else { break };
		let want = wanted(number);
		if want == Want::No {
			continue;
		}
		match follow(code, at + JUMP) {
			Line::Straight(end) if !is_prefix(code, at) => each(Site { at, line: end - at })?,
			// `mov $number,%r8d`, or an instruction that happens to end so.
			Line::Straight(end) | Line::Bent(end) if want == Want::Must => return Err(Unclear(end)),
			Line::Straight(_) | Line::Bent(_) | Line::Elsewhere => {}
		}
	}
	match by_number.and_then(|function| site_by_number(code, function)) {
		Some(site) => each(site),
		None => Ok(()),
	}
}

/// The site in the function `syscall`, which goes straight to the instruction: from the last one that a jump fits in.
/// Each build has these in another order.
fn site_by_number(code: &[u8], function: usize) -> Option<Site> {
	let mut at = function;
	if code.get(at..)?.starts_with(&CALLED_FROM_ELSEWHERE) {
		at += CALLED_FROM_ELSEWHERE.len();
	}
	let end = code.len().min(function + BY_NUMBER);
	let mut first = None;
	while at < end {
		match instruction(&code[at..]) {
			Step::Syscall => return first.map(|first| Site { at: first, line: at - first }),
			Step::Next(len) => {
				if len >= JUMP {
					first = Some(at);
				}
				at += len;
			}
			// The number comes into eax. What is before it stays where it is.
			Step::Number(len) => (at, first) = (at + len, None),
			_ => return None,
		}
	}
	None
}

/// Where a byte stands.
pub fn places_of(byte: u8, code: &[u8]) -> impl Iterator<Item = usize> {
	let mut from = 0;
	core::iter::from_fn(move || {
		let at = from + find(byte, code.get(from..)?)?;
		from = at + 1;
		Some(at)
	})
}

/// The first place of a byte. By the processor's own search: megabytes are looked through in a program's first seal,
/// however this was compiled.
fn find(byte: u8, code: &[u8]) -> Option<usize> {
	let left: usize;
	let found: u8;
	// SAFETY: reads the slice alone; the direction flag is clear under the System V ABI. In an empty slice
	// nothing is found.
	unsafe {
		core::arch::asm!(
			"test rcx, rcx",
			"mov {found}, 0",
			"jz 2f",
			"repne scasb",
			"sete {found}",
			"2:",
			found = out(reg_byte) found,
			inout("rcx") code.len() => left,
			inout("rdi") code.as_ptr() => _,
			in("al") byte,
			options(nostack, readonly),
		);
	}
	(found == 1).then(|| code.len() - left - 1)
}

/// Whether the byte before an instruction may be its prefix, which would give it another meaning.
fn is_prefix(code: &[u8], at: usize) -> bool {
	at > 0 && matches!(code[at - 1], 0x40..=0x4f)
}

/// Where the instructions after a `mov $number,%eax` lead.
enum Line {
	/// Straight to the `syscall` at this place.
	Straight(usize),
	/// To that one, but not only, or not by instructions that can be executed elsewhere.
	Bent(usize),
	/// To none, or the number is another one by then.
	Elsewhere,
}

fn follow(code: &[u8], from: usize) -> Line {
	let (mut at, mut bent) = (from, false);
	let end = code.len().min(from - JUMP + LINE);
	while at < end {
		match instruction(&code[at..]) {
			Step::Syscall if bent => return Line::Bent(at),
			Step::Syscall => return Line::Straight(at),
			Step::Next(len) => at += len,
			Step::Fixed(len) => (at, bent) = (at + len, true),
			Step::Jump(offset) => {
				// Somebody else's `syscall`, with our number.
				let to = at.wrapping_add_signed(offset);
				return if code.get(to..).is_some_and(|there| there.starts_with(&SYSCALL)) {
					Line::Bent(to)
				} else {
					Line::Elsewhere
				};
			}
			Step::End | Step::Number(_) => return Line::Elsewhere,
			Step::Unknown => {
				// What follows can't be read any more. Is there a `syscall` at all?
				let near = code[at..end].windows(SYSCALL.len()).position(|two| two == SYSCALL);
				return near.map_or(Line::Elsewhere, |n| Line::Bent(at + n));
			}
		}
	}
	Line::Elsewhere
}

/// What an instruction means to somebody who follows a number in eax.
#[derive(Debug, PartialEq, Eq)]
enum Step {
	Syscall,
	/// Of this length, with the same effect at any address.
	Next(usize),
	/// Of this length; it must stay where it is, or does not always go on.
	Fixed(usize),
	/// Goes on so far away.
	Jump(isize),
	/// Of this length; another number is in eax behind it.
	Number(usize),
	/// Nothing goes on behind it, or not with the number.
	End,
	Unknown,
}

/// Reads one instruction, of those that compilers put before a system call.
fn instruction(code: &[u8]) -> Step {
	let mut at = 0;
	let byte = |at: usize| code.get(at).copied().unwrap_or(0xf4);
	while matches!(byte(at), 0x64 | 0x66 | 0x2e) {
		at += 1;
	}
	let rex = if matches!(byte(at), 0x40..=0x4f) { byte(at) } else { 0 };
	at += usize::from(rex != 0);
	let opcode = byte(at);
	at += 1;
	// Whether the register in the low three bits of an opcode or a ModRM byte is eax; and the one in the middle three.
	let low_is_eax = |bits: u8| bits & 7 == 0 && rex & 1 == 0;
	let middle_is_eax = |bits: u8| bits >> 3 & 7 == 0 && rex & 4 == 0;
	let modrm = byte(at);
	let in_register = modrm >> 6 == 3;
	let operand = |immediate: usize, changes_eax: bool| match operand_len(&code[at.min(code.len())..]) {
		Some((len, _)) if changes_eax => Step::Number(at + len + immediate),
		Some((len, true)) => Step::Next(at + len + immediate),
		Some((len, false)) => Step::Fixed(at + len + immediate),
		None if changes_eax => Step::End,
		None => Step::Unknown,
	};
	match opcode {
		0x50..=0x57 => Step::Next(at),
		0x90 => Step::Next(at),
		0xb8..=0xbf if low_is_eax(opcode) => Step::End,
		0xb8..=0xbf => Step::Next(at + if rex & 8 != 0 { 8 } else { 4 }),
		// To a register or memory from a register.
		0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x89 => operand(0, in_register && low_is_eax(modrm)),
		0x39 | 0x85 => operand(0, false),
		// To a register.
		0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x63 | 0x8b | 0x8d => operand(0, middle_is_eax(modrm)),
		0x3b => operand(0, false),
		// With a constant; 7 in the middle is a comparison.
		0x83 => operand(1, in_register && low_is_eax(modrm) && modrm >> 3 & 7 != 7),
		0x81 => operand(4, in_register && low_is_eax(modrm) && modrm >> 3 & 7 != 7),
		0xc7 => operand(4, in_register && low_is_eax(modrm)),
		0xeb => Step::Jump(at as isize + 1 + modrm.cast_signed() as isize),
		0xe9 => match code.get(at..at + 4).and_then(|n| n.try_into().ok()).map(i32::from_le_bytes) {
			Some(offset) => Step::Jump(at as isize + 4 + offset as isize),
			None => Step::Unknown,
		},
		0x70..=0x7f => Step::Fixed(at + 1),
		0xc2 | 0xc3 | 0xcc | 0xe8 | 0xf4 => Step::End,
		0x0f => {
			at += 1;
			match modrm {
				0x05 => Step::Syscall,
				0x0b => Step::End,
				0x80..=0x8f => Step::Fixed(at + 4),
				// Loads and stores of SSE, and no operation: the ModRM byte is the next.
				0x10 | 0x11 | 0x16 | 0x17 | 0x1e | 0x1f | 0x28 | 0x29 | 0x6f | 0x7f | 0xd6 => {
					match operand_len(&code[at.min(code.len())..]) {
						Some((len, true)) => Step::Next(at + len),
						Some((len, false)) => Step::Fixed(at + len),
						None => Step::Unknown,
					}
				}
				_ => Step::Unknown,
			}
		}
		_ => Step::Unknown,
	}
}

/// Length of a ModRM byte with what belongs to it, and whether it means the same at any address.
fn operand_len(code: &[u8]) -> Option<(usize, bool)> {
	let modrm = *code.first()?;
	let (mode, rm) = (modrm >> 6, modrm & 7);
	let mut len = 1;
	if mode == 3 {
		return Some((len, true));
	}
	if rm == 4 {
		let base = code.get(1)? & 7;
		len += 1;
		if mode == 0 && base == 5 {
			len += 4;
		}
	}
	match mode {
		// Relative to the instruction's own address.
		0 if rm == 5 => Some((len + 4, false)),
		0 => Some((len, true)),
		1 => Some((len + 1, true)),
		_ => Some((len + 4, true)),
	}
}

#[cfg(test)]
mod tests;

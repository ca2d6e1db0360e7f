//! Whether two bytes are an instruction, and what it calls where no table says which function it is in.

use super::{
	CALLS, Call,
	instruction::{Instruction, LONGEST},
	is_own,
	value::{RAX, Registers},
};

/// Instructions begin at one of so many bytes in a row, or end behind them.
const STARTS: usize = 2 * LONGEST + 1;
/// Bytes of prefixes that one instruction may have.
const PREFIXES: usize = LONGEST - 2;

fn decode(code: &[u8], at: usize) -> Option<Instruction> {
	Instruction::decode(code.get(at..)?)
}

/// Whether code before `at` may lead to an instruction whose last two bytes are there; `address` is that of `at`.
pub fn lands(code: &[u8], at: usize, address: usize) -> bool {
	let is_prefix = |byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
	let prefixes = code[..at].iter().rev().take(PREFIXES).take_while(|byte| is_prefix(**byte)).count();
	(0..=prefixes).any(|prefixes| leads(code, at - prefixes, address - prefixes))
}

/// Whether code before `at` may lead to an instruction there; `address` is the address of `at`.
///
/// Of any 15 bytes in a row, code that is executed has an instruction begin at one. So when none of the farthest 15
/// leads to `at`, nothing does, unless code begins between: at a multiple of 16, as functions do, behind a return or
/// what fills space, or with a constant of [`CALLS`].
fn leads(code: &[u8], at: usize, address: usize) -> bool {
	if at < STARTS {
		// The beginning of the code: it can't be told.
		return true;
	}
	let mut leads = [false; STARTS + 1];
	leads[0] = true;
	for back in 1..=STARTS {
		let Some(i) = decode(code, at - back) else { continue };
		leads[back] = back.checked_sub(i.len).is_some_and(|rest| leads[rest]);
		let begins = || {
			(address - back).is_multiple_of(16)
				|| code.get(at - back - 1).is_some_and(|before| matches!(before, 0x90 | 0xc3 | 0xcc))
				|| i.puts().map(|(_, number)| number).or(i.pushes()).is_some_and(is_listed)
		};
		if leads[back] && (back > STARTS - LONGEST || begins()) {
			return true;
		}
	}
	false
}

fn is_listed(number: u32) -> bool {
	CALLS.iter().any(|(native, compatible, _)| [*native, *compatible].contains(&number))
}

/// Whether instructions one after the other, from the beginning of `code` on, come to one that is wanted and ends at
/// `end`. Where one isn't known, they may; but where `code` begins inside an instruction, not before `in_step`.
pub fn comes_to(code: &[u8], in_step: usize, end: usize, is_wanted: impl Fn(&Instruction) -> bool) -> bool {
	let (mut here, mut wanted) = (0, false);
	while here < end {
		let Some(i) = decode(code, here) else {
			if here >= in_step {
				return true;
			}
			here += 1;
			continue;
		};
		here += i.len;
		wanted = is_wanted(&i);
	}
	here == end && wanted
}

/// What can be told of a system call instruction from the bytes around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
	/// It calls this.
	Calls(Call),
	/// It is harmless when no jump leads in between this offset and it; and whether it may be one of [`CALLS`] all the
	/// same.
	Harmless(usize, bool),
	/// It is no code.
	Data,
}

/// What the two bytes at `at` are, somewhere in code: only what stands close to them can be told. `leads`: whether a
/// jump or call may lead to an offset.
///
/// A number of [`CALLS`] counts on whatever way of decoding the bytes before. Any other must be loaded on every way
/// that begins far enough away, or where none does, in front of where it is loaded. Where it isn't, they are an
/// instruction if most ways from far enough away lead to them: code is decoded right soon, wherever one begins.
pub fn anywhere(code: &[u8], at: usize, leads: impl Fn(isize) -> bool) -> Line {
	if is_own(code, at) {
		return Line::Data;
	}
	// The last place where a harmless number is loaded, the first behind one; the first start that tells nothing.
	let (mut load, mut behind, mut vain) = (None, at, at);
	let (mut is_made, mut is_listed) = (false, false);
	let (mut led, mut passed) = (0, 0);
	let first = at.saturating_sub(4 * LONGEST);
	for start in first..at {
		let Some(way) = Way::follow(code, start, at) else { continue };
		if start < first + LONGEST {
			led += usize::from(way.is_ok());
			passed += usize::from(way.is_err());
		}
		let Ok(line) = way else { continue };
		is_made |= line.is_made;
		match (line.registers.call(code[at] == 0xcd), line.loads[RAX]) {
			(Some(call @ Call::Number(_)), _) => return Line::Calls(call),
			(None, Some((begin, end))) => {
				(load, behind) = (load.max(Some(begin)), behind.min(end));
				is_listed |= line.registers.is_listed(code[at] == 0xcd);
			}
			// Close before the load one may begin inside what is before it.
			_ if start < first + LONGEST || led == 0 => vain = vain.min(start),
			_ => {}
		}
	}
	if load.is_some_and(|load| load <= vain) {
		Line::Harmless(behind, is_listed)
	} else if is_made && led > passed && goes_on(code, at + 2, leads) {
		Line::Calls(Call::Unknown)
	} else {
		Line::Data
	}
}

/// Instructions one after the other, up to a system call.
struct Way {
	registers: Registers,
	/// Where the instruction begins, and ends, that has loaded the constant in a register.
	loads: [Option<(usize, usize)>; 16],
	/// Whether something is written into the accumulator.
	is_made: bool,
}

impl Way {
	/// From `start` up to the instruction whose last two bytes are at `at`, or past it; none where one isn't
	/// known, or none of a program's.
	fn follow(code: &[u8], start: usize, at: usize) -> Option<Result<Way, Past>> {
		let mut line = Way { registers: Registers::GIVEN, loads: [None; 16], is_made: false };
		let (mut here, mut pushed) = (start, None);
		while here < at {
			let i = decode(code, here)?;
			let next = here + i.len;
			if next == at + 2 && i.is_system_call() {
				return Some(Ok(line));
			}
			if i.is_unusual() && !i.is_system_call() {
				return None;
			}
			let load = if let Some((_, (from, _))) = i.moves() {
				line.loads[from]
			} else if i.pops().is_some() {
				pushed
			} else {
				i.puts().map(|_| (here, next))
			};
			pushed = i.pushes().map(|_| (here, next));
			i.written(|n| {
				line.loads[n] = load;
				line.is_made |= n == RAX && !i.is_call() && !i.is_system_call();
			});
			line.registers.step(&i);
			if i.ends() {
				(line.registers, line.loads, line.is_made) = (Registers::UNKNOWN, [None; 16], false);
			}
			here = next;
		}
		Some(if here == at { Ok(line) } else { Err(Past) })
	}
}

/// Instructions lead past what they should come to.
struct Past;

/// Whether what follows looks like code of a program, up to the next place where it doesn't go on; jumps and calls lead
/// to where `leads` says that they may.
fn goes_on(code: &[u8], mut here: usize, leads: impl Fn(isize) -> bool) -> bool {
	const SOON: usize = 24;
	for _ in 0..SOON {
		let Some(i) = decode(code, here).filter(|i| !i.is_unusual()) else { return here + LONGEST > code.len() };
		here += i.len;
		if !i.jumps().or(i.calls()).is_none_or(|by| leads(by.wrapping_add_unsigned(here))) {
			return false;
		}
		if i.ends() {
			return true;
		}
	}
	true
}

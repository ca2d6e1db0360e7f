//! What is known of the registers at one place of code: the little that tells harmless system calls from others.

use super::{CALLS, Call, MMAP, MPROTECT, PKEY_MPROTECT, instruction::Instruction};
use crate::sys::PROT_EXEC;

/// The values that a register may have, as far as a system call makes a difference between them: the properties that
/// any of them has. No bit: nothing gets here. The union of two is what may come from two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value(u32);

const ANY: u32 = 1 << 31;
/// Made by arithmetic, so that it may be an address that stands nowhere.
const COMPUTED: u32 = 1 << 30;
/// A constant, whatever other properties it has.
const CONSTANT: u32 = 1 << 29;
/// Advice (`madvise(2)`) that may discard or protect contents.
const DISCARDS: u32 = 1 << 28;
/// A protection (`mmap(2)`) that makes memory executable.
const EXECUTES: u32 = 1 << 27;
/// The number of a call of [`REMAPS`].
const REMAP: u32 = 1 << 26;
/// Calls that change mappings and do no harm otherwise: `shmat`, `remap_file_pages`, `mlock`, `mlockall`, `mlock2`.
const REMAPS: [u32; 5] = [30, 216, 149, 151, 325];
/// From here on, numbers of `int 0x80`; before, of `syscall`.
const COMPATIBLE: usize = 13;
const _: () = assert!(CALLS.len() <= COMPATIBLE && 1 << (2 * COMPATIBLE) <= REMAP);

/// Advice that neither discards nor protects contents: it does no harm on sealed memory.
const HARMLESS_ADVICE: [u32; 16] = [0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23];
const MADVISE: u32 = 28;
/// Calls of programs with pointers of 32 bits (x32) have this bit in their numbers.
const X32: u32 = 0x4000_0000;

impl Value {
	/// Anything not made by arithmetic on the way here.
	pub const GIVEN: Value = Value(ANY);
	/// Anything.
	pub const UNKNOWN: Value = Value(ANY | COMPUTED);

	/// This number, cut to the 32 bits that the kernel looks at.
	pub fn constant(number: u32) -> Value {
		let mut bits = CONSTANT;
		for (i, (native, compatible, _)) in CALLS.iter().enumerate() {
			bits |= u32::from(number & !X32 == *native) << i | u32::from(number == *compatible) << (COMPATIBLE + i);
		}
		bits |= if REMAPS.contains(&(number & !X32)) { REMAP } else { 0 };
		bits |= if number & PROT_EXEC != 0 { EXECUTES } else { 0 };
		Value(if HARMLESS_ADVICE.contains(&number) { bits } else { bits | DISCARDS })
	}

	fn or(self, other: Value) -> Value {
		Value(self.0 | other.0)
	}

	/// Whether nothing gets here.
	pub fn is_nothing(self) -> bool {
		self.0 == 0
	}

	/// Whether every number that it may be is known.
	pub fn is_known(self) -> bool {
		self.0 & CONSTANT != 0 && self.0 & ANY == 0
	}

	/// Whether it may have been made by arithmetic.
	pub fn is_computed(self) -> bool {
		self.0 & COMPUTED != 0
	}

	fn may_be(self, call: usize, compatible: bool) -> bool {
		self.0 >> (if compatible { COMPATIBLE } else { 0 } + call) & 1 != 0
	}
}

pub const RAX: usize = 0;
pub const RDX: usize = 2;

/// What is known of the registers at one place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registers {
	values: [Value; 16],
	/// What the instruction before has pushed.
	pushed: Value,
}

impl Registers {
	/// Nothing gets here.
	pub const NOTHING: Registers = Registers { values: [Value(0); 16], pushed: Value(0) };
	/// At the beginning of a function.
	pub const GIVEN: Registers = Registers { values: [Value::GIVEN; 16], pushed: Value::GIVEN };
	/// Where code comes from places that are not known.
	pub const UNKNOWN: Registers = Registers { values: [Value::UNKNOWN; 16], pushed: Value::UNKNOWN };

	/// Of one register.
	pub fn of(&self, register: usize) -> Value {
		self.values[register]
	}

	/// Whether nothing gets here.
	pub fn is_nothing(&self) -> bool {
		self.values[RAX].is_nothing()
	}

	/// Adds what comes another way. Gives whether that makes a difference.
	pub fn merge(&mut self, other: &Registers) -> bool {
		let before = *self;
		for (value, other) in self.values.iter_mut().zip(other.values) {
			*value = value.or(other);
		}
		self.pushed = self.pushed.or(other.pushed);
		*self != before
	}

	/// What an instruction puts into a whole register, where that is more than anything.
	fn put(&self, i: &Instruction) -> Option<(usize, Value)> {
		if let Some(((to, 4..), value)) = i.puts() {
			return Some((to, Value::constant(value)));
		}
		if let Some(((to, 4..), (from, _))) = i.moves() {
			return Some((to, self.of(from)));
		}
		if let Some(((to, 4..), (from, _))) = i.moves_perhaps() {
			return Some((to, self.of(to).or(self.of(from))));
		}
		i.pops().map(|to| (to, self.pushed))
	}

	/// Executes an instruction. A function that is called gives its result in rax and rdx. What else it may change its
	/// caller doesn't read afterwards, unless a compiler knows that it is as it was.
	pub fn step(&mut self, i: &Instruction) {
		let put = self.put(i);
		let written = if i.brings() { Value::GIVEN } else { Value::UNKNOWN };
		i.written(|n| {
			if !i.is_call() || n == RAX || n == RDX {
				self.values[n] = written;
			}
		});
		if let Some((to, value)) = put {
			self.values[to] = value;
		}
		self.pushed = i.pushes().map_or(Value::GIVEN, Value::constant);
	}

	/// Whether a system call instruction may make one of [`CALLS`], harmless or not, or of [`REMAPS`]: any that has the
	/// old numbers may.
	pub fn is_listed(&self, compatible: bool) -> bool {
		let number = self.of(RAX);
		compatible
			|| !number.is_known()
			|| number.0 & REMAP != 0
			|| (0..CALLS.len()).any(|i| number.may_be(i, compatible))
	}

	/// What a system call instruction calls; none when it is harmless, whatever brought the registers about.
	pub fn call(&self, compatible: bool) -> Option<Call> {
		let number = self.of(RAX);
		if !number.is_known() {
			return Some(Call::Unknown);
		}
		// The third argument is in edx for both instructions.
		let third = self.of(RDX);
		let may = |property| !third.is_known() || third.0 & property != 0;
		let counts = |i: &usize| {
			number.may_be(*i, compatible)
				&& match CALLS[*i].0 {
					MADVISE => may(DISCARDS),
					MMAP | MPROTECT | PKEY_MPROTECT => may(EXECUTES),
					_ => true,
				}
		};
		(0..CALLS.len()).find(counts).map(|i| Call::Number(CALLS[i].0))
	}
}

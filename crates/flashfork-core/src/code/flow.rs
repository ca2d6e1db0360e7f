//! Which numbers may reach the system call instructions of one part of the code.
//!
//! A part is what one entry of the unwind table covers: a function, or what a compiler has moved out of one. A data
//! flow to its fixed point: what is known of the registers where ways meet is the union of what comes each way, and is
//! followed through all instructions, jumps and loops until nothing changes. Where code may come to from elsewhere
//! ([`Flow::enter`]) nothing is known; so too where no way leads that is understood.

use super::{
	Call,
	instruction::{Instruction, LONGEST},
	is_own,
	value::Registers,
};

/// Longest part looked through.
pub const PART: usize = 128 << 10;
/// Most places of one part where ways meet.
const PLACES: usize = 8 << 10;
/// Most places elsewhere that a part jumps to.
const OUTSIDE: usize = 512;
/// Instructions looked at, for each byte of a part.
const EFFORT: usize = 64;

/// More than there is room for: nothing can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// Scratch memory. All zeros is a valid value.
pub struct Flow {
	bytes: [u8; PART],
	len: usize,
	/// For each byte whether an instruction begins there, decoded from the part's beginning.
	begins: [u64; PART / 64],
	/// For each byte the number of the place that begins with it; 0: none does.
	numbers: [u16; PART],
	/// Offset of each place, and what is known there; the first is not used.
	offsets: [u32; PLACES],
	known: [Registers; PLACES],
	count: usize,
	/// Places from which what is known must be followed.
	waiting: [u16; PLACES],
	is_waiting: [bool; PLACES],
	/// Whether [`Flow::calls`] wants to know of an instruction between this place and the next.
	is_wanted: [bool; PLACES],
	waiting_count: usize,
	/// Where jumps lead that leave the part, from its beginning.
	jumps: [isize; OUTSIDE],
	jump_count: usize,
	has_table: bool,
	/// Whether a place has been found since all were followed.
	has_new: bool,
}

impl Flow {
	/// Begins with a part, and finds all places that its own instructions lead to.
	pub fn begin(&mut self, part: &[u8]) -> Result<(), TooMuch> {
		self.len = part.len();
		self.bytes.get_mut(..part.len()).ok_or(TooMuch)?.copy_from_slice(part);
		self.numbers[..part.len()].fill(0);
		self.begins[..part.len().div_ceil(64)].fill(0);
		(self.count, self.waiting_count, self.jump_count) = (1, 0, 0);
		self.has_table = false;
		self.add(0, &Registers::GIVEN)?;
		let (mut here, mut ended) = (0, false);
		while here < self.len {
			let Some(i) = self.decode(here) else {
				self.resume(here)?;
				here += 1;
				continue;
			};
			self.begins[here / 64] |= 1 << (here % 64);
			if ended && !i.is_padding() {
				self.place(here)?;
				ended = false;
			}
			here += i.len;
			ended |= i.ends();
			if let Some(by) = i.jumps() {
				self.lead(here.wrapping_add_signed(by).cast_signed())?;
			}
			if let Some(target) = i.names().map(|by| here.wrapping_add_signed(by)).filter(|target| *target < self.len) {
				self.enter(target)?;
			}
		}
		Ok(())
	}

	fn decode(&self, at: usize) -> Option<Instruction> {
		Instruction::decode(&self.bytes[at..self.len])
	}

	fn lead(&mut self, target: isize) -> Result<(), TooMuch> {
		if target.cast_unsigned() < self.len {
			self.place(target.cast_unsigned())?;
		} else if !self.jumps[..self.jump_count].contains(&target) {
			*self.jumps.get_mut(self.jump_count).ok_or(TooMuch)? = target;
			self.jump_count += 1;
		}
		Ok(())
	}

	fn place(&mut self, at: usize) -> Result<usize, TooMuch> {
		if self.numbers[at] == 0 {
			*self.offsets.get_mut(self.count).ok_or(TooMuch)? = at as u32;
			self.known[self.count] = Registers::NOTHING;
			(self.is_waiting[self.count], self.is_wanted[self.count]) = (false, false);
			self.numbers[at] = self.count as u16;
			self.count += 1;
			self.has_new = true;
		}
		Ok(self.numbers[at].into())
	}

	/// Something comes to an offset.
	fn add(&mut self, at: usize, registers: &Registers) -> Result<(), TooMuch> {
		let place = self.place(at)?;
		if self.known[place].merge(registers) {
			self.wait(place);
		}
		Ok(())
	}

	fn wait(&mut self, place: usize) {
		if !self.is_waiting[place] {
			self.is_waiting[place] = true;
			self.waiting[self.waiting_count] = place as u16;
			self.waiting_count += 1;
		}
	}

	/// Code may come to an offset from elsewhere.
	pub fn enter(&mut self, at: usize) -> Result<(), TooMuch> {
		self.add(at, &Registers::UNKNOWN)
	}

	/// The same, by an entry of a table of jumps. False: it is none, because no instruction begins there.
	pub fn enter_by_table(&mut self, at: usize) -> Result<bool, TooMuch> {
		let begins = self.begins(at);
		if begins {
			self.has_table = true;
			self.enter(at)?;
		}
		Ok(begins)
	}

	/// Whether an instruction begins at an offset, decoded from the part's beginning.
	pub fn begins(&self, at: usize) -> bool {
		self.begins[at / 64] >> (at % 64) & 1 != 0
	}

	/// Behind an instruction that the decoder doesn't know: it may end anywhere.
	fn resume(&mut self, at: usize) -> Result<(), TooMuch> {
		(at + 1..(at + LONGEST + 1).min(self.len)).try_for_each(|next| self.enter(next))
	}

	/// Where jumps lead that leave the part, from its beginning.
	pub fn jumps(&self) -> &[isize] {
		&self.jumps[..self.jump_count]
	}

	/// Follows all ways until nothing changes.
	pub fn solve(&mut self) -> Result<(), TooMuch> {
		let mut effort = EFFORT * self.len + PLACES;
		let mut reached = 0;
		self.has_new = false;
		loop {
			while let Some(last) = self.waiting_count.checked_sub(1) {
				self.waiting_count = last;
				let place = usize::from(self.waiting[last]);
				self.is_waiting[place] = false;
				self.follow(place, &mut effort)?;
			}
			// Whoever came by there before has to stop there now.
			if core::mem::take(&mut self.has_new) {
				for place in 1..self.count {
					if !self.known[place].is_nothing() {
						self.wait(place);
					}
				}
				continue;
			}
			// What nothing leads to is reached in some other way.
			let unreached =
				|at: &usize| self.numbers[*at] != 0 && self.known[usize::from(self.numbers[*at])].is_nothing();
			let Some(at) = (reached..self.len).find(unreached) else { return Ok(()) };
			reached = at;
			self.enter(at)?;
		}
	}

	fn follow(&mut self, place: usize, effort: &mut usize) -> Result<(), TooMuch> {
		let mut here = self.offsets[place] as usize;
		let mut registers = self.known[place];
		loop {
			*effort = effort.checked_sub(1).ok_or(TooMuch)?;
			let Some(i) = self.decode(here) else { return self.resume(here) };
			self.is_wanted[place] |= i.is_system_call() || i.jumps_to_register().is_some();
			registers.step(&i);
			here += i.len;
			if let Some(target) = i.jumps().map(|by| here.wrapping_add_signed(by)).filter(|target| *target < self.len) {
				self.add(target, &registers)?;
			}
			if i.ends() || here >= self.len {
				return Ok(());
			}
			if self.numbers[here] != 0 {
				return self.add(here, &registers);
			}
		}
	}

	/// Calls `each` with the offset of every system call instruction, and what it calls: none when it is harmless. Then
	/// whether it may be one of [`CALLS`](super::CALLS) all the same.
	///
	/// Where a jump leads to an address that was computed, and there is no table that it could come from, nothing can
	/// be told.
	pub fn calls(&self, mut each: impl FnMut(usize, Option<Call>, bool)) -> Result<(), TooMuch> {
		let mut lost = false;
		self.instructions(|_, i, registers| {
			let to = i.jumps_to_register();
			lost |= !self.has_table && to.is_some_and(|register| registers.of(register).is_computed());
		});
		if lost {
			return Err(TooMuch);
		}
		self.instructions(|at, i, registers| {
			if i.is_system_call() {
				let two = at + i.len - 2;
				let compatible = self.bytes[two] == 0xcd;
				let is_own = is_own(&self.bytes[..self.len], two);
				let call = registers.call(compatible).filter(|_| !is_own);
				each(two, call, !is_own && registers.is_listed(compatible));
			}
		});
		Ok(())
	}

	/// Calls `each` with every instruction that [`Flow::calls`] wants, and others, and what is known before it.
	fn instructions(&self, mut each: impl FnMut(usize, &Instruction, &Registers)) {
		for place in (1..self.count).filter(|place| self.is_wanted[*place]) {
			let mut here = self.offsets[place] as usize;
			let mut registers = self.known[place];
			while let Some(i) = self.decode(here) {
				each(here, &i, &registers);
				registers.step(&i);
				here += i.len;
				if i.ends() || here >= self.len || self.numbers[here] != 0 {
					break;
				}
			}
		}
	}
}

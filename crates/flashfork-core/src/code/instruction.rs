//! Machine code of x86-64, as far as it matters here: how long an instruction is, which general registers it writes,
//! where it jumps.
//!
//! Intel's manual, volume 2, appendix A (opcode maps). Other decoders need an allocator or std, and the shim has
//! neither.

/// The longest instruction there is.
pub const LONGEST: usize = 15;

/// One instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instruction {
	/// Bytes.
	pub len: usize,
	/// Opcode map: 0 one byte, 1 `0f`, 2 `0f 38`, 3 `0f 3a`; others as VEX and EVEX number them.
	map: u8,
	opcode: u8,
	modrm: Option<u8>,
	/// Bits W, R, X, B.
	rex: u8,
	has_rex: bool,
	/// Whether it has a VEX, EVEX or XOP prefix, and which register that names.
	vector: Option<u8>,
	/// `66`: operands of 16 bits.
	short: bool,
	immediate: Option<i64>,
	/// Of an operand in memory whose address is relative to the instruction's end.
	relative: Option<i32>,
}

const W: u8 = 8;

/// A register and how many bytes of it are meant.
pub type Register = (usize, usize);

impl Instruction {
	/// The instruction that begins with these bytes; `None`: it is none, or cut off.
	pub fn decode(code: &[u8]) -> Option<Instruction> {
		let mut i = Instruction::default();
		let at = core::cell::Cell::new(0);
		let byte = || {
			let byte = code.get(at.get()).copied().filter(|_| at.get() < LONGEST);
			at.set(at.get() + 1);
			byte
		};
		let mut address_size = false;
		let mut first = byte()?;
		loop {
			match first {
				0x66 => i.short = true,
				0x67 => address_size = true,
				0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
				_ => break,
			}
			first = byte()?;
		}
		if first & 0xf0 == 0x40 {
			(i.rex, i.has_rex) = (first & 15, true);
			first = byte()?;
		}
		match first {
			0xc5 => {
				let one = byte()?;
				(i.rex, i.map, i.vector) = (!one >> 5 & 4, 1, Some(!one >> 3 & 15));
				i.opcode = byte()?;
			}
			0xc4 => {
				let (one, two) = (byte()?, byte()?);
				(i.rex, i.map, i.vector) = (!one >> 5 & 7 | two >> 4 & W, one & 31, Some(!two >> 3 & 15));
				i.opcode = byte()?;
			}
			0x62 => {
				let (one, two, _) = (byte()?, byte()?, byte()?);
				(i.rex, i.map, i.vector) = (!one >> 5 & 7 | two >> 4 & W, one & 7, Some(!two >> 3 & 15));
				i.opcode = byte()?;
			}
			0x8f if code.get(at.get()).is_some_and(|next| next & 31 >= 8) => {
				let (one, two) = (byte()?, byte()?);
				(i.rex, i.map, i.vector) = (!one >> 5 & 7 | two >> 4 & W, one & 31, Some(!two >> 3 & 15));
				i.opcode = byte()?;
			}
			0x0f => {
				let second = byte()?;
				(i.map, i.opcode) = match second {
					0x38 => (2, byte()?),
					0x3a => (3, byte()?),
					other => (1, other),
				};
			}
			other => i.opcode = other,
		}
		if i.has_modrm()? {
			let modrm = byte()?;
			i.modrm = Some(modrm);
			let (mode, rm) = (modrm >> 6, modrm & 7);
			let mut displacement = match mode {
				1 => 1,
				2 => 4,
				0 if rm == 5 => 4,
				_ => 0,
			};
			if mode != 3 && rm == 4 && byte()? & 7 == 5 && mode == 0 {
				displacement = 4;
			}
			let mut value = 0u32;
			for n in 0..displacement {
				value |= u32::from(byte()?) << (8 * n);
			}
			i.relative = (mode == 0 && rm == 5).then_some(value.cast_signed());
		}
		let is_made = match (i.map, i.opcode) {
			(0, 0x8f) => i.vector.is_some() || i.group() == 0,
			(0, 0xc6 | 0xc7) => i.group() == 0 || i.modrm == Some(0xf8),
			(0, 0xfe) => i.group() < 2,
			(0, 0xff) => i.group() < 7,
			_ => true,
		};
		if !is_made {
			return None;
		}
		let bytes =
			if i.map == 0 && i.opcode & 0xfc == 0xa0 { if address_size { 4 } else { 8 } } else { i.immediate_bytes() };
		let mut value = 0u64;
		for n in 0..bytes {
			value |= u64::from(byte()?) << (8 * n);
		}
		if bytes > 0 {
			let unused = 64 - 8 * bytes as u32;
			i.immediate = Some((value << unused).cast_signed() >> unused);
		}
		i.len = at.get();
		Some(i)
	}

	/// `None`: there is no such opcode.
	fn has_modrm(&self) -> Option<bool> {
		let op = self.opcode;
		if self.vector.is_some() {
			// vzeroupper
			return match self.map {
				1 => Some(op != 0x77),
				2..=6 | 8..=10 => Some(true),
				_ => None,
			};
		}
		match (self.map, op) {
			(0, 0x00..=0x3f) if op & 7 < 4 => Some(true),
			(0, 0x00..=0x3f) if op & 7 < 6 => Some(false),
			(0, 0x00..=0x3f | 0x60..=0x62 | 0x82 | 0x9a | 0xce | 0xd4..=0xd6 | 0xea) => None,
			(0, 0x63 | 0x69 | 0x6b | 0x80..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xd8..=0xdf) => Some(true),
			(0, 0xf6 | 0xf7 | 0xfe | 0xff) => Some(true),
			(0, _) => Some(false),
			(1, 0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0xa6 | 0xa7) => None,
			(1, 0x05..=0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf) => {
				Some(false)
			}
			_ => Some(true),
		}
	}

	fn immediate_bytes(&self) -> usize {
		let op = self.opcode;
		let group = self.modrm.unwrap_or(0) >> 3 & 7;
		let full = if self.short && self.rex & W == 0 { 2 } else { 4 };
		if self.vector.is_some() {
			return match (self.map, op) {
				(3 | 8, _) | (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => 1,
				(10, _) => 4,
				_ => 0,
			};
		}
		match (self.map, op) {
			(0, 0x00..=0x3f) if op & 7 == 4 => 1,
			(0, 0x00..=0x3f) if op & 7 == 5 => full,
			(0, 0xb8..=0xbf) if self.rex & W != 0 => 8,
			(0, 0x68 | 0x69 | 0x81 | 0xa9 | 0xb8..=0xbf | 0xc7) => full,
			(0, 0x6a | 0x6b | 0x70..=0x7f | 0x80 | 0x83 | 0xa8 | 0xb0..=0xb7 | 0xc0 | 0xc1 | 0xc6 | 0xcd) => 1,
			(0, 0xe0..=0xe7 | 0xeb) => 1,
			(0, 0xc2 | 0xca) => 2,
			(0, 0xc8) => 3,
			(0, 0xe8 | 0xe9) => 4,
			(0, 0xf6) if group < 2 => 1,
			(0, 0xf7) if group < 2 => full,
			(1, 0x80..=0x8f) => 4,
			(1, 0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6) | (3, _) => 1,
			_ => 0,
		}
	}

	fn is(&self, map: u8, opcode: u8) -> bool {
		self.vector.is_none() && (self.map, self.opcode) == (map, opcode)
	}

	fn group(&self) -> u8 {
		self.modrm.unwrap_or(0) >> 3 & 7
	}

	fn is_of_bytes(&self) -> bool {
		match (self.map, self.opcode) {
			(0, 0xb0..=0xb7) | (1, 0x90..=0x9f) => true,
			(0, 0x00..=0x3f | 0x80 | 0x84 | 0x86 | 0x88 | 0x8a | 0xc0 | 0xc6 | 0xd0 | 0xd2 | 0xf6 | 0xfe) => {
				self.opcode & 1 == 0
			}
			(1, 0xb0 | 0xc0) => true,
			_ => false,
		}
	}

	fn register(&self, low: u8, high: u8) -> Register {
		let n = usize::from(low & 7 | if self.rex & high != 0 { 8 } else { 0 });
		if self.is_of_bytes() {
			// ah, ch, dh, bh
			return (if !self.has_rex && n >= 4 { n - 4 } else { n }, 1);
		}
		(
			n,
			if self.rex & W != 0 {
				8
			} else if self.short {
				2
			} else {
				4
			},
		)
	}

	fn reg(&self) -> Register {
		self.register(self.modrm.unwrap_or(0) >> 3, 4)
	}

	fn rm(&self) -> Option<Register> {
		self.modrm.filter(|modrm| modrm >> 6 == 3).map(|modrm| self.register(modrm, 1))
	}

	fn low(&self) -> Register {
		self.register(self.opcode, 1)
	}

	/// Calls `each` with every general register that is written.
	pub fn written(&self, mut each: impl FnMut(usize)) {
		let op = self.opcode;
		let (reg, rm, low) = (self.reg().0, self.rm().map(|r| r.0), self.low().0);
		let mut all = |registers: &[usize]| registers.iter().for_each(|n| each(*n));
		let to_rm: &[usize] = rm.as_slice();
		if let Some(named) = self.vector {
			match (self.map, op) {
				(1, 0x2c | 0x2d | 0x50 | 0x93 | 0xc5 | 0xd7)
				| (2, 0xf2 | 0xf5 | 0xf7)
				| (3, 0xf0)
				| (5, 0x2c | 0x2d | 0x78 | 0x79) => all(&[reg]),
				(1, 0x78 | 0x79) => all(&[reg]),
				(2, 0xf3) => all(&[named.into()]),
				(2, 0xf6) => all(&[reg, named.into()]),
				(1, 0x7e) | (3, 0x14..=0x17) => all(to_rm),
				(2, 0xe0..=0xef) => all(&[reg]),
				(8..=10, _) => all(&[reg, named.into()]),
				_ => {}
			}
			return;
		}
		match (self.map, op) {
			(0, 0x38..=0x3d | 0x84 | 0x85 | 0x50..=0x57 | 0x68 | 0x6a | 0x70..=0x7f | 0xa8 | 0xa9) => {}
			(0, 0x00..=0x3f) => match op & 7 {
				0 | 1 => all(to_rm),
				2 | 3 => all(&[reg]),
				_ => all(&[0]),
			},
			(0, 0x58..=0x5f | 0xb0..=0xbf) => all(&[low]),
			(0, 0x63 | 0x69 | 0x6b | 0x8a | 0x8b | 0x8d) => all(&[reg]),
			(0, 0x80..=0x83) if self.group() == 7 => {}
			(0, 0x86 | 0x87) => {
				all(to_rm);
				all(&[reg]);
			}
			(0, 0x80..=0x83 | 0x88 | 0x89 | 0x8c | 0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xfe) => all(to_rm),
			(0, 0x90) if self.rex & 1 == 0 => {}
			(0, 0x90..=0x97) => all(&[0, low]),
			(0, 0x98 | 0x9f | 0xa0 | 0xa1 | 0xd7 | 0xe4 | 0xe5 | 0xec | 0xed | 0xcd) => all(&[0]),
			(0, 0x99) => all(&[2]),
			(0, 0x6c..=0x6f | 0xa4..=0xa7 | 0xaa | 0xab | 0xae | 0xaf) => all(&[1, 6, 7]),
			(0, 0xac | 0xad) => all(&[0, 1, 6]),
			(0, 0xe0..=0xe2) => all(&[1]),
			(0, 0xc8 | 0xc9) => all(&[5]),
			(0, 0xf6 | 0xf7) => match self.group() {
				0 | 1 => {}
				2 | 3 => all(to_rm),
				_ => all(&[0, 2]),
			},
			(0, 0xff) if self.group() < 2 => all(to_rm),
			// fnstsw %ax
			(0, 0xdf) if self.modrm == Some(0xe0) => all(&[0]),
			(1, 0x05) => all(&[0, 1, 11]),
			(1, 0x01 | 0x31..=0x33 | 0xa2) => all(&[0, 1, 2, 3]),
			(1, 0x40..=0x4f | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0x02 | 0x03 | 0x2c | 0x2d | 0x50 | 0xc5 | 0xd7) => {
				all(&[reg])
			}
			(1, 0x90..=0x9f | 0xab | 0xb3 | 0xbb | 0xa4 | 0xa5 | 0xac | 0xad | 0x7e | 0x00 | 0x20 | 0x21) => all(to_rm),
			(1, 0xba) if self.group() > 4 => all(to_rm),
			(1, 0xb0 | 0xb1) => {
				all(to_rm);
				all(&[0]);
			}
			(1, 0xc0 | 0xc1) => {
				all(to_rm);
				all(&[reg]);
			}
			(1, 0xc7) => {
				all(to_rm);
				all(&[0, 2]);
			}
			(1, 0xc8..=0xcf) => all(&[low]),
			// rdfsbase and its kin
			(1, 0xae) => all(to_rm),
			(2, 0xf0 | 0xf1 | 0xf6) => all(&[reg]),
			(3, 0x14..=0x17) => all(to_rm),
			_ => {}
		}
		if self.is_call() {
			all(&[0, 1, 2, 6, 7, 8, 9, 10, 11]);
		}
	}

	/// A constant put into a register.
	pub fn puts(&self) -> Option<(Register, u32)> {
		let to = match (self.map, self.opcode) {
			_ if self.vector.is_some() => return None,
			(0, 0xb8..=0xbf) => self.low(),
			(0, 0xc7) if self.group() == 0 => self.rm()?,
			(0, 0x29 | 0x2b | 0x31 | 0x33) if self.rm() == Some(self.reg()) => return Some((self.reg(), 0)),
			_ => return None,
		};
		Some((to, self.immediate? as u32))
	}

	/// The registers of a move, to and from.
	pub fn moves(&self) -> Option<(Register, Register)> {
		match self.opcode {
			0x89 if self.is(0, 0x89) => Some((self.rm()?, self.reg())),
			0x8b if self.is(0, 0x8b) => Some((self.reg(), self.rm()?)),
			_ => None,
		}
	}

	/// The registers of a move that depends on a condition, to and from.
	pub fn moves_perhaps(&self) -> Option<(Register, Register)> {
		(self.vector.is_none() && self.map == 1 && self.opcode & 0xf0 == 0x40).then_some((self.reg(), self.rm()?))
	}

	/// Whether what it writes into a register comes from elsewhere as a whole: from memory, or from another register.
	/// Else it is computed.
	pub fn brings(&self) -> bool {
		self.is(0, 0x89)
			|| self.is(0, 0x8b)
			|| self.pops().is_some()
			|| self.names().is_some()
			|| self.is_call()
			|| self.is_system_call()
			|| self.vector.is_none() && self.map == 1 && self.opcode & 0xf0 == 0x40
	}

	/// How far the address that `lea` makes from the program counter is from the instruction's end.
	pub fn names(&self) -> Option<isize> {
		self.relative.filter(|_| self.is(0, 0x8d)).map(|by| by as isize)
	}

	/// A constant of 32 bits or more that may be an address where code is not position independent.
	pub fn constant(&self) -> Option<usize> {
		let has = self.vector.is_none() && self.map == 0 && matches!(self.opcode, 0x68 | 0xb8..=0xbf | 0xc7);
		self.immediate.filter(|_| has).map(|value| value as usize)
	}

	/// The register that holds where a jump leads.
	pub fn jumps_to_register(&self) -> Option<usize> {
		(self.is(0, 0xff) && self.group() == 4).then_some(self.rm()?.0)
	}

	/// Whether it fills space between functions and loops.
	pub fn is_padding(&self) -> bool {
		self.is(0, 0x90) && self.rex & 1 == 0 || self.is(1, 0x1f) || self.is(0, 0xcc)
	}

	/// Whether no compiler makes it for a program: only a kernel may execute it, or nobody has use for it.
	pub fn is_unusual(&self) -> bool {
		self.vector.is_none()
			&& matches!(
				(self.map, self.opcode),
				(0, 0x6c..=0x6f | 0x9b | 0x9e | 0x9f | 0xc8 | 0xca | 0xcb | 0xcd..=0xcf | 0xd7 | 0xe0..=0xe7)
					| (0, 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfb | 0xfd)
					| (1, 0x00 | 0x02 | 0x03 | 0x05..=0x09 | 0x20..=0x23 | 0x30 | 0x32..=0x37)
			)
	}

	/// A constant that is pushed.
	pub fn pushes(&self) -> Option<u32> {
		(self.is(0, 0x68) || self.is(0, 0x6a)).then_some(self.immediate? as u32)
	}

	/// The register that is popped.
	pub fn pops(&self) -> Option<usize> {
		(self.vector.is_none() && self.map == 0 && self.opcode & 0xf8 == 0x58).then_some(self.low().0)
	}

	/// Whether it is a call.
	pub fn is_call(&self) -> bool {
		self.is(0, 0xe8) || self.is(0, 0xff) && matches!(self.group(), 2 | 3)
	}

	/// Whether it returns.
	pub fn is_return(&self) -> bool {
		self.vector.is_none() && self.map == 0 && matches!(self.opcode, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcf)
	}

	/// Whether it is `syscall` or `int 0x80`.
	pub fn is_system_call(&self) -> bool {
		self.is(1, 0x05) || self.is(0, 0xcd) && self.immediate == Some(-128)
	}

	/// How far a jump leads, from its end.
	pub fn jumps(&self) -> Option<isize> {
		// The last is xbegin.
		let near = self.map == 0
			&& (matches!(self.opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xe9 | 0xeb)
				|| self.is(0, 0xc7) && self.modrm == Some(0xf8));
		let far = self.map == 1 && matches!(self.opcode, 0x80..=0x8f);
		self.immediate.filter(|_| self.vector.is_none() && (near || far)).map(|by| by as isize)
	}

	/// How far from its end the function is that it calls.
	pub fn calls(&self) -> Option<isize> {
		self.immediate.filter(|_| self.is(0, 0xe8)).map(|by| by as isize)
	}

	/// Whether nothing goes on behind it.
	pub fn ends(&self) -> bool {
		let jump = self.is(0, 0xe9) || self.is(0, 0xeb) || self.is(0, 0xff) && matches!(self.group(), 4 | 5);
		jump || self.is_return() || self.is(1, 0x0b) || self.is(0, 0xf4)
	}
}

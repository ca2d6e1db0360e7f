//! Random small functions, executed step by step, against what the flow through them says.

use super::{
	value::{RAX, RDX},
	*,
};

#[derive(Clone, Copy, Debug)]
enum Op {
	Put(usize, u32),
	PutByte(usize, u8),
	Move(usize, usize),
	MovePerhaps(usize, usize),
	Clear(usize),
	Add(usize, i8),
	Lea(usize, usize, i8),
	Exchange(usize, usize),
	Push(i8),
	Pop(usize),
	Call,
	JumpPerhaps(usize),
	Jump(usize),
	SystemCall,
	Return,
}

/// rax, rdx, rbx, r12: by the numbers that instructions have for them.
const REGISTERS: [usize; 4] = [RAX, RDX, 3, 12];
const CONSTANTS: [u32; 10] = [28, 28, 4, 14, 25, 39, 0, 202, 9, 10];

/// xorshift64.
pub(super) struct Random(pub(super) u64);

impl Random {
	pub(super) fn below(&mut self, bound: usize) -> usize {
		self.0 ^= self.0 << 13;
		self.0 ^= self.0 >> 7;
		self.0 ^= self.0 << 17;
		(self.0 >> 16) as usize % bound
	}

	fn register(&mut self) -> usize {
		REGISTERS[self.below(REGISTERS.len())]
	}

	fn constant(&mut self) -> u32 {
		CONSTANTS[self.below(CONSTANTS.len())]
	}

	fn op(&mut self, count: usize) -> Op {
		match self.below(22) {
			0..4 => Op::Put(self.register(), self.constant()),
			4 => Op::PutByte(self.register(), self.constant() as u8),
			5 | 6 => Op::Move(self.register(), self.register()),
			7 => Op::MovePerhaps(self.register(), self.register()),
			8 => Op::Clear(self.register()),
			9 => Op::Add(self.register(), self.constant() as i8),
			10 => Op::Lea(self.register(), self.register(), self.constant() as i8),
			11 => Op::Exchange(self.register(), self.register()),
			12 => Op::Push(self.constant() as i8),
			13 => Op::Pop(self.register()),
			14 => Op::Call,
			15..18 => Op::JumpPerhaps(self.below(count)),
			18 => Op::Jump(self.below(count)),
			19 | 20 => Op::SystemCall,
			_ => Op::Return,
		}
	}
}

/// The bytes of an instruction; jumps lead as far as `distance` says of their ends.
fn encoded(op: Op, distance: impl Fn(usize, usize) -> i32) -> Vec<u8> {
	let rex = |wide: u8, reg: usize, rm: usize| 0x40 | wide << 3 | ((reg >> 3) as u8) << 2 | (rm >> 3) as u8;
	let modrm = |reg: usize, rm: usize| 0xc0 | ((reg & 7) as u8) << 3 | (rm & 7) as u8;
	match op {
		Op::Put(to, value) => {
			let mut bytes = vec![rex(0, 0, to), 0xb8 | (to & 7) as u8];
			bytes.extend(value.to_le_bytes());
			bytes
		}
		Op::PutByte(to, value) => vec![rex(0, 0, to), 0xb0 | (to & 7) as u8, value],
		Op::Move(to, from) => vec![rex(1, from, to), 0x89, modrm(from, to)],
		Op::MovePerhaps(to, from) => vec![rex(1, to, from), 0x0f, 0x45, modrm(to, from)],
		Op::Clear(to) => vec![rex(0, to, to), 0x31, modrm(to, to)],
		Op::Add(to, by) => vec![rex(0, 0, to), 0x83, modrm(0, to), by as u8],
		Op::Lea(to, from, by) if from == 12 => vec![rex(0, to, from), 0x8d, modrm(to, from) & 0x7f, 0x24, by as u8],
		Op::Lea(to, from, by) => vec![rex(0, to, from), 0x8d, modrm(to, from) & 0x7f, by as u8],
		Op::Exchange(one, other) => vec![rex(0, one, other), 0x87, modrm(one, other)],
		Op::Push(value) => vec![0x6a, value as u8],
		Op::Pop(to) => vec![rex(0, 0, to), 0x58 | (to & 7) as u8],
		Op::Call => vec![0xff, 0xd6],
		Op::JumpPerhaps(to) => [&[0x0f, 0x85][..], &distance(to, 6).to_le_bytes()].concat(),
		Op::Jump(to) => [&[0xe9][..], &distance(to, 5).to_le_bytes()].concat(),
		Op::SystemCall => vec![0x0f, 0x05],
		Op::Return => vec![0xc3],
	}
}

/// The function's bytes, and where each instruction begins.
fn assembled(ops: &[Op]) -> (Vec<u8>, Vec<usize>) {
	let mut starts = vec![0];
	for op in ops {
		starts.push(starts[starts.len() - 1] + encoded(*op, |_, _| 0).len());
	}
	let bytes = |(i, op): (usize, &Op)| encoded(*op, |to, len| starts[to] as i32 - (starts[i] + len) as i32);
	(ops.iter().enumerate().flat_map(bytes).collect(), starts)
}

/// Executes a function from one of its instructions on; conditions and what is not known are as chance has it. Calls
/// `each` with the system calls, their numbers and advice.
fn execute(ops: &[Op], start: usize, random: &mut Random, mut each: impl FnMut(usize, u32, u32)) {
	const STEPS: usize = 60;
	let mut registers: [u32; 16] = core::array::from_fn(|_| random.constant());
	let mut stack = Vec::new();
	let mut at = start;
	for _ in 0..STEPS {
		let Some(op) = ops.get(at) else { return };
		at += 1;
		match *op {
			Op::Put(to, value) => registers[to] = value,
			Op::PutByte(to, value) => registers[to] = registers[to] & !0xff | u32::from(value),
			Op::Move(to, from) => registers[to] = registers[from],
			Op::MovePerhaps(to, from) => registers[to] = registers[[to, from][random.below(2)]],
			Op::Clear(to) => registers[to] = 0,
			Op::Add(to, by) => registers[to] = registers[to].wrapping_add_signed(by.into()),
			Op::Lea(to, from, by) => registers[to] = registers[from].wrapping_add_signed(by.into()),
			Op::Exchange(one, other) => registers.swap(one, other),
			Op::Push(value) => stack.push(i32::from(value).cast_unsigned()),
			Op::Pop(to) => registers[to] = stack.pop().unwrap_or_else(|| random.constant()),
			Op::Call => [RAX, RDX].iter().for_each(|n| registers[*n] = random.constant()),
			Op::JumpPerhaps(to) if random.below(2) == 0 => at = to,
			Op::JumpPerhaps(_) => {}
			Op::Jump(to) => at = to,
			Op::SystemCall => {
				each(at - 1, registers[RAX], registers[RDX]);
				registers[RAX] = random.constant();
			}
			Op::Return => return,
		}
	}
}

#[test]
fn what_is_called_harmless_does_no_harm_on_any_way() {
	let mut random = Random(0x9e37_79b9_7f4a_7c15);
	let scratch = Scratch::map().unwrap();
	let (mut harmless, mut harmful) = (0, 0);
	for _ in 0..4000 {
		let count = 4 + random.below(20);
		let ops: Vec<_> = (0..count).map(|_| random.op(count)).collect();
		let (bytes, starts) = assembled(&ops);
		// Where it is entered but for its beginning, if anywhere.
		let entry = random.below(3 * count);
		scratch.flow.begin(&bytes).unwrap();
		if entry < count {
			scratch.flow.enter(starts[entry]).unwrap();
		}
		scratch.flow.solve().unwrap();
		let mut told = vec![None; count];
		let mut note = |at: usize, call, _| told[starts.binary_search(&at).unwrap()] = Some(call);
		scratch.flow.calls(&mut note).unwrap();
		for round in 0..60 {
			let start = if round % 2 == 0 && entry < count { entry } else { 0 };
			execute(&ops, start, &mut random, |op, number, advice| {
				let counts = match number {
					28 => ![0, 10, 14].contains(&advice),
					9 | 10 => advice & 4 != 0,
					_ => CALLS.iter().any(|(listed, ..)| *listed == number),
				};
				let said = told[op].expect("every system call is told of");
				assert!(!counts || said.is_some(), "{number} with advice {advice} at {op} of {ops:?}, from {start}");
				if said.is_some() { harmful += 1 } else { harmless += 1 }
			});
		}
	}
	scratch.unmap();
	assert!(harmless > 1000 && harmful > 1000, "both kinds are made: {harmless}, {harmful}");
}

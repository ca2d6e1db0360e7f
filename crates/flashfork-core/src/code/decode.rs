//! Whether two bytes are an instruction, and which numbers reach it.

use super::instruction::{Instruction, LONGEST};
use super::{CALLS, Call, OWN};

/// Instructions begin at one of so many bytes in a row, or end behind them.
const STARTS: usize = 2 * LONGEST + 1;

/// An instruction the decoder doesn't know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

fn decode(code: &[u8], at: usize) -> Option<(Instruction, usize)> {
    let instruction = Instruction::decode(code.get(at..)?)?;
    Some((instruction, instruction.len))
}

/// Whether code before `at` may lead to an instruction there; `address` is the address of `at`.
///
/// Of any 15 bytes in a row, code that is executed has an instruction begin at one. So when none of the farthest 15
/// leads to `at`, nothing does, unless code begins between: at a multiple of 16, as functions do, or with a constant of
/// [`CALLS`].
pub fn lands(code: &[u8], at: usize, address: usize) -> bool {
    if at < STARTS {
        // The beginning of the code: it can't be told.
        return true;
    }
    let mut leads = [false; STARTS + 1];
    leads[0] = true;
    for back in 1..=STARTS {
        let Some((instruction, len)) = decode(code, at - back) else { continue };
        leads[back] = back.checked_sub(len).is_some_and(|rest| leads[rest]);
        let begins = || instruction.puts().map(|(_, number)| number).or(instruction.pushes()).is_some_and(is_listed);
        if leads[back] && (back > STARTS - LONGEST || (address - back).is_multiple_of(16) || begins()) {
            return true;
        }
    }
    false
}

/// What is known of a register at one place of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// What a call has left there: nothing that comes after may read it. Behind calls that never return, nothing comes.
    Garbage,
    /// This number, cut to the 32 bits that the kernel looks at.
    Constant(u32),
    /// Anything.
    Any,
}

/// What is known of the registers at one place of a function.
#[derive(Clone, Copy)]
struct Registers {
    values: [Value; 16],
    /// A constant pushed by the instruction before.
    pushed: Option<u32>,
    /// Whether the accumulator got its value from a register or from memory.
    passed: bool,
}

const RAX: usize = 0;
const RDX: usize = 2;

impl Registers {
    fn new() -> Registers {
        Registers { values: [Value::Any; 16], pushed: None, passed: false }
    }

    fn constant(&self, register: usize) -> Option<u32> {
        match self.values[register] {
            Value::Constant(value) => Some(value),
            Value::Garbage | Value::Any => None,
        }
    }

    /// The constant an instruction puts into a whole register.
    fn put(&self, i: &Instruction) -> Option<(usize, u32)> {
        if let Some(((to, bytes), value)) = i.puts() {
            return (bytes >= 4).then_some((to, value));
        }
        if let Some(((to, bytes), (from, _))) = i.moves() {
            return self.constant(from).filter(|_| bytes >= 4).map(|value| (to, value));
        }
        i.pops().zip(self.pushed)
    }

    /// Keeps what holds on both of two ways.
    fn merge(&mut self, other: &Registers) {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            *value = match (*value, other) {
                (Value::Garbage, defined) | (defined, Value::Garbage) => defined,
                (one, two) if one == two => one,
                _ => Value::Any,
            };
        }
        self.passed |= other.passed;
        self.pushed = None;
    }

    fn step(&mut self, i: &Instruction) {
        let put = self.put(i);
        let mut written = [false; 16];
        i.written(|n| written[n] = true);
        for (n, value) in self.values.iter_mut().enumerate().filter(|(n, _)| written[*n]) {
            // The results of a call are in rax and rdx.
            let garbage = i.is_call() && n != RAX && n != RDX;
            *value = if garbage { Value::Garbage } else { Value::Any };
        }
        if written[RAX] {
            self.passed = i.brings() && put.is_none();
        }
        if let Some((to, value)) = put {
            self.values[to] = Value::Constant(value);
        }
        self.pushed = i.pushes();
    }
}

/// Advice (`madvise(2)`) that neither discards nor protects contents: it does no harm on sealed memory.
const HARMLESS_ADVICE: [u32; 16] = [0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23];
const MADVISE: u32 = 28;

/// What the call at an instruction is when the registers are these; none when it is harmless.
fn call(code: &[u8], at: usize, registers: &Registers) -> Option<Call> {
    let compatible = code[at] == 0xcd;
    let Some(number) = registers.constant(RAX) else { return Some(Call::Unknown) };
    let (native, ..) = CALLS.iter().find(|(native, compat, _)| number == if compatible { *compat } else { *native })?;
    // The third argument is in edx for both instructions.
    let advice = registers.constant(RDX).filter(|_| *native == MADVISE);
    (!advice.is_some_and(|advice| HARMLESS_ADVICE.contains(&advice))).then_some(Call::Number(*native))
}

/// Whether the engine's own marker is soon behind the instruction at `at`.
fn is_own(code: &[u8], at: usize) -> bool {
    const SOON: usize = 40;
    let behind = code.get(at + 2..).unwrap_or_default();
    behind[..behind.len().min(SOON)].windows(OWN.len()).any(|bytes| bytes == OWN)
}

/// What is known of the registers where forward jumps lead to.
struct Jumps {
    ahead: [(usize, Registers); 64],
    count: usize,
}

impl Jumps {
    fn add(&mut self, target: usize, registers: &Registers) {
        if let Some((_, there)) = self.ahead[..self.count].iter_mut().find(|(at, _)| *at == target) {
            there.merge(registers);
        } else if let Some(place) = self.ahead.get_mut(self.count) {
            *place = (target, *registers);
            self.count += 1;
        }
    }

    fn take(&mut self, at: usize) -> Option<Registers> {
        let i = self.ahead[..self.count].iter().position(|(target, _)| *target == at)?;
        self.count -= 1;
        self.ahead.swap(i, self.count);
        Some(self.ahead[self.count].1)
    }
}

/// What the bytes at `at` are in a function that begins with `code`. None: no instruction, or harmless.
pub fn in_function(code: &[u8], at: usize) -> Result<Option<Call>, Undecodable> {
    let mut registers = Registers::new();
    let mut jumps = Jumps { ahead: [(0, registers); 64], count: 0 };
    // Behind a return or a jump there is padding, and then what jumps lead to.
    let (mut here, mut falls_through) = (0, true);
    loop {
        if let Some(there) = jumps.take(here) {
            if falls_through {
                registers.merge(&there);
            } else {
                registers = there;
            }
            falls_through = true;
        }
        if here >= at {
            break;
        }
        let (instruction, len) = decode(code, here).ok_or(Undecodable)?;
        registers.step(&instruction);
        here += len;
        if let Some(target) = jump(&instruction, here).filter(|target| *target > here) {
            jumps.add(target, &registers);
        }
        if instruction.ends() {
            falls_through = false;
            // The body of a loop that is entered at its end: what was hoisted out of it still holds, the rest doesn't.
            registers.values[RAX] = Value::Garbage;
        }
    }
    if here > at || is_own(code, at) {
        return Ok(None);
    }
    // What is harmless by its advice is not asked about again.
    let asked = registers.constant(RAX).filter(|number| is_listed(*number));
    Ok(call(code, at, &registers).or_else(|| jumped_to(code, asked)))
}

/// Where a jump leads whose next instruction is at `next`; none for other instructions and computed jumps.
fn jump(i: &Instruction, next: usize) -> Option<usize> {
    i.jumps().map(|by| next.wrapping_add_signed(by))
}

/// A number of [`CALLS`] in a function that a jump takes to a system call instruction, but for one that is known.
///
/// Every constant of that kind is followed: through moves into other registers, to both sides of jumps, until it is
/// overwritten.
fn jumped_to(code: &[u8], except: Option<u32>) -> Option<Call> {
    let mut registers = Registers::new();
    let mut here = 0;
    while let Some((instruction, len)) = decode(code, here) {
        let put = registers.put(&instruction);
        registers.step(&instruction);
        here += len;
        if let Some((register, number)) = put
            && instruction.puts().is_some()
            && is_listed(number)
            && Some(number) != except
            && reaches(code, here, register)
        {
            return Some(Call::Number(number));
        }
    }
    None
}

fn is_listed(number: u32) -> bool {
    CALLS.iter().any(|(native, compatible, _)| [*native, *compatible].contains(&number))
}

/// Whether the value of a register reaches a system call instruction as its number from `start` on. Says yes too where
/// there are more ways than it follows.
fn reaches(code: &[u8], start: usize, register: usize) -> bool {
    const WAYS: usize = 32;
    const STEPS: usize = 4096;
    let mut ways = [(0, 0); WAYS];
    let (mut done, mut count) = (0, 1);
    ways[0] = (start, register);
    let mut steps = 0;
    while done < count {
        let (mut here, register) = ways[done];
        done += 1;
        while let Some((i, len)) = decode(code, here) {
            steps += 1;
            if steps > STEPS {
                return true;
            }
            if register == RAX && i.is_system_call() && !is_own(code, here) {
                return true;
            }
            here += len;
            let mut more = None;
            if let Some(target) = jump(&i, here) {
                more = (target < code.len()).then_some((target, register));
            } else if let Some(((to, 4..), (from, _))) = i.moves()
                && from == register
            {
                more = Some((here, to));
            }
            if let Some(way) = more.filter(|way| !ways[..count].contains(way)) {
                let Some(place) = ways.get_mut(count) else { return true };
                *place = way;
                count += 1;
            }
            let mut over = i.ends();
            i.written(|n| over |= n == register);
            if over {
                break;
            }
        }
    }
    false
}

/// What the bytes at `at` are, somewhere in code: only what stands close to them can be told.
pub fn anywhere(code: &[u8], at: usize) -> Option<Call> {
    if is_own(code, at) {
        return None;
    }
    let mut passed = false;
    for start in at.saturating_sub(3 * LONGEST)..at {
        let mut registers = Registers::new();
        let mut here = start;
        while here < at {
            let Some((i, len)) = decode(code, here) else { break };
            registers.step(&i);
            here += len;
        }
        if here == at {
            passed |= registers.passed;
            if let found @ Some(Call::Number(_)) = call(code, at, &registers) {
                return found;
            }
        }
    }
    (passed && returns(code, at)).then_some(Call::Unknown)
}

/// Whether a return follows soon on the instruction at `at`.
fn returns(code: &[u8], at: usize) -> bool {
    const SOON: usize = 8;
    let mut here = at + 2;
    for _ in 0..SOON {
        let Some((i, len)) = decode(code, here) else { return false };
        if i.is_return() {
            return true;
        }
        here += len;
    }
    false
}

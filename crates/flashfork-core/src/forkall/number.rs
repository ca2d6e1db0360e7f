//! Threads that have asked for their process's number and not yet used it.
//!
//! A clone's process has another number, and its main thread too. glibc sends signals to threads by it (`raise`,
//! `pthread_kill`, `setxid` of all): in a clone who stands between question and `tgkill(2)` asks again.

use super::frame::register;
use crate::sys;

const RCX: usize = 11;
const RSP: usize = 19;
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;
/// `mov eax, NUMBER; syscall`, of `getpid` and `gettid`.
const ASKS: [[u8; 7]; 2] = [[0xb8, 39, 0, 0, 0, 0x0f, 0x05], [0xb8, 186, 0, 0, 0, 0x0f, 0x05]];
/// `mov eax, 234` (`tgkill`), and what follows.
const SENDS: [u8; 5] = [0xb8, 234, 0, 0, 0];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const RET: u8 = 0xc3;
/// `mov r32, r32`, before its operands.
const MOVE: u8 = 0x89;
/// `endbr64`.
const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// More than the bytes of code between question and signal.
const REACH: usize = 40;
/// Bytes of an instruction that loads a number.
const LOAD: usize = 6;
type Around = [u8; 2 * REACH];

/// Has a thread with these registers ask again.
pub fn ask_again(registers: &mut [usize; 27]) {
	let at = registers[register::RIP];
	let Some(code) = around(at) else { return };
	// The kernel leaves in rcx where a call returns to: who has come here otherwise has asked nothing.
	let asked = registers[RCX] == at && code[..REACH].last_chunk().is_some_and(|last| ASKS.contains(last));
	// In `getpid` itself what matters is who has called it.
	if (0..=ASKS[0].len()).any(|done| is_getpid(&code[REACH - done..])) {
		let mut caller = [0; 8];
		if sys::read_own(registers[RSP], &mut caller).is_ok()
			&& let Some(question) = question(usize::from_ne_bytes(caller))
		{
			registers[register::RIP] = question;
			registers[RSP] += 8;
			return;
		}
	}
	if asked {
		registers[register::RIP] -= ASKS[0].len();
	} else if let Some(question) = question(at) {
		registers[register::RIP] = question;
	}
}

/// Where the first question is asked, of a thread that stands here, between it and the signal.
fn question(at: usize) -> Option<usize> {
	let code = around(at)?;
	let call_of = |sends: usize| {
		let call = code[sends..].windows(SYSCALL.len()).position(|here| here == SYSCALL);
		call.map_or(code.len(), |call| sends + call)
	};
	let signals = || (0..code.len()).filter(|i| code[*i..].starts_with(&SENDS)).map(call_of);
	let end = signals().find(|end| (REACH..code.len()).contains(end))?;
	let sent = signals().filter(|end| *end < REACH).max().unwrap_or(0);
	let first = at - REACH;
	let asks = |i: &usize| {
		let here = &code[*i..];
		let call = calls_getpid(first + i, here).then_some(CALL_BYTES);
		call.or(ASKS.iter().find(|asks| here.starts_with(*asks)).map(|asks| asks.len()))
	};
	let begins = |i: &usize| {
		let behind = asks(i).map(|len| i + len);
		behind.is_some_and(|i| code.get(i..end).is_some_and(|rest| !returns(rest, |at| asks(&(i + at)))))
	};
	// Up to the call that is the next instruction: by then a thread's number has been asked for, or loaded.
	let begin = (sent..=REACH).find(begins)?;
	let load = begin.checked_sub(LOAD).filter(|load| is_load(&code[load.saturating_sub(1)..begin]));
	Some(first + load.unwrap_or(begin))
}

/// Whether a function ends in that code, apart from questions, whose bytes may be any: glibc's `gettid` lies before its
/// `tgkill`, as Go's does. The byte is another operand of `mov`, too.
fn returns(code: &[u8], question: impl Fn(usize) -> Option<usize>) -> bool {
	let mut at = 0;
	while at < code.len() {
		if let Some(len) = question(at) {
			at += len;
			continue;
		}
		if code[at] == RET && (at == 0 || code[at - 1] != MOVE) {
			return true;
		}
		at += 1;
	}
	false
}

/// Whether the last instruction is `mov r32, [r64 + d32]`, by a register that calls leave as it is, as it does itself:
/// so the number of another thread, which may be the main one, is loaded, and can be again.
fn is_load(code: &[u8]) -> bool {
	/// rbx and rbp; others have a prefix.
	const KEPT: [u8; 2] = [3, 5];
	let [before, 0x8b, operands, _, _, _, _] = code else { return false };
	let (to, by) = (operands >> 3 & 7, operands & 7);
	before & 0xf0 != 0x40 && operands >> 6 == 2 && KEPT.contains(&by) && to != by
}

fn around(at: usize) -> Option<Around> {
	let mut code = [0; 2 * REACH];
	sys::read_own(at.checked_sub(REACH)?, &mut code).ok()?;
	Some(code)
}

fn calls_getpid(at: usize, code: &[u8]) -> bool {
	let [CALL, a, b, c, d, ..] = code else { return false };
	let called = (at + CALL_BYTES).wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]) as isize);
	around(called).is_some_and(|code| is_getpid(&code[REACH..]))
}

fn is_getpid(code: &[u8]) -> bool {
	let code = code.strip_prefix(&MARK).unwrap_or(code);
	code.strip_prefix(&ASKS[0]).is_some_and(|rest| rest.starts_with(&[RET]))
}

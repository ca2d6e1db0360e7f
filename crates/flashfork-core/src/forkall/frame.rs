//! The frame from which a thread goes on: what the kernel would have put on its stack for a signal handler, made of
//! what ptrace tells, in memory of the maker's. `rt_sigreturn(2)` restores all of it, extended registers among it.

use super::{
	frozen::Thread,
	unfit::{Fit, Unfit, What},
};
use crate::sys::{self, Errno};
use core::arch::x86_64::__cpuid_count;

/// Bytes of a frame.
pub const FRAME: usize = 8192;
/// Where the extended registers are in it: XRSTOR wants 64 bytes.
const EXTENDED: usize = 1024;
const ROOM: usize = FRAME - EXTENDED - 64;

const PTRACE_GETREGSET: usize = 0x4204;
const NT_X86_XSTATE: usize = 0x202;

/// Of `struct user_regs_struct`.
pub mod register {
	pub const RBX: usize = 5;
	pub const R10: usize = 7;
	pub const R9: usize = 8;
	pub const R8: usize = 9;
	pub const RAX: usize = 10;
	pub const RDX: usize = 12;
	pub const RSI: usize = 13;
	pub const RDI: usize = 14;
	pub const ORIG_RAX: usize = 15;
	pub const RIP: usize = 16;
}

/// Of the registers in `struct ucontext` (asm/sigcontext.h), as they stand in `struct user_regs_struct`:
/// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags.
const ORDER: [usize; 18] = [9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, 10, 11, 19, 16, 18];
const CS: usize = 17;
const SS: usize = 20;
const FS: usize = 25;
const GS: usize = 26;

/// Offsets in `struct ucontext`.
const STACK: usize = 16;
const REGISTERS: usize = 40;
const SEGMENTS: usize = REGISTERS + 18 * 8;
const POINTER: usize = SEGMENTS + 8 + 4 * 8;
const SIGNALS: usize = POINTER + 8 + 8 * 8;

/// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
const FLAGS: u64 = 7;

/// `struct _fpx_sw_bytes`: where it is in the old part of the extended registers, and its magic numbers.
const SOFTWARE: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;

/// Where the mask of what the extended registers hold is.
const HELD: usize = 512;
/// Component of the tiles of AMX, which a process has to ask for.
const TILES: u32 = 18;

/// Writes the frame of a thread to `at`, as it would go on.
///
/// # Safety
/// `at` is [`FRAME`] bytes of the caller's own, aligned to 64.
pub unsafe fn write(thread: &Thread, registers: &[usize; 27], at: usize) -> Fit {
	let unfit = || Unfit::new(What::Registers, thread.tid);
	let extended = at + EXTENDED;
	let mut vector = [extended, ROOM];
	// SAFETY: the kernel writes as many bytes as there is room for.
	unsafe { sys::ptrace(PTRACE_GETREGSET, thread.tid, NT_X86_XSTATE, (&raw mut vector) as usize)? };
	let told = vector[1];
	// SAFETY: the frame is the caller's own, and all that is written lies in it: `told` is at most the room.
	unsafe {
		let word = |offset: usize| (at + offset) as *mut u64;
		if !(HELD + 64..ROOM).contains(&told) || word(EXTENDED + HELD).read() >> TILES & 1 == 1 {
			return Err(unfit());
		}
		let len = usual_length(told);
		let features = word(EXTENDED + SOFTWARE).read();
		let software = (extended + SOFTWARE) as *mut u32;
		software.cast::<[u8; 48]>().write([0; 48]);
		software.write(MAGIC1);
		software.add(1).write(len as u32 + 4);
		software.add(2).cast::<u64>().write(features);
		software.add(4).write(len as u32);
		((extended + len) as *mut u32).write_unaligned(MAGIC2);
		word(0).write(FLAGS);
		word(8).write(0);
		for (i, value) in thread.alternate.iter().enumerate() {
			word(STACK + 8 * i).write(*value as u64);
		}
		for (i, from) in ORDER.iter().enumerate() {
			word(REGISTERS + 8 * i).write(registers[*from] as u64);
		}
		let segment = |which: usize| registers[which] as u64 & 0xffff;
		word(SEGMENTS).write(segment(CS) | segment(GS) << 16 | segment(FS) << 32 | segment(SS) << 48);
		word(POINTER).write(extended as u64);
		word(SIGNALS).write(thread.signals);
	}
	Ok(())
}

/// Has the thread of a frame go on with another value in one of the registers that a call's arguments are in, or with
/// another instruction.
///
/// # Safety
/// [`write`] has written the frame, and nobody uses it.
pub unsafe fn set(frame: usize, register: usize, value: usize) {
	if let Some(i) = ORDER.iter().position(|known| *known == register) {
		// SAFETY: the word lies in the frame, which is the caller's alone.
		unsafe { ((frame + REGISTERS + 8 * i) as *mut usize).write(value) };
	}
}

/// How long the extended registers of a process are that has not asked for tiles: they come last.
fn usual_length(told: usize) -> usize {
	let tiles = __cpuid_count(0xd, TILES);
	if tiles.eax > 0 && tiles.ebx > 0 { told.min(tiles.ebx as usize) } else { told }
}

/// Whether a call that was interrupted must be made again, by what it has returned.
pub fn is_interrupted(result: usize) -> bool {
	// ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND and ERESTART_RESTARTBLOCK of the kernel's own.
	const AGAIN: [isize; 4] = [-512, -513, -514, -516];
	let result = result as isize;
	AGAIN.contains(&result) || result == -(Errno::EINTR.into_raw() as isize)
}

//! Where the stubs lead: from machine code that expects a system call to a function that takes its place, and back.

use super::{
	hooks::{FOLLOWED, HOOKS},
	rewrite::restore,
	site::Want,
	stub::Ways,
};
use crate::{
	answers::exec::{LEAVING, came_back},
	arena::Arena,
	stack::roomy,
	state::STATE,
	sys,
	threads::{alone, errand, table},
};
use core::{
	arch::x86_64::{__cpuid, __cpuid_count, _xgetbv},
	sync::atomic::{
		AtomicU32, AtomicU64, AtomicUsize,
		Ordering::{Relaxed, SeqCst},
	},
};
use linux_raw_sys::general::CLONE_FILES;
use syscalls::Sysno;

/// Numbers of system calls are below this.
const NUMBERS: usize = 512;

/// A bit for every number whose calls are looked at: [`WANTED`] until [`let_go`].
static HOOKED: [AtomicU64; NUMBERS / 64] = {
	let mut bits = [const { AtomicU64::new(0) }; NUMBERS / 64];
	let mut i = 0;
	while i < bits.len() {
		bits[i] = AtomicU64::new(WANTED[i]);
		i += 1;
	}
	bits
};

/// A bit for every number with a hook.
const WANTED: [u64; NUMBERS / 64] = {
	let mut bits = [0; NUMBERS / 64];
	let mut i = 0;
	while i < HOOKS.len() {
		let number = HOOKS[i].number as usize;
		bits[number / 64] |= 1 << (number % 64);
		i += 1;
	}
	bits
};

/// Whether places that make the call of a number are rewritten.
pub fn wanted(number: u32) -> Want {
	match HOOKS.iter().find(|hook| hook.number as u32 == number) {
		Some(hook) if hook.must => Want::Must,
		Some(_) => Want::WhereClear,
		None if FOLLOWED.iter().any(|followed| *followed as u32 == number) => Want::WhereClear,
		None => Want::No,
	}
}

/// The number a trial call is to arrive with, or [`ARRIVED`]; [`NO_TRIAL`] at other times.
pub static TRIAL: AtomicUsize = AtomicUsize::new(NO_TRIAL);
/// See [`TRIAL`].
pub const NO_TRIAL: usize = usize::MAX;
/// See [`TRIAL`].
pub const ARRIVED: usize = usize::MAX - 1;

/// What was executable when all was last in place: a sum over the mappings.
pub static SEEN: AtomicU64 = AtomicU64::new(NOTHING);
/// See [`SEEN`].
pub const NOTHING: u64 = 0;

/// The registers of a system call; the answer goes to `rax`.
#[repr(C)]
pub struct Registers {
	pub rax: usize,
	pub rdi: usize,
	pub rsi: usize,
	pub rdx: usize,
	pub r10: usize,
	pub r8: usize,
	pub r9: usize,
	/// The stub's own `syscall`.
	pub stub: usize,
}

/// Parts of the vector state saved by `xsave`: SSE, AVX and AVX-512, as far as there are; 0: by `fxsave`.
static PARTS: AtomicU32 = AtomicU32::new(0);
/// Bytes for them.
static ROOM: AtomicUsize = AtomicUsize::new(512);

/// Finds out how the vector registers are saved. Before that nothing may lead to [`enter`].
pub fn prepare() {
	const OSXSAVE: u32 = 1 << 27;
	const WANTED: u64 = 1 << 1 | 1 << 2 | 0b111 << 5;
	if __cpuid(1).ecx & OSXSAVE == 0 {
		return;
	}
	// SAFETY: the processor has said that the system allows it.
	let parts = unsafe { enabled() } & WANTED;
	let mut room = 576;
	for part in (2..8).filter(|part| parts & 1 << part != 0) {
		let found = __cpuid_count(13, part);
		room = room.max((found.eax + found.ebx) as usize);
	}
	ROOM.store(room, Relaxed);
	PARTS.store(parts as u32, Relaxed);
}

#[target_feature(enable = "xsave")]
fn enabled() -> u64 {
	// SAFETY: register 0 is always there.
	unsafe { _xgetbv(0) }
}

/// Takes a system call's registers, with the stub's `syscall` in rcx. Calls [`taken`] for those that are wanted, and
/// [`about_to_make`] before one that makes a task;
/// afterwards, as after a system call, nothing but rax, rcx and r11 has changed, the bytes below the stack pointer and
/// the flags included.
///
/// # Safety
/// For stubs alone.
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
	core::arch::naked_asm!(
		"cmp eax, {numbers}",
		"jae 2f",
		"bt dword ptr [rip + {hooked}], eax",
		"jnc 3f",
		"lea r11, [rip + {taken}]",
		"jmp {save_and_call}",
		"3: cmp eax, {clone3}",
		"je 4f",
		"cmp eax, {clone}",
		"jne 2f",
		"test edi, {files}",
		"jz 2f",
		"4: lea r11, [rip + {about_to_make}]",
		"lea rcx, [rcx - 2]",
		"jmp {save_and_call}",
		"2: jmp rcx",
		numbers = const NUMBERS,
		clone = const Sysno::clone as i32,
		clone3 = const Sysno::clone3 as i32,
		files = const CLONE_FILES,
		about_to_make = sym about_to_make,
		hooked = sym HOOKED,
		taken = sym taken,
		save_and_call = sym save_and_call,
	)
}

/// What a stub goes on with behind its `syscall`: the way back is in rcx. In a parent or whoever else has made a task,
/// calls [`resumed`] where that matters.
///
/// # Safety
/// For stubs alone.
#[unsafe(naked)]
pub unsafe extern "C" fn after() {
	core::arch::naked_asm!(
		"test eax, eax",
		"jle 2f",
		"cmp dword ptr [rip + {leaving}], 0",
		"je 2f",
		"lea r11, [rip + {resumed}]",
		"lea rcx, [rcx - 2]",
		"jmp {save_and_call}",
		"2: jmp rcx",
		leaving = sym LEAVING,
		resumed = sym resumed,
		save_and_call = sym save_and_call,
	)
}

/// Calls the function in r11 with the registers and goes on behind the two bytes at rcx.
///
/// # Safety
/// For [`enter`] and [`after`] alone.
#[unsafe(naked)]
unsafe extern "C" fn save_and_call() {
	core::arch::naked_asm!(
		// Leaf functions keep variables below the stack pointer.
		"lea rsp, [rsp - 128]",
		"pushfq",
		"push rbp",
		"mov rbp, rsp",
		"push rcx",
		"push r9",
		"push r8",
		"push r10",
		"push rdx",
		"push rsi",
		"push rdi",
		"push rax",
		"mov rdi, rsp",
		"sub rsp, [rip + {room}]",
		"and rsp, -64",
		"mov eax, [rip + {parts}]",
		"xor edx, edx",
		"test eax, eax",
		"jz 3f",
		// The header behind the first 512 bytes must be zeros.
		"mov [rsp + 512], rdx",
		"mov [rsp + 520], rdx",
		"mov [rsp + 528], rdx",
		"mov [rsp + 536], rdx",
		"mov [rsp + 544], rdx",
		"mov [rsp + 552], rdx",
		"mov [rsp + 560], rdx",
		"mov [rsp + 568], rdx",
		"xsave64 [rsp]",
		"jmp 4f",
		"3: fxsave64 [rsp]",
		"4: call r11",
		"mov eax, [rip + {parts}]",
		"xor edx, edx",
		"test eax, eax",
		"jz 5f",
		"xrstor64 [rsp]",
		"jmp 6f",
		"5: fxrstor64 [rsp]",
		"6: lea rsp, [rbp - 64]",
		"pop rax",
		"pop rdi",
		"pop rsi",
		"pop rdx",
		"pop r10",
		"pop r8",
		"pop r9",
		"pop rcx",
		"pop rbp",
		"popfq",
		"lea rsp, [rsp + 128]",
		"lea rcx, [rcx + 2]",
		"jmp rcx",
		room = sym ROOM,
		parts = sym PARTS,
	)
}

/// Where it is: what stubs lead to, by which they are known for those of this copy of the engine.
pub fn address() -> usize {
	enter as *const () as usize
}

/// Where stubs lead, and back.
pub fn ways() -> Ways {
	Ways { enter: address(), back: after as *const () as usize }
}

/// A task that was made is on its way, and if it was to become another program first, it has.
extern "C" fn resumed(registers: &mut Registers) {
	came_back(registers.rax as i32);
}

extern "C" fn about_to_make(registers: &mut Registers) {
	let Registers { rax, rdi, rsi, .. } = *registers;
	if rax as u32 == Sysno::clone as u32 {
		return table::note(rdi as u64);
	}
	// Nothing is sealed in a sandbox, which might end the program for the question.
	let mut flags = [0; size_of::<u64>()];
	if !STATE.is_sandboxed() && rsi >= flags.len() && sys::read_own(rdi, &mut flags).is_ok() {
		table::note(u64::from_ne_bytes(flags));
	}
}

/// A system call has arrived at a stub: does what its hook says.
extern "C" fn taken(registers: &mut Registers) {
	let Registers { rax, rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
	// The kernel looks at the lower half.
	let number = rax as u32 as usize;
	if TRIAL.load(SeqCst) == number {
		TRIAL.store(ARRIVED, SeqCst);
		registers.rax = 0;
		return;
	}
	let Some(hook) = HOOKS.iter().find(|h| h.number as usize == number) else { return };
	if hook.maps {
		STATE.layout_changes();
	}
	// SAFETY: the program's own call.
	let result = unsafe { (hook.take)(&[rdi, rsi, rdx, r10, r8, r9]) };
	registers.rax = result.unwrap_or_else(|e| (-e.into_raw()) as isize as usize);
}

/// Has the program's calls go where they went before there was an engine: nothing is sealed, nor will be. Where that
/// can't be written they are made by the stubs.
pub(crate) fn let_go() {
	for word in &HOOKED {
		word.store(0, SeqCst);
	}
	SEEN.store(0, SeqCst);
	let Ok(arena) = Arena::map() else { return };
	// Instructions may be replaced only where nobody else executes them.
	if alone::alone_now(&mut arena.text) == Ok(true) {
		let _ = roomy(|| errand::look(|| restore(address(), &mut arena.text)));
	}
	arena.unmap();
}

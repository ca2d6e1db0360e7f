//! What compilers take for granted of a C library. In assembler, because they would make calls of these functions out
//! of loops that do the same.

use core::arch::naked_asm;

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
	naked_asm!("mov rax, rdi", "mov rcx, rdx", "rep movsb", "ret")
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
	naked_asm!(
		"mov rax, rdi",
		"mov rcx, rdx",
		"mov r8, rdi",
		"sub r8, rsi",
		"cmp r8, rdx",
		"jb 2f",
		"rep movsb",
		"ret",
		// The end of the source would be overwritten before it is read: from the end.
		"2:",
		"lea rdi, [rdi + rdx - 1]",
		"lea rsi, [rsi + rdx - 1]",
		"std",
		"rep movsb",
		"cld",
		"ret",
	)
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
	naked_asm!("mov r8, rdi", "mov eax, esi", "mov rcx, rdx", "rep stosb", "mov rax, r8", "ret")
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
	naked_asm!(
		// Of no bytes the comparison leaves the flags alone: those of equality.
		"xor eax, eax",
		"mov rcx, rdx",
		"repe cmpsb",
		"je 2f",
		"movzx eax, byte ptr [rdi - 1]",
		"movzx ecx, byte ptr [rsi - 1]",
		"sub eax, ecx",
		"2:",
		"ret",
	)
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
	naked_asm!("jmp {}", sym memcmp)
}

#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
	naked_asm!(
		"mov rdx, rdi",
		"xor eax, eax",
		"mov rcx, -1",
		"repne scasb",
		"lea rax, [rdi - 1]",
		"sub rax, rdx",
		"ret"
	)
}

//! Bytes without libc, whose functions a sanitizer may have replaced, or an interposer.

use super::memory::PAGE;

/// Copies memory without libc: a sanitizer's memcpy would judge bytes that are none of its business.
///
/// # Safety
/// `from` is readable, `to` writable, for `len` bytes, and they don't overlap.
pub unsafe fn copy_bytes(from: usize, to: usize, len: usize) {
	// SAFETY: the direction flag is clear under the System V ABI; the caller vouches for the ranges.
	unsafe {
		core::arch::asm!(
			"rep movsb",
			inout("rcx") len => _,
			inout("rsi") from => _,
			inout("rdi") to => _,
			options(nostack, preserves_flags),
		);
	}
}

/// Writes zeros without libc.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub unsafe fn zero_bytes(to: usize, len: usize) {
	// SAFETY: the direction flag is clear under the System V ABI; the caller vouches for the range.
	unsafe {
		core::arch::asm!(
			"rep stosb",
			inout("rcx") len => _,
			inout("rdi") to => _,
			in("al") 0u8,
			options(nostack, preserves_flags),
		);
	}
}

/// Whether two pages hold the same bytes, without libc; another process may write to either meanwhile.
///
/// # Safety
/// Both are readable, whole pages.
pub unsafe fn same_page(one: usize, other: usize) -> bool {
	let equal: u32;
	// SAFETY: reads the two pages only, which the caller vouches for.
	unsafe {
		core::arch::asm!(
			"2:",
			"movdqu {x}, [{a}]",
			"movdqu {y}, [{b}]",
			"pcmpeqb {x}, {y}",
			"movdqu {y}, [{a} + 16]",
			"movdqu {z}, [{b} + 16]",
			"pcmpeqb {y}, {z}",
			"pand {x}, {y}",
			"movdqu {y}, [{a} + 32]",
			"movdqu {z}, [{b} + 32]",
			"pcmpeqb {y}, {z}",
			"pand {x}, {y}",
			"movdqu {y}, [{a} + 48]",
			"movdqu {z}, [{b} + 48]",
			"pcmpeqb {y}, {z}",
			"pand {x}, {y}",
			"pmovmskb {m:e}, {x}",
			"cmp {m:e}, 0xffff",
			"jne 3f",
			"add {a}, 64",
			"add {b}, 64",
			"dec {n:e}",
			"jnz 2b",
			"3:",
			a = inout(reg) one => _,
			b = inout(reg) other => _,
			n = inout(reg) (PAGE / 64) as u32 => _,
			m = out(reg) equal,
			x = out(xmm_reg) _,
			y = out(xmm_reg) _,
			z = out(xmm_reg) _,
			options(nostack, readonly),
		);
	}
	equal == 0xffff
}

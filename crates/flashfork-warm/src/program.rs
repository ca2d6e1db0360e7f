//! Programs that become others, and files that can be run.

/// Type of the program header that names the dynamic linker (elf(5), `PT_INTERP`).
const INTERPRETER: u32 = 3;

/// Programs that do nothing of their own but to become another one (`exec`), in an environment or with attributes that
/// they set.
const WRAPPERS: [&[u8]; 11] = [
	b"env", b"nice", b"nohup", b"ionice", b"taskset", b"chrt", b"stdbuf", b"prlimit", b"setarch", b"linux64", b"choom",
];

/// Programs that start another one and wait for it.
const STARTERS: [&[u8]; 6] = [b"uv", b"uvx", b"timeout", b"time", b"strace", b"ltrace"];

fn file_name(path: &[u8]) -> &[u8] {
	path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// Whether a program of this path is one of those that become another one.
#[must_use]
pub fn is_wrapper(path: &[u8]) -> bool {
	WRAPPERS.contains(&file_name(path))
}

/// Whether a program of this path starts another one, and waits for it.
#[must_use]
pub fn starts_another(path: &[u8]) -> bool {
	STARTERS.contains(&file_name(path))
}

/// Whether a program of this path is a shell.
#[must_use]
pub fn is_shell(path: &[u8]) -> bool {
	[&b"sh"[..], b"bash", b"dash", b"ksh", b"zsh"].contains(&file_name(path))
}

/// Whether a program has the name of an interpreter that the shim knows: `python3.11`, `perl`. Scripts for others are
/// wrappers of what they become.
#[must_use]
pub fn runs_scripts(path: &[u8]) -> bool {
	let mut name = file_name(path);
	while let [rest @ .., b'0'..=b'9' | b'.'] = name {
		name = rest;
	}
	[&b"python"[..], b"perl", b"ruby"].contains(&name)
}

/// Whether an x86-64 ELF file, of which this is the begin, asks for a dynamic linker; `None` if it is something else.
#[must_use]
pub fn is_dynamic(head: &[u8]) -> Option<bool> {
	let word = |at: usize, len: usize| {
		let bytes = head.get(at..at.checked_add(len)?)?;
		Some(bytes.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b)))
	};
	// ELF, 64 bits, little-endian, for x86-64.
	if head.get(..6)? != b"\x7fELF\x02\x01" || word(18, 2)? != 62 {
		return None;
	}
	let (table, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
	for i in 0..count {
		let kind = word(table.checked_add(i.checked_mul(size)?)?, 4)?;
		if kind == INTERPRETER as usize {
			return Some(true);
		}
	}
	Some(false)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn dynamic_programs_are_told_from_others() {
		let read = |path: &str| std::fs::read(path).unwrap();
		assert_eq!(is_dynamic(&read("/proc/self/exe")), Some(true));
		assert_eq!(is_dynamic(b"\x7fELF\x02\x01 too short"), None);
		assert_eq!(is_dynamic(b"#!/bin/sh"), None);
	}

	#[test]
	fn wrappers_and_interpreters_are_known_by_name() {
		for (path, known) in [(&b"/usr/bin/env"[..], true), (b"nice", true), (b"python3", false), (b"envx", false)] {
			assert_eq!(is_wrapper(path), known);
		}
		assert!(starts_another(b"/opt/bin/uv") && !starts_another(b"uvicorn"));
		for (path, known) in [
			(&b"python3.11"[..], true),
			(b"/usr/bin/perl", true),
			(b"ruby", true),
			(b"python3-config", false),
			(b"sh", false),
		] {
			assert_eq!(runs_scripts(path), known);
		}
	}
}

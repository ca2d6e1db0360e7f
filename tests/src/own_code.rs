//! The tests' own programs hold code with system calls of its own, of rustix and such, and none of it discards memory:
//! what they test is the engine, and so they answer for it.

/// Under the shim: a variable for it, with its value.
pub const TRUST: (&str, &str) = ("FLASHFORK_TRUST", "/proc/self/exe");

/// In a program that calls the core itself.
pub fn trust() -> crate::Result {
	flashfork_core::code::process::trust(c"/proc/self/exe").map_err(|e| format!("trust the program's own code: {e:?}"))
}

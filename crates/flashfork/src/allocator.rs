//! Runtimes that trust `MADV_DONTNEED` to give zeros and make that call without libc, and the shim.
//!
//! Go's heap does (mheap.go): on sealed memory the old bytes would come back. Allocators that call libc, jemalloc among
//! them, are the core's business.

use std::ffi::CStr;

/// Symbols that give such a program away.
const RELIERS: &[(&CStr, &str)] = &[(c"runtime.goexit", "the Go runtime"), (c"_cgo_topofstack", "the Go runtime")];

/// The shim's own call: tells it that this library has sealed memory.
const NOTE: &CStr = c"flashfork_preload_note_sealed";

/// What a loaded object exports by that name.
pub fn symbol(name: &CStr) -> Option<*mut libc::c_void> {
	// SAFETY: a lookup in the objects already loaded.
	let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
	(!found.is_null()).then_some(found)
}

/// The name of what relies on `MADV_DONTNEED`, if it shows itself.
pub fn relies_on_dontneed() -> Option<&'static str> {
	RELIERS.iter().find(|(name, _)| symbol(name).is_some()).map(|(_, what)| *what)
}

/// Whether the preload shim is in this process.
pub fn shim_is_loaded() -> bool {
	symbol(NOTE).is_some()
}

/// Has the shim, if it is there, leave a range out too; false when it could not.
pub fn exclude_in_shim(addr: *const u8, len: usize) -> bool {
	symbol(c"flashfork_preload_exclude").is_none_or(|exclude| {
		// SAFETY: the shim defines this symbol with this type.
		let exclude: extern "C" fn(*const u8, usize) -> libc::c_int = unsafe { std::mem::transmute(exclude) };
		exclude(addr, len) == 0
	})
}

/// Tells the core where libc's `syscall` is: in a statically linked program it finds libc by that.
pub fn tell_core() {
	flashfork_core::calls::know_libc(libc::syscall as *const () as usize);
}

/// Lets the shim know that there is sealed memory to look after, and the core that there is a shim, which seals by
/// itself.
pub fn tell_shim() {
	if let Some(note) = symbol(NOTE) {
		// SAFETY: the shim defines this symbol as a function without arguments or result.
		let note: extern "C" fn() = unsafe { std::mem::transmute(note) };
		note();
		flashfork_core::note_another();
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_program_uses_glibc() {
		assert_eq!(relies_on_dontneed(), None);
		assert!(!shim_is_loaded());
	}
}

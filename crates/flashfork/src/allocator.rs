//! Allocators and runtimes that trust `MADV_DONTNEED` to give zeros, and the shim that keeps that trust.
//!
//! jemalloc hands out memory it has purged as zeroed (src/extent.c); Go's heap does the same (mheap.go). On sealed memory
//! the old bytes would come back. glibc, mimalloc and gperftools do not rely on it.

use std::ffi::CStr;

/// Symbols that give such a program away.
const RELIERS: &[(&CStr, &str)] = &[
    (c"mallctl", "jemalloc"),
    (c"je_mallctl", "jemalloc"),
    (c"_rjem_mallctl", "jemalloc"),
    (c"runtime.goexit", "the Go runtime"),
    (c"_cgo_topofstack", "the Go runtime"),
];

/// The shim's own call: tells it that this library has sealed memory.
const NOTE: &CStr = c"flashfork_preload_note_sealed";

fn symbol(name: &CStr) -> Option<*mut libc::c_void> {
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

/// Lets the shim know that there is sealed memory to look after.
pub fn tell_shim() {
    if let Some(note) = symbol(NOTE) {
        // SAFETY: the shim defines this symbol as a function without arguments or result.
        let note: extern "C" fn() = unsafe { std::mem::transmute(note) };
        note();
    }
}

//! Mappings that tests make.

use std::{ptr::null_mut, sync::atomic::AtomicU64};

/// A fresh mapping, never unmapped but by who asked for it.
pub fn map(len: usize, prot: i32, flags: i32, fd: i32) -> *mut u8 {
    // SAFETY: where the kernel finds room.
    let at = unsafe { libc::mmap(null_mut(), len, prot, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// The same, of private anonymous memory.
#[allow(dead_code)] // each test program uses a part
pub fn anonymous(len: usize) -> *mut u8 {
    map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// A number that survives restores: shared memory.
#[allow(dead_code)] // as above
pub fn counter() -> &'static AtomicU64 {
    let at = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
    // SAFETY: zeros are an atomic, and the mapping stays.
    unsafe { &*at.cast() }
}

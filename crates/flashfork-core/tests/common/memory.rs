//! Memory that tests have for themselves, and calls on it that must succeed. What these take away or change nobody uses
//! before it is back: that is for who calls them.
#![allow(dead_code)] // each test program uses a part

use std::{ffi::CStr, ptr::null_mut, sync::atomic::AtomicU64};

pub const PAGE: usize = 4096;
pub const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
pub const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// That the kernel did it.
#[track_caller]
fn done(result: i32) {
	assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A fresh mapping, never unmapped but by who asked for it.
#[track_caller]
pub fn map(len: usize, prot: i32, flags: i32, fd: i32) -> *mut u8 {
	// SAFETY: where the kernel finds room.
	let at = unsafe { libc::mmap(null_mut(), len, prot, flags, fd, 0) };
	assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
	at.cast()
}

/// Another mapping there.
#[track_caller]
pub fn map_over<T>(at: *mut T, len: usize, prot: i32, flags: i32, fd: i32) {
	// SAFETY: of the test's own.
	assert_eq!(unsafe { libc::mmap(at.cast(), len, prot, flags | libc::MAP_FIXED, fd, 0) }, at.cast());
}

pub fn anonymous(len: usize) -> *mut u8 {
	map(len, BOTH, ANONYMOUS, -1)
}

/// A number that survives restores: shared memory.
pub fn counter() -> &'static AtomicU64 {
	let at = map(PAGE, BOTH, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
	// SAFETY: zeros are an atomic, and the mapping stays.
	unsafe { &*at.cast() }
}

#[track_caller]
pub fn unmap<T>(at: *const T, len: usize) {
	// SAFETY: of the test's own.
	done(unsafe { libc::munmap(at.cast_mut().cast(), len) });
}

#[track_caller]
pub fn protect<T>(at: *const T, len: usize, prot: i32) {
	// SAFETY: of the test's own.
	done(unsafe { libc::mprotect(at.cast_mut().cast(), len, prot) });
}

/// What the kernel says to some advice: 0, or why not.
pub fn advised<T>(at: *const T, len: usize, advice: i32) -> i32 {
	// SAFETY: of the test's own.
	let refused = unsafe { libc::madvise(at.cast_mut().cast(), len, advice) } != 0;
	if refused { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
}

#[track_caller]
pub fn advise<T>(at: *const T, len: usize, advice: i32) {
	assert_eq!(advised(at, len, advice), 0);
}

#[track_caller]
pub fn move_over<T>(from: *mut T, len: usize, to: *mut T) {
	let (flags, to) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to.cast::<libc::c_void>());
	// SAFETY: both are the test's own.
	assert_eq!(unsafe { libc::mremap(from.cast(), len, len, flags, to) }, to);
}

pub fn page(at: *mut u8, number: usize) -> *mut u8 {
	at.wrapping_add(number * PAGE)
}

pub fn write(at: *mut u8, byte: u8) {
	// SAFETY: writable memory of the test's own, of plain bytes.
	unsafe { at.write_volatile(byte) };
}

pub fn read(at: *const u8) -> u8 {
	// SAFETY: readable memory of the test's own, of plain bytes.
	unsafe { at.read_volatile() }
}

pub fn set(at: *mut u8, byte: u8, len: usize) {
	// SAFETY: as above.
	unsafe { at.write_bytes(byte, len) };
}

pub fn are(at: *const u8, byte: u8, len: usize) -> bool {
	// SAFETY: as above.
	unsafe { std::slice::from_raw_parts(at, len) }.iter().all(|is| *is == byte)
}

/// Moves the break by so much; where it was.
pub fn move_break(by: isize) -> *mut u8 {
	// SAFETY: nobody else moves it, and what is given up is not used before it is back.
	let was = unsafe { libc::sbrk(by) }.cast();
	assert_ne!(was, usize::MAX as *mut u8);
	was
}

/// A file of so many bytes without a name.
pub fn file(name: &CStr, len: usize) -> i32 {
	// SAFETY: a name that ends.
	let file = unsafe { libc::memfd_create(name.as_ptr(), 0) };
	cut(file, len);
	file
}

pub fn cut(file: i32, len: usize) {
	// SAFETY: takes numbers.
	done(unsafe { libc::ftruncate(file, len as i64) });
}

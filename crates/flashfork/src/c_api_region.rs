//! The C API of regions; see `c_api.rs`.

use crate::{
	Region, RegionError,
	c_api::{fail, pages_of},
};
use libc::{c_int, c_void};

/// A region; made by `flashfork_region_create`.
pub struct CRegion(Region);

fn refuse(error: &RegionError) -> c_int {
	let errno = match error {
		RegionError::Length | RegionError::Range => libc::EINVAL,
		RegionError::Sealed => libc::EALREADY,
		RegionError::NotSealed => libc::ENOENT,
		RegionError::Elsewhere => libc::EPERM,
		RegionError::Torn => libc::EFAULT,
		RegionError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
	};
	fail(&error.to_string(), errno)
}

/// Makes a region: memory that goes back to how it was, as often as wanted, in microseconds. `len` is rounded up to 2
/// MB; it begins with zeros, at a multiple of 2 MB. FLASHFORK_PAGES_AUTO takes all its memory at once,
/// FLASHFORK_PAGES_SMALL as it is touched.
///
/// Sound only when all of a thing's state lies inside: a rolled-back heap whose allocator keeps its lists elsewhere is
/// corrupt. Until it is sealed, clones don't have it; once sealed, each clone has a copy of its own.
///
/// Returns NULL with `errno` and a text from `flashfork_last_error`: EINVAL (len or pages), or what a system call gave.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_region_create(len: usize, pages: u32) -> *mut CRegion {
	let made = match pages_of(pages) {
		Ok(pages) => Region::new(len, pages).map_err(|e| refuse(&e)),
		Err(text) => Err(fail(text, libc::EINVAL)),
	};
	made.map_or(std::ptr::null_mut(), |region| Box::into_raw(Box::new(CRegion(region))))
}

/// The address of a region's first byte.
///
/// # Safety
/// The region is one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_address(region: *const CRegion) -> *mut c_void {
	// SAFETY: valid, the caller says.
	unsafe { &*region }.0.as_ptr().cast()
}

/// A region's length in bytes: that asked for, rounded up to 2 MB.
///
/// # Safety
/// The region is one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_length(region: *const CRegion) -> usize {
	// SAFETY: valid, the caller says.
	unsafe { &*region }.0.len()
}

/// Makes what a region holds now the state to go back to; copies nothing. Nobody else may use it meanwhile.
///
/// Returns 0, or -1 with `errno`, the region unsealed and its bytes as they were: EALREADY (sealed before), EBUSY (a
/// device or unfinished I/O writes into it), EPERM (a clone doesn't have it), or what a system call gave.
///
/// # Safety
/// The region is one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_seal(region: *mut CRegion) -> c_int {
	// SAFETY: valid, the caller says.
	unsafe { &mut *region }.0.seal().map_or_else(|e| refuse(&e), |()| 0)
}

/// Undoes every write to a region since its seal, in this process. Nobody else may use it meanwhile.
///
/// Returns 0, or -1 with `errno`: ENOENT (not sealed yet), EFAULT (a part of the region was unmapped; the rest is
/// rolled back).
///
/// # Safety
/// The region is one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_rollback(region: *mut CRegion) -> c_int {
	// SAFETY: valid, the caller says.
	unsafe { &mut *region }.0.rollback().map_or_else(|e| refuse(&e), |()| 0)
}

/// The same for `len` bytes from byte `offset` of the region on, both multiples of 4096. For who knows where writes
/// have gone: nothing else is looked at.
///
/// Returns 0, or -1 with `errno`: ENOENT (not sealed yet), EINVAL (not whole pages, or beyond the region's end), EFAULT
/// (a page was unmapped).
///
/// # Safety
/// The region is one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_rollback_range(region: *mut CRegion, offset: usize, len: usize) -> c_int {
	// SAFETY: valid, the caller says.
	let region = unsafe { &mut *region };
	// No region is that long.
	let end = offset.saturating_add(len);
	region.0.rollback_range(offset..end).map_or_else(|e| refuse(&e), |()| 0)
}

/// Gives a region's memory back; nothing may use it afterwards. NULL is allowed.
///
/// # Safety
/// The region is NULL or one that `flashfork_region_create` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_region_free(region: *mut CRegion) {
	if !region.is_null() {
		// SAFETY: made by `flashfork_region_create`, used for the last time.
		drop(unsafe { Box::from_raw(region) });
	}
}

//! The memory calls whose meaning would differ on sealed memory.
//!
//! `posix_madvise` is not among them: in glibc and musl its DONTNEED does nothing, and its other advice does no harm.

use crate::answer;
use core::ffi::{c_int, c_uint, c_void};
use flashfork_core::{advise, has_sealed};

/// `madvise(2)`: what is discarded reads back as zeros.
///
/// # Safety
/// As `madvise`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the program's own call.
    answer(unsafe { advise::madvise(addr as usize, len, advice as u32) }, |()| 0) as c_int
}

/// `process_madvise(2)`: the kernel lets a process discard only its own memory this way, so a success means that the ranges
/// are ours.
///
/// # Safety
/// As `process_madvise`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    pidfd: c_int,
    vec: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: c_uint,
) -> isize {
    let args = [pidfd as usize, vec as usize, count, advice as usize, flags as usize];
    // SAFETY: the program's own call.
    let result =
        unsafe { syscalls::syscall5(syscalls::Sysno::process_madvise, args[0], args[1], args[2], args[3], args[4]) };
    let discards = [libc::MADV_DONTNEED, libc::MADV_DONTNEED_LOCKED].contains(&advice);
    if let (Ok(mut done), true) = (result, discards && has_sealed()) {
        for i in 0..count {
            // SAFETY: the kernel has just read the same vector.
            let part = unsafe { *vec.add(i) };
            let len = part.iov_len.min(done);
            // SAFETY: the kernel has accepted the same discard.
            if let Err(e) = unsafe { advise::madvise(part.iov_base as usize, len, advice as u32) } {
                return answer::<()>(Err(e), |()| 0);
            }
            done -= len;
        }
    }
    answer(result, |n| n as isize)
}

/// `mremap(2)`: sealed memory that grows gets zeros that belong to this process alone.
///
/// # Safety
/// As `mremap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    from: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // `to` is variadic in C: without MREMAP_FIXED it may be anything, and with MREMAP_DONTUNMAP the kernel looks at it.
    let to = if flags & libc::MREMAP_FIXED != 0 { to as usize } else { 0 };
    // SAFETY: the program's own call.
    answer(unsafe { advise::mremap(from as usize, old, new, flags as usize, to) }, |at| at as isize) as *mut c_void
}

/// `mlock(2)`: sealed memory becomes anonymous first.
///
/// # Safety
/// As `mlock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
    advise::before_lock(addr as usize, len);
    // SAFETY: the program's own call.
    answer(unsafe { syscalls::syscall2(syscalls::Sysno::mlock, addr as usize, len) }, |_| 0) as c_int
}

/// `mlock2(2)`: sealed memory becomes anonymous first.
///
/// # Safety
/// As `mlock2`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, len: usize, flags: c_uint) -> c_int {
    advise::before_lock(addr as usize, len);
    // SAFETY: the program's own call.
    answer(unsafe { syscalls::syscall3(syscalls::Sysno::mlock2, addr as usize, len, flags as usize) }, |_| 0) as c_int
}

/// `mlockall(2)`: sealed memory becomes anonymous first; with `MCL_FUTURE` no later seal is made.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    advise::before_all();
    // SAFETY: no memory is passed.
    answer(unsafe { syscalls::syscall1(syscalls::Sysno::mlockall, flags as usize) }, |_| 0) as c_int
}

//! libc's `syscall()`: the calls above when made by number, as newer jemalloc does for `process_madvise`.
//!
//! Naked, so that every other call leaves the stack exactly as libc's own would: a `vfork` or `clone` made this way returns twice
//! through the same frame.

use crate::{memory, sandbox};
use core::ffi::{c_long, c_void};
use flashfork_core::{Errno, advise};
use syscalls::Sysno;

/// `syscall(2)`.
///
/// # Safety
/// As the call named by the number.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "cmp rdi, {madvise}",
        "je 2f",
        "cmp rdi, {process_madvise}",
        "je 2f",
        "cmp rdi, {mremap}",
        "je 2f",
        "cmp rdi, {mlock}",
        "je 2f",
        "cmp rdi, {mlock2}",
        "je 2f",
        "cmp rdi, {mlockall}",
        "je 2f",
        "cmp rdi, {userfaultfd}",
        "je 2f",
        "cmp rdi, {fork}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {warm}",
        "je 2f",
        // As in libc: shift the arguments down one place, the seventh is on the stack.
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2: jmp {ours}",
        "3: mov rdi, rax",
        "jmp {failed}",
        madvise = const Sysno::madvise as i32,
        process_madvise = const Sysno::process_madvise as i32,
        mremap = const Sysno::mremap as i32,
        mlock = const Sysno::mlock as i32,
        mlock2 = const Sysno::mlock2 as i32,
        mlockall = const Sysno::mlockall as i32,
        userfaultfd = const Sysno::userfaultfd as i32,
        fork = const Sysno::fork as i32,
        prctl = const Sysno::prctl as i32,
        seccomp = const Sysno::seccomp as i32,
        warm = const flashfork_warm::CALL,
        ours = sym ours,
        failed = sym failed,
    )
}

extern "C" fn failed(negative: c_long) -> c_long {
    crate::answer::<()>(Err(Errno::new(-negative as i32)), |()| 0) as c_long
}

/// The calls that mean something on sealed memory.
unsafe extern "C" fn ours(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
    // SAFETY: the program's own calls with its own arguments.
    unsafe {
        if n == c_long::from(flashfork_warm::CALL) {
            return crate::answer(crate::warm::call(a, b, c, d), |n| n) as c_long;
        }
        match Sysno::new(n as usize) {
            Some(Sysno::madvise) => c_long::from(memory::madvise(a as *mut c_void, b, c as i32)),
            Some(Sysno::process_madvise) => {
                memory::process_madvise(a as i32, b as *const libc::iovec, c, d as i32, e as u32) as c_long
            }
            Some(Sysno::mremap) => memory::mremap(a as *mut c_void, b, c, d as i32, e as *mut c_void) as c_long,
            Some(Sysno::mlock) => c_long::from(memory::mlock(a as *const c_void, b)),
            Some(Sysno::mlock2) => c_long::from(memory::mlock2(a as *const c_void, b, c as u32)),
            Some(Sysno::mlockall) => c_long::from(memory::mlockall(a as i32)),
            Some(Sysno::userfaultfd) => {
                // Faults on a file mapping mean something else to userfaultfd: it must find all memory anonymous.
                advise::before_all();
                crate::answer(syscalls::syscall1(Sysno::userfaultfd, a), |fd| fd as isize) as c_long
            }
            Some(Sysno::prctl) => c_long::from(sandbox::prctl(a as i32, b as u64, c as u64, d as u64, e as u64)),
            Some(Sysno::seccomp) => sandbox::seccomp(a, b, c) as c_long,
            Some(Sysno::fork) => c_long::from(flashfork_core::fork::fork(
                || crate::answer(syscalls::syscall0(Sysno::fork), |pid| pid as isize) as i32,
                crate::clock,
            )),
            _ => failed(-c_long::from(Errno::ENOSYS.into_raw())),
        }
    }
}

//! The system calls the engine makes, each a thin typed wrapper over the raw instruction.
//!
//! Raw, because a seal runs where libc must not: libc may allocate, take locks or touch `errno` in thread-local
//! storage, and all of these live in memory that is about to be copied.

use core::ffi::CStr;
use linux_raw_sys::{general as k, prctl as p};
pub use syscalls::Errno;
use syscalls::Sysno;

/// Bytes in a small page.
pub const PAGE: usize = 4096;
/// A program's addresses are below this (`TASK_SIZE_MAX`, four levels of page tables).
pub const ADDRESSES: usize = 0x7fff_ffff_f000;
/// Bytes mapped by one last-level page table, and in one huge page.
pub const HUGE: usize = 2 << 20;

pub const PROT_NONE: u32 = k::PROT_NONE;
pub const PROT_READ: u32 = k::PROT_READ;
pub const PROT_WRITE: u32 = k::PROT_WRITE;
pub const PROT_EXEC: u32 = k::PROT_EXEC;
pub const MAP_SHARED: u32 = k::MAP_SHARED;
pub const MAP_PRIVATE: u32 = k::MAP_PRIVATE;
pub const MAP_FIXED: u32 = k::MAP_FIXED;
pub const MAP_ANONYMOUS: u32 = k::MAP_ANONYMOUS;
pub const MAP_NORESERVE: u32 = k::MAP_NORESERVE;

pub type Result<T> = core::result::Result<T, Errno>;

/// The engine's one system call instruction, a few that end in a place of their own apart. Where the engine is linked into a program with
/// the C library, [`crate::calls`] tells it from the program's by the number, which isn't written beside it.
#[unsafe(naked)]
unsafe extern "C" fn raw(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    core::arch::naked_asm!(
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "syscall",
        "ret",
        // For crate::code.
        ".ascii \"flashfork's call\"",
    )
}

/// A system call as it is.
///
/// # Safety
/// As the call of this number.
pub unsafe fn call(number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize> {
    // SAFETY: as the caller says.
    Errno::from_ret(unsafe { raw(number as usize, a, b, c, d, e, f) })
}

/// Functions of fewer arguments.
macro_rules! calls {
    ($($name:ident($($argument:ident),*);)*) => {$(
        unsafe fn $name(number: Sysno $(, $argument: usize)*) -> Result<usize> {
            let mut arguments = [0; 6];
            let given: &[usize] = &[$($argument),*];
            arguments[..given.len()].copy_from_slice(given);
            // SAFETY: as the caller says.
            unsafe { call(number, arguments) }
        }
    )*};
}

calls! {
    syscall0();
    syscall1(a);
    syscall2(a, b);
    syscall3(a, b, c);
    syscall4(a, b, c, d);
    syscall5(a, b, c, d, e);
    syscall6(a, b, c, d, e, f);
}

/// `mmap(2)`. Returns the address.
///
/// # Safety
/// With `MAP_FIXED`, whatever is mapped at `addr` is replaced: the caller answers for it.
pub unsafe fn mmap(addr: usize, len: usize, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<usize> {
    // SAFETY: the kernel checks every argument; the effect on memory is the caller's to answer for.
    unsafe { syscall6(Sysno::mmap, addr, len, prot as usize, flags as usize, fd as isize as usize, offset as usize) }
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(addr: usize, len: usize) -> Result<()> {
    // SAFETY: see above.
    unsafe { syscall2(Sysno::munmap, addr, len) }.map(drop)
}

/// `mremap(2)` with a fixed new address.
///
/// # Safety
/// Whatever is mapped at `to` is replaced, and nothing may use `from` afterwards.
pub unsafe fn mremap_fixed(from: usize, len: usize, to: usize) -> Result<()> {
    let flags = (k::MREMAP_MAYMOVE | k::MREMAP_FIXED) as usize;
    // SAFETY: see above.
    unsafe { syscall5(Sysno::mremap, from, len, len, flags, to) }.map(drop)
}

/// `mremap(2)` as the program asked for it. Returns the new address.
///
/// # Safety
/// As `mremap(2)`: the caller answers for what is moved, unmapped and replaced.
pub unsafe fn mremap(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
    // SAFETY: see above.
    unsafe { syscall5(Sysno::mremap, from, old, new, flags, to) }
}

/// `mprotect(2)`.
///
/// # Safety
/// The caller answers for accesses that the new protection forbids.
pub unsafe fn mprotect(addr: usize, len: usize, prot: u32) -> Result<()> {
    // SAFETY: see above.
    unsafe { syscall3(Sysno::mprotect, addr, len, prot as usize) }.map(drop)
}

/// `pkey_mprotect(2)`.
///
/// # Safety
/// As [`mprotect`].
pub unsafe fn pkey_mprotect(addr: usize, len: usize, prot: u32, pkey: u32) -> Result<()> {
    // SAFETY: see above.
    unsafe { syscall4(Sysno::pkey_mprotect, addr, len, prot as usize, pkey as usize) }.map(drop)
}

/// Reads this process's own memory into a buffer; how many bytes could be read (`process_vm_readv(2)`).
///
/// Memory that can't be read is an errno (`EFAULT`), never a signal, and protection keys don't count.
pub fn read_memory(addr: usize, buf: &mut [u8]) -> Result<usize> {
    let (local, remote) = ([buf.as_mut_ptr() as usize, buf.len()], [addr, buf.len()]);
    // The thread that asks: a leader that has ended has no memory.
    let me = gettid() as usize;
    // SAFETY: the buffer is ours to fill; both are one struct iovec.
    unsafe { syscall6(Sysno::process_vm_readv, me, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0) }
}

/// Writes zeros over this process's own memory; how many bytes could be written (`process_vm_writev(2)`). As [`read_memory`].
///
/// # Safety
/// The caller answers for what is overwritten.
pub unsafe fn zero_memory(addr: usize, len: usize) -> Result<usize> {
    const ZEROS: [u8; PAGE] = [0; PAGE];
    const MOST: usize = 64;
    static SOURCE: [u8; PAGE] = ZEROS;
    let local = [[SOURCE.as_ptr() as usize, PAGE]; MOST];
    let len = len.min(MOST * PAGE);
    let (count, remote) = (len.div_ceil(PAGE), [addr, len]);
    let me = gettid() as usize;
    // SAFETY: the kernel reads the source and the structs iovec; what it writes over is the caller's to answer for.
    unsafe { syscall6(Sysno::process_vm_writev, me, local.as_ptr() as usize, count, remote.as_ptr() as usize, 1, 0) }
}

/// `madvise(2)`.
///
/// # Safety
/// Some advice discards contents (`MADV_DONTNEED`, `MADV_FREE`): the caller answers for it.
pub unsafe fn madvise(addr: usize, len: usize, advice: u32) -> Result<()> {
    // SAFETY: see above.
    unsafe { syscall3(Sysno::madvise, addr, len, advice as usize) }.map(drop)
}

/// `mlock2(2)`; `on_fault`: pages are locked as they come in.
pub fn mlock(addr: usize, len: usize, on_fault: bool) -> Result<()> {
    let flags = if on_fault { k::MLOCK_ONFAULT as usize } else { 0 };
    // SAFETY: locking changes no contents.
    unsafe { syscall3(Sysno::mlock2, addr, len, flags) }.map(drop)
}

/// `munlock(2)`.
pub fn munlock(addr: usize, len: usize) -> Result<()> {
    // SAFETY: unlocking changes no contents.
    unsafe { syscall2(Sysno::munlock, addr, len) }.map(drop)
}

/// `munlockall(2)`: what is mapped and what will be.
pub fn munlockall() -> Result<()> {
    // SAFETY: as above.
    unsafe { syscall1(Sysno::munlockall, 0) }.map(drop)
}

/// Whether new memory comes locked (`mlockall(2)` with `MCL_FUTURE`): locked pages are refused to those that look for cold ones.
pub fn locks_new_memory() -> Result<bool> {
    // SAFETY: a page of our own, gone at the end.
    unsafe {
        let page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)?;
        let cold = madvise(page, PAGE, k::MADV_COLD);
        munmap(page, PAGE)?;
        Ok(cold == Err(Errno::EINVAL))
    }
}

/// Whether every page of the range belongs to some mapping (`msync(2)` with `MS_ASYNC` does nothing else).
pub fn is_mapped(addr: usize, len: usize) -> bool {
    // SAFETY: MS_ASYNC neither reads nor writes the memory.
    unsafe { syscall3(Sysno::msync, addr, len, k::MS_ASYNC as usize) }.is_ok()
}

/// `memfd_create(2)`: sealable, closed on exec, and never executable where the kernel knows how to say so (6.3).
pub fn memfd_create(name: &CStr) -> Result<i32> {
    let base = k::MFD_CLOEXEC | k::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a NUL-terminated string.
    let create = |flags: u32| unsafe { syscall2(Sysno::memfd_create, name.as_ptr() as usize, flags as usize) };
    match create(base | k::MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => create(base),
        other => other,
    }
    .map(|fd| fd as i32)
}

/// `ftruncate(2)`.
pub fn ftruncate(fd: i32, len: u64) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall2(Sysno::ftruncate, fd as usize, len as usize) }.map(drop)
}

/// `fallocate(2)` that gives a range of a file back.
pub fn punch_hole(fd: i32, offset: u64, len: usize) -> Result<()> {
    let mode = (k::FALLOC_FL_PUNCH_HOLE | k::FALLOC_FL_KEEP_SIZE) as usize;
    // SAFETY: no memory is passed.
    unsafe { syscall4(Sysno::fallocate, fd as usize, mode, offset as usize, len) }.map(drop)
}

/// `fcntl(F_ADD_SEALS)`: no write, shrink, growth or further seal.
pub fn add_seals(fd: i32) -> Result<()> {
    let seals = k::F_SEAL_WRITE | k::F_SEAL_SHRINK | k::F_SEAL_GROW | k::F_SEAL_SEAL;
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::fcntl, fd as usize, k::F_ADD_SEALS as usize, seals as usize) }.map(drop)
}

/// Copies memory into a file: `pwrite64(2)` until all is written.
///
/// A source page that can't be read ends in `EFAULT`, never in a signal: that is why the copy goes through the kernel.
pub fn pwrite_all(fd: i32, mut addr: usize, mut len: usize, mut offset: u64) -> Result<()> {
    while len > 0 {
        // SAFETY: the kernel only reads the memory, and answers EFAULT where it can't.
        match unsafe { syscall4(Sysno::pwrite64, fd as usize, addr, len, offset as usize) } {
            Ok(0) => return Err(Errno::ENOSPC),
            Ok(n) => {
                addr += n;
                len -= n;
                offset += n as u64;
            }
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Copies a file's bytes into memory: `pread64(2)` until all is read.
///
/// # Safety
/// The range is writable memory whose contents may be replaced.
pub unsafe fn pread_all(fd: i32, mut addr: usize, mut len: usize, mut offset: u64) -> Result<()> {
    while len > 0 {
        // SAFETY: the caller gave the range up to be overwritten.
        match unsafe { syscall4(Sysno::pread64, fd as usize, addr, len, offset as usize) } {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => {
                addr += n;
                len -= n;
                offset += n as u64;
            }
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// `pread64(2)` once, into a buffer.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the buffer is ours to fill.
    unsafe { syscall4(Sysno::pread64, fd as usize, buf.as_mut_ptr() as usize, buf.len(), offset as usize) }
}

/// Reads memory of this process that may be unreadable or missing: `EFAULT` then, never a signal (`process_vm_readv(2)`).
pub fn read_own(addr: usize, buf: &mut [u8]) -> Result<()> {
    let n = read_memory(addr, buf)?;
    if n == buf.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether there is something to read in each page of this process's, whatever its protection allows (`proc_pid_mem(5)`).
pub fn can_read_own(range: crate::range::Range) -> bool {
    let Ok(fd) = open(c"/proc/thread-self/mem", O_RDONLY) else { return false };
    let all = (range.start..range.end).step_by(PAGE).all(|at| pread(fd, &mut [0], at as u64) == Ok(1));
    close(fd);
    all
}

/// `openat(2)` with the flags given, relative to the working directory.
pub fn open(path: &CStr, flags: u32) -> Result<i32> {
    // SAFETY: `path` is a NUL-terminated string.
    unsafe {
        syscall4(
            Sysno::openat,
            k::AT_FDCWD as isize as usize,
            path.as_ptr() as usize,
            (flags | k::O_CLOEXEC) as usize,
            0,
        )
    }
    .map(|fd| fd as i32)
}

pub const O_RDONLY: u32 = k::O_RDONLY;
pub const O_WRONLY: u32 = k::O_WRONLY;
pub const O_DIRECTORY: u32 = k::O_DIRECTORY;

/// `close(2)`. Linux releases the descriptor whatever the call answers, so there is nothing to do about an error.
pub fn close(fd: i32) {
    // SAFETY: the caller owns the descriptor.
    let _ = unsafe { syscall1(Sysno::close, fd as usize) };
}

/// `read(2)` once.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: the buffer is ours to fill.
        match unsafe { syscall3(Sysno::read, fd as usize, buf.as_mut_ptr() as usize, buf.len()) } {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// `write(2)` once.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: the kernel only reads the buffer.
    unsafe { syscall3(Sysno::write, fd as usize, buf.as_ptr() as usize, buf.len()) }
}

/// `readlink(2)`.
pub fn readlink(path: &CStr, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: a NUL-terminated path and a buffer of our own.
    unsafe { syscall3(Sysno::readlink, path.as_ptr() as usize, buf.as_mut_ptr() as usize, buf.len()) }
}

/// The number of the character device at a path, links followed (`stat(2)`); none when it is something else.
pub fn character_device(path: &CStr) -> Result<Option<u64>> {
    let mut stat = [0u64; 18];
    // SAFETY: a NUL-terminated path, and a struct stat to write to.
    unsafe {
        let at = k::AT_FDCWD as isize as usize;
        syscall4(Sysno::newfstatat, at, path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0)
    }?;
    Ok(character_device_in(&stat))
}

/// The number of the character device that is open as `fd`; none when it is something else (`fstat(2)`).
pub fn device_of(fd: i32) -> Result<Option<u64>> {
    let mut stat = [0u64; 18];
    // SAFETY: a struct stat to write to.
    unsafe { syscall2(Sysno::fstat, fd as isize as usize, stat.as_mut_ptr() as usize) }?;
    Ok(character_device_in(&stat))
}

/// Struct stat is 18 words on this architecture: st_dev, st_ino, st_nlink, st_mode and st_uid, ..., st_rdev.
fn character_device_in(stat: &[u64; 18]) -> Option<u64> {
    const S_IFMT: u64 = 0o170_000;
    const S_IFCHR: u64 = 0o020_000;
    (stat[3] & S_IFMT == S_IFCHR).then_some(stat[5])
}

/// `getdents64(2)`.
pub fn getdents(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is ours to fill.
    unsafe { syscall3(Sysno::getdents64, fd as usize, buf.as_mut_ptr() as usize, buf.len()) }
}

/// The protocol family of a socket (`SO_DOMAIN`), or the error `getsockopt(2)` gave.
pub fn socket_domain(fd: i32) -> Result<i32> {
    const SOL_SOCKET: usize = 1;
    const SO_DOMAIN: usize = 39;
    let mut value = 0i32;
    let mut len = 4u32;
    // SAFETY: both pointers are to locals of the right size.
    unsafe {
        syscall5(Sysno::getsockopt, fd as usize, SOL_SOCKET, SO_DOMAIN, &raw mut value as usize, &raw mut len as usize)
    }
    .map(|_| value)
}

/// `ioctl(2)` with a pointer argument.
///
/// # Safety
/// `arg` points to what the request expects.
pub unsafe fn ioctl(fd: i32, request: usize, arg: usize) -> Result<usize> {
    // SAFETY: see above.
    unsafe { syscall3(Sysno::ioctl, fd as usize, request, arg) }
}

/// Blocks every signal; returns the mask before. Signals that must not wait (SIGKILL, SIGSTOP) are never blocked.
pub fn block_signals() -> Result<u64> {
    let all = u64::MAX;
    let mut old = 0u64;
    // SAFETY: both masks are the kernel's 8 bytes.
    unsafe {
        syscall4(Sysno::rt_sigprocmask, k::SIG_SETMASK as usize, &raw const all as usize, &raw mut old as usize, 8)
    }
    .map(|_| old)
}

/// Puts a signal mask back.
pub fn restore_signals(mask: u64) {
    // SAFETY: the mask is the kernel's 8 bytes. The call can't fail with valid arguments.
    let _ = unsafe { syscall4(Sysno::rt_sigprocmask, k::SIG_SETMASK as usize, &raw const mask as usize, 0, 8) };
}

/// The alternate signal stack of this thread, if it has one: start and length (`sigaltstack(2)`).
pub fn alternate_stack() -> Option<(usize, usize)> {
    #[repr(C)]
    struct Stack {
        sp: usize,
        flags: i32,
        size: usize,
    }
    let mut s = Stack { sp: 0, flags: 0, size: 0 };
    const SS_DISABLE: i32 = 2;
    // SAFETY: the struct is stack_t.
    unsafe { syscall2(Sysno::sigaltstack, 0, &raw mut s as usize) }.ok()?;
    (s.flags & SS_DISABLE == 0 && s.size > 0).then_some((s.sp, s.size))
}

/// The head of this thread's robust futex list (`get_robust_list(2)`): the kernel reads and writes there at exit.
pub fn robust_list() -> Option<(usize, usize)> {
    let (mut head, mut len) = (0usize, 0usize);
    // SAFETY: both pointers are to locals of the right size.
    unsafe { syscall3(Sysno::get_robust_list, 0, &raw mut head as usize, &raw mut len as usize) }.ok()?;
    (head != 0).then_some((head, len))
}

/// The thread pointer: where libc keeps the thread's control block, its rseq area among it.
pub fn thread_pointer() -> Result<usize> {
    const ARCH_GET_FS: usize = 0x1003;
    let mut fs = 0usize;
    // SAFETY: the kernel writes one word to a local.
    unsafe { syscall2(Sysno::arch_prctl, ARCH_GET_FS, &raw mut fs as usize) }.map(|_| fs)
}

/// Whether the memory at `addr` has a NUMA policy other than the default (`get_mempolicy(2)`).
/// A kernel without NUMA has none.
pub fn has_numa_policy(addr: usize) -> bool {
    const MPOL_F_ADDR: usize = 2;
    let mut mode = 0i32;
    // SAFETY: the kernel writes one int to a local.
    unsafe { syscall5(Sysno::get_mempolicy, &raw mut mode as usize, 0, 0, addr, MPOL_F_ADDR) }.is_ok() && mode != 0
}

/// The process's `PR_SET_THP_DISABLE` setting as the kernel gives it (0: not set).
pub fn thp_disable() -> Result<usize> {
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, p::PR_GET_THP_DISABLE as usize, 0, 0, 0, 0) }
}

/// Sets `PR_SET_THP_DISABLE` to a value that `thp_disable` gave (bit 0: on; the others are its flags, Linux 6.18).
pub fn set_thp_disable(value: usize) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, p::PR_SET_THP_DISABLE as usize, value & 1, value & !1, 0, 0) }.map(drop)
}

/// Whether forks of this process are on demand (`PR_GET_ODF`, kernel/series/0013). `EINVAL`: not in this kernel.
pub fn odf() -> Result<bool> {
    const PR_GET_ODF: usize = 0x4f44_4602;
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, PR_GET_ODF, 0, 0, 0, 0) }.map(|on| on != 0)
}

/// Sets whether forks of this process are on demand (`PR_SET_ODF`). `EPERM`: switched off by the sysctl.
pub fn set_odf(on: bool) -> Result<()> {
    const PR_SET_ODF: usize = 0x4f44_4601;
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, PR_SET_ODF, usize::from(on), 0, 0, 0) }.map(drop)
}

/// `clone3(2)` with `CLONE_ODF`: a fork that shares page tables. 0 in the child.
///
/// # Safety
/// As `fork(2)` made without libc: the child may only do what is async-signal-safe.
pub unsafe fn clone_odf() -> Result<i32> {
    const CLONE_ODF: u64 = 0x1000_0000_0000_0000;
    const SIGCHLD: u64 = 17;
    // struct clone_args as of Linux 5.3: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
    let args = [CLONE_ODF, 0, 0, 0, SIGCHLD, 0, 0, 0];
    // SAFETY: the kernel reads the struct; without CLONE_VM parent and child go on with memory of their own.
    unsafe { syscall2(Sysno::clone3, args.as_ptr() as usize, size_of_val(&args)) }.map(|pid| pid as i32)
}

/// A fork without libc whose child sends no signal when it ends (`clone(2)`). 0 in the child.
///
/// # Safety
/// As `fork(2)` made without libc: the child may only do what is async-signal-safe.
pub unsafe fn fork_in_silence() -> Result<i32> {
    // SAFETY: without CLONE_VM parent and child go on with memory of their own.
    unsafe { syscall5(Sysno::clone, 0, 0, 0, 0, 0) }.map(|pid| pid as i32)
}

/// `io_uring_setup(2)`. Returns the descriptor, or the index where it is registered.
///
/// # Safety
/// As the call: the kernel writes `params`, and later whatever is submitted.
pub unsafe fn io_uring_setup(entries: usize, params: usize) -> Result<usize> {
    // SAFETY: see above.
    unsafe { syscall2(Sysno::io_uring_setup, entries, params) }
}

/// `io_uring_register(2)`.
///
/// # Safety
/// As the call.
pub unsafe fn io_uring_register(fd: usize, opcode: usize, arg: usize, count: usize) -> Result<usize> {
    // SAFETY: see above.
    unsafe { syscall4(Sysno::io_uring_register, fd, opcode, arg, count) }
}

/// Soft and hard limit of a resource (`prlimit64(2)`).
pub fn getrlimit(resource: u32) -> Result<[u64; 2]> {
    let mut limits = [0u64; 2];
    // SAFETY: the kernel writes one struct rlimit64 to a local.
    unsafe { syscall4(Sysno::prlimit64, 0, resource as usize, 0, limits.as_mut_ptr() as usize) }.map(|_| limits)
}

/// Sets soft and hard limit of a resource.
pub fn setrlimit(resource: u32, limits: [u64; 2]) -> Result<()> {
    // SAFETY: the kernel reads one struct rlimit64 from a local.
    unsafe { syscall4(Sysno::prlimit64, 0, resource as usize, limits.as_ptr() as usize, 0) }.map(drop)
}

pub const RLIMIT_FSIZE: u32 = k::RLIMIT_FSIZE;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let mut t = [0u64; 2];
    // SAFETY: the kernel writes one struct timespec to a local. With a valid clock the call can't fail.
    let _ = unsafe { syscall2(Sysno::clock_gettime, k::CLOCK_MONOTONIC as usize, t.as_mut_ptr() as usize) };
    t[0] * 1_000_000_000 + t[1]
}

/// Page faults of this process that needed no disk (`getrusage(2)`, `ru_minflt`).
pub fn minor_faults() -> u64 {
    let mut usage = [0u64; 18];
    // SAFETY: struct rusage is 18 words on this architecture.
    match unsafe { syscall2(Sysno::getrusage, 0, usage.as_mut_ptr() as usize) } {
        Ok(_) => usage[8],
        Err(_) => 0,
    }
}

/// The process id.
pub fn getpid() -> i32 {
    // SAFETY: no arguments, can't fail.
    unsafe { syscall0(Sysno::getpid) }.map_or(0, |p| p as i32)
}

/// The process id of the parent.
pub fn getppid() -> i32 {
    // SAFETY: no arguments, can't fail.
    unsafe { syscall0(Sysno::getppid) }.map_or(0, |p| p as i32)
}

/// `unshare(CLONE_VM)`: changes nothing for a process whose memory nobody else uses, and is `EINVAL` for any other
/// (check_unshare_flags, current_is_single_threaded).
pub fn unshare_memory() -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall1(Sysno::unshare, k::CLONE_VM as usize) }.map(drop)
}

/// Whether two processes share their address space. Where the kernel doesn't say: no.
pub fn same_memory(one: i32, other: i32) -> bool {
    compare_memory(one, other) == Ok(true)
}

/// The same (`kcmp(2)`). `ESRCH`: there is no such process, or it can't be seen from here.
pub fn compare_memory(one: i32, other: i32) -> Result<bool> {
    const KCMP_VM: usize = 1;
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::kcmp, one as usize, other as usize, KCMP_VM, 0, 0) }.map(|order| order == 0)
}

/// Lets other tasks run for about a millisecond; used between retries.
pub fn pause_briefly() {
    sleep_ns(1_000_000);
}

/// Sleeps for about so many nanoseconds, under a second. Waking early is harmless to every caller.
pub fn sleep_ns(ns: u64) {
    let t = [0u64, ns];
    // SAFETY: the kernel reads one struct timespec.
    let _ = unsafe { syscall2(Sysno::nanosleep, t.as_ptr() as usize, 0) };
}

/// Ends a process at once: for the one state in which going on would mean running with memory missing.
pub fn die(pid: i32) -> ! {
    const SIGKILL: usize = 9;
    loop {
        // SAFETY: no memory is passed.
        let _ = unsafe { syscall2(Sysno::kill, pid as usize, SIGKILL) };
    }
}

/// `ptrace(2)`.
///
/// # Safety
/// `data` is what the request takes or writes to.
pub unsafe fn ptrace(request: usize, tid: i32, addr: usize, data: usize) -> Result<()> {
    // SAFETY: see above.
    unsafe { syscall4(Sysno::ptrace, request, tid as usize, addr, data) }.map(drop)
}

/// `wait4(2)`: the id and the status of a child or tracee that has something to tell; id 0 when `WNOHANG` found none.
pub fn wait(id: i32, options: u32) -> Result<(i32, i32)> {
    let mut status = 0i32;
    loop {
        // SAFETY: the kernel writes one int to a local.
        let result =
            unsafe { syscall4(Sysno::wait4, id as isize as usize, &raw mut status as usize, options as usize, 0) };
        match result {
            Err(Errno::EINTR) => {}
            Ok(id) => return Ok((id as i32, status)),
            Err(e) => return Err(e),
        }
    }
}

/// Sleeps until a child or tracee has something to tell, or for so many nanoseconds, under a second. All signals must be blocked,
/// and SIGCHLD have its default action ([`expect_children`]).
pub fn wait_for_children(ns: u64) {
    const SIGCHLD_SET: u64 = 1 << 16;
    let (set, t) = (SIGCHLD_SET, [0u64, ns]);
    // SAFETY: the kernel reads a mask of 8 bytes and one struct timespec. Waking early is harmless.
    let _ =
        unsafe { syscall4(Sysno::rt_sigtimedwait, &raw const set as usize, 0, t.as_ptr() as usize, size_of_val(&set)) };
}

/// Gives SIGCHLD its default action: where it is ignored the kernel doesn't send it.
pub fn expect_children() -> Result<()> {
    const SIGCHLD: usize = 17;
    let default = [0u64; 4];
    // SAFETY: the kernel reads one struct sigaction.
    unsafe { syscall4(Sysno::rt_sigaction, SIGCHLD, default.as_ptr() as usize, 0, 8) }.map(drop)
}

/// Sends a signal to one thread (`tgkill(2)`); 0 sends none and tells whether there is such a thread (`ESRCH`).
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::tgkill, pid as usize, tid as usize, signal as usize) }.map(drop)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Action {
    /// Address of the handler; 0 `SIG_DFL`, 1 `SIG_IGN`.
    pub handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

impl Action {
    /// A handler of three arguments that runs with all signals blocked, on the alternate stack where there is one. Calls that can
    /// go on after it do.
    pub fn new(handler: usize) -> Action {
        const SA_SIGINFO: usize = 4;
        const SA_RESTORER: usize = 0x0400_0000;
        const SA_ONSTACK: usize = 0x0800_0000;
        const SA_RESTART: usize = 0x1000_0000;
        let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_RESTART;
        Action { handler, flags, restorer: restore as *const () as usize, mask: u64::MAX }
    }
}

/// Where a handler returns to: `rt_sigreturn(2)`.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    core::arch::naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// `rt_sigaction(2)`; gives what was there before.
pub fn action(signal: i32, new: Option<&Action>) -> Result<Action> {
    let mut old = Action::default();
    let new = new.map_or(0, |a| &raw const *a as usize);
    // SAFETY: both structs are the kernel's; whoever sets a handler answers for it.
    unsafe { syscall4(Sysno::rt_sigaction, signal as usize, new, &raw mut old as usize, 8) }.map(|_| old)
}

/// Has the kernel send SIGKILL to this process when the thread that made it ends (`PR_SET_PDEATHSIG`).
pub fn die_with_parent() -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, p::PR_SET_PDEATHSIG as usize, 9, 0, 0, 0) }.map(drop)
}

/// Allows one process to trace this one where Yama restricts that (`PR_SET_PTRACER`); 0: nobody.
pub fn set_ptracer(pid: i32) -> Result<()> {
    const PR_SET_PTRACER: usize = 0x5961_6d61;
    // SAFETY: no memory is passed.
    unsafe { syscall5(Sysno::prctl, PR_SET_PTRACER, pid as usize, 0, 0, 0) }.map(drop)
}

/// Leaves a shared descriptor table for an empty one of one's own (`close_range(2)`, Linux 5.9).
pub fn leave_descriptors() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    // SAFETY: no memory is passed; what the caller has open it doesn't use any more.
    unsafe { syscall3(Sysno::close_range, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE) }.map(drop)
}

/// A descriptor for a process (`pidfd_open(2)`, Linux 5.3), by one of its threads where the kernel has that (`PIDFD_THREAD`, 6.9):
/// through a leader that has ended no descriptor can be had.
pub fn pidfd_open(pid: i32, thread: i32) -> Result<i32> {
    // SAFETY: no memory is passed.
    let open = |id: i32, flags: u32| unsafe { syscall2(Sysno::pidfd_open, id as usize, flags as usize) };
    open(thread, k::O_EXCL).or_else(|_| open(pid, 0)).map(|fd| fd as i32)
}

/// A duplicate of another process's descriptor (`pidfd_getfd(2)`, Linux 5.6).
pub fn pidfd_getfd(pidfd: i32, fd: i32) -> Result<i32> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::pidfd_getfd, pidfd as usize, fd as usize, 0) }.map(|fd| fd as i32)
}

/// Sleeps while `*word` is `value` (`futex(2)`). Waking early is harmless: callers look again.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    const FUTEX_WAIT: usize = 0;
    // SAFETY: the kernel reads the word.
    let _ = unsafe { syscall4(Sysno::futex, word.as_ptr() as usize, FUTEX_WAIT, value as usize, 0) };
}

/// The same for so many nanoseconds at most, under a second.
pub fn futex_wait_for(word: &core::sync::atomic::AtomicU32, value: u32, ns: u64) {
    const FUTEX_WAIT: usize = 0;
    let t = [0u64, ns];
    // SAFETY: the kernel reads the word and one struct timespec.
    let _ = unsafe { syscall4(Sysno::futex, word.as_ptr() as usize, FUTEX_WAIT, value as usize, t.as_ptr() as usize) };
}

/// Wakes all who sleep on `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    const FUTEX_WAKE: usize = 1;
    // SAFETY: the kernel only uses the address.
    let _ = unsafe { syscall3(Sysno::futex, word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize) };
}

/// Ends the calling process.
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: no memory is passed.
        let _ = unsafe { syscall1(Sysno::exit_group, code as usize) };
    }
}

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

/// `brk(2)` as the kernel has it: gives the break that holds now, which is not `to` where it could not be moved.
///
/// # Safety
/// Memory above a lower break is gone: the caller answers for it.
pub unsafe fn brk(to: usize) -> usize {
    // SAFETY: see above. The raw call reports no error.
    unsafe { syscall1(Sysno::brk, to) }.unwrap_or(0)
}

/// The program break.
pub fn program_break() -> usize {
    // SAFETY: no break lies at 0, so the call only tells.
    unsafe { brk(0) }
}

/// The thread's id.
pub fn gettid() -> i32 {
    // SAFETY: no arguments, can't fail.
    unsafe { syscall0(Sysno::gettid) }.map_or(0, |t| t as i32)
}

/// The offset of an open file (`lseek(2)`). `ESPIPE`: it has none.
pub fn file_offset(fd: i32) -> Result<u64> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::lseek, fd as usize, 0, k::SEEK_CUR as usize) }.map(|at| at as u64)
}

/// Sets the offset of an open file.
pub fn set_file_offset(fd: i32, offset: u64) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::lseek, fd as usize, offset as usize, k::SEEK_SET as usize) }.map(drop)
}

/// Closes the descriptors from `first` to `last`, those that are open (`close_range(2)`).
pub fn close_range(first: i32, last: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::close_range, first as usize, last as usize, 0) }.map(drop)
}

/// A second descriptor for the same file, numbered `least` or above, closed on exec.
pub fn duplicate_above(fd: i32, least: i32) -> Result<i32> {
    // SAFETY: no memory is passed.
    unsafe { syscall3(Sysno::fcntl, fd as usize, k::F_DUPFD_CLOEXEC as usize, least as usize) }.map(|fd| fd as i32)
}

/// Device and inode number of an open file (`fstat(2)`).
pub fn identity(fd: i32) -> Result<(u64, u64)> {
    let mut stat = [0u64; 18];
    // SAFETY: struct stat is 18 words on this architecture: st_dev, st_ino, ...
    unsafe { syscall2(Sysno::fstat, fd as usize, stat.as_mut_ptr() as usize) }.map(|_| (stat[0], stat[1]))
}

pub const RLIMIT_NOFILE: u32 = k::RLIMIT_NOFILE;

/// What tells a version of a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed, its attributes among it: seconds and nanoseconds.
    pub changed: [u64; 2],
}

impl Status {
    /// From struct stat, 18 words on this architecture: st_dev, st_ino, st_nlink, st_mode and st_uid, st_gid, st_rdev, st_size,
    /// st_blksize, st_blocks, st_atim, st_mtim, st_ctim.
    fn new(stat: &[u64; 18]) -> Status {
        Status { device: stat[0], inode: stat[1], size: stat[6], changed: [stat[13], stat[14]] }
    }
}

/// `stat(2)`.
pub fn status(path: &CStr) -> Result<Status> {
    let mut stat = [0u64; 18];
    // SAFETY: a NUL-terminated path, and a struct stat to write to.
    unsafe { syscall2(Sysno::stat, path.as_ptr() as usize, stat.as_mut_ptr() as usize) }.map(|_| Status::new(&stat))
}

/// `fstat(2)`.
pub fn fstatus(fd: i32) -> Result<Status> {
    let mut stat = [0u64; 18];
    // SAFETY: a struct stat to write to.
    unsafe { syscall2(Sysno::fstat, fd as usize, stat.as_mut_ptr() as usize) }.map(|_| Status::new(&stat))
}

/// Brings pages in for reading (`MADV_POPULATE_READ`, Linux 5.14). `EFAULT` and others: one can't be read.
pub fn populate(addr: usize, len: usize) -> Result<()> {
    loop {
        // SAFETY: changes no contents.
        match unsafe { madvise(addr, len, k::MADV_POPULATE_READ) } {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            other => return other,
        }
    }
}

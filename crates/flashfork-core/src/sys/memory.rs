//! Memory: mapping, protecting, advising, locking, and reading it where it may not be there.

use super::{
	files::{O_RDONLY, close, open, pread},
	raw::{Result, call, numeric},
	threads::gettid,
};
use linux_raw_sys::{general as k, prctl as p};
use syscalls::{Errno, Sysno};

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

/// `mmap(2)`. Returns the address.
///
/// # Safety
/// With `MAP_FIXED`, whatever is mapped at `addr` is replaced: the caller answers for it.
pub unsafe fn mmap(addr: usize, len: usize, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<usize> {
	// SAFETY: the kernel checks every argument; the effect on memory is the caller's to answer for.
	unsafe { call(Sysno::mmap, [addr, len, prot as usize, flags as usize, fd as isize as usize, offset as usize]) }
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(addr: usize, len: usize) -> Result<()> {
	// SAFETY: see above.
	unsafe { call(Sysno::munmap, [addr, len]) }.map(drop)
}

/// `mremap(2)` with a fixed new address.
///
/// # Safety
/// Whatever is mapped at `to` is replaced, and nothing may use `from` afterwards.
pub unsafe fn mremap_fixed(from: usize, len: usize, to: usize) -> Result<()> {
	let flags = (k::MREMAP_MAYMOVE | k::MREMAP_FIXED) as usize;
	// SAFETY: see above.
	unsafe { call(Sysno::mremap, [from, len, len, flags, to]) }.map(drop)
}

/// `mremap(2)` as the program asked for it. Returns the new address.
///
/// # Safety
/// As `mremap(2)`: the caller answers for what is moved, unmapped and replaced.
pub unsafe fn mremap(from: usize, old: usize, new: usize, flags: usize, to: usize) -> Result<usize> {
	// SAFETY: see above.
	unsafe { call(Sysno::mremap, [from, old, new, flags, to]) }
}

/// `mprotect(2)`.
///
/// # Safety
/// The caller answers for accesses that the new protection forbids.
pub unsafe fn mprotect(addr: usize, len: usize, prot: u32) -> Result<()> {
	// SAFETY: see above.
	unsafe { call(Sysno::mprotect, [addr, len, prot as usize]) }.map(drop)
}

/// The protection key that the program would be given next (`pkeys(7)`), with no right to anything; 0 where there is
/// none.
pub fn next_key() -> usize {
	// SAFETY: our own key, given back at once.
	unsafe {
		let Ok(key) = call(Sysno::pkey_alloc, [0, k::PKEY_DISABLE_ACCESS as usize]) else { return 0 };
		let _ = call(Sysno::pkey_free, [key]);
		key
	}
}

/// `pkey_mprotect(2)`.
///
/// # Safety
/// As [`mprotect`].
pub unsafe fn pkey_mprotect(addr: usize, len: usize, prot: u32, pkey: u32) -> Result<()> {
	// SAFETY: see above.
	unsafe { call(Sysno::pkey_mprotect, [addr, len, prot as usize, pkey as usize]) }.map(drop)
}

/// Reads this process's own memory into a buffer; how many bytes could be read. By `process_vm_writev(2)`: the kernel
/// pins what `process_vm_readv(2)` reads, and so makes a clean copy of a page that a child has, too. It would take that
/// copy from the next child once the program says `MADV_FREE` (`wp_page_copy`, `madvise_free_pte_range`).
///
/// Memory that can't be read is an errno (`EFAULT`), never a signal.
pub fn read_memory(addr: usize, buf: &mut [u8]) -> Result<usize> {
	let (local, remote) = ([addr, buf.len()], [buf.as_mut_ptr() as usize, buf.len()]);
	// The thread that asks: a leader that has ended has no memory.
	let me = gettid() as usize;
	// SAFETY: the buffer is ours to fill; both are one struct iovec.
	unsafe { call(Sysno::process_vm_writev, [me, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0]) }
}

/// Writes zeros over this process's own memory; how many bytes could be written (`process_vm_writev(2)`). As
/// [`read_memory`].
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
	unsafe { call(Sysno::process_vm_writev, [me, local.as_ptr() as usize, count, remote.as_ptr() as usize, 1, 0]) }
}

/// `madvise(2)`.
///
/// # Safety
/// Some advice discards contents (`MADV_DONTNEED`, `MADV_FREE`): the caller answers for it.
pub unsafe fn madvise(addr: usize, len: usize, advice: u32) -> Result<()> {
	// SAFETY: see above.
	unsafe { call(Sysno::madvise, [addr, len, advice as usize]) }.map(drop)
}

/// `mlock2(2)`; `on_fault`: pages are locked as they come in.
pub fn mlock(addr: usize, len: usize, on_fault: bool) -> Result<()> {
	let flags = if on_fault { k::MLOCK_ONFAULT as usize } else { 0 };
	// SAFETY: locking changes no contents.
	unsafe { call(Sysno::mlock2, [addr, len, flags]) }.map(drop)
}

/// `munlock(2)`.
pub fn munlock(addr: usize, len: usize) -> Result<()> {
	// SAFETY: unlocking changes no contents.
	unsafe { call(Sysno::munlock, [addr, len]) }.map(drop)
}

/// `munlockall(2)`: what is mapped and what will be.
pub fn munlockall() -> Result<()> {
	// SAFETY: as above.
	unsafe { call(Sysno::munlockall, [0]) }.map(drop)
}

/// Whether new memory comes locked (`mlockall(2)` with `MCL_FUTURE`): locked pages are refused to those that look for
/// cold ones.
pub fn locks_new_memory() -> Result<bool> {
	// SAFETY: our own page, gone at the end.
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
	unsafe { call(Sysno::msync, [addr, len, k::MS_ASYNC as usize]) }.is_ok()
}

/// Whether a page of this process's has contents: in the page table, or in the page cache (`mincore(2)`).
pub fn has_page(page: usize) -> bool {
	let mut there = 0u8;
	// SAFETY: the kernel writes one byte, for one page.
	unsafe { call(Sysno::mincore, [page, PAGE, &raw mut there as usize]) }.is_ok() && there & 1 == 1
}

/// Reads memory of this process that may be unreadable or missing: `EFAULT` then, never a signal
/// ([`read_memory`]).
pub fn read_own(addr: usize, buf: &mut [u8]) -> Result<()> {
	let n = read_memory(addr, buf)?;
	if n == buf.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether there is something to read in each page of this process's, whatever its protection allows
/// (`proc_pid_mem(5)`).
pub fn can_read_own(start: usize, end: usize) -> bool {
	let Ok(fd) = open(c"/proc/thread-self/mem", O_RDONLY) else { return false };
	let all = (start..end).step_by(PAGE).all(|at| pread(fd, &mut [0], at as u64) == Ok(1));
	close(fd);
	all
}

/// Whether the memory at `addr` has a NUMA policy other than the default (`get_mempolicy(2)`).
/// A kernel without NUMA has none.
pub fn has_numa_policy(addr: usize) -> bool {
	const MPOL_F_ADDR: usize = 2;
	let mut mode = 0i32;
	// SAFETY: the kernel writes one int to a local.
	unsafe { call(Sysno::get_mempolicy, [&raw mut mode as usize, 0, 0, addr, MPOL_F_ADDR]) }.is_ok() && mode != 0
}

/// The process's `PR_SET_THP_DISABLE` setting as the kernel gives it (0: not set).
pub fn thp_disable() -> Result<usize> {
	numeric(Sysno::prctl, [p::PR_GET_THP_DISABLE as usize, 0, 0, 0, 0])
}

/// Sets `PR_SET_THP_DISABLE` to a value that `thp_disable` gave (bit 0: on; the others are its flags, Linux 6.18).
pub fn set_thp_disable(value: usize) -> Result<()> {
	numeric(Sysno::prctl, [p::PR_SET_THP_DISABLE as usize, value & 1, value & !1, 0, 0]).map(drop)
}

/// `brk(2)` as the kernel has it: gives the break that holds now, which is not `to` where it could not be moved.
///
/// # Safety
/// Memory above a lower break is gone: the caller answers for it.
pub unsafe fn brk(to: usize) -> usize {
	// SAFETY: see above. The raw call reports no error.
	unsafe { call(Sysno::brk, [to]) }.unwrap_or(0)
}

/// The program break.
pub fn program_break() -> usize {
	// SAFETY: no break lies at 0, so the call only tells.
	unsafe { brk(0) }
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

//! What takes the place of which system call.

use crate::{
	answers::{advise, anonymous, exec, mremap, nodes, pipes, rings, sandbox},
	code, kernel_writers,
	range::Range,
	restartable,
	seal::vetted::VETTED,
	state::STATE,
	sys::{self, Result},
};
use core::ffi::CStr;
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// A system call that the program makes: the kernel's arguments.
pub type Arguments = [usize; 6];

/// What takes the place of a system call. To add one: a row in [`HOOKS`].
pub struct Hook {
	/// Its number.
	pub number: Sysno,
	/// The C library's function that makes it, if it has one: called once with zeros, to see that it leads to the hook.
	pub function: Option<&'static CStr>,
	/// Whether a place that can't be told from others stands in the way of a seal.
	pub must: bool,
	/// Whether it may change mappings ([`STATE`]'s `layout`).
	pub maps: bool,
	/// Answers as the kernel would.
	pub take: unsafe fn(&Arguments) -> Result<usize>,
}

/// Every system call that means something on sealed memory.
pub const HOOKS: &[Hook] = &[
	maps(hook(Sysno::madvise, Some(c"madvise"), madvise)),
	maps(hook(Sysno::process_madvise, Some(c"process_madvise"), process_madvise)),
	maps(hook(Sysno::mremap, Some(c"mremap"), mremap)),
	hook(Sysno::mlock, Some(c"mlock"), mlock),
	// Without a flag glibc's mlock2 is an mlock.
	hook(Sysno::mlock2, None, mlock2),
	hook(Sysno::mlockall, Some(c"mlockall"), mlockall),
	maps(hook(Sysno::pkey_mprotect, None, pkey_mprotect)),
	hook(Sysno::mseal, None, mseal),
	hook(Sysno::mbind, None, mbind),
	hook(Sysno::userfaultfd, None, userfaultfd),
	hook(Sysno::ioctl, Some(c"ioctl"), ioctl),
	hook(Sysno::io_setup, None, io_setup),
	hook(Sysno::io_uring_setup, None, io_uring_setup),
	hook(Sysno::io_uring_register, None, io_uring_register),
	maps(hook(Sysno::prctl, Some(c"prctl"), prctl)),
	hook(Sysno::seccomp, None, seccomp),
	// In glibc it is a cancellation point, whose number is passed from function to function (2.41).
	hook(Sysno::vmsplice, None, vmsplice),
	maps(hook(Sysno::mmap, Some(c"mmap"), mmap)),
	maps(hook(Sysno::mprotect, Some(c"mprotect"), mprotect)),
	// Nobody wants a segment attached that happens to have the number 0.
	maps(hook(Sysno::shmat, None, shmat)),
	hook(Sysno::socket, Some(c"socket"), socket),
	hook(Sysno::rseq, None, rseq),
	maps(where_clear(Sysno::remap_file_pages, remap_file_pages)),
	where_clear(Sysno::move_pages, move_pages),
	where_clear(Sysno::execve, execve),
	where_clear(Sysno::execveat, execveat),
];

/// Calls that are the program's own business, but after which something may be left to do ([`exec::came_back`]).
pub const FOLLOWED: [Sysno; 3] = [Sysno::clone, Sysno::vfork, Sysno::clone3];

const fn hook(number: Sysno, function: Option<&'static CStr>, take: unsafe fn(&Arguments) -> Result<usize>) -> Hook {
	Hook { number, function, must: true, maps: false, take }
}

/// A hook of a call that may change mappings.
const fn maps(hook: Hook) -> Hook {
	Hook { maps: true, ..hook }
}

/// A hook without which no byte is wrong.
const fn where_clear(number: Sysno, take: unsafe fn(&Arguments) -> Result<usize>) -> Hook {
	Hook { number, function: None, must: false, maps: false, take }
}

/// `madvise(2)`: what is discarded reads back as zeros.
unsafe fn madvise(&[addr, len, advice, ..]: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { advise::madvise(addr, len, advice as u32) }.map(|()| 0)
}

/// `process_madvise(2)`: advice to oneself is like that of `madvise(2)`.
unsafe fn process_madvise(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { advise::process_madvise(*args) }
}

/// `mremap(2)`: sealed memory that grows gets zeros that belong to this process alone.
unsafe fn mremap(&[from, old, new, flags, to, _]: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { mremap::mremap(from, old, new, flags, to) }
}

/// `mlock(2)`: sealed memory becomes anonymous first.
unsafe fn mlock(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	anonymous::give_property(args[0], args[1], || unsafe { sys::call(Sysno::mlock, *args) })
}

/// `mlock2(2)`: the same.
unsafe fn mlock2(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	anonymous::give_property(args[0], args[1], || unsafe { sys::call(Sysno::mlock2, *args) })
}

/// `mlockall(2)`: the same; with `MCL_FUTURE` no later seal is made.
unsafe fn mlockall(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	anonymous::give_all_property(|| unsafe { sys::call(Sysno::mlockall, *args) })
}

/// `pkey_mprotect(2)`: the same, where it gives a key; and it may make memory executable, as `mprotect(2)`.
unsafe fn pkey_mprotect(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	let call = || unsafe { sys::call(Sysno::pkey_mprotect, *args) };
	if executable(args[2]) {
		code::guard::before_executable(Range::pages_of(args[0], args[1]))?;
	}
	if args[3] as i32 > 0 { anonymous::give_property(args[0], args[1], call) } else { call() }
}

/// `mseal(2)`: the same.
unsafe fn mseal(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	anonymous::give_property(args[0], args[1], || unsafe { sys::call(Sysno::mseal, *args) })
}

/// `mbind(2)`: the same.
unsafe fn mbind(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	anonymous::give_property(args[0], args[1], || unsafe { sys::call(Sysno::mbind, *args) })
}

/// `move_pages(2)`: sealed pages are there before they are touched.
unsafe fn move_pages(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { nodes::move_pages(args) }
}

/// `userfaultfd(2)`: faults on a file mapping mean something else to it, so it must find all memory anonymous.
unsafe fn userfaultfd(args: &Arguments) -> Result<usize> {
	advise::before_userfaultfd()?;
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::userfaultfd, *args) }
}

/// `ioctl(2)`: the same for one that comes out of `/dev/userfaultfd`; and a driver may be told of memory that its
/// device is to write to.
unsafe fn ioctl(args: &Arguments) -> Result<usize> {
	const USERFAULTFD_IOC_NEW: u32 = 0xaa00; // _IO(0xAA, 0)
	// The kernel looks at the lower half of the request.
	if args[1] as u32 == USERFAULTFD_IOC_NEW {
		advise::before_userfaultfd()?;
	} else if STATE.holds_sealed() && kernel_writers::is_device_to_mind(args[0] as i32) {
		advise::before_later_writes()?;
	}
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::ioctl, *args) }
}

/// `io_setup(2)`: what the kernel writes later, it writes to the pages that are there when a call is submitted.
unsafe fn io_setup(args: &Arguments) -> Result<usize> {
	advise::before_later_writes()?;
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::io_setup, *args) }
}

/// `io_uring_setup(2)`: the same; it also discards memory by calls that nobody sees (`IORING_OP_MADVISE`).
unsafe fn io_uring_setup(&[entries, params, ..]: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { rings::setup(entries, params) }
}

unsafe fn io_uring_register(&[fd, opcode, arg, count, ..]: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { rings::register(fd, opcode, arg, count) }
}

/// `prctl(2)`: a filter might end the program for what the engine does.
unsafe fn prctl(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { sandbox::prctl(*args) }
}

/// `seccomp(2)`: the same.
unsafe fn seccomp(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { sandbox::seccomp(*args) }
}

/// `vmsplice(2)`: pages in a pipe must be the memory that the program goes on writing to.
unsafe fn vmsplice(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { pipes::vmsplice(*args) }
}

/// `mmap(2)`: a file mapped to be executed may make calls that nobody sees. The loader maps objects this way.
unsafe fn mmap(args: &Arguments) -> Result<usize> {
	let [_, len, prot, flags, fd, offset] = *args;
	if executable(prot) && flags as u32 & k::MAP_ANONYMOUS == 0 {
		code::guard::before_mapping(fd as i32, Range::pages_of(offset, len))?;
	}
	// SAFETY: the program's own call.
	let mapped = unsafe { sys::call(Sysno::mmap, *args) };
	// It may lie where other memory was.
	if flags as u32 & (k::MAP_LOCKED | k::MAP_GROWSDOWN) != 0 {
		STATE.properties_change();
	} else if let Ok(at) = mapped {
		VETTED.forget(Range::pages_of(at, len));
	}
	mapped
}

/// `mprotect(2)`: the same for memory that becomes executable.
unsafe fn mprotect(args: &Arguments) -> Result<usize> {
	let [addr, len, prot, ..] = *args;
	if executable(prot) {
		code::guard::before_executable(Range::pages_of(addr, len))?;
	}
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::mprotect, *args) }
}

/// `rseq(2)`: what the kernel writes whenever it lets a thread run is never taken away.
unsafe fn rseq(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { restartable::rseq(*args) }
}

/// `execve(2)`: the new program doesn't inherit what a seal has changed.
unsafe fn execve(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { exec::exec(Sysno::execve, *args) }
}

/// `execveat(2)`: the same.
unsafe fn execveat(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { exec::exec(Sysno::execveat, *args) }
}

/// `shmat(2)`: what others may write can't be looked through.
unsafe fn shmat(args: &Arguments) -> Result<usize> {
	const SHM_EXEC: usize = 0o100_000;
	if args[2] & SHM_EXEC != 0 || executable(k::PROT_READ as usize) {
		anonymous::for_good()?;
	}
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::shmat, *args) }
}

/// `remap_file_pages(2)`: it is only to be seen.
unsafe fn remap_file_pages(args: &Arguments) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::remap_file_pages, *args) }
}

/// Whether memory with this protection can be executed; asked of the kernel where that makes a difference.
fn executable(prot: usize) -> bool {
	prot as u32 & k::PROT_EXEC != 0
		|| prot as u32 & k::PROT_READ != 0 && STATE.holds_sealed() && sys::reading_implies_executing()
}

/// `socket(2)`: with some kinds memory is registered, which the kernel or a peer writes later.
unsafe fn socket(args: &Arguments) -> Result<usize> {
	if kernel_writers::is_family_to_mind(args[0] as i32) {
		advise::before_later_writes()?;
	}
	// SAFETY: the program's own call.
	unsafe { sys::call(Sysno::socket, *args) }
}

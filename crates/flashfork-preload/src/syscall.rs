//! libc's `syscall()`: forks made by number, as the policy must see them, and what must be known before the first seal.
//! From then on libc's own leads to the engine for what means something on sealed memory ([`flashfork_core::calls`]).
//!
//! Naked, so that every other call leaves the stack exactly as libc's own would: a `vfork` or `clone` made this way
//! returns twice through the same frame.

use crate::sandbox;
use core::{
	ffi::{c_long, c_void},
	sync::atomic::{AtomicPtr, Ordering::Relaxed},
};
use flashfork_core::{
	Errno,
	answers::{pipes, rings},
	restartable, system_call,
};
use syscalls::Sysno;

/// libc's own; until it is known the call itself.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(call as *const () as *mut c_void);

/// Looked up when the shim is loaded: nothing may ask the loader later.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
	// SAFETY: a lookup in the objects loaded after this one.
	let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
	if !found.is_null() {
		REAL.store(found, Relaxed);
	}
}

/// `syscall(2)`.
///
/// # Safety
/// As the call named by the number.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() -> c_long {
	core::arch::naked_asm!(
		"cmp rdi, {fork}",
		"je 2f",
		"cmp rdi, {prctl}",
		"je 2f",
		"cmp rdi, {seccomp}",
		"je 2f",
		"cmp rdi, {vmsplice}",
		"je 2f",
		"cmp rdi, {io_uring_setup}",
		"je 2f",
		"cmp rdi, {io_uring_register}",
		"je 2f",
		"cmp rdi, {rseq}",
		"je 2f",
		"cmp rdi, {warm}",
		"je 2f",
		"jmp qword ptr [rip + {real}]",
		"2: jmp {ours}",
		fork = const Sysno::fork as i32,
		prctl = const Sysno::prctl as i32,
		seccomp = const Sysno::seccomp as i32,
		vmsplice = const Sysno::vmsplice as i32,
		io_uring_setup = const Sysno::io_uring_setup as i32,
		io_uring_register = const Sysno::io_uring_register as i32,
		rseq = const Sysno::rseq as i32,
		warm = const flashfork_warm::CALL,
		real = sym REAL,
		ours = sym ours,
	)
}

/// As in libc: shifts the arguments down one place, the seventh is on the stack.
#[unsafe(naked)]
unsafe extern "C" fn call() -> c_long {
	core::arch::naked_asm!(
		"mov rax, rdi",
		"mov rdi, rsi",
		"mov rsi, rdx",
		"mov rdx, rcx",
		"mov r10, r8",
		"mov r8, r9",
		"mov r9, [rsp + 8]",
		"syscall",
		"cmp rax, -4095",
		"jae 2f",
		"ret",
		"2: mov rdi, rax",
		"jmp {failed}",
		// For flashfork_core::code.
		".ascii \"flashfork's call\"",
		failed = sym failed,
	)
}

extern "C" fn failed(negative: c_long) -> c_long {
	crate::answer::<()>(Err(Errno::new(-negative as i32)), |()| 0) as c_long
}

/// The calls that mean something to the shim.
unsafe extern "C" fn ours(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_long {
	// SAFETY: the program's own calls with its own arguments.
	unsafe {
		if n == c_long::from(flashfork_warm::CALL) {
			return crate::answer(crate::warm::call([a, b, c, d, e]), |n| n) as c_long;
		}
		match Sysno::new(n as usize) {
			Some(Sysno::prctl) => c_long::from(sandbox::prctl_by_number([a, b, c, d, e, 0])),
			Some(Sysno::vmsplice) => crate::answer(pipes::vmsplice([a, b, c, d, 0, 0]), |n| n as isize) as c_long,
			Some(Sysno::io_uring_setup) if crate::warm::has_no_rings() => {
				failed(-c_long::from(Errno::ENOSYS.into_raw()))
			}
			Some(Sysno::io_uring_setup) => crate::answer(rings::setup(a, b), |ring| ring as isize) as c_long,
			Some(Sysno::io_uring_register) => crate::answer(rings::register(a, b, c, d), |n| n as isize) as c_long,
			Some(Sysno::rseq) => crate::answer(restartable::rseq([a, b, c, d, 0, 0]), |n| n as isize) as c_long,
			Some(Sysno::seccomp) => sandbox::seccomp(a, b, c) as c_long,
			Some(Sysno::fork) => c_long::from(flashfork_core::fork::fork(
				|| crate::answer(system_call(Sysno::fork, [0; 6]), |pid| pid as isize) as i32,
				crate::clock,
			)),
			_ => failed(-c_long::from(Errno::ENOSYS.into_raw())),
		}
	}
}

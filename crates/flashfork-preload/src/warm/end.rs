//! The end of a clone is told before its memory is taken apart.

use super::{
	mapped,
	process::{block_signals, threads},
	template::ORDER,
};
use crate::next::{Next, known_when_loaded};
use core::{
	ffi::{CStr, c_int, c_void},
	mem::MaybeUninit,
	sync::atomic::{AtomicI32, Ordering::Relaxed},
};
use flashfork_core::inherited::own_parent;
use syscalls::Sysno;

/// The signal by which a clone tells its template with what exit status it ends.
pub fn signal() -> c_int {
	libc::SIGRTMIN()
}

/// This clone, and the template that waits for it; 0 in any other process. Apart from what else a clone knows of
/// itself, because a process may end anywhere.
static CLONE: AtomicI32 = AtomicI32::new(0);
static TEMPLATE: AtomicI32 = AtomicI32::new(0);

/// This process has a template that waits for its end.
pub fn note(template: c_int) {
	// SAFETY: asks for a number.
	CLONE.store(unsafe { libc::getpid() }, Relaxed);
	TEMPLATE.store(template, Relaxed);
}

/// Whether this process is a clone, and that its template.
pub fn is_template_of_this(process: c_int) -> bool {
	let clone = CLONE.load(Relaxed);
	// SAFETY: asks for a number.
	clone != 0 && process == TEMPLATE.load(Relaxed) && clone == unsafe { libc::getpid() }
}

known_when_loaded!(EXIT: c"_exit");

/// `_exit(2)`. In a clone the status is told first. Programs end themselves by it that want nothing done at their end,
/// in Python by `os._exit`; the C library's own `exit` doesn't come here.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
	// Not in a process that the clone has forked.
	// SAFETY: asks for a number.
	if CLONE.load(Relaxed) != 0 && CLONE.load(Relaxed) == unsafe { libc::getpid() } {
		tell(status & 0xff);
	}
	let real = EXIT.known();
	if !real.is_null() {
		// SAFETY: the C library's function of this name, or one in its place, has this type.
		unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(real)(status) };
	}
	loop {
		// SAFETY: ends the process.
		let _ = unsafe { flashfork_core::system_call(Sysno::exit_group, [status as usize, 0, 0, 0, 0, 0]) };
	}
}

/// The same by its name in C.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
	_exit(status)
}

/// Tells how this clone ends, when all that is left of it is memory of its own: to take that apart may last longer than
/// all that the program did. Descriptors are closed first, so that nobody finds a lock or a pipe still held. The
/// process must end next. Where it can't be told, the end itself tells.
///
/// A handler of signals may come here, too, on whatever stack: little is needed of it.
#[inline(never)]
fn tell(status: c_int) {
	// SAFETY: plain calls on this process, which only ends after this; it has no other thread that would miss a
	// descriptor. All zeros are a value of the set.
	unsafe {
		let template = TEMPLATE.load(Relaxed);
		// A sandbox need not allow what is called here.
		if crate::sandbox::entered() || on_alternate_stack() || template != own_parent() || threads() != 1 {
			return;
		}
		// What has been told must come true, so nothing of the program's runs any more.
		block_signals();
		// What the kernel does at the very end is seen by whoever looks at a file that is mapped, and by children.
		if has_children() || !mapped::no_others() {
			return;
		}
		// So is what semaphores of System V get back then (`SEM_UNDO`): this gives it back now. Where a container
		// forbids that nothing is told.
		if libc::unshare(libc::CLONE_FS | libc::CLONE_SYSVSEM) != 0 {
			return;
		}
		// Nor should a directory be in use any more.
		libc::chdir(c"/".as_ptr());
		// Those of another process that uses this one's table stay.
		if libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) == 0 {
			let value = libc::sigval { sival_ptr: ((status << 8) as usize) as *mut c_void };
			libc::sigqueue(template, signal(), value);
			// On one processor the others come first, too: a millisecond is more than they need to hear of it and end.
			libc::usleep(1000);
		}
	}
}

/// Of a handler of signals, which may be too small for what is called here.
fn on_alternate_stack() -> bool {
	// SAFETY: writes to a local, of which all zeros are a value.
	unsafe {
		let mut stack = MaybeUninit::<libc::stack_t>::zeroed().assume_init();
		libc::sigaltstack(core::ptr::null(), &raw mut stack) != 0 || stack.ss_flags & libc::SS_ONSTACK != 0
	}
}

/// Whether there are any, ended ones included.
fn has_children() -> bool {
	// SAFETY: the structure is a local of which all zeros are a value; nothing is taken from who asks for it later.
	unsafe {
		let mut info = MaybeUninit::<libc::siginfo_t>::zeroed().assume_init();
		let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
		libc::waitid(libc::P_ALL, 0, &raw mut info, how) == 0 || *libc::__errno_location() != libc::ECHILD
	}
}

/// Which process has told, and its status as of `wait(2)`; none for a signal of another kind.
pub fn told(info: &libc::signalfd_siginfo) -> Option<(i32, c_int)> {
	let ours = info.ssi_signo == signal() as u32 && info.ssi_code == libc::SI_QUEUE;
	ours.then_some((info.ssi_pid as i32, info.ssi_int))
}

static REGISTER: Next = Next::new(c"__cxa_atexit");

/// What `atexit` is made of. While a program is warmed, OpenSSL's handler is left out, as programs may ask it to
/// (`OPENSSL_INIT_NO_ATEXIT`): it frees what the end of the process frees, and goes through memory for longer than a
/// whole Python script may last.
///
/// # Safety
/// As the C library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(handler: *mut c_void, argument: *mut c_void, object: *mut c_void) -> c_int {
	type Register = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
	// SAFETY: the order is only looked at; the C library's function of this name has this type.
	unsafe {
		if ORDER.get().is_some() && is_openssls(handler) {
			return 0;
		}
		let real = REGISTER.find();
		if real.is_null() {
			libc::abort();
		}
		core::mem::transmute::<*mut c_void, Register>(real)(handler, argument, object)
	}
}

fn is_openssls(handler: *mut c_void) -> bool {
	// SAFETY: all zeros are a value of this plain C structure; names end with a NUL.
	unsafe {
		let mut found: libc::Dl_info = MaybeUninit::zeroed().assume_init();
		libc::dladdr(handler, &raw mut found) != 0
			&& found.dli_saddr == handler
			&& !found.dli_sname.is_null()
			&& CStr::from_ptr(found.dli_sname) == c"OPENSSL_cleanup"
	}
}

//! The end of a clone is told before its memory is taken apart.

use super::mapped;
use super::process::threads;
use super::template::{CLONE, ORDER};
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The signal by which a clone tells its template with what exit status it ends.
pub fn signal() -> c_int {
    libc::SIGRTMIN()
}

/// Tells it, when all that is left of this clone is memory of its own: to take that apart may last longer than all that
/// the program did. Descriptors are closed first, so that nobody finds a lock or a pipe still held. To be called last.
/// Where it can't be told, the end itself tells.
pub fn tell(status: c_int) {
    // SAFETY: plain calls on this process, which only ends after this; it has no other thread that would miss a
    // descriptor.
    unsafe {
        let Some(given) = CLONE.get() else { return };
        // Not in a process that the clone has forked.
        if given.pid != libc::getpid() || given.template != libc::getppid() || threads() != 1 {
            return;
        }
        // What the kernel does at the very end is seen by whoever looks at a file that is mapped, and by children.
        if has_children() || !mapped::no_others() {
            return;
        }
        // Nor should a directory be in use any more.
        libc::chdir(c"/".as_ptr());
        if libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) == 0 {
            let value = libc::sigval { sival_ptr: ((status << 8) as usize) as *mut c_void };
            libc::sigqueue(given.template, signal(), value);
            // On one processor the others come first, too: a millisecond is more than they need to hear of it and end.
            libc::usleep(1000);
        }
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

static REGISTER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

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
        let mut real = REGISTER.load(Relaxed);
        if real.is_null() {
            real = libc::dlsym(libc::RTLD_NEXT, c"__cxa_atexit".as_ptr());
            if real.is_null() {
                libc::abort();
            }
            REGISTER.store(real, Relaxed);
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

//! What `flashfork warm` tells the shim, in the variable [`WARM`].

use super::message::close_all;
use super::template::{ORDER, Order};
use core::ffi::{CStr, c_int, c_void};
use flashfork_core::environment::WARM;
use flashfork_warm::{LONGEST_NAME, ReadyAt};

/// Run by the loader before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    // SAFETY: nothing else runs yet; the value is copied before it is unset.
    unsafe {
        let value = libc::getenv(WARM.name.as_ptr());
        if value.is_null() {
            return;
        }
        if super::threads::begin(CStr::from_ptr(value)) {
            libc::unsetenv(WARM.name.as_ptr());
            return;
        }
        let order = parse(CStr::from_ptr(value));
        // Programs that this one starts are its own affair.
        libc::unsetenv(WARM.name.as_ptr());
        let Some((order, starter)) = order else { return };
        // A library that was loaded before this one may have started a program: it has the variable, too.
        if libc::getppid() != starter {
            return;
        }
        for fd in order.passed() {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        super::inherited::note();
        super::streams::note();
        if order.renews {
            super::variables::note_all();
        }
        *ORDER.get() = Some(order);
        // A child that the C library forks for itself runs it, too.
        after_forks_in_child(forget);
    }
}

/// What `pthread_atfork(3)` takes.
type Handler = unsafe extern "C" fn();

/// `pthread_atfork(3)`. Looked up, for glibc has a part of it in each object that calls it, and that part needs what
/// musl lacks.
fn after_forks_in_child(handler: Handler) {
    type Register = unsafe extern "C" fn(Option<Handler>, Option<Handler>, Option<Handler>, *const c_void) -> c_int;
    for name in [c"__register_atfork", c"pthread_atfork"] {
        // SAFETY: looks through what is loaded. glibc's function takes the object whose end takes the handler away,
        // here none; musl's takes no fourth argument and so doesn't look at it.
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
            if !found.is_null() {
                core::mem::transmute::<*mut c_void, Register>(found)(None, None, Some(handler), core::ptr::null());
                return;
            }
        }
    }
}

/// In a child of the warm-up: it is no template, and where callers come it must not keep open.
unsafe extern "C" fn forget() {
    // SAFETY: the child's one thread; the descriptors are the order's own.
    unsafe {
        if let Some(order) = ORDER.get().take() {
            close_all(&order.passed());
        }
    }
}

/// And the process that wrote it; `None` for what `flashfork warm` would not write.
fn parse(value: &CStr) -> Option<(Order, c_int)> {
    let mut fields = value.to_bytes().splitn(10, |b| *b == b',');
    let mut number = || -> Option<u64> {
        let digits = fields.next()?;
        digits.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b.checked_sub(b'0')?)))
    };
    let (control, listener, directory, recipe) = (number()?, number()?, number()?, number()?);
    let (at, max, renews, starter) = (number()?, number()?, number()?, number()?);
    let text = fields.next()?;
    let mut name = [0; LONGEST_NAME + 1];
    name.get_mut(..text.len().min(LONGEST_NAME))?.copy_from_slice(text.get(..text.len().min(LONGEST_NAME))?);
    let mut program = [0; _];
    if let Some(word) = fields.next()
        && let Some(place) = program.get_mut(..word.len())
    {
        place.copy_from_slice(word);
    }
    let order = Order {
        // SAFETY: asks for a number.
        pid: unsafe { libc::getpid() },
        control: c_int::try_from(control).ok()?,
        listener: c_int::try_from(listener).ok()?,
        directory: c_int::try_from(directory).ok()?,
        recipe: c_int::try_from(recipe).ok()?,
        at: ReadyAt::new(at),
        max,
        renews: renews != 0,
        name,
        program,
    };
    Some((order, c_int::try_from(starter).ok()?))
}

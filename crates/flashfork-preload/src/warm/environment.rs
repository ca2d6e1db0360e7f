//! What `flashfork warm` tells the shim, in the variable [`WARM`].

use super::{
	environ, follow,
	message::close_all,
	template::{LONGEST_WAY, ORDER, Order},
};
use crate::environment::variable;
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
		let Some(value) = variable(WARM.name) else { return };
		if super::threads::begin(value) {
			forget_variable();
			return;
		}
		let order = parse(value);
		// Programs that this one starts are its own affair.
		forget_variable();
		let Some(mut order) = order else { return };
		// A library loaded before this one may have started a program: it has the variable, too.
		if libc::getppid() != order.starter {
			return;
		}
		for fd in order.passed() {
			libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
		}
		super::inherited::note();
		super::streams::note();
		super::recipe::note(&order);
		follow::begin(&mut order);
		*ORDER.get() = Some(order);
		// A child that the C library forks for itself runs it, too.
		after_forks_in_child(forget);
	}
}

/// Takes the variable from the environment. Not by `unsetenv`, which may be the program's own (bash has one) and not be
/// ready yet.
unsafe fn forget_variable() {
	let name = WARM.name.to_bytes();
	// SAFETY: the environment is not changed while the loader runs; a null ends it, and each of its strings.
	unsafe {
		let (mut from, mut to) = (environ, environ);
		while !from.is_null() && !(*from).is_null() {
			let rest = CStr::from_ptr(*from).to_bytes().strip_prefix(name);
			if rest.is_none_or(|rest| rest.first() != Some(&b'=')) {
				*to = *from;
				to = to.add(1);
			}
			from = from.add(1);
		}
		if !to.is_null() {
			*to = core::ptr::null_mut();
		}
	}
}

/// What `pthread_atfork(3)` takes.
type Handler = unsafe extern "C" fn();

/// `pthread_atfork(3)`. Looked up, for glibc has part of it in each object that calls it, and that part needs what musl
/// lacks.
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

/// `None` for what `flashfork warm` would not write.
fn parse(value: &CStr) -> Option<Order> {
	let value = value.to_bytes();
	let (value, way) = value.split_at(value.iter().position(|b| *b == b'\n').unwrap_or(value.len()));
	let mut fields = value.splitn(10, |b| *b == b',');
	let mut number = || -> Option<u64> {
		let digits = fields.next()?;
		digits.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b.checked_sub(b'0')?)))
	};
	let (control, listener, directory, recipe) = (number()?, number()?, number()?, number()?);
	let (at, max, renews, follows, starter) = (number()?, number()?, number()?, number()?, number()?);
	let starter = c_int::try_from(starter).ok()?;
	let text = fields.next()?;
	let mut name = [0; LONGEST_NAME + 1];
	name.get_mut(..text.len().min(LONGEST_NAME))?.copy_from_slice(text.get(..text.len().min(LONGEST_NAME))?);
	let mut wrappers = [0; LONGEST_WAY];
	wrappers.get_mut(..way.len())?.copy_from_slice(way);
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
		follows: follows != 0,
		starter,
		wrappers,
	};
	Some(order)
}

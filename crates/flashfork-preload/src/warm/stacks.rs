//! The stacks of new threads: glibc takes their size from the limit, once, where a program starts.

use core::{
	ffi::{c_int, c_void},
	mem::{MaybeUninit, transmute},
};

type Access = unsafe extern "C" fn(*mut libc::pthread_attr_t) -> c_int;
type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;

const PAGE: u64 = 4096;
/// Where there is no limit.
const UNLIMITED: u64 = 2 << 20;

pub fn limit() -> u64 {
	let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
	// SAFETY: the structure is a local.
	unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
	limit.rlim_cur
}

/// In a clone, of whose template this was the limit. A size that the program has set stays.
pub fn follow(template: u64) {
	let own = limit();
	if own == template {
		return;
	}
	let names = [c"pthread_getattr_default_np", c"pthread_setattr_default_np", c"__pthread_get_minstack"];
	// SAFETY: glibc's functions have these types; musl, where the limit means nothing to threads, has not the last one.
	unsafe {
		let found = names.map(|name| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()));
		if found.iter().any(|function| function.is_null()) {
			return;
		}
		let [get, set] = [found[0], found[1]].map(|access| transmute::<*mut c_void, Access>(access));
		let least = transmute::<*mut c_void, Least>(found[2]);
		let mut now = MaybeUninit::zeroed().assume_init();
		if get(&raw mut now) != 0 {
			return;
		}
		let least = least(&raw const now).max(libc::PTHREAD_STACK_MIN) as u64;
		let of = |limit| if limit == libc::RLIM_INFINITY { UNLIMITED } else { limit };
		let of = |limit| of(limit).max(least).checked_next_multiple_of(PAGE);
		let mut size = 0;
		libc::pthread_attr_getstacksize(&raw const now, &raw mut size);
		if of(template) == Some(size as u64)
			&& let Some(size) = of(own)
		{
			libc::pthread_attr_setstacksize(&raw mut now, size as usize);
			set(&raw mut now);
		}
		libc::pthread_attr_destroy(&raw mut now);
	}
}

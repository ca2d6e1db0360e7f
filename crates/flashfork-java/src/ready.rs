//! The native method of `flashfork.Flashfork`.

use crate::java::Java;
use jni_sys::{JNIEnv, jclass, jobject};
use std::{
	ffi::{CStr, c_char, c_int, c_void},
	ptr::null_mut,
};

type Ready = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;

/// `byte[][] flashfork.Flashfork.waitForCaller()`: says that the program is ready. Returns in each clone, with the
/// arguments of its caller; null, at once, where there is nothing to wait for.
///
/// # Safety
/// As a native method is called.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_flashfork_Flashfork_waitForCaller(env: *mut JNIEnv, _: jclass) -> jobject {
	// SAFETY: a lookup in what is loaded.
	let ready = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"flashfork_preload_ready".as_ptr()) };
	let (mut count, mut none) = (0, null_mut());
	let mut table = &raw mut none;
	// SAFETY: the shim's function, which has this type; a table of no strings, as main's are.
	let is_clone = !ready.is_null()
		&& unsafe { std::mem::transmute::<*mut c_void, Ready>(ready)(&raw mut count, &raw mut table) } == 1;
	if !is_clone {
		return null_mut();
	}
	// SAFETY: the calling thread's; the table has so many strings, which are never freed.
	let (java, arguments) = unsafe {
		let strings = (0..count as usize).map(|i| CStr::from_ptr(*table.add(i)).to_bytes());
		(Java::of(env), strings.collect::<Vec<_>>())
	};
	let all = java.class(c"[B").and_then(|class| java.objects(class, arguments.len())).and_then(|all| {
		for (index, argument) in arguments.iter().enumerate() {
			let bytes = java.bytes(argument)?;
			java.set_element(all, index, bytes)?;
			java.forget(bytes);
		}
		Ok(all)
	});
	all.unwrap_or_else(|why_not| {
		eprintln!("flashfork: the clone is ended: it can't be given its arguments: {why_not}");
		std::process::exit(1)
	})
}

//! Node in templates with threads. The shim is an addon, too: `flashfork.js`, which Node is told to load before the
//! program's own code (`NODE_OPTIONS`), gets from it a word that changes in clones, what clones must have anew, and the
//! ready point.
//!
//! Functions of Node-API are as node_api.h has them.

use super::{
	api::api,
	template::CLONE,
	threads::{self, IN_CLONE},
};
use crate::environment::variable;
use core::{
	ffi::{CStr, c_char, c_int, c_void},
	mem::MaybeUninit,
	ptr::null_mut,
	sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use flashfork_warm::ReadyAt;

/// `napi_env`, `napi_value` and `napi_callback_info`; handles that live as long as the call.
type Env = *mut c_void;
type Value = *mut c_void;
type Info = *mut c_void;
type Callback = unsafe extern "C" fn(Env, Info) -> Value;

/// `NAPI_AUTO_LENGTH`: the string ends with a NUL.
const WHOLE: usize = usize::MAX;

/// `napi_float64_array`.
const FLOAT64: c_int = 8;

// All give a `napi_status`, 0 if all went well.
api! {
	napi_create_array: fn(Env, *mut Value) -> c_int;
	napi_create_external_arraybuffer: fn(Env, *mut c_void, usize, *mut c_void, *mut c_void, *mut Value) -> c_int;
	napi_create_function: fn(Env, *const c_char, usize, Callback, *mut c_void, *mut Value) -> c_int;
	napi_create_int32: fn(Env, i32, *mut Value) -> c_int;
	napi_create_string_utf8: fn(Env, *const c_char, usize, *mut Value) -> c_int;
	napi_get_cb_info: fn(Env, Info, *mut usize, *mut Value, *mut Value, *mut *mut c_void) -> c_int;
	napi_get_typedarray_info: fn(Env, Value, *mut c_int, *mut usize, *mut *mut c_void, *mut Value, *mut usize) -> c_int;
	napi_set_element: fn(Env, Value, u32, Value) -> c_int;
	napi_set_named_property: fn(Env, Value, *const c_char, Value) -> c_int;
}

/// Name of the script, which lies beside the shim.
const SCRIPT: &[u8] = b"flashfork.js";

/// Whether this is Node in a template with threads, or in a clone of one.
static IS_HERE: AtomicBool = AtomicBool::new(false);

/// Whether the program finds that the kernel has no io_uring: newer versions of Node's event loop have a ring from the
/// start on, by which they say to an epoll set what they do by a call each where there is none. Clones could not have
/// it, and nobody sees the difference.
pub fn has_no_rings() -> bool {
	IS_HERE.load(Relaxed)
}

/// Has Node load the script, in a program that becomes a template with threads. The script takes it out of the
/// environment again.
///
/// # Safety
/// Before the program's own code runs, in its one thread.
pub unsafe fn prepare() {
	const OPTIONS: &CStr = c"NODE_OPTIONS";
	const REQUIRE: &[u8] = b"--require=";
	if Api::find().is_none() {
		return;
	}
	IS_HERE.store(true, Relaxed);
	let mut text = [0u8; 4 * libc::PATH_MAX as usize];
	let mut len = 0;
	let mut push = |bytes: &[u8]| match text.get_mut(len..len + bytes.len()) {
		Some(place) => {
			place.copy_from_slice(bytes);
			len += bytes.len();
			true
		}
		None => false,
	};
	// SAFETY: the structure is a local; what is found has a name while the shim is loaded.
	let all = unsafe {
		let mut about = MaybeUninit::<libc::Dl_info>::zeroed().assume_init();
		if libc::dladdr(prepare as *const c_void, &raw mut about) == 0 {
			return;
		}
		let shim = CStr::from_ptr(about.dli_fname).to_bytes();
		let directory = shim.len() - shim.rsplit(|b| *b == b'/').next().unwrap_or_default().len();
		let before = variable(OPTIONS).map_or(&b""[..], CStr::to_bytes);
		push(REQUIRE)
			&& push(&shim[..directory])
			&& push(SCRIPT)
			&& (before.is_empty() || push(b" ") && push(before))
			&& push(&[0])
	};
	if all {
		// SAFETY: strings with their NUL; one thread.
		unsafe { libc::setenv(OPTIONS.as_ptr(), text.as_ptr().cast(), 1) };
	}
}

/// What Node calls for an addon (node_api.h), once for each of its threads.
///
/// # Safety
/// Node's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn napi_register_module_v1(env: Env, exports: Value) -> Value {
	let Some(api) = Api::find() else { return exports };
	let functions: [(&CStr, Callback); 4] = [(c"at", at), (c"fill", fill), (c"pid", pid), (c"ready", ready)];
	// SAFETY: the functions as documented; the word is a static, which is never freed.
	unsafe {
		let mut value = null_mut();
		for (name, function) in functions {
			let (name, none) = (name.as_ptr(), null_mut());
			if (api.napi_create_function)(env, name, WHOLE, function, none, &raw mut value) == 0 {
				(api.napi_set_named_property)(env, exports, name, value);
			}
		}
		let (word, none) = (IN_CLONE.as_ptr().cast(), null_mut());
		if (api.napi_create_external_arraybuffer)(env, word, 4, none, none, &raw mut value) == 0 {
			(api.napi_set_named_property)(env, exports, c"word".as_ptr(), value);
		}
	}
	exports
}

/// Where the program is ready: 1 where it calls, 2 when what its command line names has run, 3 elsewhere; 0 in
/// programs that are no template with threads.
unsafe extern "C" fn at(env: Env, _: Info) -> Value {
	let at = match (threads::is_template(), threads::is_ready_at(Some(ReadyAt::Call)), threads::is_ready_at(None)) {
		(false, ..) => 0,
		(_, true, _) => 1,
		(_, _, true) => 2,
		_ => 3,
	};
	number(env, at)
}

/// The process's number.
unsafe extern "C" fn pid(env: Env, _: Info) -> Value {
	// SAFETY: asks for a number.
	number(env, unsafe { libc::getpid() })
}

fn number(env: Env, number: i32) -> Value {
	let mut value = null_mut();
	if let Some(api) = Api::find() {
		// SAFETY: the function as documented.
		unsafe { (api.napi_create_int32)(env, number, &raw mut value) };
	}
	value
}

/// Fills a `Float64Array` with numbers from 0 up to 1, by xorshift128+ with a seed of the kernel's, as V8 makes its own
/// (Vigna, "Further scramblings of Marsaglia's xorshift generators").
unsafe extern "C" fn fill(env: Env, info: Info) -> Value {
	let Some(api) = Api::find() else { return null_mut() };
	let (mut count, mut array) = (1, null_mut());
	let (mut kind, mut len, mut data) = (-1, 0, null_mut());
	let (mut state, none) = ([0u64; 2], null_mut::<c_void>());
	// SAFETY: the functions as documented; as many numbers are written as the array has.
	unsafe {
		(api.napi_get_cb_info)(env, info, &raw mut count, &raw mut array, none.cast(), none.cast());
		let (kind, len, data) = (&raw mut kind, &raw mut len, &raw mut data);
		(api.napi_get_typedarray_info)(env, array, kind, len, data, none.cast(), none.cast());
		while state == [0; 2] {
			if libc::getrandom(state.as_mut_ptr().cast(), size_of_val(&state), 0) != size_of_val(&state) as isize {
				libc::abort();
			}
		}
		if *kind == FLOAT64 {
			for place in core::slice::from_raw_parts_mut((*data).cast::<f64>(), *len) {
				*place = next(&mut state);
			}
		}
	}
	null_mut()
}

/// From 0 up to 1.
fn next(state: &mut [u64; 2]) -> f64 {
	const DIGITS: u32 = 53;
	let [mut a, b] = *state;
	a ^= a << 23;
	a ^= a >> 17;
	a ^= b ^ b >> 26;
	*state = [b, a];
	(a.wrapping_add(b) >> (64 - DIGITS)) as f64 / (1u64 << DIGITS) as f64
}

/// The program is ready. In each clone this returns its arguments; at once, with nothing, where there is nothing to
/// wait for.
unsafe extern "C" fn ready(env: Env, _: Info) -> Value {
	let Some(api) = Api::find() else { return null_mut() };
	if !threads::wait() {
		return null_mut();
	}
	// SAFETY: written before any thread of the clone ran; the functions as documented.
	unsafe {
		let Some(given) = CLONE.get() else { return null_mut() };
		// Node ignores two signals, whatever its caller ignores (`ResetSignalHandlers` of its src/node.cc).
		let kept = [libc::SIGPIPE, libc::SIGXFSZ];
		for signal in (1..32).filter(|signal| given.ignored >> (signal - 1) & 1 == 1 && !kept.contains(signal)) {
			let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
			libc::sigaction(signal, core::ptr::null(), &raw mut action);
			if action.sa_sigaction == libc::SIG_IGN {
				libc::signal(signal, libc::SIG_DFL);
			}
		}
		let (mut all, mut word) = (null_mut(), null_mut());
		(api.napi_create_array)(env, &raw mut all);
		for (i, argument) in given.arguments.iter().enumerate() {
			if (api.napi_create_string_utf8)(env, *argument, WHOLE, &raw mut word) == 0 {
				(api.napi_set_element)(env, all, i as u32, word);
			}
		}
		all
	}
}

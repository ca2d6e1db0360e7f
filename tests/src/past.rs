//! Calls that don't pass the shim's symbols, as libraries and interpreters make them: through `dlsym` on libc's own
//! handle (`ctypes.CDLL("libc.so.6")`), from an object whose symbols are bound to libc first (`RTLD_DEEPBIND`), and by
//! system call instructions of an object's own.

use crate::{Result, route::Via};
use libc::{c_int, c_uint, c_void, size_t};
use std::{
	ffi::{CStr, CString},
	os::unix::ffi::OsStrExt,
	path::Path,
	process::Command,
	sync::OnceLock,
};

/// The calls of one way.
pub struct Calls {
	/// `madvise(2)`.
	pub madvise: unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int,
	/// `mremap(2)`.
	pub mremap: unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void,
	/// `mlock(2)`.
	pub mlock: unsafe extern "C" fn(*const c_void, size_t) -> c_int,
	/// `mlock2(2)`.
	pub mlock2: unsafe extern "C" fn(*const c_void, size_t, c_uint) -> c_int,
	/// `realloc(3)` of libc, where the way goes there.
	pub realloc: Option<unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void>,
}

static HANDLE: OnceLock<Calls> = OnceLock::new();
static BOUND: OnceLock<Calls> = OnceLock::new();
static RAW: OnceLock<Calls> = OnceLock::new();

/// The calls made this way, if it has been loaded.
pub fn calls(via: Via) -> Option<&'static Calls> {
	match via {
		Via::Handle => HANDLE.get(),
		Via::Bound => BOUND.get(),
		Via::Raw => RAW.get(),
		Via::Function | Via::Number | Via::Process => None,
	}
}

/// Compiles the objects into a directory.
pub fn build(dir: &Path) -> Result {
	let objects = [("bound", include_str!("past/bound.c")), ("raw", include_str!("past/raw.c"))];
	for (name, source) in objects {
		let file = dir.join(format!("{name}.c"));
		std::fs::write(&file, source).map_err(|e| format!("{}: {e}", file.display()))?;
		let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
		compile
			.args(["-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o"])
			.arg(dir.join(format!("{name}.so")))
			.arg(file);
		let output = compile.output().map_err(|e| format!("the C compiler doesn't run: {e}"))?;
		if !output.status.success() {
			return Err(format!("the C compiler says:\n{}", String::from_utf8_lossy(&output.stderr)));
		}
	}
	Ok(())
}

/// Loads what a way needs; the objects lie in `dir`.
pub fn load(via: Via, dir: &Path) -> Result {
	let (place, object, flags) = match via {
		Via::Handle => (&HANDLE, Path::new("libc.so.6").to_path_buf(), libc::RTLD_NOW | libc::RTLD_NOLOAD),
		Via::Bound => (&BOUND, dir.join("bound.so"), libc::RTLD_NOW | libc::RTLD_DEEPBIND),
		Via::Raw => (&RAW, dir.join("raw.so"), libc::RTLD_NOW),
		Via::Function | Via::Number | Via::Process => return Ok(()),
	};
	let prefix = if via == Via::Handle { "" } else { "past_" };
	let path = CString::new(object.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
	// SAFETY: loads libc, which is there, or an object of `build`, which has nothing that runs when it is loaded.
	let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
	if handle.is_null() {
		// SAFETY: an error was just met, so there is a message.
		let message = unsafe { CStr::from_ptr(libc::dlerror()) };
		return Err(message.to_string_lossy().into_owned());
	}
	let symbol = |name: &str| {
		let name = CString::new(format!("{prefix}{name}")).map_err(|e| e.to_string())?;
		// SAFETY: a lookup by name.
		let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
		if at.is_null() { Err(format!("{}: no {name:?}", object.display())) } else { Ok(at) }
	};
	// SAFETY: libc's functions and those of `past/` have these types.
	let calls = unsafe {
		Calls {
			madvise: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int>(
				symbol("madvise")?,
			),
			mremap: std::mem::transmute::<
				*mut c_void,
				unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void,
			>(symbol("mremap")?),
			mlock: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void, size_t) -> c_int>(symbol(
				"mlock",
			)?),
			mlock2: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void, size_t, c_uint) -> c_int>(
				symbol("mlock2")?,
			),
			realloc: if via == Via::Raw {
				None
			} else {
				Some(std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void>(
					symbol("realloc")?,
				))
			},
		}
	};
	// A second time is the same.
	let _ = place.set(calls);
	Ok(())
}

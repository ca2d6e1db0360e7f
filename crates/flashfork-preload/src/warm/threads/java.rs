//! Java virtual machines: what renews their generators of random numbers in clones is a library of its own
//! (`flashfork-java`), which lies beside the shim and is loaded when the program is about to be stopped.

use core::{
	ffi::{CStr, c_char, c_int, c_void},
	mem::MaybeUninit,
	ptr::{null, null_mut},
	sync::atomic::{AtomicPtr, Ordering::SeqCst},
};
use flashfork_core::forkall::{Fit, Unfit, What};
use flashfork_warm::ReadyAt;

/// The virtual machine, and what every `java` is linked to, which loads it.
const MACHINE: &CStr = c"libjvm.so";
const LAUNCHER: &CStr = c"libjli.so";

const LIBRARY: &[u8] = b"libflashfork_java.so\0";

/// Of the library. NULL, or what can't be renewed, in words that stay.
type Prepare = unsafe extern "C" fn(machine: *mut c_void, of_caller: c_int) -> *const c_char;
type Renew = unsafe extern "C" fn();

/// What renews; null: nothing has been prepared.
static RENEW: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Why nothing can be; null if something can, or need not.
static WHY_NOT: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Whether this program is a `java`, or is linked to its virtual machine.
pub fn is_here() -> bool {
	[MACHINE, LAUNCHER].iter().any(|library| !loaded(library).is_null())
}

/// A library that is loaded.
fn loaded(name: &CStr) -> *mut c_void {
	// SAFETY: a lookup; nothing is loaded.
	unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// In the program, before it is stopped: finds what must be renewed, and has no Java code run any more.
pub fn prepare() {
	let machine = loaded(MACHINE);
	if !machine.is_null() {
		// SAFETY: as `prepared` says.
		let why_not = unsafe { prepared(machine) };
		WHY_NOT.store(why_not.unwrap_or(null()).cast_mut(), SeqCst);
	}
}

/// `None`: it can be renewed.
unsafe fn prepared(machine: *mut c_void) -> Option<*const c_char> {
	let mut path = [0; libc::PATH_MAX as usize];
	let found = beside_the_shim(&mut path);
	// SAFETY: a path with its NUL; the library defines these symbols with these types.
	unsafe {
		let library = if found { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW) } else { null_mut() };
		if library.is_null() {
			return Some(c"libflashfork_java.so is not beside the shim; `make install` installs it".as_ptr());
		}
		let prepare = libc::dlsym(library, c"flashfork_java_prepare".as_ptr());
		let renew = libc::dlsym(library, c"flashfork_java_renew".as_ptr());
		if prepare.is_null() || renew.is_null() {
			return Some(c"libflashfork_java.so is of another version".as_ptr());
		}
		// Of other programs clones keep environment and directory. A function's directory is its caller's anyway.
		let of_caller = [ReadyAt::Call, ReadyAt::Runtime].into_iter().any(|at| super::is_ready_at(Some(at)));
		let why_not = core::mem::transmute::<*mut c_void, Prepare>(prepare)(machine, c_int::from(of_caller));
		if !why_not.is_null() {
			return Some(why_not);
		}
		RENEW.store(renew, SeqCst);
		None
	}
}

fn beside_the_shim(path: &mut [u8]) -> bool {
	// SAFETY: asks for the object of its own function, whose name stays; the structure is a local.
	let own = unsafe {
		let mut info = MaybeUninit::<libc::Dl_info>::zeroed().assume_init();
		if libc::dladdr(is_here as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
			return false;
		}
		CStr::from_ptr(info.dli_fname).to_bytes()
	};
	let directory = own.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
	let Some(place) = path.get_mut(..directory + LIBRARY.len()) else { return false };
	place[..directory].copy_from_slice(&own[..directory]);
	place[directory..].copy_from_slice(LIBRARY);
	true
}

/// What came of [`prepare`], for the maker.
pub fn outcome() -> Fit {
	let why_not = WHY_NOT.load(SeqCst);
	if why_not.is_null() {
		return Ok(());
	}
	// SAFETY: a string that stays.
	Err(Unfit::named(What::Java, 0, unsafe { CStr::from_ptr(why_not) }.to_bytes()))
}

/// Whether a virtual machine can be renewed in clones.
pub fn is_prepared() -> bool {
	!RENEW.load(SeqCst).is_null()
}

/// In a clone: renews it, and lets Java code run.
pub fn renew() {
	let renew = RENEW.load(SeqCst);
	if !renew.is_null() {
		// SAFETY: the library's function, which has this type.
		unsafe { core::mem::transmute::<*mut c_void, Renew>(renew)() }
	}
}

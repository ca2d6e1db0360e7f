//! How a tested process reaches the engine.
//!
//! The functions make the call they are named for, errors are its errno; seal, unseal, exclude and the like say what
//! went wrong in words.

use crate::{Result, own_code, past};
use flashfork_core::{
	Pages, Range,
	answers::{advise, mremap},
};
use libc::{c_int, c_void};
use std::str::FromStr;

/// Value or errno of a call.
pub type Outcome = Result<u64, i32>;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
	/// No engine: what plain anonymous memory does.
	Plain,
	/// An unmodified program under the shim: libc's functions, taken over by it.
	Shim,
	/// A program that calls the core itself.
	Linked,
	/// A process whose forks are on demand; nothing is sealed.
	Odf,
}

impl FromStr for Route {
	type Err = String;

	fn from_str(s: &str) -> Result<Route> {
		match s {
			"plain" => Ok(Route::Plain),
			"shim" => Ok(Route::Shim),
			"linked" => own_code::trust().map(|()| Route::Linked),
			"odf" => Ok(Route::Odf),
			_ => Err(format!("{s}: a route is plain, shim, linked or odf")),
		}
	}
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
	/// `madvise()`.
	Function,
	/// `syscall(SYS_madvise)`.
	Number,
	/// `process_madvise()` on the process itself; other calls as `Function`.
	Process,
	/// Through `dlsym` on libc's own handle ([`past`]).
	Handle,
	/// From an object bound to libc first.
	Bound,
	/// By an object's own system call instruction.
	Raw,
}

fn outcome(result: c_int) -> Outcome {
	if result < 0 { Err(errno()) } else { Ok(result as u64) }
}

/// The calling thread's errno.
pub fn errno() -> i32 {
	std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Route {
	/// `madvise(2)`; here and below `via` counts for programs that go through libc.
	pub fn madvise(self, addr: usize, len: usize, advice: c_int, via: Via) -> Outcome {
		if self == Route::Linked {
			// SAFETY: the addresses are those under test; nothing else lies there.
			return unsafe { advise::madvise(addr, len, advice as u32) }.map(|()| 0).map_err(|e| e.into_raw());
		}
		// SAFETY: as above.
		unsafe {
			if let Some(calls) = past::calls(via) {
				return outcome((calls.madvise)(addr as *mut c_void, len, advice));
			}
			match via {
				Via::Function | Via::Handle | Via::Bound | Via::Raw => {
					outcome(libc::madvise(addr as *mut c_void, len, advice))
				}
				Via::Number => outcome(libc::syscall(libc::SYS_madvise, addr, len, advice) as c_int),
				Via::Process => {
					let pidfd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
					let part = libc::iovec { iov_base: addr as *mut c_void, iov_len: len };
					let result = libc::syscall(libc::SYS_process_madvise, pidfd, &raw const part, 1, advice, 0);
					let error = errno();
					libc::close(pidfd as c_int);
					if result < 0 { Err(error) } else { Ok(result as u64) }
				}
			}
		}
	}

	/// `mremap(2)`; the value is the new address.
	pub fn mremap(self, from: usize, old: usize, new: usize, flags: c_int, to: usize, via: Via) -> Outcome {
		if self == Route::Linked {
			// SAFETY: the addresses are those under test.
			return unsafe { mremap::mremap(from, old, new, flags as usize, to) }
				.map(|at| at as u64)
				.map_err(|e| e.into_raw());
		}
		// SAFETY: as above.
		let at = unsafe {
			let (from, to) = (from as *mut c_void, to as *mut c_void);
			match (past::calls(via), via) {
				(Some(calls), _) => (calls.mremap)(from, old, new, flags, to),
				(None, Via::Number) => libc::syscall(libc::SYS_mremap, from, old, new, flags, to) as *mut c_void,
				(None, _) => libc::mremap(from, old, new, flags, to),
			}
		};
		if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at as u64) }
	}

	/// `mlock(2)`, or `mlock2(2)` with `MLOCK_ONFAULT`.
	pub fn mlock(self, addr: usize, len: usize, on_fault: bool, via: Via) -> Outcome {
		// SAFETY: locking changes no contents.
		outcome(unsafe {
			let (addr, flags) = (addr as *const c_void, libc::MLOCK_ONFAULT as libc::c_uint);
			match (past::calls(via), on_fault) {
				(Some(calls), true) => (calls.mlock2)(addr, len, flags),
				(Some(calls), false) => (calls.mlock)(addr, len),
				(None, true) if via == Via::Number => libc::syscall(libc::SYS_mlock2, addr, len, flags) as c_int,
				(None, true) => libc::mlock2(addr, len, flags),
				(None, false) => libc::mlock(addr, len),
			}
		})
	}

	/// Seals, on 4 KB pages only if `small` (the shim has no such choice).
	pub fn seal(self, small: bool) -> Result {
		match self {
			Route::Plain | Route::Odf => Ok(()),
			Route::Shim => control(c"flashfork_preload_seal"),
			Route::Linked => {
				let pages = if small { Pages::Small } else { Pages::Auto };
				flashfork_core::seal(pages).outcome.map(drop).map_err(|e| format!("seal: {e:?}"))
			}
		}
	}

	/// Unseals a range of addresses, or everything (the shim knows only that).
	pub fn unseal(self, range: Option<(usize, usize)>) -> Result {
		match (self, range) {
			(Route::Plain | Route::Odf, _) => Ok(()),
			(Route::Shim, _) => control(c"flashfork_preload_unseal"),
			(Route::Linked, range) => {
				let (start, end) = range.unwrap_or((0, usize::MAX));
				flashfork_core::unseal(Range::new(start, end)).map(drop).map_err(|e| format!("unseal: {e:?}"))
			}
		}
	}

	/// Drops what reads have put into page tables that forks copy.
	pub fn drop_refills(self) -> Result {
		match self {
			Route::Plain | Route::Odf => Ok(()),
			Route::Shim => control(c"flashfork_preload_drop_refills"),
			Route::Linked => flashfork_core::drop_refills().map(drop).map_err(|e| format!("drop refills: {e:?}")),
		}
	}

	/// Keeps a range out of seals; only a program that calls the engine can.
	pub fn exclude(self, addr: usize, len: usize) -> Result {
		match self {
			Route::Linked => flashfork_core::exclude(addr, len).map_err(|e| format!("exclude: {e:?}")),
			Route::Plain | Route::Shim | Route::Odf => Ok(()),
		}
	}
}

fn control(name: &std::ffi::CStr) -> Result {
	// SAFETY: a lookup by name; the shim's control functions take nothing and return an int.
	unsafe {
		let at = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
		if at.is_null() {
			return Err(format!("{name:?} is missing: the shim is not loaded"));
		}
		let call = std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(at);
		if call() == 0 { Ok(()) } else { Err(format!("{name:?} failed")) }
	}
}

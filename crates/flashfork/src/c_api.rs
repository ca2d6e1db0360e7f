//! The C API; `examples/header.rs` makes the header `flashfork.h` of this file and its neighbours.

use crate::{Forked, OdfError, Pages, Reason, SealError, SealOptions, Threads};
use libc::{c_char, c_int, c_void, pid_t};
use std::{
	cell::RefCell,
	ffi::{CStr, CString, OsStr, OsString},
	os::unix::ffi::OsStrExt,
};

/// Sealed memory is on 2 MB pages where possible, on 4 KB pages elsewhere.
pub const FLASHFORK_PAGES_AUTO: u32 = 0;
/// 4 KB pages only: slower to seal, slower to read in a clone.
pub const FLASHFORK_PAGES_SMALL: u32 = 1;

/// A process with other threads is refused.
pub const FLASHFORK_THREADS_REFUSE: u32 = 0;
/// Other threads are stopped for each step of 2 MB.
pub const FLASHFORK_THREADS_STOP: u32 = 1;

/// What became of one mapping of the process.
#[repr(C)]
pub struct CVmaReport {
	/// First address.
	pub start: *const c_void,
	/// Address behind the last.
	pub end: *const c_void,
	/// The kernel's name for it, cut at 32 bytes; empty for plain anonymous memory.
	pub name: *const c_char,
	/// Bytes sealed by this call.
	pub sealed_bytes: u64,
	/// Bytes sealed before, and still.
	pub kept_bytes: u64,
	/// Short name of why it, or the rest of it, was not sealed; NULL when there is no such reason.
	pub reason: *const c_char,
	/// The reason in words; NULL with it.
	pub explanation: *const c_char,
}

/// How to seal. All zeros are the defaults: begin with `struct flashfork_seal_options o = {0};`.
#[repr(C)]
pub struct CSealOptions {
	/// FLASHFORK_PAGES_AUTO or FLASHFORK_PAGES_SMALL.
	pub pages: u32,
	/// Not 0: the caller vouches that no runtime in the process (Go) relies on MADV_DONTNEED giving zeros, and asks for
	/// it by system calls of its own.
	pub trust_allocator: u32,
	/// Called once for every mapping, in order of address, when the seal is over. The report and its texts are valid
	/// during the call only. May be NULL.
	pub each_vma: Option<unsafe extern "C" fn(report: *const CVmaReport, data: *mut c_void)>,
	/// Passed to `each_vma`.
	pub each_vma_data: *mut c_void,
	/// FLASHFORK_THREADS_REFUSE or FLASHFORK_THREADS_STOP.
	pub threads: u64,
	/// Paths of files that the caller answers for: code in them makes system calls of its own, but none that discards,
	/// moves or grows sealed memory (docs/SYSTEM_CALLS.md). Ends with NULL. May be NULL.
	pub trust: *const *const c_char,
	/// Must be 0.
	pub reserved: [u64; 2],
}

/// What a seal did.
#[repr(C)]
pub struct CSealReport {
	/// Bytes sealed by this call.
	pub sealed_bytes: u64,
	/// Of these, bytes on 2 MB pages.
	pub huge_bytes: u64,
	/// Of these, bytes that held no page before.
	pub filled_bytes: u64,
	/// Nanoseconds the call took; signals waited meanwhile.
	pub elapsed_ns: u64,
	/// Most extra memory held at any moment, in bytes.
	pub peak_extra_bytes: u64,
	/// Number of this seal in the process, from 1; 0 when there was nothing to seal.
	pub generation: u32,
	/// 1 when the files that the memory lies in refuse every later write.
	pub write_sealed: u32,
	/// How often other threads were stopped.
	pub pauses: u64,
	/// Nanoseconds of the longest of these pauses.
	pub longest_pause_ns: u64,
	/// 0.
	pub reserved: [u64; 2],
}

/// Forks counted in this process, and in those it comes from.
#[repr(C)]
pub struct CStats {
	/// Forks of a process that had sealed nothing.
	pub plain_forks: u64,
	/// Nanoseconds these took in the parent, summed.
	pub plain_fork_ns: u64,
	/// Forks of a process that had sealed memory.
	pub sealed_forks: u64,
	/// Nanoseconds these took in the parent, summed.
	pub sealed_fork_ns: u64,
	/// Forks on demand (`flashfork_on_demand`), of whatever process; not among the others.
	pub on_demand_forks: u64,
	/// Nanoseconds these took in the parent, summed.
	pub on_demand_fork_ns: u64,
}

thread_local! {
	static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error and gives -1 with `errno`.
pub(crate) fn fail(text: &str, errno: c_int) -> c_int {
	// In an exit handler the thread's storage may be gone already: then nobody can ask for the text.
	let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
	// SAFETY: glibc's errno of this thread. Last of all, so that nothing overwrites it.
	unsafe { *libc::__errno_location() = errno };
	-1
}

fn refuse(error: &SealError) -> c_int {
	let errno = match error {
		SealError::Refused(Reason::LowMemory | Reason::VmaLimit) => libc::ENOMEM,
		SealError::Refused(Reason::FileSizeLimit) => libc::EFBIG,
		SealError::Refused(_) | SealError::Code(_) => libc::EBUSY,
		SealError::Allocator(_) => libc::EOPNOTSUPP,
		SealError::Busy => libc::EALREADY,
		SealError::TooManyExcluded => libc::ENOSPC,
		SealError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
	};
	fail(&error.to_string(), errno)
}

pub(crate) fn pages_of(pages: u32) -> Result<Pages, &'static str> {
	match pages {
		FLASHFORK_PAGES_AUTO => Ok(Pages::Auto),
		FLASHFORK_PAGES_SMALL => Ok(Pages::Small),
		_ => Err("pages is neither FLASHFORK_PAGES_AUTO nor FLASHFORK_PAGES_SMALL"),
	}
}

fn rust_options(options: Option<&CSealOptions>) -> Result<SealOptions, &'static str> {
	let Some(o) = options else { return Ok(SealOptions::default()) };
	let pages = pages_of(o.pages)?;
	let threads = match u32::try_from(o.threads) {
		Ok(FLASHFORK_THREADS_REFUSE) => Threads::Refuse,
		Ok(FLASHFORK_THREADS_STOP) => Threads::Stop,
		_ => return Err("threads is neither FLASHFORK_THREADS_REFUSE nor FLASHFORK_THREADS_STOP"),
	};
	if o.reserved != [0; 2] {
		return Err("reserved fields of struct flashfork_seal_options are not 0; begin with {0}");
	}
	// SAFETY: NULL or a list of strings that ends with NULL, the caller says.
	let trust = unsafe { strings(o.trust) }.into_iter().map(Into::into).collect();
	Ok(SealOptions { pages, trust_allocator: o.trust_allocator != 0, threads, trust })
}

/// The strings of a list.
///
/// # Safety
/// NULL or a list of strings that ends with NULL.
pub(crate) unsafe fn strings(list: *const *const c_char) -> Vec<OsString> {
	let mut all = Vec::new();
	if list.is_null() {
		return all;
	}
	for i in 0.. {
		// SAFETY: entries up to the NULL are there, and are strings.
		let string = unsafe {
			let string = *list.add(i);
			if string.is_null() {
				break;
			}
			CStr::from_ptr(string)
		};
		all.push(OsStr::from_bytes(string.to_bytes()).to_owned());
	}
	all
}

/// Seals the process's private anonymous memory where that is safe and pays, so that forks don't copy its page tables.
/// Called again it seals what was written since.
///
/// `options` may be NULL (defaults), `report` may be NULL. The process must have one thread, or `options` must allow
/// the others to be stopped. Signals wait until the call is over.
///
/// Returns 0, or -1 with `errno` and a text from `flashfork_last_error`; memory is then as it was, and forks are
/// correct: EBUSY (the process holds something that forbids sealing: other threads, an io_uring, AIO, KVM, a
/// userfaultfd …; seal without it), EOPNOTSUPP (a runtime relies on MADV_DONTNEED giving zeros), ENOMEM (memory or
/// mappings are short), EFBIG (a hard RLIMIT_FSIZE), EALREADY (called within itself), EINVAL (wrong options), or what a
/// system call gave.
///
/// # Safety
/// The pointers are NULL or valid, as in any C call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_seal(options: *const CSealOptions, report: *mut CSealReport) -> c_int {
	// SAFETY: NULL or valid, the caller says.
	let options = unsafe { options.as_ref() };
	let done = match rust_options(options) {
		Ok(rust) => crate::seal(&rust),
		Err(text) => return fail(text, libc::EINVAL),
	};
	let done = match done {
		Ok(done) => done,
		Err(e) => return refuse(&e),
	};
	// SAFETY: NULL or valid, the caller says.
	if let Some(report) = unsafe { report.as_mut() } {
		*report = CSealReport {
			sealed_bytes: done.sealed_bytes,
			huge_bytes: done.huge_bytes,
			filled_bytes: done.filled_bytes,
			elapsed_ns: done.elapsed.as_nanos() as u64,
			peak_extra_bytes: done.peak_extra_bytes,
			generation: done.generation,
			write_sealed: u32::from(done.write_sealed),
			pauses: done.pauses.count.into(),
			longest_pause_ns: done.pauses.longest.as_nanos() as u64,
			reserved: [0; 2],
		};
	}
	if let Some((each, data)) = options.and_then(|o| Some((o.each_vma?, o.each_vma_data))) {
		for vma in &done.vmas {
			tell(vma, |c| {
				// SAFETY: the caller's function, called as declared, with a report that outlives the call.
				unsafe { each(c, data) }
			});
		}
	}
	0
}

fn tell(vma: &crate::VmaReport, each: impl FnOnce(&CVmaReport)) {
	let text = |s: &str| CString::new(s).unwrap_or_default();
	let name = text(&vma.name);
	let reason = vma.reason.map(|r| (text(r.row().name), text(&r.to_string())));
	each(&CVmaReport {
		start: vma.range.start as *const c_void,
		end: vma.range.end as *const c_void,
		name: name.as_ptr(),
		sealed_bytes: vma.sealed_bytes,
		kept_bytes: vma.kept_bytes,
		reason: reason.as_ref().map_or(std::ptr::null(), |(short, _)| short.as_ptr()),
		explanation: reason.as_ref().map_or(std::ptr::null(), |(_, long)| long.as_ptr()),
	});
}

/// Makes all sealed memory anonymous again; needs as much free memory. `bytes` receives how many bytes that were; it
/// may be NULL.
///
/// Returns 0, or -1 with `errno` as `flashfork_seal`; what was not done is then still sealed, and every byte as it was.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_unseal(bytes: *mut u64) -> c_int {
	match crate::unseal() {
		Ok(n) => {
			// SAFETY: NULL or valid, the caller says.
			if let Some(bytes) = unsafe { bytes.as_mut() } {
				*bytes = n;
			}
			0
		}
		Err(e) => refuse(&e),
	}
}

/// fork(2), counted in `flashfork_stats`. It seals nothing: call `flashfork_seal` when the program is warm.
///
/// Returns 0 in the clone and its process id in the parent; -1 with `errno` as fork(2).
///
/// # Safety
/// As fork(2): in a process with several threads the clone may only call async-signal-safe functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_fork() -> pid_t {
	// SAFETY: the caller answers for what the clone does.
	match unsafe { crate::fork() } {
		Ok(Forked::Child) => 0,
		Ok(Forked::Parent(pid)) => pid,
		Err(e) => fail(&format!("can't fork: {e}"), e.raw_os_error().unwrap_or(libc::EAGAIN)),
	}
}

/// The program is warm: under `flashfork warm --ready call` it becomes a template here, and this returns once in each
/// clone.
///
/// Returns 1 in a clone: the arguments of `flashfork clone` are behind those of `*argc` and `*argv`, which may both be
/// NULL; environment, working directory and standard streams are those of its caller. Returns 0, at once, wherever
/// there is nothing to wait for: the program was started without `flashfork warm` or with another ready point, or this
/// is a clone already. A process that has other threads then, or something else that forbids clones, ends, and
/// `flashfork warm` says why.
///
/// # Safety
/// As fork(2), which this is for the clones; the pointers are NULL or those of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_ready(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	// SAFETY: the caller answers for all of it.
	unsafe { crate::ready::in_shim(argc, argv) }
}

/// Has a function run in each clone that `flashfork clone` makes of this program, before anything else of the program
/// runs there, called with `with`: for what must not be the same in all of them, such as a random number generator's
/// state. It returns 0; with anything else the clone is ended. Functions run in the order in which they were given, and
/// are never taken back: their library must stay loaded.
///
/// In a program with threads (`flashfork warm --threads`) they run in a thread of their own, with all signals blocked,
/// while all other threads wait where they were stopped: a lock that one of these holds stays held, that of malloc(3)
/// too, perhaps. When the template is made they run once in a clone that does nothing else, and has the template's
/// environment; if they don't come to an end there, `flashfork warm` says so. In a template with one thread they run in
/// that. `flashfork_fork` doesn't call them.
///
/// Returns 0, also where the program was started without `flashfork warm` and nothing will ever be called, or -1 with
/// `errno`: EINVAL (`run` is NULL), ENOMEM (there are 64 already), EAGAIN (no thread can be started).
///
/// # Safety
/// `run` may be called with `with` in any clone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_on_clone(
	run: Option<unsafe extern "C" fn(with: *mut c_void) -> c_int>,
	with: *mut c_void,
) -> c_int {
	let Some(run) = run else { return fail("run is NULL", libc::EINVAL) };
	// SAFETY: the caller answers for it.
	match unsafe { crate::on_clone::in_shim(run, with) } {
		0 => 0,
		_ => {
			let e = std::io::Error::last_os_error();
			fail(&format!("can't have a function run in clones: {e}"), e.raw_os_error().unwrap_or(libc::EAGAIN))
		}
	}
}

/// Not 0: every later fork of this process shares page tables with its clone until one of them faults there, libc's
/// fork included; clones inherit that, exec ends it. 0: forks are plain again. Needs no seal, and a process may have
/// threads.
///
/// Returns 0, or -1 with `errno`; forks are plain and correct then: ENOSYS (this kernel has no on-demand fork), EPERM
/// (the sysctl vm.on_demand_fork is 0), or what prctl(2) gave.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_on_demand(on: c_int) -> c_int {
	let done = if on != 0 { crate::odf::enable() } else { crate::odf::disable() };
	done.map_or_else(|e| fail(&e.to_string(), odf_errno(&e)), |()| 0)
}

fn odf_errno(error: &OdfError) -> c_int {
	match error {
		OdfError::NoKernel => libc::ENOSYS,
		OdfError::SwitchedOff => libc::EPERM,
		OdfError::System(source) => source.raw_os_error().unwrap_or(libc::EIO),
	}
}

/// Keeps the pages of `len` bytes at `addr` out of every seal; what of them is sealed becomes anonymous again. For
/// secrets, and for memory that is written all the time. At most 64 ranges (ENOSPC).
///
/// Returns 0, or -1 with `errno` as `flashfork_unseal`.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_exclude(addr: *const c_void, len: usize) -> c_int {
	crate::exclude(addr.cast(), len).map_or_else(|e| refuse(&e), |()| 0)
}

/// How many forks `flashfork_fork` made and how long they took. Returns 0; -1 with EINVAL for NULL.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_stats(stats: *mut CStats) -> c_int {
	// SAFETY: NULL or valid, the caller says.
	let Some(stats) = (unsafe { stats.as_mut() }) else { return fail("stats is NULL", libc::EINVAL) };
	let s = crate::stats();
	*stats = CStats {
		plain_forks: s.plain_forks,
		plain_fork_ns: s.plain_fork_time.as_nanos() as u64,
		sealed_forks: s.sealed_forks,
		sealed_fork_ns: s.sealed_fork_time.as_nanos() as u64,
		on_demand_forks: s.on_demand_forks,
		on_demand_fork_ns: s.on_demand_fork_time.as_nanos() as u64,
	};
	0
}

/// What, why and what to do about the last call of this thread that returned -1, in one line; "" when none has. Valid
/// until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_last_error() -> *const c_char {
	LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn flashfork_version() -> *const c_char {
	const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
		Ok(version) => version,
		Err(_) => panic!("the version holds a NUL byte"),
	};
	VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn an_error_belongs_to_its_thread_and_sets_errno() {
		let last = || {
			// SAFETY: the text lives until the thread's next failure.
			unsafe { CStr::from_ptr(flashfork_last_error()) }.to_str().unwrap().to_owned()
		};
		assert_eq!(last(), "");
		// SAFETY: NULL is allowed.
		assert_eq!(unsafe { flashfork_stats(std::ptr::null_mut()) }, -1);
		assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
		assert_eq!(last(), "stats is NULL");
		std::thread::spawn(move || assert_eq!(last(), "")).join().unwrap();
	}

	#[test]
	fn each_kind_of_refusal_has_its_errno() {
		let errno = |e: SealError| {
			assert_eq!(refuse(&e), -1);
			std::io::Error::last_os_error().raw_os_error().unwrap()
		};
		assert_eq!(errno(SealError::Refused(Reason::Threads)), libc::EBUSY);
		assert_eq!(errno(SealError::Refused(Reason::LowMemory)), libc::ENOMEM);
		assert_eq!(errno(SealError::Refused(Reason::FileSizeLimit)), libc::EFBIG);
		assert_eq!(errno(SealError::Allocator("x")), libc::EOPNOTSUPP);
		assert_eq!(errno(SealError::Busy), libc::EALREADY);
		let source = std::io::Error::from_raw_os_error(libc::EMFILE);
		assert_eq!(errno(SealError::System { step: "x", source }), libc::EMFILE);
	}

	#[test]
	fn wrong_options_are_told() {
		// SAFETY: all-zero bytes are the defaults.
		let zero = || unsafe { std::mem::zeroed::<CSealOptions>() };
		assert!(rust_options(None).is_ok() && rust_options(Some(&zero())).is_ok());
		assert!(rust_options(Some(&CSealOptions { pages: 9, ..zero() })).is_err());
		assert!(rust_options(Some(&CSealOptions { threads: 1 << 32, ..zero() })).is_err());
		assert!(rust_options(Some(&CSealOptions { reserved: [0, 1], ..zero() })).is_err());
		let trusting = CSealOptions { pages: FLASHFORK_PAGES_SMALL, trust_allocator: 1, ..zero() };
		let rust = rust_options(Some(&trusting)).unwrap();
		assert!(rust.trust_allocator && rust.pages == Pages::Small);
	}
}

//! The C API of clones of templates.

use crate::{
	c_api::{fail, strings},
	c_api_templates::{Failure, end, place, text},
};
use flashfork_templates::{Clone, Template};
use libc::{c_char, c_int, pid_t};
use std::{
	os::{
		fd::{AsFd, AsRawFd, BorrowedFd},
		unix::process::ExitStatusExt,
	},
	time::{Duration, Instant},
};

/// A clone of a template; made by `flashfork_template_clone`.
pub struct CClone(Clone);

/// Runs a clone of a template: what `flashfork clone` does. `runtime` and `name` as of `flashfork_template_warm`.
///
/// `argv` are its arguments, behind those that the template was started with, and `envp` the strings of its
/// environment; both end with NULL, and are empty if NULL. It runs in `directory`; NULL: that of this process. `fds`
/// are the descriptors that become its standard input, output and error, -1 for one that it is started without; NULL:
/// those of this process. It ignores and blocks no signal; umask, limits, nice value, CPUs and what else docs/WARM.md
/// lists are those of the calling thread.
///
/// Returns the clone, whose process runs; NULL with `errno` and a text from `flashfork_last_error`: ENOENT (there is no
/// such template, or no such directory), ESTALE (its program would be another one now: `flashfork_template_renew`),
/// ESRCH (it has just ended), EAGAIN (it is stopped; 4096 clones run), EMFILE (it has no descriptor left), ETIMEDOUT
/// (it doesn't answer), EPROTO (it is of another version), EACCES, EINVAL, or what a system call gave.
///
/// # Safety
/// The pointers are NULL or valid, lists end with NULL; the descriptors are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_clone(
	runtime: *const c_char,
	name: *const c_char,
	argv: *const *const c_char,
	envp: *const *const c_char,
	directory: *const c_char,
	fds: *const c_int,
) -> *mut CClone {
	// SAFETY: NULL or valid, the caller says.
	let (place, arguments, variables) = unsafe { (place(runtime, name), strings(argv), strings(envp)) };
	let made = place.and_then(|(names, name)| {
		let template = Template::named(&names, name);
		let mut run = variables.iter().fold(template.run().args(arguments), |run, variable| run.variable(variable));
		// SAFETY: as the caller says.
		unsafe {
			if let Some(directory) = text(directory) {
				run = run.current_dir(directory);
			}
			if let Some(fds) = fds.cast::<[c_int; 3]>().as_ref() {
				run = run.streams(fds.map(|fd| (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))));
			}
		}
		Ok(run.start()?)
	});
	match made {
		Ok(clone) => Box::into_raw(Box::new(CClone(clone))),
		Err(Failure(text, errno)) => {
			fail(&text, errno);
			std::ptr::null_mut()
		}
	}
}

/// The clone's process, which leads a process group of its own. It is a child of its template.
///
/// # Safety
/// The clone is one that `flashfork_template_clone` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_clone_pid(clone: *const CClone) -> pid_t {
	// SAFETY: valid, the caller says.
	unsafe { &*clone }.0.pid()
}

/// A descriptor that can be read from the clone's end on, for poll(2). It stays the library's.
///
/// # Safety
/// The clone is one that `flashfork_template_clone` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_clone_descriptor(clone: *const CClone) -> c_int {
	// SAFETY: valid, the caller says.
	unsafe { &*clone }.0.as_fd().as_raw_fd()
}

/// Waits for the clone's end, at most `timeout_ms` milliseconds if that isn't negative; 0 only looks. `status` receives
/// its status as of wait(2), and may be NULL. It stays known. Several threads may wait, and send signals meanwhile.
///
/// Returns 0, or -1 with `errno`: ETIMEDOUT (it runs), EINTR (a signal was handled in this thread; call again), ESRCH
/// (its template has ended, and it with that; its status is nobody's), ECHILD (another process has started it, of which
/// this is a fork), or what a system call gave.
///
/// # Safety
/// The clone is one that `flashfork_template_clone` gave and nobody freed; `status` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_clone_wait(clone: *const CClone, timeout_ms: i64, status: *mut c_int) -> c_int {
	// SAFETY: valid, the caller says.
	let (clone, status) = unsafe { (&(*clone).0, status.as_mut()) };
	let (begin, limit) = (Instant::now(), u64::try_from(timeout_ms).ok().map(Duration::from_millis));
	end(match clone.wait_for(limit) {
		Ok(Some(ended)) => {
			if let Some(status) = status {
				*status = ended.into_raw();
			}
			Ok(())
		}
		Ok(None) if limit.is_some_and(|limit| begin.elapsed() >= limit) => {
			Err(Failure("the clone runs; wait again".into(), libc::ETIMEDOUT))
		}
		Ok(None) => Err(Failure("a signal was handled while the clone was waited for; wait again".into(), libc::EINTR)),
		Err(e) => Err(e.into()),
	})
}

/// Has the template send the clone a signal; if `group` is not 0, its whole process group, as a terminal would. Nobody
/// else can get it: one for a clone that has ended is lost, and no failure.
///
/// Returns 0, or -1 with `errno`: EINVAL (no such signal), EAGAIN (hundreds are on their way).
///
/// # Safety
/// The clone is one that `flashfork_template_clone` gave and nobody freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_clone_signal(clone: *const CClone, signal: c_int, group: c_int) -> c_int {
	if !(1..=64).contains(&signal) {
		return fail("a signal is a number from 1 to 64", libc::EINVAL);
	}
	// SAFETY: valid, the caller says.
	let sent = unsafe { &*clone }.0.signal(signal, group != 0);
	end(sent.map_err(|e| Failure(format!("can't send the clone a signal: {e}"), e.raw_os_error().unwrap_or(libc::EIO))))
}

/// Lets go of a clone. One that still runs is killed, with its process group; so it is when this process ends. NULL is
/// allowed.
///
/// # Safety
/// The clone is NULL or one that `flashfork_template_clone` gave and nobody freed; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_clone_free(clone: *mut CClone) {
	if !clone.is_null() {
		// SAFETY: made by `flashfork_template_clone`, used for the last time.
		drop(unsafe { Box::from_raw(clone) });
	}
}

//! The exec functions: where threads are stopped by signals, none may be on its way into a program with no handler for
//! it.
//!
//! `execl` and its kin, whose arguments are counted by nobody, are not among them, and neither are system calls made by
//! number.

use crate::{
	next::{known_when_loaded, nothing_found},
	warm::follow,
};
use core::ffi::{c_char, c_int, c_void};
use flashfork_core::threads;

type Strings = *const *const c_char;

/// Defines libc's function of that name, which calls it by `$run` as it is said there.
macro_rules! exec {
	($name:ident, $place:ident, ($($argument:ident: $kind:ty),*), $run:ident => $call:expr) => {
		#[doc = concat!("`", stringify!($name), "(3)`: waits for the end of a seal that stops threads by signals.")]
		///
		/// # Safety
		/// As libc's.
		#[unsafe(no_mangle)]
		pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
			let found = $place.find();
			if found.is_null() {
				return nothing_found();
			}
			// SAFETY: libc's function of this name has this type.
			let real = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(found) };
			// SAFETY: the program's own call, here and where more is done around it.
			let $run = |$($argument: $kind),*| threads::exec(|| unsafe { real($($argument),*) });
			#[allow(unused_unsafe, reason = "of some nothing more is done")]
			// SAFETY: as above.
			unsafe {
				$call
			}
		}
	};
}

// What is warmed goes on in the program that comes; of the last two it doesn't.
exec!(execve, EXECVE, (path: *const c_char, argv: Strings, envp: Strings),
	run => follow::exec(path, argv, envp, false, |envp| run(path, argv, envp)));
exec!(execv, EXECV, (path: *const c_char, argv: Strings),
	run => follow::exec_here(path, argv, false, || run(path, argv)));
exec!(execvp, EXECVP, (file: *const c_char, argv: Strings),
	run => follow::exec_here(file, argv, true, || run(file, argv)));
exec!(execvpe, EXECVPE, (file: *const c_char, argv: Strings, envp: Strings),
	run => follow::exec(file, argv, envp, true, |envp| run(file, argv, envp)));
exec!(fexecve, FEXECVE, (fd: c_int, argv: Strings, envp: Strings), run => run(fd, argv, envp));
exec!(execveat, EXECVEAT,
	(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int),
	run => run(dir, path, argv, envp, flags));

known_when_loaded!(
	EXECVE: c"execve",
	EXECV: c"execv",
	EXECVP: c"execvp",
	EXECVPE: c"execvpe",
	FEXECVE: c"fexecve",
	EXECVEAT: c"execveat"
);

//! Where a program is ready: before `main`, for any dynamically linked one; where it calls, when that was asked for.

use super::{
	interpreters, python,
	template::{CLONE, MAIN, Main, ORDER},
	threads,
	wait::wait,
};
use core::{
	ffi::{c_char, c_int, c_void},
	ptr::null_mut,
};
use flashfork_warm::ReadyAt;

type StartMain =
	unsafe extern "C" fn(Main, c_int, *mut *mut c_char, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;

/// What the C library's startup code calls with the program's `main`: in a template `main` comes later, in a clone.
///
/// # Safety
/// As the C library's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
	main: Main,
	argc: c_int,
	argv: *mut *mut c_char,
	init: *mut c_void,
	fini: *mut c_void,
	loader_fini: *mut c_void,
	stack_end: *mut c_void,
) -> c_int {
	// SAFETY: the C library's function of this name has this type; there is one thread.
	unsafe {
		let real = libc::dlsym(libc::RTLD_NEXT, c"__libc_start_main".as_ptr());
		if real.is_null() {
			libc::abort();
		}
		let real = core::mem::transmute::<*mut c_void, StartMain>(real);
		let mut loader_fini = loader_fini;
		let main = match ORDER.get() {
			// It becomes another program, or ends.
			Some(order) if order.follows && order.at.is_none() => main,
			Some(order) if order.at.is_none() && python::is_here() => {
				*python::LOADER_FINI.get() = loader_fini;
				loader_fini = python::end_of_libraries as *mut c_void;
				python::main
			}
			Some(order) if order.at.is_none() && interpreters::is_here() => {
				*MAIN.get() = Some(main);
				interpreters::main
			}
			Some(order) if ![Some(ReadyAt::Call), Some(ReadyAt::Runtime)].contains(&order.at) => {
				*MAIN.get() = Some(main);
				warm_main
			}
			None if threads::is_ready_at(None) && python::is_here() => {
				*python::LOADER_FINI.get() = loader_fini;
				loader_fini = python::end_of_libraries as *mut c_void;
				python::main
			}
			_ => main,
		};
		real(main, argc, argv, init, fini, loader_fini, stack_end)
	}
}

/// Constructors have run. Returns in clones only, with what the program's `main` returned.
unsafe extern "C" fn warm_main(argc: c_int, argv: *mut *mut c_char, env: *mut *mut c_char) -> c_int {
	// SAFETY: as the C library calls main; MAIN was set before.
	unsafe {
		let Some(main) = *MAIN.get() else { libc::abort() };
		fork_until_clone(ReadyAt::Main);
		let (argc, argv, env) = arguments(argc as usize, argv).unwrap_or((argc, argv, env));
		// As C promises where a program starts.
		*libc::__errno_location() = 0;
		main(argc, argv, env)
	}
}

/// Waits and forks for each caller. Returns in clones: true; or at once, false, where there is nothing to wait for.
pub fn fork_until_clone(at: ReadyAt) -> bool {
	while wait(at) {
		if crate::forks::fork() == 0 {
			return true;
		}
	}
	false
}

/// The arguments of the template's command with the caller's behind them, and the caller's environment.
unsafe fn arguments(count: usize, first: *mut *mut c_char) -> Option<(c_int, *mut *mut c_char, *mut *mut c_char)> {
	// SAFETY: the template's own arguments, as main got them, and the caller's, which stay mapped.
	unsafe {
		let given = CLONE.get().as_ref()?;
		let all = count + given.arguments.len();
		let size = (all + 1) * size_of::<*mut c_char>();
		let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
		let table = libc::mmap(null_mut(), size, prot, flags, -1, 0).cast::<*mut c_char>();
		if table == libc::MAP_FAILED.cast() {
			let text = b"flashfork: no memory for the clone's arguments: free some, or raise its limit (ulimit -v)\n";
			libc::write(2, text.as_ptr().cast(), text.len());
			libc::_exit(1);
		}
		table.copy_from_nonoverlapping(first, count);
		table.add(count).copy_from_nonoverlapping(given.arguments.as_ptr(), given.arguments.len());
		Some((all as c_int, table, given.variables.as_ptr().cast_mut()))
	}
}

/// The ready point where the program calls, if that is where it is to be: 1 in clones, 0 where there is nothing to wait
/// for. `errno` stays as it was.
///
/// # Safety
/// Both are null, or those of `main`.
pub unsafe fn ready_call(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	// SAFETY: this thread's own word; the rest as the caller says.
	unsafe {
		let errno = *libc::__errno_location();
		let ready = is_ready(argc, argv);
		*libc::__errno_location() = errno;
		ready
	}
}

/// # Safety
/// As [`ready_call`].
unsafe fn is_ready(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	if threads::is_ready_at(Some(ReadyAt::Call)) {
		if !threads::ready() {
			return 0;
		}
		// SAFETY: as the caller says.
		return unsafe { returns(argc, argv) };
	}
	// SAFETY: looks at what was told when the shim was loaded.
	let elsewhere = unsafe { ORDER.get() }.as_ref().is_some_and(|order| order.at != Some(ReadyAt::Call));
	if elsewhere || !fork_until_clone(ReadyAt::Call) {
		return 0;
	}
	// SAFETY: as the caller says.
	unsafe { returns(argc, argv) }
}

/// In a clone: gives the caller's arguments.
unsafe fn returns(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
	// SAFETY: the caller's pointers, which are those of main.
	unsafe {
		if !argc.is_null()
			&& !argv.is_null()
			&& let Some((count, table, _)) = arguments(*argc as usize, *argv)
		{
			(*argc, *argv) = (count, table);
		}
		// What the program printed while it was warmed made standard output a file or a pipe for good.
		if libc::isatty(1) == 1 {
			libc::setvbuf(stdout, null_mut(), libc::_IOLBF, 0);
		}
	}
	1
}

unsafe extern "C" {
	static mut stdout: *mut libc::FILE;
}

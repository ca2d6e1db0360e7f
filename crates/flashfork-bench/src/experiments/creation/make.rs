//! The calls themselves: one function for each way, all ending in the same child.

use std::{
	ffi::{c_char, c_void},
	io, ptr,
};

use flashfork::Forked;

use super::way::{PROGRAM, Way};

/// What a child runs; it never returns.
pub type Child = extern "C" fn(*mut c_void) -> !;

/// Makes a process that runs `child` with `argument`; returns its id. For every way but threads and `posix_spawn`.
///
/// # Safety
/// `child` must keep to async-signal-safe functions, and under [`Way::Vfork`] and [`Way::Clone`] to what may be done in
/// the parent's memory on the parent's stack below the caller's frame.
pub unsafe fn process(way: Way, child: Child, argument: *mut c_void) -> io::Result<i32> {
	match way {
		// SAFETY: passed on to the caller.
		Way::Fork | Way::ForkThp | Way::ForkHugetlb => unsafe { forked(libc::fork(), child, argument) },
		Way::Seal | Way::Odf => {
			// SAFETY: passed on to the caller.
			match unsafe { flashfork::fork() }? {
				Forked::Child => child(argument),
				Forked::Parent(pid) => Ok(pid),
			}
		}
		// SAFETY: passed on to the caller; vfork takes no arguments.
		Way::Vfork => unsafe { raw(libc::SYS_vfork, 0, 0, child, argument) },
		Way::Clone => {
			let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_FILES;
			// SAFETY: passed on to the caller. A stack of 0 is the parent's, which sleeps (CLONE_VFORK).
			unsafe { raw(libc::SYS_clone, (flags | libc::SIGCHLD) as usize, 0, child, argument) }
		}
		Way::Clone3 => {
			// struct clone_args of linux/sched.h, version 0; the fifth field is the signal at exit.
			let mut arguments = [0_u64; 8];
			arguments[4] = libc::SIGCHLD as u64;
			// SAFETY: passed on to the caller; the arguments live until the call returns.
			unsafe { raw(libc::SYS_clone3, arguments.as_ptr().addr(), size_of_val(&arguments), child, argument) }
		}
		Way::Pthread | Way::PosixSpawn => unreachable!("{way} makes no process of ours"),
	}
}

fn forked(pid: i32, child: Child, argument: *mut c_void) -> io::Result<i32> {
	match pid {
		-1 => Err(io::Error::last_os_error()),
		0 => child(argument),
		pid => Ok(pid),
	}
}

/// A system call that makes a process. The child, which may share this very stack with a sleeping parent, goes straight
/// on to `child` below all frames there are: returning from here again is what makes `vfork` unsafe in other languages.
///
/// # Safety
/// As [`process`]; the arguments must fit the call.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: i64, first: usize, second: usize, child: Child, argument: *mut c_void) -> io::Result<i32> {
	let result: i64;
	// SAFETY: without `nostack` the compiler keeps nothing below the stack pointer, where the child's frames go. The
	// parent returns with its registers as the system call left them: rcx and r11 are lost, rax is the result.
	unsafe {
		std::arch::asm!(
			"syscall",
			"test rax, rax",
			"jnz 2f",
			"and rsp, -16",
			"mov rdi, r12",
			"call r13",
			"ud2",
			"2:",
			inlateout("rax") number => result,
			in("rdi") first,
			in("rsi") second,
			in("rdx") 0_usize,
			in("r10") 0_usize,
			in("r8") 0_usize,
			in("r12") argument,
			in("r13") child,
			lateout("rcx") _,
			lateout("r11") _,
		);
	}
	match result {
		error @ ..0 => Err(io::Error::from_raw_os_error(-error as i32)),
		pid => Ok(pid as i32),
	}
}

/// `posix_spawn(3)` of [`PROGRAM`]; returns the process id.
pub fn spawn() -> io::Result<i32> {
	let mut pid = 0;
	let argv: [*mut c_char; 2] = [PROGRAM.as_ptr().cast_mut(), ptr::null_mut()];
	let environment: [*mut c_char; 1] = [ptr::null_mut()];
	// SAFETY: all pointers are to live, terminated arrays and strings; the strings are not written to.
	let error = unsafe {
		libc::posix_spawn(&mut pid, PROGRAM.as_ptr(), ptr::null(), ptr::null(), argv.as_ptr(), environment.as_ptr())
	};
	if error == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Replaces this process by [`PROGRAM`]; exits with 127 when that fails.
pub fn exec() -> ! {
	let argv: [*const c_char; 2] = [PROGRAM.as_ptr(), ptr::null()];
	let environment: [*const c_char; 1] = [ptr::null()];
	// SAFETY: live, terminated arrays and strings; `_exit` runs nothing of the parent's.
	unsafe {
		libc::execve(PROGRAM.as_ptr(), argv.as_ptr(), environment.as_ptr());
		libc::_exit(127)
	}
}

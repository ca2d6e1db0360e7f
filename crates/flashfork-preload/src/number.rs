//! `getpid(2)`, in clones with threads: some libraries are told another number than the clone has
//! (`forkall/generators.rs` of the core).

use crate::next::known_when_loaded;
use core::{
	ffi::c_void,
	sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed},
};
use flashfork_core::forkall::Code;

known_when_loaded!(GETPID: c"getpid");

/// Where the code of these libraries is: begin and end of each.
static CODE: [[AtomicUsize; 2]; Code::MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; Code::MOST];

/// The process that is the clone, and the number that they are given; 0 where there is none.
static CLONE: AtomicI32 = AtomicI32::new(0);
static GIVEN: AtomicI32 = AtomicI32::new(0);

/// In a clone, before its threads run.
pub fn give(code: &Code, given: i32) {
	for (place, range) in CODE.iter().zip(code.ranges()) {
		place[0].store(range.start, Relaxed);
		place[1].store(range.end, Relaxed);
	}
	CLONE.store(own(), Relaxed);
	GIVEN.store(given, Relaxed);
}

/// `getpid(2)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> i32 {
	// Where it returns to is who has called.
	core::arch::naked_asm!("mov rdi, [rsp]", "jmp {answer}", answer = sym answer)
}

extern "C" fn answer(caller: usize) -> i32 {
	let found = GETPID.find();
	let pid = if found.is_null() {
		own()
	} else {
		// SAFETY: libc's function of this name has this type. The call is libc's own, as a program expects that lets
		// no other through (`PR_SET_SYSCALL_USER_DISPATCH`).
		unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(found)() }
	};
	let given = GIVEN.load(Relaxed);
	let is_theirs = || CODE.iter().any(|[begin, end]| (begin.load(Relaxed)..end.load(Relaxed)).contains(&caller));
	// What the clone forks has its own number.
	if given != 0 && pid == CLONE.load(Relaxed) && is_theirs() { given } else { pid }
}

fn own() -> i32 {
	// SAFETY: asks for a number.
	unsafe { flashfork_core::forkall::call(syscalls::Sysno::getpid, []) }.map_or(0, |pid| pid as i32)
}

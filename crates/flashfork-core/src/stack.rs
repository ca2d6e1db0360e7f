//! Runs a function on its own stack.
//!
//! The caller's stack may lie in memory that is being sealed (coroutines, thread stacks from malloc). On a separate
//! stack nothing of the program's memory is written between the copy and the remap, and depth is known in advance.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("flashfork-core supports Linux on x86-64 only");

use crate::{
	apart::Apart,
	scratch,
	state::STATE,
	sys::{self, Errno, Result},
	valgrind,
};
use core::{
	arch::asm,
	cell::UnsafeCell,
	sync::atomic::{AtomicU32, Ordering::SeqCst},
};

/// Calls `f(arg)` with the stack pointer at `top`.
///
/// # Safety
/// `top` is the upper end of a writable mapping large enough for `f`, used by nobody else meanwhile. `f` must not
/// unwind.
pub unsafe fn call_on(top: usize, f: extern "C" fn(*mut u8), arg: *mut u8) {
	let top = top & !15;
	// SAFETY: r12 is preserved by the callee under the System V ABI, so the old stack pointer survives the call there;
	// every caller-saved register is declared clobbered; the stack is aligned to 16 bytes at the call.
	unsafe {
		asm!(
			"mov r12, rsp",
			"mov rsp, {top}",
			"call {f}",
			"mov rsp, r12",
			top = in(reg) top,
			f = in(reg) f,
			in("rdi") arg,
			out("r12") _,
			clobber_abi("C"),
		);
	}
}

/// Enough for everything that the engine does for a call of the program's.
const STACK: usize = 256 * 1024;

/// Runs `f` on a new stack, signals blocked: for what the program calls from stacks that may be small. On its own where
/// none can be mapped.
pub fn roomy<T, F: FnOnce() -> T>(f: F) -> T {
	// Not in this function's own frame, which lies on the small stack whether this is done or not.
	#[cold]
	#[inline(never)]
	fn here<T, F: FnOnce() -> T>(f: F) -> T {
		f()
	}
	let Ok(mask) = sys::block_signals() else { return here(f) };
	let Ok(stack) = scratch::map(STACK) else {
		sys::restore_signals(mask);
		return here(f);
	};
	// SAFETY: the stack is used by this call only. A failure of munmap would leak it, no more.
	let result = unsafe {
		let result = run_on(stack + STACK, f);
		let _ = sys::munmap(stack, STACK);
		result
	};
	sys::restore_signals(mask);
	result
}

/// The same on a stack that is always there, for what can't be done while one more mapping is (`RLIMIT_AS`). `None`
/// where another thread uses it.
pub fn reserved<T, F: FnOnce() -> T>(f: F) -> Option<T> {
	let pid = sys::getpid() as u32;
	let mask = sys::block_signals().ok()?;
	// One that forked may have left it in another's hands, who is not in this process.
	let taken = RESERVE.user.fetch_update(SeqCst, SeqCst, |user| (user != pid).then_some(pid));
	let result = taken.is_ok().then(|| {
		// SAFETY: nobody else of this process uses it before it is given back.
		let result = unsafe { run_on(RESERVE.stack.get() as usize + STACK, f) };
		RESERVE.user.store(0, SeqCst);
		result
	});
	sys::restore_signals(mask);
	result
}

/// A stack, and the process that uses it.
pub(crate) struct Reserve {
	stack: UnsafeCell<[u8; STACK]>,
	user: AtomicU32,
}

// SAFETY: the stack is used by who has put its process's number down as the user.
unsafe impl Sync for Reserve {}

pub(crate) static RESERVE: Apart<Reserve> =
	Apart::new(Reserve { stack: UnsafeCell::new([0; STACK]), user: AtomicU32::new(0) });

/// Runs `f` on the stack that ends at `top`.
///
/// # Safety
/// As [`call_on`]. No panic of the engine unwinds.
unsafe fn run_on<T, F: FnOnce() -> T>(top: usize, f: F) -> T {
	struct Job<F, T> {
		f: Option<F>,
		result: Option<T>,
	}
	extern "C" fn run<T, F: FnOnce() -> T>(job: *mut u8) {
		// SAFETY: the caller passes its own Job, which nobody else uses during the call.
		let job = unsafe { &mut *job.cast::<Job<F, T>>() };
		job.result = job.f.take().map(|f| f());
	}
	let mut job = Job { f: Some(f), result: None };
	// SAFETY: as the caller says.
	unsafe { call_on(top, run::<T, F>, (&raw mut job).cast()) };
	match job.result {
		Some(result) => result,
		// `run` has set it.
		None => STATE.die(),
	}
}

/// `clone(2)` of a task that runs `f(arg)` on its own stack, in the caller's memory, and never returns. Gives its id.
///
/// The kernel sets `*alive` to 0 and wakes whoever waits there when the task no longer uses memory
/// (`CLONE_CHILD_CLEARTID`). The task has the caller's thread pointer: nothing in `f` may use thread-local storage.
/// `EAGAIN` where it would be the first of another namespace of processes; `ENOSYS` under valgrind, which makes no such
/// tasks, and would end the program for one.
///
/// # Safety
/// `top` is the upper end of a writable mapping large enough for `f`, used by nobody else while the task lives. `arg`
/// is what `f` takes.
pub unsafe fn clone_on(
	top: usize,
	flags: usize,
	alive: &AtomicU32,
	f: extern "C" fn(*mut u8) -> !,
	arg: *mut u8,
) -> Result<i32> {
	const CLONE: usize = 56;
	const CLONE_CHILD_CLEARTID: usize = 0x0020_0000;
	const CLONE_THREAD: usize = 0x0001_0000;
	// A thread goes nowhere else: the kernel refuses to make one then.
	if flags & CLONE_THREAD == 0 && sys::children_go_elsewhere() {
		return Err(Errno::EAGAIN);
	}
	if valgrind::runs_this() {
		return Err(Errno::ENOSYS);
	}
	alive.store(1, SeqCst);
	let result: isize;
	// SAFETY: in the caller only rax, rcx and r11 change. The child starts on the empty stack, aligned to 16 bytes at
	// the call, and `f` does not return.
	unsafe {
		asm!(
			"syscall",
			"test rax, rax",
			"jnz 2f",
			"xor ebp, ebp",
			"mov rdi, r9",
			"call r12",
			"ud2",
			"2:",
			inlateout("rax") CLONE => result,
			in("rdi") flags | CLONE_CHILD_CLEARTID,
			in("rsi") top & !15,
			in("rdx") 0,
			in("r10") alive.as_ptr(),
			in("r8") 0,
			in("r9") arg,
			in("r12") f,
			out("rcx") _,
			out("r11") _,
		);
	}
	if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as i32) }
}

#[cfg(test)]
mod tests {
	extern "C" fn double(arg: *mut u8) {
		let here = 0u8;
		// SAFETY: the test passes a pointer to a pair of words.
		let pair = unsafe { &mut *arg.cast::<[usize; 2]>() };
		pair[0] *= 2;
		pair[1] = &raw const here as usize;
	}

	#[test]
	fn runs_on_the_given_stack_and_returns() {
		let mut stack = vec![0u8; 64 * 1024];
		let range = stack.as_ptr_range();
		let mut pair = [21usize, 0];
		let top = stack.as_mut_ptr_range().end as usize;
		// SAFETY: the vector outlives the call and nobody else uses it.
		unsafe { super::call_on(top, double, (&raw mut pair).cast()) };
		assert_eq!(pair[0], 42);
		assert!((range.start as usize..range.end as usize).contains(&pair[1]));
	}
}

//! Signals.

use super::raw::{Result, call, numeric};
use core::arch::asm;
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// A bit of a mask that no signal has, because SIGKILL is never blocked: the program steps, see [`stop_stepping`].
const STEPS: u64 = 1 << (k::SIGKILL - 1);

/// The flag TF.
const TRAP: i32 = 1 << 8;

/// Blocks every signal; returns the mask before, for [`restore_signals`]. Signals that must not wait (SIGKILL, SIGSTOP)
/// are never blocked.
pub fn block_signals() -> Result<u64> {
	let steps = stop_stepping();
	let all = u64::MAX;
	let mut old = 0u64;
	// SAFETY: both masks are the kernel's 8 bytes.
	unsafe { call(Sysno::rt_sigprocmask, [k::SIG_SETMASK as usize, &raw const all as usize, &raw mut old as usize, 8]) }
		.map(|_| if steps { old | STEPS } else { old })
}

/// Puts a signal mask back.
pub fn restore_signals(mask: u64) {
	// SAFETY: the mask is the kernel's 8 bytes. The call can't fail with valid arguments.
	let _ = unsafe { call(Sysno::rt_sigprocmask, [k::SIG_SETMASK as usize, &raw const mask as usize, 0, 8]) };
	if mask & STEPS != 0 {
		go_on_stepping();
	}
}

/// A program may have the processor trap after each instruction (TF) and handle SIGTRAP. While that is blocked the
/// kernel ends the process at a trap, so nothing traps then. Returns whether something would have.
fn stop_stepping() -> bool {
	let flags: u64;
	// SAFETY: reads the flags.
	unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem, preserves_flags)) };
	if flags & TRAP as u64 == 0 {
		return false;
	}
	// SAFETY: changes TF alone.
	unsafe { asm!("pushfq", "and qword ptr [rsp], {}", "popfq", const !TRAP) };
	true
}

fn go_on_stepping() {
	// SAFETY: changes TF alone: the program has set it itself.
	unsafe { asm!("pushfq", "or qword ptr [rsp], {}", "popfq", const TRAP) };
}

/// The alternate signal stack of this thread, if it has one: start and length (`sigaltstack(2)`).
pub fn alternate_stack() -> Option<(usize, usize)> {
	#[repr(C)]
	struct Stack {
		sp: usize,
		flags: i32,
		size: usize,
	}
	let mut s = Stack { sp: 0, flags: 0, size: 0 };
	const SS_DISABLE: i32 = 2;
	// SAFETY: the struct is stack_t.
	unsafe { call(Sysno::sigaltstack, [0, &raw mut s as usize]) }.ok()?;
	(s.flags & SS_DISABLE == 0 && s.size > 0).then_some((s.sp, s.size))
}

/// Sleeps until a child or tracee has something to tell, or for so many nanoseconds, under a second. All signals must
/// be blocked, and SIGCHLD have its default action ([`expect_children`]).
pub fn wait_for_children(ns: u64) {
	const SIGCHLD_SET: u64 = 1 << 16;
	let (set, t) = (SIGCHLD_SET, [0u64, ns]);
	// SAFETY: the kernel reads a mask of 8 bytes and one struct timespec. Waking early is harmless.
	let _ =
		unsafe { call(Sysno::rt_sigtimedwait, [&raw const set as usize, 0, t.as_ptr() as usize, size_of_val(&set)]) };
}

/// Gives SIGCHLD its default action: where it is ignored the kernel doesn't send it.
pub fn expect_children() -> Result<()> {
	const SIGCHLD: usize = 17;
	let default = [0u64; 4];
	// SAFETY: the kernel reads one struct sigaction.
	unsafe { call(Sysno::rt_sigaction, [SIGCHLD, default.as_ptr() as usize, 0, 8]) }.map(drop)
}

/// Sends a signal to one thread (`tgkill(2)`); 0 sends none and tells whether there is such a thread (`ESRCH`).
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
	numeric(Sysno::tgkill, [pid as usize, tid as usize, signal as usize]).map(drop)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Action {
	/// Address of the handler; 0 `SIG_DFL`, 1 `SIG_IGN`.
	pub handler: usize,
	flags: usize,
	restorer: usize,
	mask: u64,
}

impl Action {
	/// A handler of three arguments that runs with all signals blocked, on the alternate stack where there is one.
	/// Calls that can go on after it do.
	pub fn new(handler: usize) -> Action {
		const SA_SIGINFO: usize = 4;
		const SA_RESTORER: usize = 0x0400_0000;
		const SA_ONSTACK: usize = 0x0800_0000;
		const SA_RESTART: usize = 0x1000_0000;
		let flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_RESTART;
		Action { handler, flags, restorer: restore as *const () as usize, mask: u64::MAX }
	}
}

/// Where a handler returns to: `rt_sigreturn(2)`.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
	core::arch::naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// `rt_sigaction(2)`; gives what was there before.
pub fn action(signal: i32, new: Option<&Action>) -> Result<Action> {
	let mut old = Action::default();
	let new = new.map_or(0, |a| &raw const *a as usize);
	// SAFETY: both structs are the kernel's; whoever sets a handler answers for it.
	unsafe { call(Sysno::rt_sigaction, [signal as usize, new, &raw mut old as usize, 8]) }.map(|_| old)
}

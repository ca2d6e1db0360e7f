//! What a fresh child does first: it lets go of the caller.

use super::text;
use crate::memory::munmap;
use rustix::{
	process::{Signal, set_parent_process_death_signal},
	thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::ptr::null_mut;

/// Mappings smaller than this cost a fork too little to matter.
const WORTH_LEAVING: usize = 1 << 20;

/// Blocks every signal, so that none of the caller's handlers runs in the child; returns the mask before.
pub(super) fn block_signals() -> libc::sigset_t {
	// SAFETY: both sets are locals; all-zero bytes are a valid sigset_t. The calls can't fail with valid arguments.
	unsafe {
		let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
		libc::sigfillset(&raw mut all);
		libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
		before
	}
}

/// Puts a mask back.
pub(super) fn restore_signals(mask: &libc::sigset_t) {
	// SAFETY: the mask is valid.
	unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}

/// Lets go of the caller's signal handlers, descriptors and memory, and makes sure the child ends: after `seconds`,
/// with the caller, and first when memory runs out. Each is done as far as it goes: a child that keeps something
/// measures less well.
pub(super) fn settle(seconds: u32) {
	for signal in 1..=64 {
		// SAFETY: no handler of ours; libc refuses the numbers that are its own, which are harmless.
		unsafe { libc::signal(signal, libc::SIG_DFL) };
	}
	// SAFETY: an all-zero sigset_t is the empty one.
	restore_signals(&unsafe { std::mem::zeroed() });
	// SAFETY: no handler: the default action ends the child.
	unsafe { libc::alarm(seconds) };
	let _ = set_parent_process_death_signal(Some(Signal::KILL));
	let _ = text::write(c"/proc/self/oom_score_adj", b"1000");
	// SAFETY: the table of descriptors is the child's own. Those of the caller might be io_uring's or KVM's.
	unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
	leave_memory();
}

/// Unmaps the caller's large private memory: heaps and what was mapped by hand.
///
/// Stays: everything shared or with a file's name, `.bss` behind a file, the stack and the thread's control block.
fn leave_memory() {
	let here = 0u8;
	let in_use = [&raw const here as usize, thread_pointer()];
	let mut end_of_file = 0;
	let _ = text::for_each_line(c"/proc/self/maps", |line| {
		let Some(m) = text::Mapping::parse(line) else { return };
		let anonymous = m.name.is_empty() || m.name == b"[heap]" || m.name.starts_with(b"[anon:");
		let ours = anonymous || m.name.starts_with(flashfork_core::MEMFD_PREFIX);
		let large = m.end - m.start >= WORTH_LEAVING;
		let bss = m.name.is_empty() && m.start == end_of_file;
		if m.private && ours && large && !bss && !in_use.iter().any(|at| (m.start..m.end).contains(at)) {
			// SAFETY: the child's code uses its stack, its control block, files' mappings and shared results, none of
			// which this is; it never allocates. A failure leaves the mapping.
			let _ = unsafe { munmap(m.start as *mut _, m.end - m.start) };
		}
		if !anonymous {
			end_of_file = m.end;
		}
	});
}

fn thread_pointer() -> usize {
	let own: usize;
	// SAFETY: on x86-64 the first word of the thread's control block is its own address (the System V ABI's TLS,
	// variant II).
	unsafe { std::arch::asm!("mov {}, fs:0", out(reg) own, options(nostack, readonly, preserves_flags)) };
	own
}

/// Keeps this process on the last CPU it may use: interrupts and housekeeping tend to sit on the first. An unpinned
/// fork is bimodal, because the child may wake a sleeping CPU.
pub(crate) fn pin_to_one_cpu() {
	let Ok(allowed) = sched_getaffinity(None) else { return };
	if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)) {
		let mut one = CpuSet::new();
		one.set(last);
		// Without it figures scatter, no more.
		let _ = sched_setaffinity(None, &one);
	}
}

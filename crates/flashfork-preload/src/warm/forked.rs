//! Forks in a template, as the shim's `fork` sees them.

use super::{
	ahead, hooks, serve, take_over,
	template::{CLONE, TEMPLATE, Template},
};
use core::ffi::c_int;
use flashfork_warm::ReadyAt;

/// Whether what is forked next is a template's clone, and no child of a handler of forks.
pub fn before() -> bool {
	// SAFETY: one thread, and no reference is kept; in a process that is no template this is a look at a static.
	let Some(template) = (unsafe { TEMPLATE.get() }) else { return false };
	// SAFETY: asks for a number.
	let own = template.facts.pid == unsafe { libc::getpid() };
	own && !core::mem::replace(&mut template.forking, true)
}

/// Runs an interpreter's own handlers of forks, which may fork.
pub fn in_handlers(handlers: impl FnOnce()) {
	let set = |forking| {
		// SAFETY: as above.
		if let Some(template) = unsafe { TEMPLATE.get() } {
			template.forking = forking;
		}
	};
	set(true);
	handlers();
	set(false);
}

/// What the shim's `fork` has come to: when it was for a caller, the clone takes over, and the template takes it down.
/// `ours`: what [`before`] said.
pub fn after(pid: c_int, ours: bool) {
	// SAFETY: as above.
	if let Some(template) = unsafe { TEMPLATE.get() } {
		after_of(template, pid, ours);
	}
}

/// Apart, because it takes much of the stack, and programs may fork from small ones.
#[inline(never)]
fn after_of(template: &mut Template, pid: c_int, ours: bool) {
	if !ours {
		if pid == 0 {
			ahead::let_go(template);
		}
		return;
	}
	template.forking = false;
	// SAFETY: as above.
	unsafe {
		let Some(wanted) = template.wanted.take() else { return ahead::after_fork(template, pid) };
		if pid == 0 {
			*CLONE.get() = Some(take_over::take_over(template, &wanted));
			// A function's code runs in what is a call's own.
			let is_call = template.facts.at == ReadyAt::Runtime;
			*TEMPLATE.get() = None;
			if !is_call {
				hooks::run_or_end();
			}
		} else {
			serve::forked(template, &wanted, pid);
		}
	}
}

//! A process at its ready point.

use super::{
	prepare, serve,
	template::{ORDER, TEMPLATE},
};
use flashfork_warm::ReadyAt;

/// Waits until a clone must be forked, for somebody or ahead: the caller must fork next. Becomes a template first, if
/// it isn't one. False, at once, in a process that `flashfork warm` didn't start, and in a clone.
pub fn wait(at: ReadyAt) -> bool {
	// SAFETY: one thread, and no reference is kept from one call to the next.
	unsafe {
		if let Some(order) = ORDER.get().take() {
			// A child made by no fork of the C library's.
			if order.pid != libc::getpid() {
				return false;
			}
			prepare::prepare(TEMPLATE.get(), order, at);
		}
		match TEMPLATE.get() {
			Some(template) if template.facts.pid == libc::getpid() => serve::next(template),
			// A handler of forks has forked, and its child comes here: nobody has called that.
			Some(_) => libc::_exit(0),
			None => return false,
		}
	}
	true
}

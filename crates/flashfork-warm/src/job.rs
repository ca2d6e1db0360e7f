//! A caller that is one job with its clone, as a shell's command is: which signals it passes on, and how.

use crate::Ask;

/// Signals that the clone gets in place of its caller, ignored there or not, because a program may say otherwise:
/// SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGALRM, which end a program that hasn't; then SIGTSTP,
/// SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH and SIGURG.
pub const PASSED_ON: [i32; 13] = [1, 2, 3, 15, 10, 12, 14, 20, 21, 22, CONTINUE, 28, 23];
const ENDING: usize = 7;
const CONTINUE: i32 = 18;

/// `si_code` of a signal from the kernel: that of a terminal goes to the whole group in front.
pub const FROM_KERNEL: i32 = 0x80;

/// What a caller does about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
	/// It ends by it: nobody has seen anything of the clone, which may never be.
	Ends,
	/// Nothing: the clone goes on already.
	Nothing,
	/// It says so to the template.
	Ask(Ask),
}

/// What a caller does about a signal with this `si_code`, which may be its template's. `ends`: the clone has not
/// started, and the caller doesn't ignore the signal.
#[must_use]
pub fn job(signal: i32, code: i32, from_template: bool, ends: bool) -> Job {
	if ends && PASSED_ON[..ENDING].contains(&signal) {
		Job::Ends
	} else if signal == CONTINUE && from_template {
		Job::Nothing
	} else {
		// A stopped job is continued as a whole.
		Job::Ask(Ask::Signal { signal, group: code == FROM_KERNEL || signal == CONTINUE })
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_signal_reaches_the_clone_once_and_its_group_when_the_terminal_or_a_shell_means_that() {
		let ask = |signal, group| Job::Ask(Ask::Signal { signal, group });
		assert_eq!(job(15, 0, false, true), Job::Ends);
		assert_eq!(job(15, 0, false, false), ask(15, false));
		assert_eq!(job(2, FROM_KERNEL, false, false), ask(2, true));
		assert_eq!(job(20, FROM_KERNEL, false, true), ask(20, true));
		assert_eq!((job(18, 0, false, false), job(18, 0, true, false)), (ask(18, true), Job::Nothing));
	}
}

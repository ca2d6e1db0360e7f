//! Where a container's filter refuses calls that a template with threads needs.

use crate::{
	place::{Before, Place, both, forbid, line, stderr},
	programs::Program,
};
use std::process::Command;

/// Calls, what they are refused with, and what is said.
const REFUSED: [(i64, i32, &str); 9] = [
	(libc::SYS_ptrace, libc::EPERM, "a guard against being looked at (ptrace)"),
	(libc::SYS_ptrace, libc::ENOSYS, "a guard against being looked at (ptrace)"),
	(libc::SYS_kcmp, libc::EPERM, "a guard against being looked at (kcmp)"),
	(libc::SYS_process_vm_writev, libc::EPERM, "a guard against being looked at (process_vm_writev)"),
	(libc::SYS_pidfd_getfd, libc::EPERM, "a guard against being looked at (pidfd_getfd)"),
	(libc::SYS_setns, libc::EPERM, "(setns)"),
	(libc::SYS_clone3, libc::ENOSYS, "may not call clone3"),
	(libc::SYS_unshare, libc::EPERM, "forbids it"),
	(libc::SYS_mount, libc::EPERM, "forbids it"),
];

fn under(mut command: Command, call: i64, errno: i32) -> Command {
	command.before(move || forbid(call, errno));
	command
}

#[test]
fn what_a_filter_refuses_is_said_in_one_line_with_what_still_works() {
	let program = Program::new("int main(void) { another(); READY; return 0; }");
	for (call, errno, reason) in REFUSED {
		// SAFETY: asks for a number.
		let reason = match unsafe { libc::geteuid() } {
			0 => reason,
			// The keeper goes to a namespace of users first.
			_ if call == libc::SYS_setns => "forbids it",
			_ => reason,
		};
		let warm = program.place.flashfork(&program.warms());
		let refused = under(warm, call, errno).output().unwrap();
		let said = line(&refused);
		assert!(said.contains("can't be a template with threads") && said.contains(reason), "{call}: {said}");
		assert!(said.contains("templates of programs with one thread (without --threads)"), "{call}: {said}");
		assert!(program.place.list().is_empty());
		program.place.until_empty();
	}
}

/// As that line says.
#[test]
fn templates_with_one_thread_need_nothing_that_a_filter_refuses() {
	let place = Place::new();
	for (call, errno, _) in REFUSED {
		let warm = under(place.flashfork(&["warm", "t", "--", "sh"]), call, errno).output().unwrap();
		assert!(warm.status.success(), "{call}: {}", stderr(&warm));
		let clone = under(place.flashfork(&["clone", "t", "-c", "echo $((6 * 7))"]), call, errno).output().unwrap();
		assert_eq!(both(&clone), ("42\n", ""), "{call}");
		place.remove();
	}
}

//! Where a container's filter refuses calls that a template with threads needs.

use crate::place::{Place, both, good, line, pids, stderr, until};
use crate::programs::Program;
use std::{os::unix::process::CommandExt, process::Command};

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

/// Under a filter that refuses this call.
fn under(mut command: Command, call: i64, errno: i32) -> Command {
    let filter = [
        // Load the call's number; if it is not this one skip an instruction.
        libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: 1, k: call as u32 },
        libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ERRNO | errno as u32,
        },
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let enter = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: takes numbers, and a program that is a local.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: async-signal-safe calls only.
    unsafe { command.pre_exec(enter) };
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
        until("all is gone", || pids(&program.place, "").is_empty());
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
        good(place.run(&["rm", "t"]));
    }
}

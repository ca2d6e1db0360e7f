//! What to do about a refusal.

use crate::Reason;

/// What a program's author or user can do so that the reason doesn't arise. `None` where the memory is better left
/// alone: nothing is gained by changing the program.
pub fn cure(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Threads => {
            "seal before other threads start, or after they have ended, or allow them to be stopped \
             (flashfork run --threads; the option threads of a seal); processes made with CLONE_VM must have ended"
        }
        Reason::ThreadUnstoppable => "seal when no thread waits for a vfork child, a device or a file server",
        Reason::ThreadTraced => {
            "let go of the threads in debuggers; allow ptrace among the user's processes (sysctl kernel.yama.ptrace_scope=1 or 0)"
        }
        Reason::IoUring => "seal before the ring is made, or close it first",
        Reason::AsyncIo => "seal before io_setup, or call io_destroy first",
        Reason::Kvm => "seal before /dev/kvm is opened, or close it first",
        Reason::Vhost => "close the vhost device first",
        Reason::Vfio => "release the device first",
        Reason::Rdma => "deregister the memory and close the device first",
        Reason::Xdp => "close the AF_XDP socket first",
        Reason::Userfaultfd => "close the userfaultfd first",
        Reason::Gpu => "seal before the GPU is opened, or close it first",
        Reason::LocksFuture => "call munlockall before sealing",
        Reason::FileSizeLimit => "start the program with an unlimited hard limit (ulimit -f unlimited)",
        Reason::VmaLimit => "raise vm.max_map_count (sysctl vm.max_map_count=1048576)",
        Reason::LowMemory => "free memory, or raise the limit of the memory cgroup",
        Reason::LibcCalls => {
            "run the program without valgrind, without breakpoints in libc's memory functions, without tools that hook them, \
             and with the right to write its own code"
        }
        Reason::SystemCalls => {
            "leave the file out, load it in a program that is not sealed, or trust it if it never does so (flashfork run --trust FILE; \
             the option trust of a seal)"
        }
        Reason::Driver => "seal before the device is opened, or close it and unlock its memory first",
        Reason::SeccompFilter => "let the filter allow what a seal does, or seal before it is set",
        Reason::PagesInPipes => "seal before vmsplice, or write to the pipe instead",
        Reason::SharedDescriptors => {
            "seal before the other process is made (clone without CLONE_FILES gives it a table of its own), or in a clone of this one"
        }
        Reason::RestartableSequence => {
            "register it through the C library's syscall(), or leave it to the C library (glibc.pthread.rseq)"
        }
        Reason::NotReadable => "make the memory readable while it is sealed",
        Reason::Locked => "munlock the memory before sealing",
        Reason::DontDump => "use MADV_DODUMP if the memory holds no secrets",
        Reason::ProtectionKey => "give the memory protection key 0 while it is sealed",
        Reason::TooLarge => "use Linux 6.7 or later",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::never_seal::{Scope, TABLE};

    #[test]
    fn every_refusal_of_a_process_has_a_cure() {
        for row in TABLE.iter().filter(|row| row.scope == Scope::Process) {
            assert!(cure(row.reason).is_some(), "{}", row.name);
        }
        assert!(cure(Reason::LowMemory).is_some(), "unseal refuses with it");
        assert_eq!(cure(Reason::Shared), None);
    }
}

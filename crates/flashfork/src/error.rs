//! Why a seal was refused or failed.

use flashfork_core::{self as core, never_seal::Reason};

/// Why nothing was sealed. Memory is as it was, byte for byte, and a plain fork is correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The process holds something that forbids sealing.
    #[error("not sealed, {0}; forks stay plain")]
    Refused(Reason),
    /// An allocator or runtime in this process gives memory back with `MADV_DONTNEED` and trusts it to read zeros.
    #[error(
        "not sealed: {0} relies on MADV_DONTNEED giving zeros; run the program under `flashfork run`, whose shim sees to that"
    )]
    Allocator(&'static str),
    /// The engine was called from within itself, as from a signal handler.
    #[error("a seal of this process is under way")]
    Busy,
    /// A system call failed.
    #[error("can't {step}: {source}; memory is unchanged and forks stay plain")]
    System {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl From<core::Error> for SealError {
    fn from(e: core::Error) -> SealError {
        match e {
            core::Error::Refused(reason) => SealError::Refused(reason),
            core::Error::Busy => SealError::Busy,
            core::Error::System(step, errno) => SealError::System {
                step: match step {
                    core::Step::Begin => "prepare the seal",
                    core::Step::Look => "read the process's state in /proc/self",
                    core::Step::CreateMemfd => "make a memfd",
                    core::Step::Unseal => "make memory anonymous again",
                },
                source: std::io::Error::from_raw_os_error(errno.into_raw()),
            },
        }
    }
}

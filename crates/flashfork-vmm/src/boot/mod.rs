//! What a VM starts with.

mod tiny;

use crate::memory::Ram;
use kvm_bindings::{kvm_regs, kvm_sregs};

/// What to boot.
#[derive(Debug)]
pub enum Source {
    /// Real-mode code of at most a page, without any kernel: for tests and measurements.
    Tiny(Vec<u8>),
}

/// Registers the first vCPU starts with.
#[derive(Debug)]
pub struct Entry {
    pub(crate) regs: kvm_regs,
    /// Changes what a vCPU has after reset.
    pub(crate) sregs: fn(&mut kvm_sregs),
}

/// Why it can't be booted.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// It doesn't fit.
    #[error("{what} does not fit into the guest's memory: give it more")]
    Memory {
        /// Kernel, initramfs and so on.
        what: &'static str,
    },
}

impl Source {
    /// Puts it into mapped, empty RAM.
    pub(crate) fn load(&self, ram: &Ram) -> Result<Entry, BootError> {
        match self {
            Self::Tiny(code) => tiny::load(code, ram),
        }
    }
}

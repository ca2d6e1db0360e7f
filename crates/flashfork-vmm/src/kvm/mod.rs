//! What belongs to a VM as a whole: creation, CPUID, interrupt controllers, timer and clock.

mod cpuid;
mod interrupts;
mod vm;

pub use cpuid::{CpuidEntries, for_vcpu, supported};
pub use interrupts::{VmState, VmStateError};
pub use vm::{Vm, VmError};

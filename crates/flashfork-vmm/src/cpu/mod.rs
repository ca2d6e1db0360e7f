//! vCPUs: their state, its order, and running them.

mod exit;
mod msrs;
mod page_tables;
mod rehearsal;
mod restore;
mod save;
mod state;
mod thread;
mod tsc;
mod vcpu;

pub use exit::{Exit, RunError};
pub use msrs::Msrs;
pub use rehearsal::RehearsalError;
pub use state::{VcpuState, VcpuStateError};
pub use thread::{VcpuHandle, VcpuLoop, pair, wait_awake};
pub use tsc::TscOffset;
pub use vcpu::Vcpu;

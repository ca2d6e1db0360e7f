//! virtio 1.2 over MMIO: one transport for all devices, found by the guest through ACPI (LNRO0005).

pub mod blk;
mod device;
#[cfg(test)]
mod driver;
mod registers;
mod rng;
mod service;
mod state;
#[cfg(test)]
mod tests;
mod transport;
pub mod vsock;
mod window;

pub use device::{Broken, OWN_EVENTS, Queues, VirtioDevice};
pub use rng::Rng;
pub(super) use service::Service;
pub use state::VirtioState;
pub(super) use transport::Transport;
pub(super) use window::Window;

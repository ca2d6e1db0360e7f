//! Devices behind their transport and its thread, with a test as the driver: no KVM is needed.

mod blk;
mod fuzz;
mod hostile;
mod vsock;

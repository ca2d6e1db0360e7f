//! virtio-vsock: streams from the host to ports of the guest.
//!
//! The host hands in connected stream sockets; the device opens nothing by name, so a guest reaches nothing by itself:
//! its own connections to the host are refused. Connections don't survive a clone or rollback, listeners do.

mod connection;
mod connections;
mod connector;
mod device;
mod from_guest;
mod gate;
mod header;
mod to_guest;
mod wire;

pub use connector::Connector;
pub use device::Vsock;

//! Numbers of the protocol (virtio 1.2, 5.10).

pub(super) const RX: usize = 0;
pub(super) const TX: usize = 1;
/// Queue of events to the guest.
pub(super) const EVENT: usize = 2;

pub(super) const HOST_CID: u64 = 2;
pub(super) const STREAM: u16 = 1;

/// Greatest length of a packet's data (Linux: VIRTIO_VSOCK_MAX_PKT_BUF_SIZE).
pub(super) const MAX_DATA: usize = 64 << 10;

pub(super) mod op {
	pub(in super::super) const REQUEST: u16 = 1;
	pub(in super::super) const RESPONSE: u16 = 2;
	pub(in super::super) const RST: u16 = 3;
	pub(in super::super) const SHUTDOWN: u16 = 4;
	pub(in super::super) const RW: u16 = 5;
	pub(in super::super) const CREDIT_UPDATE: u16 = 6;
	pub(in super::super) const CREDIT_REQUEST: u16 = 7;
}

/// Flags of a shutdown: the sender receives no more, sends no more.
pub(super) const SHUTDOWN_RECEIVE: u32 = 1;
pub(super) const SHUTDOWN_SEND: u32 = 2;

/// Event: every connection is gone, and the context id may be another.
pub(super) const TRANSPORT_RESET: u32 = 0;

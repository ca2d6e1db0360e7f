//! The MMIO registers of a virtio device (virtio 1.2, 4.2.2).

/// "virt".
pub(super) const MAGIC_VALUE: u32 = 0x7472_6976;
/// Not the legacy interface.
pub(super) const VERSION: u32 = 2;
/// "FLSH".
pub(super) const VENDOR: u32 = 0x4853_4c46;

pub(super) const MAGIC: u64 = 0x000;
pub(super) const VERSION_REG: u64 = 0x004;
pub(super) const DEVICE_ID: u64 = 0x008;
pub(super) const VENDOR_ID: u64 = 0x00c;
pub(super) const DEVICE_FEATURES: u64 = 0x010;
pub(super) const DEVICE_FEATURES_SEL: u64 = 0x014;
pub(super) const DRIVER_FEATURES: u64 = 0x020;
pub(super) const DRIVER_FEATURES_SEL: u64 = 0x024;
pub(super) const QUEUE_SEL: u64 = 0x030;
pub(super) const QUEUE_SIZE_MAX: u64 = 0x034;
pub(super) const QUEUE_SIZE: u64 = 0x038;
pub(super) const QUEUE_READY: u64 = 0x044;
pub(super) const QUEUE_NOTIFY: u64 = 0x050;
pub(super) const INTERRUPT_STATUS: u64 = 0x060;
pub(super) const INTERRUPT_ACK: u64 = 0x064;
pub(super) const STATUS: u64 = 0x070;
pub(super) const QUEUE_DESC_LOW: u64 = 0x080;
pub(super) const QUEUE_DESC_HIGH: u64 = 0x084;
pub(super) const QUEUE_DRIVER_LOW: u64 = 0x090;
pub(super) const QUEUE_DRIVER_HIGH: u64 = 0x094;
pub(super) const QUEUE_DEVICE_LOW: u64 = 0x0a0;
pub(super) const QUEUE_DEVICE_HIGH: u64 = 0x0a4;
pub(super) const CONFIG_GENERATION: u64 = 0x0fc;
pub(super) const CONFIG: u64 = 0x100;

/// Interrupt status: a buffer was used.
pub(super) const USED_BUFFER: u32 = 1;
/// Interrupt status: the configuration, or the status, changed.
pub(super) const CONFIG_CHANGED: u32 = 2;

pub(super) mod status {
	pub(in super::super) const FEATURES_OK: u32 = 8;
	pub(in super::super) const DRIVER_OK: u32 = 4;
	pub(in super::super) const NEEDS_RESET: u32 = 64;
	/// All a driver may write.
	pub(in super::super) const DRIVERS: u32 = 1 | 2 | 4 | 8 | 128;
}

//! virtio-blk: a disk image that never changes, with the VM's writes in memory over it.

mod device;
mod disk;
mod overlay;
mod request;
mod seen;

pub use device::{Blk, DiskSlot};
pub use disk::{
	DEFAULT_LIMIT, Disk, DiskError, DiskState, FrozenDisk, Image, SECTOR, blank_overlay, empty_overlay, length,
	overlay_bytes,
};
pub use seen::Seen;

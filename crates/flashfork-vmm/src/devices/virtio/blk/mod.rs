//! virtio-blk: a disk image that never changes, with the VM's writes in memory over it.

mod device;
mod disk;
mod overlay;
mod request;

pub use device::{Blk, DiskSlot};
pub use disk::{DEFAULT_LIMIT, Disk, DiskError, DiskState, FrozenDisk, Image, blank_overlay, overlay_bytes};

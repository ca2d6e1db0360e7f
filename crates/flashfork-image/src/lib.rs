//! What a guest boots from: a kernel, an initramfs, a disk; made on the host, without root, from
//! Debian's packages and the user's directories.
//!
//! - [`guest::default_guest`]: Debian's cloud kernel and an initramfs with busybox and the agent.
//! - [`disk::from_dir`]: an ext4 image of a directory.
//! - [`KernelFiles`], [`Tree`]: the parts, of which the lab makes other guests.
//!
//! The library prints nothing and reads no environment variable; progress goes to the caller.

pub mod disk;
mod error;
pub mod guest;
mod host;
mod kernel;
mod root;

pub use error::ImageError;
pub use host::Program;
pub use kernel::{KernelFiles, Module};
pub use root::{GuestFile, Node, Tree};

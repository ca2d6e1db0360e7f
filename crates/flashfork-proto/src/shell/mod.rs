//! The protocol between the daemon and a shell.
//!
//! One `SOCK_SEQPACKET` Unix socket per shell, inherited as descriptor 3, with `/dev/kvm` as 4. A packet is one message
//! in postcard's encoding with the descriptors it needs: no message is ever half there, and descriptors can't stray to
//! another one. Both sides first send a [`Preamble`](crate::Preamble), as its own packet.
//!
//! The daemon speaks [`ToShell`], the shell [`FromShell`]. A shell that reads something that makes no
//! sense ends; so does one whose daemon goes away.

use crate::shape::MAX_DISK_SLOTS;

mod channel;
mod message;

pub use channel::{Channel, ChannelError, Received};
pub use message::{
	Boot, BootDisk, BootGuest, Claim, ClaimTimes, Ended, Extent, FromShell, Go, Origin, Pause, Renewal, Run, ToShell,
};

/// Version of this protocol. Any change of a message is a new version.
pub const VERSION: u16 = 7;

/// Greatest length of a message, in bytes: what the kernel's default socket buffer
/// (`net.core.wmem_default`) takes in one packet. A machine of 8 CPUs has some 120 KiB of state.
pub const MAX_MESSAGE: usize = 192 << 10;

/// Greatest number of memory files that make up one memory.
pub const MAX_LAYERS: usize = 8;

/// Greatest number of extents of one memory: with those of a machine's RAM and disks, and its state, they fit into a
/// message, and to map them takes some milliseconds.
pub const MAX_EXTENTS: usize = 2000;

/// Greatest number of pages of 4 KiB that a shell has there before it is claimed.
pub const MAX_POPULATED: u32 = 4096;

/// Greatest number of runs that these are in.
pub const MAX_RUNS: usize = 2000;

/// Greatest number of descriptors with a message: those of a claim, with RAM, and image and overlay of each disk.
pub const MAX_DESCRIPTORS: usize = MAX_LAYERS + (1 + MAX_DISK_SLOTS as usize) * (1 + MAX_LAYERS);

/// The shell's descriptor of its socket.
pub const SOCKET_FD: i32 = 0;

/// The shell's descriptor of `/dev/kvm`.
pub const KVM_FD: i32 = 1;

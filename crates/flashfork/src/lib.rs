//! Clone a warmed process by copy-on-write at a cost that does not grow with its memory, on any stock Linux kernel.
//!
//! ```no_run
//! use flashfork::{Forked, SealOptions};
//! let warm = vec![1u8; 1 << 30]; // whatever takes long to prepare
//! let report = flashfork::seal(&SealOptions::default())?;
//! println!("{} MB sealed in {:?}", report.sealed_bytes >> 20, report.elapsed);
//! // SAFETY: this program has one thread.
//! match unsafe { flashfork::fork()? } {
//!     Forked::Child => std::process::exit(i32::from(warm[7] != 1)),
//!     Forked::Parent(pid) => println!("clone {pid}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it refuses to do: seal a process with other threads, or one through whose memory a device or the kernel writes
//! (io_uring, KVM, userfaultfd …); seal what [`Reason`] lists. All that stays anonymous, and forks of it are plain.
//!
//! The library never prints, never exits and reads no environment variable.

mod allocator;
mod c_api;
pub mod cost;
mod cure;
mod error;
mod fresh;
mod host;
mod seal;

pub use cost::{CostError, CostModel};
pub use cure::cure;
pub use error::SealError;
pub use flashfork_core::never_seal::{self, Reason};
pub use host::{Capability, Host, HostId};
pub use seal::{Forked, Pages, SealOptions, SealReport, Stats, VmaReport, exclude, fork, seal, stats, unseal};

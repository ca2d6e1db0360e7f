//! Clone a warmed process by copy-on-write at a cost that does not grow with its memory, on stock Linux kernels.
//!
//! ```no_run
//! use flashfork::{Forked, SealOptions};
//! let warm = std::hint::black_box(vec![1u8; 1 << 30]); // whatever takes long to prepare
//! let report = flashfork::seal(&SealOptions::default())?;
//! println!("{report}");
//! // SAFETY: this program has one thread.
//! match unsafe { flashfork::fork()? } {
//!     Forked::Child => std::process::exit(i32::from(warm[7] != 1)),
//!     Forked::Parent(pid) => println!("clone {pid}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it refuses to do: seal a process with other threads (unless told that they may be stopped), or one through
//! whose memory a device or the kernel writes (io_uring, KVM, userfaultfd …); seal what [`Reason`] lists. All that
//! stays anonymous, and forks of it are plain.
//!
//! Two engines: sealed memory, on stock kernels, and [`odf`], forks that share page tables, on a patched one.
//!
//! [`templates`] is the other way: a program that was warmed waits as a process of its own, and any process of the same
//! user has clones of it.
//!
//! What a host can do is tried by [`Host::probe`], what clones cost there is told by a [`CostModel`]:
//!
//! ```no_run
//! use flashfork::cost::{Engine, Memory};
//! use flashfork::{CostModel, Host};
//! for c in Host::probe().capabilities.iter().filter(|c| !c.available) {
//!     println!("{}: {}; without it {}. {}", c.name, c.detail, c.without, c.cure);
//! }
//! let model = CostModel::load("cost.json").or_else(|_| CostModel::calibrate())?;
//! model.save("cost.json")?;
//! println!("1 GB: {:?}", model.fork_time(Engine::Fork, Memory::clean(1 << 30)));
//! # Ok::<(), flashfork::CostError>(())
//! ```
//!
//! The library never prints, never exits and reads no environment variable.

mod allocator;
mod c_api;
mod c_api_clones;
mod c_api_region;
mod c_api_snapshot;
mod c_api_templates;
mod clock;
pub mod code;
pub mod cost;
mod error;
mod fresh;
mod host;
mod memory;
pub mod odf;
mod on_clone;
mod ready;
mod region;
mod seal;
mod snapshot;

pub use cost::{CostError, CostModel};
pub use error::SealError;
pub use flashfork_core::never_seal::{self, Reason};
pub use flashfork_templates as templates;
pub use host::{Capability, Headroom, Host, HostId};
pub use odf::OdfError;
pub use on_clone::on_clone;
pub use ready::ready;
pub use region::{Region, RegionError};
pub use seal::{
	Forked, Pages, Pauses, SealOptions, SealReport, Stats, Threads, VmaReport, exclude, fork, seal, stats, unseal,
};
pub use snapshot::{SnapshotError, SnapshotOptions, discard_snapshot, restore, snapshot};

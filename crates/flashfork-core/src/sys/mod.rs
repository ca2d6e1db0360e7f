//! The system calls the engine makes, each a thin typed wrapper over the raw instruction.
//!
//! Raw, because libc may allocate, take locks or touch `errno` in thread-local storage, all of them in memory that is
//! about to be copied.

mod bytes;
mod files;
mod memory;
mod mounts;
mod process;
mod raw;
mod signals;
mod threads;
mod time;

pub use bytes::{copy_bytes, same_page, zero_bytes};
pub use files::*;
pub use memory::*;
pub use mounts::*;
pub use process::*;
pub(crate) use raw::numeric;
pub use raw::{Result, call, instruction};
pub use signals::*;
pub use syscalls::Errno;
pub use threads::*;
pub use time::{give_way, now_ns, pause_briefly, sleep_ns, thread_cpu_ns};

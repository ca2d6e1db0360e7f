//! Boots a Linux kernel under QEMU and runs one command in it.
//!
//! The guest is a kernel, an initramfs with busybox and the files the caller names, and nothing
//! else: no disk image, no network, no state kept between runs. It gives tests what the host may
//! lack: swap, another THP mode, a memory cgroup, another kernel, nested KVM.
//!
//! ```no_run
//! use flashfork_lab::{Collected, Kernel, Lab, Options, Status};
//!
//! let lab = Lab::new("/var/cache/flashfork/lab")?;
//! let options = Options { kernel: Kernel::Debian6_12, swap_mib: 256, ..Options::default() };
//! let mut output = Collected::default();
//! let outcome = lab.run(&options, &["cat", "/proc/swaps"], &mut output)?;
//! assert_eq!(outcome.status, Status::Exited(0));
//! # Ok::<(), flashfork_lab::LabError>(())
//! ```
//!
//! The library prints nothing and reads no environment variable: progress and output go to the
//! caller's [`Output`]. `lab/README.md` says how a guest is made and where its limits are.

mod accel;
mod console;
mod control;
mod error;
mod lab;
mod options;
mod outcome;
mod output;
mod qemu;
mod root;
mod session;

pub use flashfork_image::{GuestFile, ImageError};

pub use error::{Console, LabError, Phase};
pub use lab::{Lab, cache_dir};
pub use options::{Kernel, Options, ParseKernelError, ParseThpError, Thp};
pub use outcome::{Accel, Outcome, Status};
pub use output::{Collected, Output};

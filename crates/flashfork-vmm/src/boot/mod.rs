//! What a VM starts with.

mod acpi;
mod linux;
mod memory_map;
mod pvh;
mod tables;
mod tiny;

pub use tiny::ADDRESS as TINY_ADDRESS;

use crate::memory::Ram;
use flashfork_proto::shape::Shape;
use kvm_bindings::{kvm_regs, kvm_sregs};
use std::fs::File;

/// What to boot.
#[derive(Debug)]
pub enum Source {
	/// A Linux kernel, or another loaded like one.
	Linux {
		/// A bzImage, or an ELF file with a PVH entry.
		kernel: File,
		/// Initramfs.
		initrd: Option<File>,
		/// Command line, up to [`crate::layout::CMDLINE_MAX`] bytes.
		cmdline: String,
	},
	/// Real-mode code of at most a page, without any kernel: for tests and measurements.
	Tiny(Vec<u8>),
}

/// Registers the first vCPU starts with.
#[derive(Debug)]
pub struct Entry {
	pub(crate) regs: kvm_regs,
	/// Changes what a vCPU has after reset.
	pub(crate) sregs: fn(&mut kvm_sregs),
}

/// Why it can't be booted.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
	/// It doesn't fit.
	#[error("{what} does not fit into the guest's memory: give it more")]
	Memory {
		/// Kernel, initramfs and so on.
		what: &'static str,
	},
	/// Neither kind of kernel, or damaged.
	#[error("cannot load the kernel: {0}; give a bzImage, or an ELF file with a PVH note (CONFIG_PVH)")]
	Kernel(String),
	/// A file can't be read.
	#[error("cannot read the initramfs: {0}")]
	Initrd(String),
	/// Too long, or with a NUL in it.
	#[error("the kernel's command line {0}")]
	Cmdline(String),
	/// ACPI tables outgrew their place.
	#[error("cannot write the guest's ACPI tables: {0}")]
	Acpi(String),
}

impl Source {
	/// Puts it into mapped, empty RAM.
	pub(crate) fn load(&self, shape: &Shape, ram: &Ram) -> Result<Entry, BootError> {
		match self {
			Self::Tiny(code) => tiny::load(code, ram),
			Self::Linux { kernel, initrd, cmdline } => {
				linux::load(kernel, initrd.as_ref(), cmdline, shape, ram.guest())
			}
		}
	}
}

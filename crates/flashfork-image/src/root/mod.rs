//! Roots of guests: a tree of files that becomes an initramfs.

mod archive;
mod libraries;
mod tree;

use std::{
	fs::File,
	path::{Path, PathBuf},
};

use crate::{
	ImageError,
	host::{busybox, busybox_applet},
};

pub use tree::{Node, Tree};

/// A file or directory of the host and where it goes in the guest's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
	/// Path on the host. A symbolic link is followed; links inside a directory stay links.
	pub host: PathBuf,
	/// Absolute path in the guest.
	pub guest: PathBuf,
}

impl GuestFile {
	/// The host's file under the same absolute path in the guest.
	///
	/// # Errors
	/// If there is no current directory for a relative path.
	pub fn at_same_path(path: impl AsRef<Path>) -> std::io::Result<Self> {
		let path = std::path::absolute(path)?;
		Ok(Self { host: path.clone(), guest: path })
	}
}

impl Tree {
	/// Adds busybox as `/usr/bin/busybox` with a link for each of its applets.
	pub fn add_busybox(&mut self) -> Result<(), ImageError> {
		self.add_from_host(&GuestFile { host: busybox()?.to_owned(), guest: "/usr/bin/busybox".into() })?;
		let applets = busybox_applet("--list", None)?;
		for name in String::from_utf8_lossy(&applets).lines() {
			if name != "busybox" {
				self.add_link(&format!("/usr/bin/{name}"), "busybox");
			}
		}
		Ok(())
	}

	/// Adds the shared libraries of every ELF file in it at the paths the host has them.
	pub fn add_libraries(&mut self) -> Result<(), ImageError> {
		libraries::add_needed(self)
	}

	/// Writes it to `out` as the archive that the kernel unpacks at boot.
	pub fn write(&self, out: &mut File) -> Result<(), ImageError> {
		archive::write(self, out)
	}
}

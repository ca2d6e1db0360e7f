//! What the kernel's command line says to init: `README.md` of this crate has the words.

use std::path::PathBuf;

use crate::serve::Place;

/// The words that begin with this are meant for init.
const PREFIX: &str = "flashfork.";

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
	/// Where to answer the host.
	pub serve: Option<Place>,
	/// How to say that the guest is ready.
	pub ready: Option<Ready>,
	/// The disk that becomes the root.
	pub root: Option<Root>,
	/// Keep a shell on the console.
	pub shell: bool,
}

/// A disk with an ext4 file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
	/// Its device.
	pub device: PathBuf,
	/// Only read it.
	pub overlay: bool,
}

/// Ways to say that the guest is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
	/// The fork signal; clones go on from it.
	Fork,
	/// A hello to the host's vsock port.
	Vsock,
}

impl Options {
	/// The options in a kernel's command line. A word for init that it doesn't know is an error:
	/// the guest would do something else than was asked for.
	pub fn parse(command_line: &str) -> Result<Self, String> {
		let mut options = Self::default();
		let mut overlay = false;
		for word in command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix(PREFIX)) {
			match word.split_once('=').unwrap_or((word, "")) {
				("serve", place) => options.serve = Some(Place::parse(place)?),
				("ready", "fork") => options.ready = Some(Ready::Fork),
				("ready", "vsock") => options.ready = Some(Ready::Vsock),
				("root", device) if device.starts_with("/dev/") => {
					options.root = Some(Root { device: device.into(), overlay: false });
				}
				("overlay", "") => overlay = true,
				("shell", "") => options.shell = true,
				_ => return Err(format!("flashfork.{word} on the kernel's command line means nothing")),
			}
		}
		match &mut options.root {
			Some(root) => root.overlay = overlay,
			None if overlay => return Err("flashfork.overlay needs flashfork.root".into()),
			None => {}
		}
		Ok(options)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn only_words_with_the_prefix_count() {
		assert_eq!(Options::parse("console=ttyS0 root=/dev/vda ready=fork\n"), Ok(Options::default()));
		let options = Options::parse("flashfork.root=/dev/vda quiet flashfork.overlay flashfork.serve=vsock").unwrap();
		assert_eq!(options.root, Some(Root { device: "/dev/vda".into(), overlay: true }));
		assert_eq!(options.serve, Some(Place::Vsock));
	}

	#[test]
	fn what_means_nothing_is_an_error() {
		for bad in ["flashfork.raedy=fork", "flashfork.ready=now", "flashfork.overlay", "flashfork.root=vda"] {
			assert!(Options::parse(bad).is_err(), "{bad}");
		}
	}
}

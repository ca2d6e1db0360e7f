//! Why an image could not be made.

use std::{
	io,
	path::{Path, PathBuf},
};

/// An image that could not be made. The message is one line: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
	/// A program of the host is missing.
	#[error("{program} is missing: install it with `apt-get install {package}`")]
	MissingProgram {
		/// Its name.
		program: &'static str,
		/// The Debian package that has it.
		package: &'static str,
	},
	/// A program of the host failed.
	#[error("{program} failed ({status}): {detail}")]
	Program {
		/// Its name.
		program: &'static str,
		/// Its exit status.
		status: std::process::ExitStatus,
		/// The last line it wrote to standard error, or what was asked of it.
		detail: String,
	},
	/// The package sources have no such kernel.
	#[error(
		"no Debian {series} cloud kernel in the package sources: run `apt-get update` as root, \
		 or give a kernel image"
	)]
	NoKernel {
		/// The series, such as `6.12`.
		series: &'static str,
	},
	/// The kernel lacks a module that an option needs.
	#[error("the kernel has no module {module} in {}, which the options need", modules.display())]
	NoModule {
		/// The module.
		module: String,
		/// Where it was looked for.
		modules: PathBuf,
	},
	/// A program to be put into the root needs a library that the host doesn't have.
	#[error("{} needs {library}, which the loader of this machine does not find", binary.display())]
	MissingLibrary {
		/// The program.
		binary: PathBuf,
		/// The library's name.
		library: String,
	},
	/// A path can't be put into the root.
	#[error("{} can't be put into the guest's root: {reason}", path.display())]
	Unfit {
		/// Path on the host.
		path: PathBuf,
		/// Why.
		reason: &'static str,
	},
	/// What an image is made of needs more than it was to have.
	#[error("an image of {given} MiB has no room for what is in {}: {needed} MiB are enough", directory.display())]
	TooSmall {
		/// What it is made of.
		directory: PathBuf,
		/// MiB asked for.
		given: u64,
		/// MiB in which that has room.
		needed: u64,
	},
	/// There is something where an image was to be made.
	#[error("{} exists already: remove it or give another name", path.display())]
	Exists {
		/// The path.
		path: PathBuf,
	},
	/// A file operation on the host failed.
	#[error("{what} {}: {source}", path.display())]
	Io {
		/// What was tried, such as `cannot read`.
		what: &'static str,
		/// On what.
		path: PathBuf,
		/// The system's answer.
		source: io::Error,
	},
}

impl ImageError {
	/// For `map_err`: wraps an I/O error with what was done to which path.
	pub fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
		move |source| Self::Io { what, path: path.to_owned(), source }
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_missing_program_names_its_package() {
		let error = ImageError::MissingProgram { program: "busybox", package: "busybox-static" };
		assert_eq!(error.to_string(), "busybox is missing: install it with `apt-get install busybox-static`");
	}
}

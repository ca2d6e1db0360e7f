//! Programs of the host that this crate and the lab call.

use std::{
	ffi::OsStr,
	io,
	path::{Path, PathBuf},
	process::{Command, Output},
};

use crate::ImageError;

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
	/// Its name, found in PATH.
	pub name: &'static str,
	/// The package.
	pub package: &'static str,
}

pub const APT_GET: Program = Program { name: "apt-get", package: "apt" };
pub const APT_CACHE: Program = Program { name: "apt-cache", package: "apt" };
pub const DPKG_DEB: Program = Program { name: "dpkg-deb", package: "dpkg" };
pub const LDD: Program = Program { name: "ldd", package: "libc-bin" };
pub const MKFS: Program = Program { name: "mkfs.ext4", package: "e2fsprogs" };
const BUSYBOX: Program = Program { name: "busybox", package: "busybox-static" };

impl Program {
	/// The program as a command whose messages are in English, since some are parsed.
	#[must_use]
	pub fn command(&self) -> Command {
		let mut command = Command::new(self.name);
		command.env("LC_ALL", "C");
		command
	}

	/// What a failure to start it means.
	#[must_use]
	pub fn not_started(&self, error: io::Error) -> ImageError {
		if error.kind() == io::ErrorKind::NotFound {
			ImageError::MissingProgram { program: self.name, package: self.package }
		} else {
			ImageError::Io { what: "cannot start", path: self.name.into(), source: error }
		}
	}

	/// Runs `command` to its end; its exit status is the caller's to judge.
	///
	/// # Errors
	/// See [`not_started`](Self::not_started).
	pub fn output(&self, command: &mut Command) -> Result<Output, ImageError> {
		command.output().map_err(|error| self.not_started(error))
	}

	/// Runs `command` to its end and returns its standard output.
	///
	/// # Errors
	/// See [`not_started`](Self::not_started) and [`failed`](Self::failed).
	pub fn success(&self, command: &mut Command) -> Result<Vec<u8>, ImageError> {
		let output = self.output(command)?;
		if output.status.success() { Ok(output.stdout) } else { Err(self.failed(&output)) }
	}

	/// The error for a run that ended badly.
	#[must_use]
	pub fn failed(&self, output: &Output) -> ImageError {
		let text = String::from_utf8_lossy(&output.stderr);
		let detail = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
		ImageError::Program { program: self.name, status: output.status, detail: detail.to_owned() }
	}
}

/// Where busybox is.
pub fn busybox() -> Result<&'static Path, ImageError> {
	["/usr/bin/busybox", "/bin/busybox"]
		.map(Path::new)
		.into_iter()
		.find(|path| path.is_file())
		.ok_or(ImageError::MissingProgram { program: BUSYBOX.name, package: BUSYBOX.package })
}

/// Runs a busybox applet on a file and returns its standard output.
pub fn busybox_applet(applet: &str, file: Option<&Path>) -> Result<Vec<u8>, ImageError> {
	let mut command = Command::new(busybox()?);
	command.arg(applet).args(file.map(Path::as_os_str));
	BUSYBOX.success(&mut command)
}

/// The only entry of `dir` whose extension is `extension`.
pub fn only_file(dir: &Path, extension: &str) -> Result<PathBuf, ImageError> {
	let entries = dir.read_dir().map_err(ImageError::io("cannot list", dir))?;
	let mut found = None;
	for entry in entries {
		let path = entry.map_err(ImageError::io("cannot list", dir))?.path();
		if path.extension() == Some(OsStr::new(extension)) {
			found = Some(path);
		}
	}
	found.ok_or_else(|| ImageError::Io {
		what: "no package file in",
		path: dir.to_owned(),
		source: io::ErrorKind::NotFound.into(),
	})
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_program_that_is_not_there_is_named_with_its_package() {
		let program = Program { name: "flashfork-no-such-program", package: "some-package" };
		let error = program.success(&mut program.command()).unwrap_err();
		assert!(matches!(error, ImageError::MissingProgram { package: "some-package", .. }));
	}

	#[test]
	fn a_failure_carries_the_last_line_of_standard_error() {
		let error = DPKG_DEB.success(DPKG_DEB.command().args(["--info", "/dev/null"])).unwrap_err();
		assert!(matches!(&error, ImageError::Program { detail, .. } if detail.contains("dpkg-deb")), "{error}");
	}
}

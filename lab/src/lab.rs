//! The lab itself: from options and a command to an outcome.

use std::{
	ffi::{OsStr, OsString},
	fs::{self, File},
	path::{Path, PathBuf},
	time::Duration,
};

use flashfork_image::KernelFiles;

use crate::{
	Accel, Collected, Kernel, LabError, Options, Outcome, Output, Status, accel, qemu::Qemu, root, session::Session,
};

/// Time a guest on KVM has to boot before the host's KVM is held unable to.
const PROBE: Duration = Duration::from_secs(20);

/// Boots kernels. Runs may be made at the same time, from threads or processes.
#[derive(Clone, Debug)]
pub struct Lab {
	cache: PathBuf,
}

/// Where the lab keeps its kernels by convention: `flashfork/lab` under the given values of
/// `XDG_CACHE_HOME` or, without it, of `HOME` (XDG Base Directory Specification). `None` if
/// neither is an absolute path.
#[must_use]
pub fn cache_dir(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
	let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
	absolute(xdg_cache_home).or_else(|| Some(absolute(home)?.join(".cache"))).map(|base| base.join("flashfork/lab"))
}

impl Lab {
	/// A lab that keeps kernels, some hundred megabytes, in the directory `cache`; it is created
	/// if needed and may be deleted at any time when no run is going on. See [`cache_dir`].
	pub fn new(cache: impl Into<PathBuf>) -> Result<Self, LabError> {
		let cache = cache.into();
		fs::create_dir_all(&cache).map_err(LabError::io("cannot create", &cache))?;
		Ok(Self { cache })
	}

	/// Boots a guest as `options` say and runs `command` in it, with its output going to `output`.
	///
	/// `command` is found in the guest: busybox's applets are on its `PATH`, and so is what
	/// [`Options::files`] put into `/usr/bin`. A path with a `/` that is a file on the host comes
	/// along by itself, with its shared libraries. It runs in `/tmp` with an empty standard input;
	/// what it leaves running is killed when it ends.
	///
	/// The guest is killed when the calling thread ends before it, however it ends.
	///
	/// The first run with one of Debian's kernels downloads it; the first run on a host that has
	/// `/dev/kvm` tries whether Linux boots on it.
	///
	/// # Errors
	/// See [`LabError`]. A command that fails is no error, but an [`Outcome`].
	pub fn run<S: AsRef<OsStr>>(
		&self,
		options: &Options,
		command: &[S],
		output: &mut dyn Output,
	) -> Result<Outcome, LabError> {
		options.check()?;
		let kernel = self.kernel(&options.kernel, output)?;
		let accel = match accel::forced(options) {
			Some(accel) => accel,
			None => accel::remembered(&self.cache, || self.kvm_boots(&options.kernel, output))?,
		};
		self.boot(options, accel, &kernel, command, output)
	}

	fn kernel(&self, kernel: &Kernel, output: &mut dyn Output) -> Result<KernelFiles, LabError> {
		let progress = &mut |line: &str| output.progress(line);
		let files = match kernel {
			Kernel::Debian6_1 => KernelFiles::debian("6.1", &self.cache, progress),
			Kernel::Debian6_12 => KernelFiles::debian("6.12", &self.cache, progress),
			Kernel::Image { image, modules } => KernelFiles::own(image, modules.as_deref()),
		};
		Ok(files?)
	}

	/// Whether a guest boots on the host's KVM. A kernel of the caller's own is not held against
	/// KVM: Debian's is tried instead.
	fn kvm_boots(&self, wanted: &Kernel, output: &mut dyn Output) -> Result<bool, LabError> {
		let kernel = match wanted {
			Kernel::Image { .. } => &Kernel::Debian6_12,
			debian => debian,
		};
		let files = self.kernel(kernel, output)?;
		output.progress("trying whether Linux boots on this machine's /dev/kvm");
		let options = Options { kernel: kernel.clone(), memory_mib: 512, timeout: PROBE, ..Options::default() };
		let outcome = self.boot(&options, Accel::Kvm, &files, &["true"], &mut Collected::default());
		match outcome {
			Ok(outcome) => Ok(outcome.status == Status::Exited(0)),
			Err(
				LabError::Qemu { .. } | LabError::Timeout { .. } | LabError::Panic { .. } | LabError::WentDown { .. },
			) => {
				output.progress("it does not: guests run on emulation");
				Ok(false)
			}
			Err(other) => Err(other),
		}
	}

	fn boot<S: AsRef<OsStr>>(
		&self,
		options: &Options,
		accel: Accel,
		kernel: &KernelFiles,
		command: &[S],
		output: &mut dyn Output,
	) -> Result<Outcome, LabError> {
		let root = root::build(options, kernel, command, &self.cache)?;
		let swap = match options.swap_mib {
			0 => None,
			mib => Some(swap_disk(mib, &self.cache)?),
		};
		let qemu = Qemu::start(options, accel, kernel, root, swap)?;
		Session::new(qemu, output).run(accel, options.timeout)
	}
}

/// An unnamed sparse file: it takes room on the host as the guest swaps.
fn swap_disk(mib: u32, scratch: &Path) -> Result<File, LabError> {
	tempfile::tempfile_in(scratch)
		.and_then(|file| file.set_len(u64::from(mib) << 20).map(|()| file))
		.map_err(LabError::io("cannot create a swap disk in", scratch))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_cache_follows_xdg() {
		let dir = |xdg: Option<&str>, home: Option<&str>| cache_dir(xdg.map(Into::into), home.map(Into::into));
		assert_eq!(dir(Some("/x"), Some("/h")).unwrap(), Path::new("/x/flashfork/lab"));
		assert_eq!(dir(None, Some("/h")).unwrap(), Path::new("/h/.cache/flashfork/lab"));
		assert_eq!(dir(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.cache/flashfork/lab"));
		assert_eq!(dir(None, None), None);
	}
}

//! Finds a kernel, downloading it once if it is one of Debian's.

mod modules;
mod package;

use std::path::{Path, PathBuf};

use crate::ImageError;

pub use modules::Module;

/// A kernel ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFiles {
	/// The bzImage.
	pub image: PathBuf,
	/// The directory with `kernel/` and `modules.builtin`.
	pub modules: Option<PathBuf>,
}

impl KernelFiles {
	/// The newest cloud kernel of `series`, such as `6.12`, that is in the directory `cache`, or, if
	/// there is none, in the host's package sources.
	pub fn debian(series: &'static str, cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self, ImageError> {
		package::cached_or_downloaded(series, cache, progress)
	}

	/// The newest cloud kernel of `series` that is in the directory `cache`, if any; nothing is downloaded.
	///
	/// # Errors
	/// [`ImageError::Io`].
	pub fn cached(series: &str, cache: &Path) -> Result<Option<Self>, ImageError> {
		package::cached(series, cache)
	}

	/// A kernel of one's own.
	///
	/// # Errors
	/// [`ImageError::Io`] if there is no such file.
	pub fn own(image: &Path, modules: Option<&Path>) -> Result<Self, ImageError> {
		let image = image.canonicalize().map_err(ImageError::io("cannot find the kernel image", image))?;
		Ok(Self { image, modules: modules.map(Path::to_owned) })
	}

	/// The modules to load, in this order, so that everything in `wanted` is there. A name built into the kernel needs
	/// no module; without a module directory all of them are taken to be built in.
	pub fn load_order(&self, wanted: &[&str]) -> Result<Vec<Module>, ImageError> {
		match &self.modules {
			Some(dir) if !wanted.is_empty() => modules::load_order(dir, wanted),
			_ => Ok(Vec::new()),
		}
	}
}

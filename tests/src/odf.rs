//! The kernel with on-demand fork, for tests in the lab.

use crate::Result;
use std::path::PathBuf;

/// The bzImage that `FLASHFORK_ODF_KERNEL` names, or why there is none, in one line.
///
/// # Panics
/// When it names something else.
pub fn kernel() -> Result<PathBuf> {
	let image = std::env::var_os("FLASHFORK_ODF_KERNEL").map(PathBuf::from);
	let image = image
		.ok_or("FLASHFORK_ODF_KERNEL names no kernel with on-demand fork (kernel/scripts/build odf guest makes one)")?;
	assert!(image.is_file(), "FLASHFORK_ODF_KERNEL: {} is no file", image.display());
	Ok(image)
}

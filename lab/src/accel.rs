//! Whether this host's `/dev/kvm` can be used. A device that opens proves little: inside some
//! virtual machines it runs small guests and no Linux. So one is booted, once per host kernel.

use std::{
	fs::{self, OpenOptions},
	path::Path,
};

use crate::{Accel, LabError, Options};

/// How `options` must run, as far as no probe is needed to know.
pub(crate) fn forced(options: &Options) -> Option<Accel> {
	// Instruction counting and the emulated AMD CPU exist in the emulator only.
	let emulated = options.icount || options.nested_kvm || !kvm_opens();
	emulated.then_some(Accel::Tcg)
}

fn kvm_opens() -> bool {
	OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// The remembered answer for this host kernel in `cache`, or that of `boots`, which is remembered.
pub(crate) fn remembered(cache: &Path, boots: impl FnOnce() -> Result<bool, LabError>) -> Result<Accel, LabError> {
	let release = rustix::system::uname();
	let path = cache.join(format!("kvm-{}", release.release().to_string_lossy()));
	let known = fs::read_to_string(&path).ok();
	let usable = match known.as_deref() {
		Some(YES) => true,
		Some(NO) => false,
		// None yet, or a run was cut off while it wrote.
		_ => {
			let usable = boots()?;
			let answer = if usable { YES } else { NO };
			fs::write(&path, answer).map_err(LabError::io("cannot write", &path))?;
			usable
		}
	};
	Ok(if usable { Accel::Kvm } else { Accel::Tcg })
}

const YES: &str = "Linux guests boot\n";
const NO: &str = "Linux guests do not boot\n";

#[cfg(test)]
mod tests {
	use super::*;
	use crate::ImageError;

	#[test]
	fn the_probe_runs_once() {
		let cache = tempfile::tempdir().unwrap();
		let first = remembered(cache.path(), || Ok(false)).unwrap();
		let second = remembered(cache.path(), || panic!("probed twice")).unwrap();
		assert_eq!((first, second), (Accel::Tcg, Accel::Tcg));
	}

	#[test]
	fn a_probe_that_could_not_be_made_is_not_remembered() {
		let cache = tempfile::tempdir().unwrap();
		let missing = || Err(ImageError::MissingProgram { program: "p", package: "p" }.into());
		assert!(remembered(cache.path(), missing).is_err());
		assert_eq!(remembered(cache.path(), || Ok(true)).unwrap(), Accel::Kvm);
	}

	#[test]
	fn counting_and_nesting_are_emulated() {
		let icount = Options { icount: true, ..Options::default() };
		let nested = Options { nested_kvm: true, ..Options::default() };
		assert_eq!(forced(&icount), Some(Accel::Tcg));
		assert_eq!(forced(&nested), Some(Accel::Tcg));
	}
}

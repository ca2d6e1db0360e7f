//! The default guest with the agent of this tree.

use std::{
	path::{Path, PathBuf},
	process::Command,
};

use flashfork_image::guest::{Guest, default_guest};

/// Where kernels and guests are kept, as by the command.
pub fn cache() -> PathBuf {
	flashfork_lab::cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).expect("HOME is set")
}

/// Builds the agent and the guest, if they are not up to date.
pub fn guest() -> Guest {
	let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-agent");
	let built = Command::new(script).output().unwrap();
	assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
	let agent = String::from_utf8(built.stdout).unwrap();
	default_guest(&cache(), Path::new(agent.trim()), &mut |line| eprintln!("{line}")).unwrap()
}

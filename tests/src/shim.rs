//! The shim to load into a test program.

use std::{
	path::{Path, PathBuf},
	process::Command,
	sync::OnceLock,
};

/// The built `libflashfork_preload.so`: what `FLASHFORK_SHIM` names, or built with the profile of the running test.
///
/// Cargo can't make a package depend on another one's shared object, hence the call of cargo.
///
/// # Panics
/// When it can't be built.
pub fn path() -> &'static Path {
	static PATH: OnceLock<PathBuf> = OnceLock::new();
	PATH.get_or_init(|| std::env::var_os("FLASHFORK_SHIM").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
	let exe = std::env::current_exe().expect("the path of the running program");
	// target/PROFILE/program, or target/PROFILE/deps/test-HASH
	let profile_dir = exe.ancestors().skip(1).find(|d| !d.ends_with("deps")).expect("a target directory");
	let target = profile_dir.parent().expect("a target directory");
	let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
	let mut build = Command::new(cargo);
	build.args(["build", "--quiet", "--package", "flashfork-preload", "--target-dir"]).arg(target);
	build.current_dir(env!("CARGO_MANIFEST_DIR"));
	if profile_dir.ends_with("release") {
		build.arg("--release");
	}
	let status = build.status().expect("cargo runs");
	assert!(status.success(), "the shim does not build: {status}");
	profile_dir.join("libflashfork_preload.so")
}

//! The C libraries, installed for the tests of a package.
#![allow(dead_code)] // each test program uses a part

use std::{
	path::{Path, PathBuf},
	process::{Command, Output},
	sync::OnceLock,
};

pub fn prefix() -> &'static Path {
	static PREFIX: OnceLock<PathBuf> = OnceLock::new();
	PREFIX.get_or_init(|| {
		let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
		let prefix = tmp.join(concat!("installed-", env!("CARGO_PKG_NAME")));
		let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../flashfork/install-c.sh");
		let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
		let mut install = Command::new(script);
		install.arg(&prefix).arg(profile).env("CARGO", env!("CARGO")).env("CARGO_TARGET_DIR", tmp.parent().unwrap());
		succeed(&mut install);
		prefix
	})
}

pub fn succeed(command: &mut Command) -> String {
	let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("can't run {command:?}: {e}"));
	let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
	assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
	stdout
}

pub fn shim() -> PathBuf {
	let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
	let mut build = Command::new(env!("CARGO"));
	succeed(build.args(["build", "--locked", "--quiet", "-p", "flashfork-preload", "--target-dir"]).arg(target));
	target.join("debug/libflashfork_preload.so")
}

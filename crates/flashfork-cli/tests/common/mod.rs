//! The command as it is typed. That is its launcher, which cargo does not build for these tests by itself, because it
//! is another package's.

use std::{process::Command, sync::Once};

#[allow(dead_code, unused_imports, reason = "not every test that has this module needs all of it")]
mod before;
#[allow(unused_imports, reason = "as above")]
pub use before::{Before, act, block, forbid, limit};

/// The launcher, with the command beside it.
pub fn flashfork() -> &'static str {
	static BUILT: Once = Once::new();
	BUILT.call_once(|| build(&["flashfork-launcher"]));
	env!("CARGO_BIN_EXE_flashfork-cli").strip_suffix("-cli").unwrap()
}

pub fn target() -> &'static std::path::Path {
	std::path::Path::new(env!("CARGO_BIN_EXE_flashfork-cli")).ancestors().nth(2).unwrap()
}

/// Copies a program. Not in this process: a child that another test forks meanwhile would hold the file open to write,
/// and nobody could run it (`ETXTBSY`).
#[allow(dead_code, reason = "not every test that has this module copies one")]
pub fn copy(from: &std::path::Path, to: &std::path::Path) {
	assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

pub fn build(packages: &[&str]) {
	let mut build = Command::new(env!("CARGO"));
	build.args(["build", "--locked"]).args(packages.iter().map(|name| format!("-p{name}")));
	assert!(build.arg("--target-dir").arg(target()).status().unwrap().success());
}

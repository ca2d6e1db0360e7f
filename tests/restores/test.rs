//! Restores without a difference, in a program that uses malloc, stdio and SQLite: 2,000, or 100,000 with
//! `FLASHFORK_TEST_ALL=1`.

use flashfork_tests::own_code::TRUST;
use std::process::Command;

fn restores(preload: Option<&std::path::Path>, way: &[&str]) {
	let times = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { "100000" } else { "2000" };
	let mut command = Command::new(env!("CARGO_BIN_EXE_restores"));
	command.arg(times).args(way);
	if let Some(shim) = preload {
		command.env("LD_PRELOAD", shim).env(TRUST.0, TRUST.1);
	}
	let status = command.status().expect("it starts");
	assert!(status.success(), "{status}; the message is above");
}

#[test]
fn every_restore_gives_back_malloc_stdio_and_sqlite() {
	restores(None, &[]);
}

#[test]
fn so_does_every_one_that_drops() {
	restores(None, &["drop"]);
}

#[test]
fn so_does_every_one_that_copies() {
	restores(None, &["copy"]);
}

#[test]
fn so_does_every_one_under_the_shim() {
	restores(Some(flashfork_tests::shim::path()), &[]);
}

//! Clones that write where nothing was leave no memory behind: 2,000 forks, or 100,000 with `FLASHFORK_TEST_ALL=1`.

use flashfork_tests::own_code::TRUST;
use std::process::Command;

fn constant(route: &str) {
	let forks = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { "100000" } else { "2000" };
	let mut command = Command::new(env!("CARGO_BIN_EXE_growth"));
	command.args([route, forks]);
	if route == "shim" {
		command.env("LD_PRELOAD", flashfork_tests::shim::path()).env("FLASHFORK_ENGINE", "fork").env(TRUST.0, TRUST.1);
	}
	let status = command.status().expect("it starts");
	if status.code() != Some(77) {
		assert!(status.success(), "{status}; the message is above");
	}
}

#[test]
fn memfds_stay_as_large_as_they_are_under_the_shim() {
	constant("shim");
}

#[test]
fn memfds_stay_as_large_as_they_are_when_the_core_is_called() {
	constant("linked");
}

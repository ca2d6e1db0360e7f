//! The model checker as a test: the seeds that failed once, then some thousand steps of new ones by both routes, and
//! 2,000 of each mode and each allocator.
//!
//! `FLASHFORK_TEST_ALL=1` takes many more, 10⁵ of each of these.

use std::process::{Command, Stdio};

fn model(args: &[&str]) {
	let shim = flashfork_tests::shim::path();
	let mut model = Command::new(env!("CARGO_BIN_EXE_model"));
	let output = model.args(args).arg("--shim").arg(shim).stdout(Stdio::inherit()).output().expect("it starts");
	// Each process at fault has said what it found, the first cause first; other tests' output would come between.
	assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn runs() -> &'static str {
	if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { "60" } else { "4" }
}

#[test]
fn unmodified_programs_under_the_shim() {
	model(&["--route", "shim", "--seed", "1", "--runs", runs(), "--steps", "400"]);
}

#[test]
fn programs_that_call_the_core() {
	model(&["--no-replay", "--route", "linked", "--seed", "1001", "--runs", runs(), "--steps", "400"]);
}

fn mode(args: &[&str], seed: &str) {
	let runs = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { "250" } else { "5" };
	let all = ["--route", "shim", "--seed", seed, "--runs", runs, "--steps", "400", "--mode"];
	model(&[&all[..], args].concat());
}

#[test]
fn one_thread_seals_while_others_work() {
	mode(&["threads"], "2001");
}

#[test]
fn flags_that_come_after_the_seal() {
	mode(&["flags"], "1");
}

#[test]
fn calls_past_the_shim() {
	mode(&["past-shim"], "3001");
}

#[test]
fn another_process_writes() {
	mode(&["writers"], "1");
}

#[test]
fn code_with_calls_of_its_own_comes_later() {
	mode(&["raw"], "1");
}

#[test]
fn libraries_whose_data_is_sealed() {
	mode(&["libraries"], "1");
}

#[test]
fn the_main_thread_ends() {
	mode(&["leaderless"], "1");
}

#[test]
fn steps_between_a_snapshot_and_its_restores() {
	mode(&["rollback"], "1");
}

#[test]
fn the_same_where_what_was_written_is_copied_back() {
	let runs = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { "250" } else { "5" };
	let own = ["--no-replay", "--route", "linked", "--seed", "5001", "--runs", runs, "--steps", "400"];
	model(&[&own[..], &["--mode", "rollback"]].concat());
}

#[test]
fn blocks_of_glibc() {
	mode(&["heap", "--allocator", "glibc"], "4001");
}

#[test]
fn blocks_of_jemalloc() {
	mode(&["heap", "--allocator", "jemalloc"], "4001");
}

#[test]
fn blocks_of_mimalloc() {
	mode(&["heap", "--allocator", "mimalloc"], "4001");
}

#[test]
fn blocks_of_tcmalloc() {
	mode(&["heap", "--allocator", "tcmalloc"], "4001");
}

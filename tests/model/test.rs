//! The model checker as a test: the seeds that failed once, then some thousand steps of new ones by both routes.
//!
//! `FLASHFORK_TEST_ALL=1` takes many more.

use std::process::Command;

fn model(args: &[&str]) {
    let shim = flashfork_tests::shim::path();
    let status =
        Command::new(env!("CARGO_BIN_EXE_model")).args(args).arg("--shim").arg(shim).status().expect("it starts");
    assert!(status.success(), "the messages above say which seed failed and how to run it again");
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

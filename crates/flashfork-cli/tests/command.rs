//! The command as a user types it.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn flashfork() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashfork"));
    command.env_remove("LD_PRELOAD");
    command
}

#[test]
fn wrong_usage_is_exit_2_and_the_usage_line() {
    for args in [
        &["nonsense"][..],
        &["run"],
        &["run", "--engine", "warp", "--", "true"],
        &["bench", "fork", "--sizes", "a lot"],
        &["lab", "run", "--kernel", "2.6", "--", "true"],
        &["doctor", "--fix"],
    ] {
        let usage_or_value = contains("Usage:").or(contains("invalid value"));
        flashfork().args(args).assert().code(2).stdout("").stderr(usage_or_value);
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for args in [&["doctor"][..], &["run"], &["bench"], &["bench", "fork"], &["bench", "unit-test"], &["bench", "fuzz"]]
    {
        flashfork().args(args).arg("--help").assert().success().stdout(contains("Example: flashfork"));
    }
    for args in [
        &["bench", "vm-clone"][..],
        &["bench", "vm-memory"],
        &["bench", "figure"],
        &["lab", "run"],
        &["completions"],
        &["man"],
    ] {
        flashfork().args(args).arg("--help").assert().success().stdout(contains("Example: flashfork"));
    }
}

#[test]
fn a_size_that_does_not_fit_is_refused_in_one_line() {
    let records = tempfile::tempdir().unwrap();
    let place = records.path().join("records.json");
    flashfork()
        .args(["bench", "fork", "--sizes", "100000G", "--records"])
        .arg(&place)
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("needs").and(contains("free")));
    assert!(!place.exists());
}

#[test]
fn records_that_could_not_be_written_are_refused_before_measuring() {
    flashfork()
        .args(["bench", "fork", "--sizes", "0", "--records", "/proc/nowhere/records.json"])
        .timeout(std::time::Duration::from_secs(20))
        .assert()
        .code(1)
        .stderr(contains("/proc/nowhere"));
}

#[test]
fn a_figure_of_what_is_no_record_file_is_refused_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (records, out) = (dir.path().join("records.json"), dir.path().join("out.svg"));
    std::fs::write(&records, "{}").unwrap();
    let mut figure = flashfork();
    figure.args(["bench", "figure"]).arg(&records).arg(&out);
    figure.assert().code(1).stdout("").stderr(contains("names no schema"));
    assert!(!out.exists());
}

#[test]
fn doctor_speaks_json() {
    let out = flashfork().args(["doctor", "--json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["schema"], "flashfork.doctor/1");
    assert!(value["host"]["capabilities"].as_array().unwrap().len() > 5);
    // Null where the daemon isn't installed.
    let kvm = &value["vm"]["kvm"];
    assert!(kvm.is_null() || ["linux", "tiny", "none"].map(Some).contains(&kvm.as_str()), "{kvm}");
    assert!(!value["vm"]["detail"].as_str().unwrap().is_empty());
}

#[test]
fn completions_and_man_pages_are_made() {
    flashfork().args(["completions", "bash"]).assert().success().stdout(contains("flashfork"));
    let dir = tempfile::tempdir().unwrap();
    flashfork().arg("man").arg(dir.path()).assert().success();
    for page in ["flashfork.1", "flashfork-run.1", "flashfork-bench-fork.1", "flashfork-lab-run.1"] {
        assert!(std::fs::read_to_string(dir.path().join(page)).unwrap().contains(".SH SYNOPSIS"), "{page}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_a_quiet_end() {
    for args in [&["doctor"][..], &["doctor", "--json"], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_flashfork")).args(args).stdout(full).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&out.stderr).contains("can't write standard output"), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out =
            std::process::Command::new(env!("CARGO_BIN_EXE_flashfork")).args(args).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{args:?}");
    }
}

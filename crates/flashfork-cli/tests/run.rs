//! `flashfork run` on real programs. The shim is built here when it isn't there yet.

use assert_cmd::Command;
use predicates::str::contains;
use std::path::Path;
use std::sync::Once;

/// The command with the shim beside it.
fn run() -> Command {
    static BUILT: Once = Once::new();
    let exe = Path::new(env!("CARGO_BIN_EXE_flashfork"));
    BUILT.call_once(|| {
        let target = exe.parent().and_then(Path::parent).unwrap();
        let mut build = std::process::Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", "flashfork-preload", "--target-dir"]).arg(target);
        assert!(build.status().unwrap().success());
    });
    let mut command = Command::new(exe);
    command.arg("run").env_remove("LD_PRELOAD");
    command
}

fn report(command: &mut Command, arguments: &[&str]) -> serde_json::Value {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("report.json");
    command.arg("--report").arg(&file).arg("--").args(arguments).assert().success();
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

/// Forks 5 times with 40 MB of objects that every clone checks.
const PYTHON: &str = "
import os
objects = [bytes([i % 255 + 1]) * 1000 for i in range(40_000)]
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(o[0] == i % 255 + 1 for i, o in enumerate(objects)) else 1)
    assert os.waitpid(pid, 0)[1] == 0
";

#[test]
fn python_is_sealed_and_its_clones_are_right() {
    let report = report(run().args(["--engine", "seal"]), &["/usr/bin/python3", "-c", PYTHON]);
    assert_eq!(report["schema"], "flashfork.run/1");
    assert_eq!(report["forks_after_seal"]["count"], 5);
    assert!(report["sealed_bytes"].as_u64().unwrap() > 30 << 20, "{report}");
}

#[test]
fn engine_fork_seals_nothing() {
    let report = report(run().args(["--engine", "fork"]), &["/usr/bin/python3", "-c", PYTHON]);
    assert_eq!((&report["plain_forks"]["count"], &report["sealed_bytes"]), (&5.into(), &0.into()));
}

#[test]
fn exit_codes_are_passed_on() {
    run().args(["--", "sh", "-c", "exit 7"]).assert().code(7);
    run().args(["--", "sh", "-c", "kill -9 $$"]).assert().code(137);
    run().args(["--", "/nonexistent/program"]).assert().code(127).stderr(contains("/nonexistent/program"));
    run().args(["--", "no-such-program"]).assert().code(127).stderr(contains("not found in PATH"));
    run().args(["--", "/etc/passwd"]).assert().code(126).stderr(contains("Permission denied"));
}

#[test]
fn output_and_input_are_the_program_s_own() {
    run().args(["--", "cat"]).write_stdin("in\0out").assert().success().stdout("in\0out").stderr("");
}

#[test]
fn a_static_program_runs_as_it_is() {
    let report = report(&mut run(), &["busybox", "true"]);
    assert_eq!((&report["programs"], &report["shim_loaded"]), (&0.into(), &false.into()));
}

#[test]
fn a_report_that_can_not_be_written_is_found_out_before_the_program_runs() {
    let assert = run().args(["--report", "/proc/nowhere/report.json", "--", "echo", "ran"]).assert();
    assert.code(1).stdout("").stderr(contains("/proc/nowhere/report.json"));
}

/// On kernels without on-demand fork: one line, and the program runs as it would with plain forks.
#[test]
fn engine_odf_forks_on_demand_or_says_why_not_and_forks_plainly() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("report.json");
    let mut command = run();
    command.args(["--engine", "odf", "--report"]).arg(&file).args(["--", "/usr/bin/python3", "-c", PYTHON]);
    let output = command.output().unwrap();
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let counts = (&report["forks_on_demand"]["count"], &report["plain_forks"]["count"]);
    if said.is_empty() {
        assert_eq!((report["engine"].as_str(), counts), (Some("odf"), (&5.into(), &0.into())));
    } else {
        assert_eq!((said.lines().count(), counts), (1, (&0.into(), &5.into())), "{said}");
        assert!(said.contains("engine odf") && said.contains("forks stay plain"), "{said}");
    }
}

//! `flashfork vm` where no daemon runs, and where another sits at its socket.

use assert_cmd::Command;
use predicates::str::contains;
use std::path::Path;

/// `flashfork vm` in `dir`, with a relative path of the socket.
fn vm(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashfork"));
    command.current_dir(dir).args(["vm", "--socket", "new/vmd.sock"]);
    command
}

#[test]
fn what_only_reads_starts_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    for list in [&["ls"][..], &["template", "ls"]] {
        vm(dir.path()).args(list).assert().success().stderr("");
        vm(dir.path()).args(list).arg("--json").assert().success().stdout("[]\n");
    }
    for of_clone in [&["console", "a"][..], &["exec", "a", "--", "true"], &["rollback", "a"], &["rm", "a"]] {
        vm(dir.path()).args(of_clone).assert().code(1).stderr(contains("there is no clone a"));
    }
    for of_template in [&["clone", "a"][..], &["run", "--template", "a", "--", "true"], &["template", "save", "a", "b"]]
    {
        vm(dir.path()).args(of_template).assert().code(1).stderr(contains("there is no template a"));
    }
    let place = dir.path().join("new/vmd.sock");
    vm(dir.path()).arg("stats").assert().code(1).stderr(contains(format!("no VM daemon runs at {}", place.display())));
    vm(dir.path()).arg("stop").assert().success().stdout(contains("no VM daemon runs"));
    assert!(!dir.path().join("new").exists());
}

#[test]
fn all_names_are_gone_through_with_a_line_for_each_failure() {
    let dir = tempfile::tempdir().unwrap();
    for remove in [&["rm", "a", "b"][..], &["template", "rm", "a", "b"]] {
        let out = vm(dir.path()).args(remove).assert().code(1).get_output().stderr.clone();
        let lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(Into::into).collect();
        assert!(lines.len() == 2 && lines[0].contains(" a:") && lines[1].contains(" b:"), "{lines:?}");
    }
}

#[test]
fn stop_ends_the_process_that_listens() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("new")).unwrap();
    let place = dir.path().join("new/vmd.sock");
    let listen = "import signal, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nsignal.pause()";
    let mut daemon = std::process::Command::new("python3").args(["-c", listen]).arg(&place).spawn().unwrap();
    while std::os::unix::net::UnixStream::connect(&place).is_err() {
        assert!(daemon.try_wait().unwrap().is_none(), "it does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    vm(dir.path()).arg("stop").timeout(std::time::Duration::from_secs(20)).assert().success().stdout("");
    let status = daemon.try_wait().unwrap();
    assert_eq!(status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)), Some(15));
}

#[test]
fn a_template_without_clones_or_time_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--max-clones", "--timeout"] {
        vm(dir.path()).args(["template", "create", "a", option, "0"]).assert().code(2).stderr(contains(option));
    }
}

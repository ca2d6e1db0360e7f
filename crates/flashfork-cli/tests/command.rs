//! The command as a user types it.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::process::{Output, Stdio};
use std::time::Duration;

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
fn every_measurement_has_help_with_an_example() {
    let experiments = ["creation", "cow-model", "write-fraction", "fault", "access-mix", "profile", "advise", "check"];
    for name in experiments.into_iter().chain(["compare", "all", "report"]) {
        flashfork().args(["bench", name, "--help"]).assert().success().stdout(contains("Example: flashfork bench"));
    }
    flashfork().args(["advise", "--help"]).assert().success().stdout(contains("Example: flashfork advise"));
}

#[test]
fn wrong_usage_of_measurements_is_exit_2() {
    for args in [
        &["advise"][..],
        &["advise", "0"],
        &["advise", "12", "--", "true"],
        &["bench", "all"],
        &["bench", "compare", "a.json"],
        &["bench", "creation", "--sizes", "huge"],
        &["bench", "write-fraction", "--pid", "0"],
        &["bench", "fault", "--size", "1M"],
        &["bench", "fork", "--up-to", "1M"],
    ] {
        flashfork().args(args).assert().code(2).stdout("");
    }
}

#[test]
fn what_measurements_can_not_do_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let old = home.join("old.json");
    std::fs::write(&old, r#"{"schema":"flashfork.bench/0","host":{},"records":[]}"#).unwrap();
    let torn = home.join("torn.json");
    std::fs::write(&torn, r#"{"schema":"flashfork.bench/2","#).unwrap();
    let (old, torn) = (old.to_str().unwrap(), torn.to_str().unwrap());
    let place = home.join("page");
    let place = place.to_str().unwrap();
    for (args, said) in [
        (&["bench", "compare", old, torn][..], "flashfork.bench/0"),
        (&["bench", "compare", torn, old], "torn.json"),
        (&["bench", "report", torn, "--html", place], "torn.json"),
        (&["bench", "report", "/no/such.json", "--html", place], "/no/such.json"),
        (&["bench", "all", "--html", "/proc/nowhere"], "/proc/nowhere"),
        (&["bench", "creation", "--sizes", "1000T", "--records", "/dev/shm/never.json"], "needs"),
        (&["bench", "fault", "--size", "1000T", "--records", "/dev/shm/never.json"], "needs"),
        (&["bench", "access-mix", "--size", "1000T", "--records", "/dev/shm/never.json"], "needs"),
        (&["bench", "write-fraction", "--pid", "2147483646", "--records", "/dev/shm/never.json"], "no process"),
        (&["bench", "write-fraction", "--records", "/dev/shm/never.json", "--", "/no/such"], "/no/such"),
    ] {
        let one_line = predicates::str::is_match(r"^((left out|waiting)[^\n]*\n)*flashfork: [^\n]+\n$").unwrap();
        flashfork().env("HOME", home).args(args).assert().code(1).stdout("").stderr(contains(said).and(one_line));
    }
    assert!(!std::path::Path::new("/dev/shm/never.json").exists() && !home.join("page").exists());
}

#[test]
fn a_process_that_is_gone_gets_no_advice() {
    let home = tempfile::tempdir().unwrap();
    let mut advise = flashfork();
    advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "2147483646"]);
    advise.assert().code(1).stdout("").stderr("flashfork: there is no process 2147483646\n");
    let mut ended = flashfork();
    ended.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "--", "false"]);
    let says = "flashfork: false ended (exit status: 1) before it was looked at; choose a smaller --after\n";
    ended.assert().code(1).stdout("").stderr(says);
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut advise = flashfork();
    advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", &child.id().to_string()]);
    advise.assert().success().stdout(contains("Change nothing").and(contains("sleep")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ctrl_c_keeps_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records.json");
    let interrupted_after = |patience: u64| {
        let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_flashfork"));
        bench
            .env("HOME", dir.path())
            .args(["bench", "creation", "--sizes", "0,8M,32M,64M,128M,256M", "--records"])
            .arg(&records);
        let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It has waited for whoever else measures once it has a worker.
        while !has_child(child.id()) {
            assert!(child.try_wait().unwrap().is_none(), "it ended without a worker");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(patience));
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        child.wait_with_output().unwrap()
    };
    // How long the first figure takes depends on what else runs: where none is there yet, it gets more time.
    let nothing_yet = |done: &Output| String::from_utf8_lossy(&done.stderr).contains("before anything was measured");
    let done = [3, 9, 27, 81].into_iter().map(interrupted_after).find(|done| !nothing_yet(done)).unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(&records).unwrap();
    // Between two sizes no cell ends by it: then it stands among what was left out.
    let said = text.contains("\"interrupted\"") || text.contains("the run was interrupted");
    assert!(said && text.ends_with('\n'), "{}", &text[text.len().saturating_sub(2000)..]);
    assert!(String::from_utf8_lossy(&done.stdout).contains("Records with every sample"));
}

#[test]
fn ctrl_c_before_anything_is_measured_leaves_the_records_of_an_earlier_run() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records.json");
    std::fs::write(&records, "good").unwrap();
    // Not a figure can be there by then: preparing the parents of this size takes longer, wherever it is.
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_flashfork"));
    bench.env("HOME", dir.path()).args(["bench", "creation", "--sizes", "512M", "--records"]).arg(&records);
    let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let catches = |text: &str| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() & 1 << (libc::SIGINT - 1) != 0
    };
    while !std::fs::read_to_string(&status).is_ok_and(|text| catches(&text)) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it caught signals");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: a signal to our own child.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), &done.stdout[..]), (Some(1), &b""[..]), "{said}");
    assert!(said.ends_with("flashfork: interrupted before anything was measured\n"), "{said}");
    assert_eq!(std::fs::read_to_string(&records).unwrap(), "good");
}

/// Whether some process's parent is `pid`.
fn has_child(pid: u32) -> bool {
    let parent = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats.any(|stat| parent(stat) == Some(pid))
}

/// The letter of a process's state in `/proc/PID/stat`.
fn state(pid: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_process_that_is_looked_at_goes_on_when_the_one_who_looks_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let pause = || std::thread::sleep(Duration::from_micros(200));
    let send = |pid: u32, signal| {
        // SAFETY: a signal to a child of ours that has not been waited for.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
    };
    // Memory that takes a while to copy; its stop is seen, and the look is stopped in the midst of it.
    let script = "m = b'x' * (256 << 20); print(flush=True); input()";
    let mut target = std::process::Command::new("python3");
    let mut target = target.args(["-S", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(target.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let look = || {
        let mut advise = std::process::Command::new(env!("CARGO_BIN_EXE_flashfork"));
        advise.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(["advise", "--watch", "0.1"]);
        advise.arg(target.id().to_string()).stdout(Stdio::null()).spawn().unwrap()
    };
    let (mut advise, mut looks) = (look(), 1);
    loop {
        if advise.try_wait().unwrap().is_some() {
            // The processor was elsewhere while the process was stopped: it is looked at again.
            assert!(looks < 100, "it was never seen with a stopped process");
            (advise, looks) = (look(), looks + 1);
        }
        if state(target.id()) == Some('T') {
            send(advise.id(), libc::SIGSTOP);
            while state(advise.id()) != Some('T') {
                pause();
            }
            if state(target.id()) == Some('T') {
                break;
            }
            send(advise.id(), libc::SIGCONT);
        }
        pause();
    }
    send(advise.id(), libc::SIGKILL);
    advise.wait().unwrap();
    let begin = std::time::Instant::now();
    while state(target.id()) == Some('T') && begin.elapsed() < Duration::from_secs(120) {
        pause();
    }
    let found = state(target.id());
    target.kill().unwrap();
    target.wait().unwrap();
    assert!(matches!(found, Some('S' | 'R')), "{found:?}");
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
        .assert()
        .code(1)
        .stderr(contains("/proc/nowhere"));
    flashfork()
        .args(["bench", "fork", "--sizes", "0", "--records", "/dev/full"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("/dev/full").and(contains("No space left")));
}

/// In /sys nobody makes a file, root included.
#[test]
fn where_records_may_not_be_written_the_cure_is_told() {
    let cure = || contains("/sys/").and(contains("give --records FILE where you may write"));
    let bench = ["bench", "fork", "--sizes", "0"];
    flashfork().args(bench).args(["--records", "/sys/records.json"]).assert().code(1).stderr(cure());
    flashfork().env("XDG_STATE_HOME", "/sys/state").args(bench).assert().code(1).stderr(cure());
}

#[test]
fn records_replace_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |place: &std::path::Path| {
        let mut bench = flashfork();
        bench.args(["bench", "fork", "--quick", "--sizes", "0", "--records"]).arg(place);
        bench
    };
    bench(dir.path()).assert().code(1).stdout("").stderr(contains("is a directory"));
    let (link, leads_to) = (dir.path().join("link"), dir.path().join("records.json"));
    std::os::unix::fs::symlink(&leads_to, &link).unwrap();
    // What a link leads to is made where it isn't there, and replaced where it is.
    for _ in 0..2 {
        bench(&link).assert().success();
        assert!(link.is_symlink() && std::fs::read_to_string(&leads_to).unwrap().starts_with('{'));
        std::fs::write(&leads_to, "before").unwrap();
    }
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || std::fs::read_to_string(fifo).unwrap())
    };
    bench(&fifo).assert().success();
    assert!(reader.join().unwrap().starts_with('{'));
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
    assert!(kvm.is_null() || ["linux", "tiny", "none", "untried"].map(Some).contains(&kvm.as_str()), "{kvm}");
    assert!(!value["vm"]["detail"].as_str().unwrap().is_empty());
}

#[test]
fn doctor_ends_in_a_conclusion() {
    for options in [&["doctor"][..], &["doctor", "--calibrate"]] {
        let home = tempfile::tempdir().unwrap();
        let out = flashfork().env("HOME", home.path()).env_remove("XDG_CACHE_HOME").args(options).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("In short: ") && last.ends_with('.'), "{text}");
        assert_eq!(last.contains("`flashfork run -- PROGRAM`"), out.status.success(), "{text}");
    }
}

#[test]
fn completions_and_man_pages_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        flashfork().args(["completions", shell]).assert().success().stdout(contains("FLASHFORK_COMPLETE"));
    }
    let dir = tempfile::tempdir().unwrap();
    flashfork().arg("man").arg(dir.path()).assert().success();
    let warm = ["flashfork-warm.1", "flashfork-clone.1", "flashfork-ls.1", "flashfork-rm.1"];
    for page in
        ["flashfork.1", "flashfork-run.1", "flashfork-bench-fork.1", "flashfork-lab-run.1"].into_iter().chain(warm)
    {
        assert!(std::fs::read_to_string(dir.path().join(page)).unwrap().contains(".SH SYNOPSIS"), "{page}");
    }
    let text = std::fs::read_to_string(dir.path().join("flashfork-run.1")).unwrap().replace("\\-", "-");
    for part in
        [".SH ENVIRONMENT", "FLASHFORK_ENGINE", "never seal; forks are counted", ".SH \"SEE ALSO\"", "flashfork\\fR(1)"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = std::fs::read_to_string(dir.path().join("flashfork.1")).unwrap().replace("\\-", "-");
    assert!(text.contains("flashfork-warm\\fR(1)"), "{text}");
}

/// The usage line of `--help`, and the synopsis of the man page.
#[test]
fn usage_and_man_page_show_where_a_program_begins() {
    let pages = tempfile::tempdir().unwrap();
    flashfork().arg("man").arg(pages.path()).assert().success();
    for (command, usage) in [
        ("run", "[OPTIONS] [--] <COMMAND>..."),
        ("warm", "[OPTIONS] <NAME> [--] <COMMAND>..."),
        ("lab run", "[OPTIONS] [--] <COMMAND>..."),
        ("vm run", "[OPTIONS] [--] <COMMAND>..."),
        ("vm exec", "[OPTIONS] <NAME> [--] <COMMAND>..."),
        ("advise", "[OPTIONS] -- <COMMAND>..."),
        ("bench write-fraction", "[OPTIONS] [-- <COMMAND>...]"),
    ] {
        let help = flashfork().args(command.split(' ')).arg("--help").assert().success();
        help.stdout(contains(format!("flashfork {command} {usage}\n")));
        let page = format!("flashfork-{}.1", command.replace(' ', "-"));
        let page = std::fs::read_to_string(pages.path().join(page)).unwrap().replace("\\-", "-");
        assert!(page.contains(&format!("{usage}\n")), "{page}");
    }
}

#[test]
fn advise_says_what_to_give() {
    let examples = contains("Usage: flashfork advise [OPTIONS] <PID>").and(contains("Example: flashfork advise 4711"));
    flashfork().arg("advise").assert().code(2).stdout("").stderr(examples);
    let tip = contains("put `--` before a command");
    flashfork().args(["advise", "python3"]).assert().code(2).stdout("").stderr(tip);
    let usage = contains("flashfork advise [OPTIONS] -- <COMMAND>...");
    flashfork().args(["advise", "python3", "server.py"]).assert().code(2).stdout("").stderr(usage);
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

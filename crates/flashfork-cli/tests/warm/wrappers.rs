//! Programs that start another one to do the work: told, not kept in its place.

use crate::place::{Place, line, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn script(place: &Place, name: &str, text: &str) -> String {
    let path = place.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// As pyenv has them.
#[test]
fn a_script_that_starts_the_program_is_told_unless_the_shell_is_wanted() {
    let place = Place::new();
    for head in ["#!/usr/bin/env bash", "#!/bin/sh -e", "#! /bin/sh"] {
        let python = script(&place, "python3", &format!("{head}\nexec /usr/bin/python3 \"$@\"\n"));
        for way in [&["warm", "t", "--", &python, "-c", "import json"][..], &["warm", "t", "--", "python3"]] {
            let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
            let output = place.flashfork(way).env("PATH", path).output().unwrap();
            let text = line(&output);
            assert!(
                text.contains("/python3 is a script for ")
                    && text.contains("sys.executable")
                    && text.contains("--ready main"),
                "{text}"
            );
        }
    }
    let wrapper = script(&place, "wrapper", "#!/bin/sh\necho \"$@\"\n");
    let output = place.run(&["warm", "--ready", "main", "t", "--", &wrapper, "a"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&place.run(&["clone", "t", "b"])), "a b\n");
}

#[test]
fn a_script_that_env_starts_is_told_with_what_to_warm() {
    let place = Place::new();
    let path = script(&place, "x.py", "#!/usr/bin/env -S LC_ALL=C python3 -I\nimport json\n");
    let output = place.run(&["warm", "t", "--", &path]);
    assert!(line(&output).contains(&format!("warm `python3 {path}`")), "{}", line(&output));
}

#[test]
fn a_script_of_an_interpreter_itself_is_warmed() {
    let place = Place::new();
    let path = script(&place, "x.py", "#!/usr/bin/python3\nimport json\n");
    assert!(stdout(&place.warm(&[&path])).contains("ready to run Python"));
}

#[test]
fn a_program_by_an_interpreters_name_that_is_none_is_told() {
    let place = Place::new();
    let program = place.program("python3", "int main(void) { return 0; }");
    let output = place.warm(&[program.to_str().unwrap()]);
    assert!(stdout(&output).contains("t is ready before main"), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("it is no CPython") && stderr(&output).lines().count() == 1,
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_that_becomes_another_before_it_is_ready_is_told() {
    let place = Place::new();
    let output = place.run(&["warm", "--ready", "call", "t", "--", "sh", "-c", "exec sleep 1000"]);
    assert!(line(&output).contains("has gone on as another program"), "{}", line(&output));
    assert!(place.list().is_empty());
}

#[test]
fn who_warms_a_runtime_or_a_shell_before_main_is_told_what_to_use_instead() {
    for (program, cure) in [
        ("node", "--threads` changes that: it keeps what Node has loaded"),
        ("java", "--ready listen, idle:SECONDS or line:REGEX"),
        ("bash", "--threads --ready idle:SECONDS` changes that"),
        ("cat", "flashfork_ready in the program"),
    ] {
        let output = Place::new().warm(&[program]);
        assert!(stdout(&output).contains(cure) && stdout(&output).lines().count() == 1, "{}", stdout(&output));
    }
}

/// What a shell is told to use works for it.
#[test]
fn a_clone_of_a_shell_goes_on_where_its_script_waits() {
    let place = Place::new();
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = "#!/bin/bash\na=(1 2 3)\nread -r line < \"$1\"\necho \"${a[*]} $line\"; exit 5\n";
    let (path, fifo) = (script(&place, "work", text), fifo.to_str().unwrap());
    let command = ["warm", "--threads", "--ready", "idle:0.2", "t", "--", "bash", &path, fifo];
    assert!(place.run(&command).status.success());
    for word in ["one", "two"] {
        let clone = place.flashfork(&["clone", "t"]).stdout(Stdio::piped()).spawn().unwrap();
        // Opens when the clone does.
        std::fs::write(fifo, format!("{word}\n")).unwrap();
        let clone = clone.wait_with_output().unwrap();
        assert_eq!((stdout(&clone), clone.status.code()), (&*format!("1 2 3 {word}\n"), Some(5)));
    }
}

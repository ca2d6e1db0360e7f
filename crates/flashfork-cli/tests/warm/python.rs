//! Clones of a warmed CPython: Debian's, with the standard library and numpy.

use crate::place::{Place, line, stderr, stdout};
use std::io::Write;
use std::process::{Output, Stdio};

const PYTHON: &str = "/usr/bin/python3";

fn warmed(code: &str) -> Place {
    let place = Place::new();
    let output = place.warm(&[PYTHON, "-c", code]);
    assert!(stdout(&output).contains("ready to run Python"), "{}", stdout(&output));
    place
}

impl Place {
    fn python(&self, arguments: &[&str]) -> Output {
        self.flashfork(&[&["clone", "t"], arguments].concat()).current_dir(self.path()).output().unwrap()
    }

    /// What Python itself makes of the same.
    fn cold(&self, arguments: &[&str]) -> Output {
        let mut python = std::process::Command::new(PYTHON);
        python.args(arguments).current_dir(self.path()).stdin(Stdio::null()).output().unwrap()
    }

    fn script(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }
}

/// Runs the same in a clone and in Python started anew.
fn same(place: &Place, arguments: &[&str]) {
    let (clone, cold) = (place.python(arguments), place.cold(arguments));
    let all = |o: &Output| (o.status.code(), stdout(o).to_owned(), stderr(o).to_owned());
    assert_eq!(all(&clone), all(&cold), "{arguments:?}");
}

#[test]
fn a_script_runs_as_in_python_itself() {
    let place = warmed("import json, random, threading, logging");
    place.script("other.py", "value = 5\nkept = open('kept', 'w')\nkept.write('by a module')\n");
    place.script(
        "show.py",
        "import sys, os, json, other, atexit, io, threading, time
print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, type(__loader__).__name__)
print(sorted(globals()), other.value, os.getcwd(), sys.flags.inspect, sys.orig_argv[1:])
print([(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)])
print(sys.stdin.read(), file=sys.stderr)
import __main__
print(__main__.__dict__ is globals(), sys._getframe().f_back, os.environ.get('LD_PRELOAD'))
kept = open('in-main', 'w'); kept.write('unflushed')
hidden = [open('in-a-list', 'w')]; hidden[0].write('unflushed')
sys.keep = open('in-sys', 'w'); sys.keep.write('unflushed')
class Last:
    def __del__(self): print('deleted', flush=True)
last = Last()
atexit.register(print, 'at exit')
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
def f(x): return 1 / x
if len(sys.argv) > 2: exec(sys.argv[2])
",
    );
    for rest in [
        &[][..],
        &["-x", "f(0)"],
        &["", "sys.exit(7)"],
        &["", "sys.exit(10**30)"],
        &["", "sys.exit('why')"],
        &["", "raise SystemExit"],
    ] {
        same(&place, &[&["show.py"], rest].concat());
        for file in ["kept", "in-main", "in-a-list", "in-sys"] {
            let path = place.path().join(file);
            assert!(!std::fs::read(&path).unwrap().is_empty(), "{file} is written though nobody closed it");
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn every_way_to_name_a_program_works() {
    let place = warmed("import runpy");
    std::fs::create_dir(place.path().join("package")).unwrap();
    place.script("package/__main__.py", "import sys; print(sys.argv, __name__, __spec__ and __spec__.name)");
    place.script("syntax.py", "print(1\n");
    place.script("encoded.py", "# -*- coding: latin-1 -*-\nprint('\u{e9}')\n");
    for arguments in [
        &["-c", "import sys; print(sys.argv, __name__, repr(sys.path[0]))", "a", "-b"][..],
        &["-cprint(1)"],
        &["-m", "package", "-x"],
        &["package", "y"],
        &["syntax.py"],
        &["encoded.py"],
        &["-c", "print(1"],
        &["nowhere.py"],
        &["-m", "nowhere"],
        &["-c", "raise KeyboardInterrupt"],
        &["-c", "import os; os.abort()"],
    ] {
        let clone = place.python(arguments);
        let cold = place.cold(arguments);
        use std::os::unix::process::ExitStatusExt;
        let code = cold.status.code().or(cold.status.signal().map(|s| 128 + s));
        assert_eq!(clone.status.code(), code, "{arguments:?}: {}", stderr(&clone));
        assert_eq!(stdout(&clone), stdout(&cold), "{arguments:?}");
        assert_eq!(stderr(&clone), stderr(&cold), "{arguments:?}");
    }
    let mut from_input = place.flashfork(&["clone", "t"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    from_input.stdin.take().unwrap().write_all(b"import sys\nprint(sys.argv, __name__)\n").unwrap();
    assert_eq!(stdout(&from_input.wait_with_output().unwrap()), "[''] __main__\n");
    let mut ends = place.flashfork(&["clone", "t"]).stdin(Stdio::piped()).spawn().unwrap();
    ends.stdin.take().unwrap().write_all(b"import sys\nsys.exit(5)\n").unwrap();
    assert_eq!(ends.wait().unwrap().code(), Some(5));
    let option = place.python(&["-v", "x.py"]);
    assert_eq!((option.status.code(), stderr(&option).lines().count()), (Some(2), 1), "{}", stderr(&option));
}

#[test]
fn full_and_closed_outputs_are_as_in_python_itself() {
    let place = warmed("pass");
    let clone = format!("{} clone t", env!("CARGO_BIN_EXE_flashfork"));
    let run = |script: &str| {
        let mut sh = std::process::Command::new("bash");
        let output = sh.args(["-c", script]).env("XDG_RUNTIME_DIR", place.path()).output().unwrap();
        (output.status.code(), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    for script in [
        "@ -c 'print(1)' > /dev/full",
        "@ -c 'while True: print(1)' 2>/dev/null | head -n 1; echo ${PIPESTATUS[0]}",
        "yes | @ -c 'print(input())'",
    ] {
        assert_eq!(run(&script.replace('@', &clone)), run(&script.replace('@', PYTHON)), "{script}");
    }
}

/// Clones of one template differ in what is random, but for the hash seed, which is the template's.
#[test]
fn random_numbers_are_fresh_and_the_hash_seed_is_the_templates() {
    let place = warmed("import random, uuid, secrets, numpy.random; random.random(); numpy.random.rand()");
    let code = "import random, uuid, secrets, numpy.random as n, tempfile
print(random.random()); print(n.rand()); print(n.default_rng().random()); print(uuid.uuid4()); print(secrets.token_hex())
print(tempfile.mktemp()); print(hash('text'))";
    let runs: Vec<Vec<String>> = (0..3)
        .map(|_| {
            let output = place.python(&["-c", code]);
            assert_eq!(stderr(&output), "");
            stdout(&output).lines().map(str::to_owned).collect()
        })
        .collect();
    for i in 0..6 {
        assert!(runs[0][i] != runs[1][i] && runs[1][i] != runs[2][i] && runs[0][i] != runs[2][i], "{runs:?}");
    }
    assert!(runs.iter().all(|run| run[6] == runs[0][6]));
    assert!(
        stdout(&place.python(&["-c", "import numpy; print(numpy.ones((99, 99)).dot(numpy.ones((99, 99))).sum())"]))
            .starts_with("970299")
    );
}

#[test]
fn the_environment_of_python_is_the_callers() {
    let place = warmed("import os, time; os.environ['WARMED'] = '1'");
    let code = "import os, subprocess, time
print(os.environ['ONE'], os.environb[b'ONE'], os.getenv('WARMED'), 'LD_PRELOAD' in os.environ, time.tzname)
os.environ['TWO'] = '2'; del os.environ['ONE']
print(subprocess.run('echo $ONE $TWO $WARMED', shell=True, capture_output=True, text=True).stdout)";
    let mut clone = place.flashfork(&["clone", "t", "-c", code]);
    let output = clone.env("ONE", "1=1").env("TZ", "XYZ-3").output().unwrap();
    assert_eq!(stdout(&output), "1=1 b'1=1' None False ('XYZ', 'XYZ')\n2\n\n", "{}", stderr(&output));
}

/// Where the shell stands in a directory that has been removed.
#[test]
fn a_working_directory_that_is_gone_is_as_in_python_itself() {
    let place = warmed("x: int = 1");
    place.script("show.py", "import sys\nprint(sys.argv, sys.path[0], __file__)\ny: str\nprint(__annotations__)\n");
    let script = place.path().join("show.py");
    let clone = format!("{} clone t", env!("CARGO_BIN_EXE_flashfork"));
    let run = |words: &str| {
        let line = format!("mkdir {0}/gone && cd {0}/gone && rmdir {0}/gone && exec {words}", place.path().display());
        let mut sh = std::process::Command::new("sh");
        let output = sh.args(["-c", &line]).env("XDG_RUNTIME_DIR", place.path()).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    for words in [
        &format!("@ {} a", script.display())[..],
        "@ -c 'import sys; print(sys.path[0])'",
        "@ nowhere.py",
        "@ /nowhere.py",
    ] {
        assert_eq!(run(&words.replace('@', &clone)), run(&words.replace('@', PYTHON)), "{words}");
    }
    assert_eq!(run(&format!("{clone} -m this")).0, Some(0));
    assert_eq!(run(&format!("{clone} -c 'print(__annotations__)'")).1, "{}\n", "the warm-up's are its own");
}

#[test]
fn a_clone_may_fork_and_start_threads_of_its_own() {
    let place = warmed("import multiprocessing, concurrent.futures");
    place.script(
        "work.py",
        "import concurrent.futures as c, os, sys
def square(x): return x * x
if __name__ == '__main__':
    with c.ProcessPoolExecutor(2) as p, c.ThreadPoolExecutor(2) as t:
        print(list(p.map(square, range(5))), list(t.map(square, range(5))))
    if os.fork() == 0: os._exit(3)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
",
    );
    let output = place.python(&["work.py"]);
    assert_eq!(stdout(&output), "[0, 1, 4, 9, 16] [0, 1, 4, 9, 16]\n3\n", "{}", stderr(&output));
}

#[test]
fn a_script_can_be_the_warm_up_and_a_failed_one_is_told() {
    let place = Place::new();
    place.script("warm.py", "import sys, json; print(__name__, sys.argv[1:], sys.path[0] != '')\n");
    let script = place.path().join("warm.py");
    let output = place.warm(&[PYTHON, "-I", script.to_str().unwrap(), "x"]);
    assert!(stdout(&output).starts_with("__main__ ['x'] True\n"), "{}", stdout(&output));
    assert_eq!(
        stdout(&place.python(&["-c", "import sys; print('json' in sys.modules, sys.flags.isolated)"])),
        "True 1\n"
    );
    let failed = place.run(&["warm", "u", "--", PYTHON, "-c", "import nowhere"]);
    let text = stderr(&failed);
    assert!(
        text.contains("ModuleNotFoundError") && text.contains("ended with exit status 1 before it was ready"),
        "{text}"
    );
    let threads = "import threading, time; threading.Thread(target=time.sleep, args=[1000], daemon=True).start()";
    let refused = place.run(&["warm", "u", "--", PYTHON, "-c", threads]);
    assert!(line(&refused).contains("it has other threads"), "{}", line(&refused));
    assert_eq!(place.list().len(), 1);
}

#[test]
fn an_interrupt_is_a_keyboard_interrupt() {
    let place = warmed("import time");
    let code = "import time\nprint('on', flush=True)\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: print('caught')";
    let mut clone = place.flashfork(&["clone", "t", "-c", code]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    std::io::Read::read_exact(clone.stdout.as_mut().unwrap(), &mut first).unwrap();
    crate::place::signal(&clone, libc::SIGINT);
    let output = clone.wait_with_output().unwrap();
    assert_eq!((stdout(&output), output.status.code()), ("caught\n", Some(0)));
}

#[test]
fn a_script_without_standard_output_writes_what_it_holds() {
    let place = Place::new();
    place.warm(&["/usr/bin/python3", "-c", "import sys"]);
    let out = place.path().join("out");
    let script = format!(
        "import sys\nf = [open({out:?}, 'w')]\nf.append(f)\nf[0].write('held')\nsys.held = f\ndel sys.stdout\n"
    );
    let output = place.run(&["clone", "t", "-c", &script]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(out).unwrap(), "held");
}

//! Clones of a warmed CPython: Debian's, with the standard library and numpy.

use crate::place::{
	Place, Start, assert_all_differ, assert_says, both, flashfork, good, ignoring, outcome, signal, stderr, stdout,
};
use std::{
	fs,
	io::Write,
	os::unix::process::ExitStatusExt,
	process::{Command, Output, Stdio},
};

const PYTHON: &str = "/usr/bin/python3";

fn warmed(code: &str) -> Place {
	let place = Place::new();
	let output = place.warm(&[PYTHON, "-c", code]);
	assert_says(stdout(&output), "ready to run Python");
	place
}

impl Place {
	fn python(&self, arguments: &[&str]) -> Output {
		self.flashfork(&[&["clone", "t"], arguments].concat()).current_dir(self.path()).output().unwrap()
	}

	/// What Python itself makes of the same.
	fn cold(&self, arguments: &[&str]) -> Output {
		let mut python = Command::new(PYTHON);
		python.args(arguments).current_dir(self.path()).stdin(Stdio::null()).output().unwrap()
	}
}

/// Runs the same in a clone and in Python started anew.
fn same(place: &Place, arguments: &[&str]) {
	let (clone, cold) = (place.python(arguments), place.cold(arguments));
	assert_eq!((outcome(&clone), clone.status.signal()), (outcome(&cold), cold.status.signal()), "{arguments:?}");
}

#[test]
fn the_c_locale_is_what_python_makes_of_it() {
	let place = Place::new();
	let mut warm = place.flashfork(&["warm", "t", "--", PYTHON, "-c", ""]);
	// None that Python reads, which its clones would be told of.
	let warm = warm.env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", place.path());
	assert!(warm.output().unwrap().status.success());
	let show = "import os, posix
names = ('LC_ALL', 'LC_CTYPE', 'LANG')
print([(name, os.environ.get(name), posix.environ.get(name.encode())) for name in names], flush=True)
os.system('env | grep -E \"^(LC_|LANG)\" | sort')";
	let all: [&[(&str, &str)]; 7] = [
		&[],
		&[("LANG", "C")],
		&[("LC_CTYPE", "POSIX"), ("LANG", "C.UTF-8")],
		&[("LC_ALL", "C")],
		&[("LC_ALL", ""), ("LANG", "")],
		&[("LANG", "C.UTF-8")],
		&[("PYTHONCOERCECLOCALE", "0")],
	];
	for variables in all {
		let said = |mut command: Command, words: &[&str]| {
			command.env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", place.path());
			let output = command.envs(variables.iter().copied()).args(words).stdin(Stdio::null()).output().unwrap();
			(stdout(&output).to_owned(), stderr(&output).to_owned())
		};
		let clone = said(place.flashfork(&["clone", "t"]), &["-c", show]);
		let cold = said(Command::new(PYTHON), &["-c", show]);
		assert_eq!(clone.0, cold.0, "{variables:?}");
		// Python has another mode there.
		let told = variables == [("LANG", "C.UTF-8")];
		assert_eq!((clone.1.contains("values of LANG,"), clone.1.lines().count()), (told, told.into()), "{clone:?}");
	}
}

#[test]
fn the_encoding_stays_where_a_caller_has_the_c_locale() {
	let place = Place::new();
	let run = |words: &[&str], locale| good(place.flashfork(words).env("LC_ALL", locale).output().unwrap());
	run(&["warm", "t", "--", PYTHON, "-c", "1"], "C.UTF-8");
	let code = "import locale; locale.setlocale(locale.LC_ALL, ''); print(open('/dev/null').encoding)";
	for (locale, told) in [("C.UTF-8", ""), ("C", "values of LC_ALL,")] {
		let clone = run(&["clone", "t", "-c", code], locale);
		assert!(stdout(&clone) == "UTF-8\n" && stderr(&clone).contains(told), "{clone:?}");
	}
}

#[test]
fn dashes_may_stand_before_a_clones_arguments() {
	let place = warmed("");
	let said = place.python(&["--", "-c", "import sys; print(sys.argv)", "--", "x"]);
	assert_eq!(both(&said), ("['-c', '--', 'x']\n", ""));
}

#[test]
fn a_script_runs_as_in_python_itself() {
	let place = warmed("import json, random, threading, logging");
	place.file("other.py", "value = 5\nkept = open('kept', 'w')\nkept.write('by a module')\n");
	place.file(
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
			let path = place.at(file);
			assert!(!fs::read(&path).unwrap().is_empty(), "{file} is written though nobody closed it");
			fs::remove_file(path).unwrap();
		}
	}
}

#[test]
fn every_way_to_name_a_program_works() {
	let place = warmed("import runpy");
	fs::create_dir(place.at("package")).unwrap();
	place.file("package/__main__.py", "import sys; print(sys.argv, __name__, __spec__ and __spec__.name)");
	place.file("syntax.py", "print(1\n");
	place.file("encoded.py", "# -*- coding: latin-1 -*-\nprint('\u{e9}')\n");
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
		same(&place, arguments);
	}
	let mut from_input = place.flashfork(&["clone", "t"]).start_talk();
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
	let clone = format!("{} clone t", flashfork());
	let run = |script: &str| {
		let mut sh = Command::new("bash");
		let output = sh.args(["-c", script]).env("XDG_RUNTIME_DIR", place.path()).output().unwrap();
		outcome(&output)
	};
	for script in [
		"@ -c 'print(1)' > /dev/full",
		"@ -c 'while True: print(1)' 2>/dev/null | head -n 1; echo ${PIPESTATUS[0]}",
		"yes | @ -c 'print(input())'",
	] {
		assert_eq!(run(&script.replace('@', &clone)), run(&script.replace('@', PYTHON)), "{script}");
	}
}

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
	(0..6).for_each(|i| assert_all_differ(runs.iter().map(|run| &run[i])));
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
	place.file("show.py", "import sys\nprint(sys.argv, sys.path[0], __file__)\ny: str\nprint(__annotations__)\n");
	let script = place.at("show.py");
	let clone = format!("{} clone t", flashfork());
	let run = |words: &str| {
		let line = format!("mkdir {0}/gone && cd {0}/gone && rmdir {0}/gone && exec {words}", place.path().display());
		let output = place.sh(&line).stdin(Stdio::null()).output().unwrap();
		outcome(&output)
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
	place.file(
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
	place.file("warm.py", "import sys, json; print(__name__, sys.argv[1:], sys.path[0] != '')\n");
	let script = place.at("warm.py");
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
	place.refuses(&["warm", "u", "--", PYTHON, "-c", threads], "it has other threads");
	assert_eq!(place.list().len(), 1);
}

#[test]
fn an_interrupt_is_a_keyboard_interrupt() {
	let place = warmed("import time");
	let code =
		"import time\ntry:\n print('on', flush=True)\n time.sleep(1000)\nexcept KeyboardInterrupt: print('caught')";
	let mut clone = place.flashfork(&["clone", "t", "-c", code]).start();
	let mut first = [0; 3];
	std::io::Read::read_exact(clone.stdout.as_mut().unwrap(), &mut first).unwrap();
	signal(&clone, libc::SIGINT);
	let output = clone.wait_with_output().unwrap();
	assert_eq!((stdout(&output), output.status.code()), ("caught\n", Some(0)));
}

#[test]
fn a_script_without_standard_output_writes_what_it_holds() {
	let place = Place::new();
	place.warm(&["/usr/bin/python3", "-c", "import sys"]);
	let out = place.at("out");
	let script = format!(
		"import sys\nf = [open({out:?}, 'w')]\nf.append(f)\nf[0].write('held')\nsys.held = f\ndel sys.stdout\n"
	);
	let output = place.run(&["clone", "t", "-c", &script]);
	assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
	assert_eq!(fs::read_to_string(out).unwrap(), "held");
}

/// A script that shows what Python takes the signals' handlers for, and what becomes of one that is restored.
const HANDLERS: &str = "
import os, signal
some = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1]
print([signal.getsignal(s) for s in some], flush=True)
for s in some:
    before = signal.signal(s, lambda *_: None)
    signal.signal(s, before)
    if before is signal.SIG_IGN:
        os.kill(os.getpid(), s)
print('alive')
";

#[test]
fn signals_that_the_caller_ignores_are_seen_as_in_python_itself() {
	let place = warmed("import signal; signal.signal(signal.SIGUSR2, print)");
	place.file("handlers.py", HANDLERS);
	let output = |command, all| {
		let output = ignoring(command, all).current_dir(place.path()).output().unwrap();
		outcome(&output)
	};
	let sets: [&'static [i32]; 3] =
		[&[], &[libc::SIGHUP], &[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2]];
	for all in sets {
		let mut python = Command::new(PYTHON);
		python.arg("handlers.py");
		let cold = output(python, all);
		assert!(cold.1.ends_with("alive\n"), "{cold:?}");
		for _ in 0..2 {
			assert_eq!(output(place.flashfork(&["clone", "t", "handlers.py"]), all), cold, "{all:?}");
		}
	}
	// What the warm-up has set up is the program's own.
	let code = "import signal; print(signal.getsignal(signal.SIGUSR2)); signal.raise_signal(signal.SIGUSR2)";
	let own = output(place.flashfork(&["clone", "t", "-c", code]), &[libc::SIGUSR2]);
	assert_eq!((own.0, own.1.lines().count()), (Some(0), 2), "{own:?}");
}

#[test]
fn the_key_of_multiprocessing_is_a_clone_s_own() {
	let place = warmed("import multiprocessing");
	place.file(
		"key.py",
		"import multiprocessing as m
def child(queue): queue.put(bytes(m.current_process().authkey))
queue = m.get_context('fork').Queue()
process = m.get_context('fork').Process(target=child, args=(queue,))
process.start()
own = bytes(m.current_process().authkey)
assert queue.get() == own and len(own) == 32
process.join()
print(own.hex())
",
	);
	let keys: Vec<_> = (0..3).map(|_| stdout(&place.python(&["key.py"])).to_owned()).collect();
	assert!(keys.iter().all(|key| key.trim().len() == 64), "{keys:?}");
	assert_all_differ(&keys);
	let given = warmed("import multiprocessing; multiprocessing.current_process().authkey = b'given'");
	let code = "import multiprocessing as m; print(bytes(m.current_process().authkey))";
	assert_eq!(stdout(&given.python(&["-c", code])), "b'given'\n");
}

#[test]
fn a_zip_file_or_directory_named_by_a_relative_path_works_after_chdir() {
	let place = warmed("import zipimport, zipfile, runpy");
	let files = [
		(
			"__main__.py",
			"import os, sys\nos.chdir('/')\nimport later\nprint(sys.path[0], __file__, sys.argv, later.value, later.__file__)\n",
		),
		("later.py", "value = 7\n"),
	];
	fs::create_dir(place.at("app")).unwrap();
	files.iter().for_each(|(name, text)| drop(place.file(format!("app/{name}"), text)));
	let zip = Command::new(PYTHON).args(["-m", "zipapp", "app", "-o", "app.zip"]).current_dir(place.path()).status();
	assert!(zip.unwrap().success());
	for arguments in [&["app.zip", "x"][..], &["app"], &["./app.zip"], &["app/../app"]] {
		same(&place, arguments);
	}
}

#[test]
fn a_script_s_own_module_that_a_warmed_one_shadows_is_told_in_one_line() {
	let place = warmed("import fractions, json");
	fs::create_dir_all(place.at("json")).unwrap();
	place.file("show.py", "import fractions, os; print(hasattr(fractions, 'mine'), hasattr(os, 'mine'))");
	// Python doesn't import these from here either: it has them from its start on, or they are no modules.
	place.file("os.py", "mine = 1");
	place.file("fractions.txt", "");
	same(&place, &["show.py"]);
	place.file("fractions.py", "mine = 1");
	let shadowed = place.python(&["show.py"]);
	let said = stderr(&shadowed);
	assert_eq!(
		(stdout(&shadowed), said.lines().count(), stdout(&place.cold(&["show.py"]))),
		("False False\n", 1, "True False\n")
	);
	assert!(said.contains("fractions.py") && said.contains("warm without fractions"), "{said}");
	place.file("json/__init__.py", "");
	assert_eq!(stderr(&place.python(&["-c", "0"])).lines().count(), 2);
}

#[test]
fn what_an_exit_is_given_is_said_as_in_python_itself() {
	let place = warmed("");
	for value in ["()", "(3,)", "(1, 2)", "[1]", "SystemExit(5)", "True", "1.5", "2**70", "b'x'", "''"] {
		same(&place, &["-c", &format!("import sys; sys.exit({value})")]);
	}
	same(&place, &["-c", "import sys; sys.stderr = None; sys.exit('message')"]);
	same(&place, &["-c", "e = SystemExit(); e.code = (7,); raise e"]);
}

#[test]
fn tracebacks_of_modules_directories_and_zip_files_have_no_line_more() {
	let place = warmed("import runpy, zipimport");
	fs::create_dir(place.at("app")).unwrap();
	place.file("app/__main__.py", "def f(): 1 / 0\nf()\n");
	let zip = Command::new(PYTHON)
		.args(["-c", "import zipfile; zipfile.ZipFile('app.zip', 'w').write('app/__main__.py', '__main__.py')"])
		.current_dir(place.path())
		.status();
	assert!(zip.unwrap().success());
	for arguments in [&["-m", "app"][..], &["app"], &["app.zip"], &["-m", "app.nothing"]] {
		same(&place, arguments);
	}
}

#[test]
fn the_working_directory_can_be_the_program() {
	let place = warmed("import runpy");
	place.file("__main__.py", "import sys; print(__file__, sys.path[0], sys.argv)");
	fs::create_dir(place.at("app")).unwrap();
	place.file("app/__main__.py", "import sys; print(__file__, sys.path[0], sys.argv)");
	for name in [".", "", "./", "app/", "./app", "app/..", "./nowhere", "__main__.py/"] {
		same(&place, &[name]);
	}
}

#[test]
fn a_program_may_replace_built_in_functions() {
	let place = warmed("");
	same(&place, &["-c", "import builtins, sys; builtins.print = lambda *a, **k: None; sys.exit('message')"]);
	for name in ["len", "isinstance", "hasattr", "getattr", "list", "reversed", "sorted", "type", "__import__"] {
		same(&place, &["-c", &format!("import builtins; builtins.{name} = None")]);
	}
	same(&place, &["-c", "import atexit, gc; gc.collect = gc.get_objects = atexit._run_exitfuncs = None"]);
}

#[test]
fn functions_that_trace_see_what_they_see_in_python_itself() {
	let place = warmed("");
	for (set, name) in [("settrace", "co_name"), ("setprofile", "co_name"), ("settrace", "co_filename")] {
		let code = format!(
			"import atexit, sys, threading
atexit.register(lambda: None)
sys.{set}(lambda frame, event, _: sys.__stdout__.write(f'{{event}} {{frame.f_code.{name}}}\\n') and None)
def f(): pass
f()"
		);
		same(&place, &["-c", &code]);
	}
	place.file("st.py", "import sys\ndef trace(*_): raise ValueError\nsys.settrace(trace)\nsys.exit('message')\n");
	same(&place, &["st.py"]);
}

#[test]
fn what_is_done_at_exit_has_no_frame_below() {
	let place = warmed("import threading");
	same(&place, &["-c", "import atexit, sys; atexit.register(sys.exit, 5)"]);
	let depth = "import atexit, sys; atexit.register(lambda: print(sys._getframe().f_back))";
	same(&place, &["-c", depth]);
	same(&place, &["-c", "import threading; threading._shutdown = lambda: 1 / 0"]);
	// A script that has ended has no file any more.
	let file = "import atexit\natexit.register(lambda: print('__file__' in globals()))\n";
	for (name, end) in [("ends.py", ""), ("fails.py", "1 / 0"), ("exits.py", "raise SystemExit")] {
		place.file(name, format!("{file}{end}"));
		same(&place, &[name]);
	}
}

/// What the interpreter reads itself, with its own messages.
#[test]
fn a_script_is_read_as_python_itself_reads_it() {
	let place = warmed("");
	let compile = "import py_compile; print(py_compile.compile('good.py', 'good.pyc'))";
	place.file("good.py", "print(__file__, __loader__.__class__, __cached__)");
	assert!(place.cold(&["-c", compile]).status.success());
	let compiled = fs::read(place.at("good.pyc")).unwrap();
	let files: [(&str, &[u8]); 11] = [
		("nul.py", b"print(1)\0print(2)\n"),
		("latin.py", b"print(1)\nx = '\xe9'\n"),
		("unknown.py", b"# coding: nope\nprint(1)\n"),
		("known.py", b"# coding: latin-1\nprint(ascii('\xe9'))\n1/0 # \xe9"),
		("marked.py", b"\xef\xbb\xbfprint(1)\r\nprint(2)"),
		("empty.py", b""),
		("named-otherwise", &compiled),
		("short.pyc", &compiled[..20]),
		("shorter.pyc", &compiled[..10]),
		("shortest.pyc", b""),
		("text.pyc", b"print(1), print(2)\n"),
	];
	for (name, data) in files {
		place.file(name, data);
		same(&place, &[name]);
	}
	same(&place, &["good.pyc"]);
	same(&place, &["-c", "# coding: nope\nprint(ascii('\u{e9}'))"]);
	let clone = format!("{} clone t", flashfork());
	for script in ["cat good.py | @ /dev/stdin", "mkfifo p$$; cat good.py > p$$ & @ p$$ | sed 's/p[0-9]*,/p/'"] {
		let run = |words: &str| {
			let output = place.sh(words).current_dir(place.path()).output().unwrap();
			let said = stdout(&output).split_once(' ').unwrap().1.to_owned();
			(output.status.code(), said, stderr(&output).to_owned())
		};
		assert_eq!(run(&script.replace('@', &clone)), run(&script.replace('@', PYTHON)), "{script}");
	}
}

#[test]
fn a_program_s_own_standard_output_is_flushed_as_in_python_itself() {
	let place = warmed("");
	let own = "import sys
class Own:
    def __repr__(self): return 'own'
    def write(self, text): sys.__stdout__.write(text.upper())
    def flush(self):
        sys.__stdout__.write('flush ')
        if '!' in sys.argv: raise OSError(5)
sys.stdout = Own()
print('text')
";
	let ends = [("own.py", ""), ("exits.py", "sys.exit(3)"), ("err.py", "sys.stderr = sys.stdout")];
	for (name, end) in ends {
		place.file(name, format!("{own}{end}\n"));
		for mark in ["", "!"] {
			same(&place, &[name, mark]);
		}
	}
	same(&place, &["-c", "import sys; sys.stdout.flush = lambda: sys.stderr.write('F')"]);
}

#[test]
fn an_interactive_clone_says_what_it_is() {
	let place = warmed("");
	let run = |words: &str| {
		let line = format!("echo 1+1 | script -qec '{words}' /dev/null");
		let output = place.sh(&line).output().unwrap();
		(output.status.code(), stdout(&output).lines().filter(|l| !l.contains("1+1")).collect::<Vec<_>>().join("\n"))
	};
	let clone = format!("{} clone t", flashfork());
	let said = run(&clone);
	assert!(said.1.contains("Type \"help\""), "{said:?}");
	assert_eq!(said, run(PYTHON));
}

/// multiprocessing keeps `__main__` under another name, by which classes come back from processes that were not forked.
#[test]
fn modules_that_were_warmed_find_the_programs_main() {
	let place = warmed("import multiprocessing, rlcompleter, json; json.kept = __import__('__main__')");
	place.file(
		"spawn.py",
		"import multiprocessing
class Doubled:
    def __init__(self, value): self.value = value
def double(value): return Doubled(2 * value)
if __name__ == '__main__':
    for method in 'spawn', 'forkserver':
        with multiprocessing.get_context(method).Pool(1) as pool:
            print([doubled.value for doubled in pool.map_async(double, [1, 2]).get(120)])
",
	);
	same(&place, &["spawn.py"]);
	place.file(
		"kept.py",
		"import json, rlcompleter, sys
class Told:
    def __del__(self): print('gone', flush=True)
told = Told()
told.itself = told
print(rlcompleter.Completer().global_matches('tol'), json.__dict__.get('kept', sys.modules['__main__']).__dict__ is globals())
print(sys.modules.get('__mp_main__', sys.modules['__main__']) is sys.modules['__main__'])
",
	);
	same(&place, &["kept.py"]);
}

/// Of a Python that asks for it: then the clone goes on, or leaves a line out, where Python itself does.
#[test]
fn options_that_clones_could_not_follow_are_refused() {
	let place = Place::new();
	for (variable, option) in [("", "-i"), ("", "-Bx"), ("1", "-B")] {
		let mut warm = place.flashfork(&["warm", "t", "--", PYTHON, option, "-c", "1"]);
		let refused = warm.env("PYTHONINSPECT", variable).output().unwrap();
		let said = stderr(&refused);
		assert!(refused.status.code() == Some(1) && said.contains("start it without them"), "{option}: {said}");
	}
}

#[test]
fn streams_without_buffers_say_so_as_in_python_itself() {
	let place = Place::new();
	good(place.run(&["warm", "t", "--", PYTHON, "-u", "-c", "1"]));
	let code = "import sys; print([s.write_through for s in (sys.stdin, sys.stdout, sys.stderr)])";
	assert_eq!(stdout(&place.python(&["-c", code])), stdout(&place.cold(&["-u", "-c", code])));
}

#[test]
fn variables_that_python_has_read_already_are_told_in_one_line() {
	for (options, is_told) in [("-B", true), ("-E", false), ("-BI", false)] {
		let place = Place::new();
		let mut warm = place.flashfork(&["warm", "t", "--", PYTHON, options, "-c", "import os; os.environ.clear()"]);
		assert!(warm.env("PYTHONWARNINGS", "ignore").output().unwrap().status.success());
		let clone = |value: &str, path: &str| {
			let mut clone = place.flashfork(&["clone", "t", "-c", "print(1)"]);
			clone.env("PYTHONWARNINGS", value).env("PYTHONNODEBUGRANGES", path).output().unwrap()
		};
		let same = clone("ignore", "");
		assert_eq!(both(&same), ("1\n", ""));
		let other = clone("error", "/nowhere");
		let said = stderr(&other);
		assert_eq!(
			(stdout(&other), said.contains("values of PYTHONWARNINGS, PYTHONNODEBUGRANGES,")),
			("1\n", is_told),
			"{said}"
		);
		assert_eq!(said.lines().count(), usize::from(is_told), "{said}");
	}
}

#[test]
fn a_clone_goes_through_no_module_that_was_warmed() {
	let place = Place::new();
	let code = "import os, sys
class Module:
    def __getattribute__(self, name):
        Module.looked = True
        return object.__getattribute__(self, name)
sys.modules['module'] = Module()
def forget(): Module.looked = False
os.register_at_fork(after_in_child=forget)";
	place.warm(&[PYTHON, "-c", code]);
	for _ in 0..2 {
		let clone = place.run(&["clone", "t", "-c", "import sys; print(type(sys.modules['module']).looked)"]);
		assert_eq!(both(&clone), ("False\n", ""));
	}
}

/// `os.dup` in the warm-up: whoever reads the command's output finds its end, and a clone's is its caller's.
#[test]
fn copies_of_the_streams_are_the_callers() {
	let place = Place::new();
	let warm = "import builtins, os; builtins.copies = os.dup(1), os.dup(2)";
	good(place.flashfork(&["warm", "t", "--", PYTHON, "-c", warm]).current_dir(place.path()).output().unwrap());
	let clone = place.python(&["-c", "import os; [os.write(fd, b'%d' % i) for i, fd in enumerate(copies[:2])]"]);
	assert_eq!(both(&clone), ("0", "1"));
	// A file of the program's own that it had put in place of a stream stays.
	let place = Place::new();
	let warm = "import builtins, os; builtins.own = os.open('own', os.O_CREAT | os.O_WRONLY); os.dup2(own, 1)";
	good(place.flashfork(&["warm", "t", "--", PYTHON, "-c", warm]).current_dir(place.path()).output().unwrap());
	let clone = place.python(&["-c", "import os; os.write(own, b'kept'); print('out')"]);
	assert_eq!(both(&clone), ("out\n", ""));
	assert_eq!(fs::read_to_string(place.at("own")).unwrap(), "kept");
}

//! Programs that become another one, which is followed, or start another one, which is told.

use crate::{
	place::{Place, Start, assert_says, both, good, line, stderr, stdout},
	stale::shown,
};
use std::fs;

/// A template `t` of this command behind a wrapper, which must be Python.
fn warmed(place: &Place, command: &[&str]) {
	let output = place.warm(&[command, &["-c", "import json; warmed = 1"]].concat());
	assert!(stdout(&output).contains("ready to run Python") && stderr(&output).is_empty(), "{}", stderr(&output));
}

/// As pyenv has them.
#[test]
fn a_script_that_becomes_the_program_is_followed() {
	for head in ["#!/usr/bin/env bash", "#!/bin/sh -e", "#! /bin/sh"] {
		let place = Place::new();
		let python = place.script("python3", &format!("{head}\nexec /usr/bin/python3 \"$@\"\n"));
		warmed(&place, &[&python]);
		assert_eq!(shown(&place, "import sys; print(sys.executable, 'json' in sys.modules)"), "/usr/bin/python3 True");
		place.remove();
		let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
		let named = place.flashfork(&["warm", "t", "--", "python3", "-c", "import json"]).env("PATH", path).output();
		assert!(stdout(&named.unwrap()).contains("ready to run Python"));
	}
}

/// pyenv's are scripts that start scripts, and ask others meanwhile.
#[test]
fn scripts_that_become_scripts_and_run_programs_meanwhile_are_followed() {
	let place = Place::new();
	let inner = place.script("inner",
		"#!/usr/bin/env bash\nwhich=$(/usr/bin/python3 -c 'import sys; print(sys.executable)')\nshift\nexec \"$which\" \"$@\"\n",
	);
	let outer = place.script("outer", &format!("#!/usr/bin/env bash\nset -e\nexec \"{inner}\" exec \"$@\"\n"));
	warmed(&place, &[&outer]);
	assert_eq!(shown(&place, "import sys; print('json' in sys.modules)"), "True");
	// They are what the template was made of.
	fs::write(&inner, "#!/bin/sh\nshift\nexec /usr/bin/python3 -I \"$@\"\n").unwrap();
	let output = place.run(&["clone", "t", "-c", "print('it ran')"]);
	assert_says(line(&output), "/inner changed");
	let output = place.run(&["clone", "--fresh", "t", "-c", "import sys; print(sys.flags.isolated)"]);
	assert_eq!(both(&output), ("1\n", ""));
}

#[test]
fn programs_that_become_the_program_are_followed() {
	for wrapper in [&["env"][..], &["env", "A=1"], &["nice", "-n", "1"], &["nohup"], &["env", "-u", "HOME", "nice"]] {
		let place = Place::new();
		warmed(&place, &[wrapper, &["/usr/bin/python3"]].concat());
		assert_eq!(shown(&place, "import sys; print('json' in sys.modules)"), "True", "{wrapper:?}");
	}
	let place = Place::new();
	let path = place.script("x.py", "#!/usr/bin/env -S LC_ALL=C /usr/bin/python3 -I\nimport json\n");
	assert!(stdout(&place.warm(&[&path])).contains("ready to run Python"));
	assert_eq!(shown(&place, "import sys; print(sys.flags.isolated, 'json' in sys.modules)"), "1 True");
}

#[test]
fn a_program_that_its_interpreter_runs_first_may_become_the_program() {
	let place = Place::new();
	let text = "#!/usr/bin/python3\nimport os, sys\nos.environ['FROM'] = 'wrapper'\nos.execvp('python3', ['python3', *sys.argv[1:]])\n";
	let wrapper = place.script("wrapper", text);
	let command = ["warm", "t", "--", &wrapper, "-c", "import json"];
	let output = place.flashfork(&command).env("PATH", "/usr/bin:/bin").output().unwrap();
	assert!(stdout(&output).contains("ready to run Python"), "{}", stderr(&output));
	assert_eq!(shown(&place, "import os, sys; print(os.environ['FROM'], 'json' in sys.modules)"), "wrapper True");
}

/// As without a template, the caller's is what the wrapper starts from.
#[test]
fn clones_have_what_a_wrapper_sets_in_their_callers_environment() {
	let place = Place::new();
	let text = "#!/bin/sh\nexport SET=wrapper\nexport PATH=/wrapper:$PATH\nunset GONE\nexec /usr/bin/python3 \"$@\"\n";
	let wrapper = place.script("wrapper", text);
	let run = |arguments: &[&str], word: &str| {
		let mut command = place.flashfork(arguments);
		command.env("SET", word).env("PATH", format!("/{word}:/usr/bin:/bin")).env("GONE", word).env("KEPT", word);
		let output = command.output().unwrap();
		assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
		stdout(&output).to_owned()
	};
	run(&["warm", "t", "--", &wrapper, "-c", "import os"], "first");
	let code = "import os; print([os.environ.get(n) for n in ('SET', 'PATH', 'GONE', 'KEPT', 'FLASHFORK_WARM')])";
	assert_eq!(
		run(&["clone", "t", "-c", code], "second"),
		"['wrapper', '/wrapper:/first:/usr/bin:/bin', None, 'second', None]\n".replace("/first:", "/second:")
	);
	// In programs that clones start, too.
	let shell = "import os; os.system('echo $SET $KEPT')";
	assert_eq!(run(&["clone", "t", "-c", shell], "third"), "wrapper third\n");
	place.remove();
	// What it sets is no difference to the caller's.
	let watched = ["warm", "--watch", "t", "--", "env", "PYTHONPATH=/wrapper", &wrapper, "-c", "import os"];
	run(&watched, "first");
	let path = "import sys; print('/wrapper' in sys.path)";
	assert_eq!(
		(run(&["clone", "t", "-c", path], "first"), run(&["clone", "t", "-c", path], "first")),
		("True\n".into(), "True\n".into())
	);
	assert_eq!(place.list()[0]["clones_made"], 2);
}

/// The child is another process, and the wrapper would be the template. A value is put before or
/// behind an old one as part of a list, and in no other way.
#[test]
fn a_value_that_has_an_old_one_in_it_by_chance_is_the_wrappers() {
	let place = Place::new();
	let set = "export LIST=/x:$LIST OTHER=\"$OTHER -b\" LANG=C.UTF-8 NUMBER=10 DIRECTORY=/srv/app";
	let wrapper = place.script("sets", &format!("#!/bin/bash\n{set}\nexec /usr/bin/python3 \"$@\"\n"));
	let mut warm = place.flashfork(&["warm", "t", "--", &wrapper, "-c", "import json"]);
	for (name, value) in [("LIST", "/a"), ("OTHER", "-a"), ("LANG", "C"), ("NUMBER", "1"), ("DIRECTORY", "/")] {
		warm.env(name, value);
	}
	assert!(warm.output().unwrap().status.success());
	let names = "LIST OTHER LANG NUMBER DIRECTORY";
	let code = format!("import os; print(*[os.environ[name] for name in '{names}'.split()], sep='|')");
	let mut clone = place.flashfork(&["clone", "t", "-c", &code]);
	for (name, value) in [("LIST", "/q"), ("OTHER", "-q"), ("LANG", "de"), ("NUMBER", "2"), ("DIRECTORY", "/root")] {
		clone.env(name, value);
	}
	// LANG is what Python reads at its start, and must be what it was.
	clone.env("LANG", "C");
	let output = clone.output().unwrap();
	assert_eq!(both(&output), ("/x:/q|-q -b|C.UTF-8|10|/srv/app\n", ""));
}

#[test]
fn a_wrapper_that_leads_the_standard_streams_elsewhere_is_told() {
	let place = Place::new();
	let [output, errors] = ["", "2"].map(|stream| format!("{stream}>{}/log", place.path().display()));
	for redirection in [&*output, &*errors, "2>&1", "</dev/zero"] {
		let wrapper = place.script("leads", &format!("#!/bin/sh\nexec /usr/bin/python3 \"$@\" {redirection}\n"));
		let refused = place.run(&["warm", "t", "--", &wrapper, "-c", "import json"]);
		assert!(line(&refused).contains("led elsewhere (a redirection)"), "{redirection}: {}", stderr(&refused));
		assert!(!refused.status.success());
	}
}

#[test]
fn a_wrapper_that_starts_the_program_and_waits_is_told() {
	let place = Place::new();
	let wrapper = place.script("wrapper", "#!/bin/sh\n/usr/bin/python3 \"$@\"\n");
	let output = place.run(&["warm", "t", "--", &wrapper, "-c", "import json"]);
	let text = line(&output);
	assert_says(text, "wrapper ended with exit status 0 before it was ready");
	assert!(text.contains("becomes the program (`exec`)") && text.contains("sys.executable"), "{text}");
	// As uv does.
	let uv = place.program("uv", "int main(void) { return 0; }");
	let uv = uv.as_str();
	for command in [&["warm", "t", "--", uv, "run", "python"][..], &["warm", "t", "--", "env", uv, "run", "python"]] {
		let output = place.run(command);
		let text = line(&output);
		assert!(text.contains("as a child and waits for that") && text.contains("sys.executable"), "{text}");
	}
	assert!(place.list().is_empty());
	let wrapper = place.script("wrapper", "#!/bin/sh\necho \"$@\"\n");
	good(place.run(&["warm", "--ready", "main", "t", "--", &wrapper, "a"]));
	assert_eq!(stdout(&place.run(&["clone", "t", "b"])), "a b\n");
}

#[test]
fn a_wrapper_that_clears_the_environment_or_becomes_what_can_be_no_template_is_told() {
	let place = Place::new();
	// The name alone is found without PATH, too.
	for python in ["/usr/bin/python3", "python3"] {
		let output = place.run(&["warm", "t", "--", "env", "-i", python, "-c", "import time; time.sleep(1000)"]);
		assert_says(line(&output), "/python3, which can't be a template: its environment was cleared");
	}
	let program = place.program_with("fixed", "int pause(void); int main(void) { return pause(); }", &["-static"]);
	place.refuses(&["warm", "t", "--", "env", &program], "has gone on as a program that is statically linked");
	assert!(place.list().is_empty());
}

/// One that can't be found is looked for elsewhere, as shells do.
#[test]
fn a_wrapper_whose_first_attempts_fail_is_followed() {
	let place = Place::new();
	place.script("python3", "no program");
	let text = "import os\nfor name in ('/nowhere/python3', '/usr/bin', 'python3', '/usr/bin/python3'):\n    try: os.execv(name, ['python3', '-c', 'import json'])\n    except OSError: pass\n";
	let output = place.warm(&["/usr/bin/python3", "-c", text]);
	assert_says(stdout(&output), "ready to run Python");
	assert_eq!(shown(&place, "import sys; print('json' in sys.modules)"), "True");
	let pid = place.template_pid();
	let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
	assert!(open <= 12, "{open} descriptors");
}

#[test]
fn a_script_of_an_interpreter_itself_is_warmed() {
	let place = Place::new();
	let path = place.script("x.py", "#!/usr/bin/python3\nimport json\n");
	assert!(stdout(&place.warm(&[&path])).contains("ready to run Python"));
}

#[test]
fn a_program_by_an_interpreters_name_that_is_none_is_told() {
	let place = Place::new();
	let program = place.program("python3", "int main(void) { return 0; }");
	let output = place.warm(&[&program]);
	assert_says(stdout(&output), "t is ready before main");
	assert!(
		stderr(&output).contains("it is no CPython") && stderr(&output).lines().count() == 1,
		"{}",
		stderr(&output)
	);
}

#[test]
fn a_program_that_calls_is_followed_to_as_well() {
	let place = Place::new();
	let text = "int main(int argc, char **argv) { flashfork_ready(&argc, &argv); puts(argv[argc - 1]); return 0; }";
	let program = place.program("calls", text);
	let command = format!("exec {} first", program);
	good(place.run(&["warm", "--ready", "call", "t", "--", "sh", "-c", &command]));
	assert_eq!(stdout(&place.run(&["clone", "t", "second"])), "second\n");
	place.refuses(&["warm", "--ready", "call", "u", "--", "sh", "-c", "exec true"], "it must call flashfork_ready()");
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
	let fifo = place.at("fifo");
	nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
	let text = "#!/bin/bash\na=(1 2 3)\nread -r line < \"$1\"\necho \"${a[*]} $line\"; exit 5\n";
	let (path, fifo) = (place.script("work", text), fifo.to_str().unwrap());
	let command = ["warm", "--threads", "--ready", "idle:0.2", "t", "--", "bash", &path, fifo];
	assert!(place.run(&command).status.success());
	for word in ["one", "two"] {
		let clone = place.flashfork(&["clone", "t"]).start();
		// Opens when the clone does.
		fs::write(fifo, format!("{word}\n")).unwrap();
		let clone = clone.wait_with_output().unwrap();
		assert_eq!((stdout(&clone), clone.status.code()), (&*format!("1 2 3 {word}\n"), Some(5)));
	}
}

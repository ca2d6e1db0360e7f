//! Templates whose program would be another one now: there are no clones, until they are made anew.

use crate::place::{Place, Start, assert_says, both, copy, good, line, pids, rest, signal, stderr, stdout, until};
use std::{
	fs,
	io::Write,
	os::unix::fs::{PermissionsExt, symlink},
	path::Path,
	process::Command,
	sync::atomic::{AtomicU64, Ordering::Relaxed},
	time::{Duration, SystemTime},
};

const PYTHON: &str = "/usr/bin/python3";

/// Writes a file of the place. Each time it is a second younger: Python goes on with what it has compiled as long as a
/// module has the same length, and was changed in the same second.
fn write(place: &Place, name: &str, text: &str) {
	static SECONDS: AtomicU64 = AtomicU64::new(0);
	let mut file = fs::File::create(place.at(name)).unwrap();
	file.write_all(text.as_bytes()).unwrap();
	let later = Duration::from_secs(SECONDS.fetch_add(1, Relaxed));
	file.set_modified(SystemTime::now() + later).unwrap();
}

fn with_module() -> Place {
	let place = Place::new();
	write(&place, "mine.py", "value = 1\n");
	place
}

/// A template `t` of a Python in which this code has run, with the place on its path.
fn warm(place: &Place, code: &str) {
	let code = format!("import sys; sys.path.insert(0, {:?})\n{code}", place.path());
	place.warm(&[PYTHON, "-c", &code]);
}

const LOGS: &str = "import mine; open(sys.path[0] + '/log', 'a').write('x')";

/// Clones at a time, after each change.
fn all_get_what_one_has_warmed(place: &Place, clone: &[&str]) {
	for round in 2..5 {
		write(place, "mine.py", &format!("value = {round}\n"));
		let words = [clone, &["t", "-c", "import mine; print(mine.value)"]].concat();
		for output in place.together(16, &words) {
			let wanted = (&*format!("{round}\n"), Some(0));
			assert_eq!((stdout(&output), output.status.code()), wanted, "{}", stderr(&output));
		}
		assert_eq!(fs::read_to_string(place.at("log")).unwrap().len(), round);
	}
}

pub fn shown(place: &Place, code: &str) -> String {
	let output = place.run(&["clone", "t", "-c", code]);
	assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
	stdout(&output).trim_end().to_owned()
}

fn refused(place: &Place) -> String {
	let output = place.run(&["clone", "t", "-c", "print('it ran')"]);
	assert_eq!(stdout(&output), "");
	line(&output).to_owned()
}

fn fresh(place: &Place, code: &str) -> std::process::Output {
	place.run(&["clone", "--fresh", "t", "-c", code])
}

#[test]
fn there_is_no_clone_once_a_module_has_changed() {
	let place = with_module();
	write(&place, "other.py", "value = 2\n");
	warm(&place, "import mine, other");
	let state = || {
		let template = place.list().remove(0);
		(template["changed_files"].as_u64().unwrap(), template["age_seconds"].is_u64())
	};
	let show = || shown(&place, "import mine; print(mine.value)");
	assert_eq!((show(), state()), ("1".into(), (0, true)));
	// Read, opened to be written without being so, linked, and given other rights: it is what it was.
	let mine = place.at("mine.py");
	fs::read(&mine).unwrap();
	drop(fs::OpenOptions::new().append(true).open(&mine).unwrap());
	fs::hard_link(&mine, place.at("link")).unwrap();
	fs::set_permissions(&mine, PermissionsExt::from_mode(0o640)).unwrap();
	assert_eq!((show(), state()), ("1".into(), (0, true)));
	// In place, as an editor that writes another file and renames it, and gone.
	write(&place, "mine.py", "value = 10\n");
	for _ in 0..2 {
		let said = refused(&place);
		assert!(said.contains("mine.py changed since t was warmed") && said.contains("clone --fresh t"), "{said}");
		assert_eq!(state().0, 1);
	}
	write(&place, "new", "value = 3\n");
	fs::rename(place.at("new"), place.at("other.py")).unwrap();
	assert_says(&refused(&place), "mine.py and another changed");
	fs::remove_file(&mine).unwrap();
	assert_eq!((state().0, stdout(&place.run(&["ls"])).contains("CHANGED")), (2, true));
}

#[test]
fn a_module_that_is_written_with_its_old_times_and_length_has_changed() {
	let place = with_module();
	warm(&place, "import mine");
	let path = place.at("mine.py");
	let before = fs::metadata(&path).unwrap().modified().unwrap();
	write(&place, "mine.py", "value = 2\n");
	fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
	assert_says(&refused(&place), "mine.py changed");
}

#[test]
fn a_module_that_is_written_while_the_template_is_warmed_has_changed() {
	let place = with_module();
	let path = place.at("mine.py");
	warm(&place, &format!("import mine; open({path:?}, 'w').write('value = 22')"));
	assert_says(&refused(&place), "mine.py changed");
}

#[test]
fn a_directory_or_a_link_on_the_way_to_a_module_counts() {
	let place = Place::new();
	for name in ["one", "two"] {
		fs::create_dir(place.at(name)).unwrap();
		write(&place, &format!("{name}/mine.py"), &format!("value = {name:?}\n"));
	}
	let current = place.at("current");
	symlink("one", &current).unwrap();
	place.warm(&[PYTHON, "-c", &format!("import sys; sys.path.insert(0, {current:?}); import mine")]);
	assert_eq!(shown(&place, "import mine; print(mine.value)"), "one");
	symlink("two", place.at("next")).unwrap();
	fs::rename(place.at("next"), &current).unwrap();
	assert_says(&refused(&place), "/current/mine.py changed");
	assert_eq!(stdout(&fresh(&place, "import mine; print(mine.value)")), "two\n");
	fs::rename(place.at("two"), place.at("three")).unwrap();
	assert_says(&refused(&place), "/current/mine.py changed");
}

#[test]
fn a_module_in_the_place_of_one_that_was_looked_up_in_vain_counts() {
	let place = Place::new();
	fs::create_dir(place.at("lib")).unwrap();
	write(&place, "lib/found.py", "");
	let lib = place.at("lib");
	warm(
		&place,
		&format!(
			"sys.path.insert(1, {lib:?}); sys.path.insert(0, {:?})
import found, json, importlib.util
try: import nowhere
except ImportError: pass
importlib.util.find_spec('perhaps')",
			place.at("later")
		),
	);
	let run = || shown(&place, "print(1)");
	// What else is made there is no module that was looked for.
	write(&place, "job.py", "");
	write(&place, "data.txt", "");
	write(&place, "nowhere.txt", "");
	fs::create_dir(place.at("results")).unwrap();
	fs::create_dir(place.at("json")).unwrap();
	run();
	for name in ["nowhere.py", "perhaps.py", "found.py", "json.py", "json/__init__.py", "nowhere/__init__.py"] {
		let path = place.at(name);
		fs::create_dir_all(path.parent().unwrap()).unwrap();
		run();
		fs::write(&path, "").unwrap();
		assert!(refused(&place).contains("appeared since t was warmed"), "{name}: {}", refused(&place));
		// Gone again it is what it was.
		fs::remove_file(&path).unwrap();
		run();
	}
	fs::create_dir(place.at("later")).unwrap();
	assert_says(&refused(&place), "/later appeared");
}

#[test]
fn a_module_more_in_a_package_counts_for_programs_list_them() {
	let place = Place::new();
	fs::create_dir_all(place.at("app/migrations")).unwrap();
	write(&place, "app/__init__.py", "");
	write(&place, "app/migrations/__init__.py", "");
	write(&place, "app/migrations/m1.py", "");
	warm(
		&place,
		"import app.migrations, pkgutil; all = [m.name for m in pkgutil.iter_modules(app.migrations.__path__)]",
	);
	write(&place, "app/migrations/notes.txt", "");
	shown(&place, "print(1)");
	write(&place, "app/migrations/m2.py", "");
	assert!(refused(&place).contains("files in ") && refused(&place).contains("/app/migrations came or went"));
}

#[test]
fn an_archive_of_modules_that_has_changed_counts() {
	let place = Place::new();
	let zip = place.at("all.zip");
	let make = |value: u8| {
		let code = format!("import zipfile; zipfile.ZipFile({zip:?}, 'w').writestr('zipped.py', 'value = {value}')");
		assert!(Command::new(PYTHON).args(["-c", &code]).status().unwrap().success());
	};
	make(1);
	warm(&place, &format!("sys.path.insert(0, {zip:?}); import zipped"));
	shown(&place, "print(1)");
	make(22);
	assert_says(&refused(&place), "/all.zip changed");
}

/// A limit leaves no watch: each caller's template looks for itself.
#[test]
fn where_nothing_can_be_watched_changes_are_noticed_all_the_same() {
	let place = with_module();
	let path = place.path().display();
	let code = format!(
		"import sys; sys.path.insert(0, {path:?})\ntry: import nowhere\nexcept ImportError: import mine",
		path = path.to_string()
	);
	// Of the user's own, so that nobody else's go.
	let limit = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
	let mut warm = Command::new("unshare");
	warm.args(["--user", "--map-root-user", "sh", "-c", limit, "sh"]);
	let flashfork = place.flashfork(&["warm", "t", "--", PYTHON, "-c", &code]);
	warm.arg(flashfork.get_program()).args(flashfork.get_args()).env("XDG_RUNTIME_DIR", place.path());
	let warmed = warm.env_remove("LD_PRELOAD").output().unwrap();
	if !warmed.status.success() && stderr(&warmed).contains("unshare") {
		return;
	}
	assert!(warmed.status.success(), "{}", stderr(&warmed));
	shown(&place, "print(1)");
	write(&place, "nowhere.py", "");
	assert_says(&refused(&place), "nowhere appeared");
	fs::remove_file(place.at("nowhere.py")).unwrap();
	write(&place, "mine.py", "value = 2\n");
	assert_says(&refused(&place), "mine.py changed");
}

#[test]
fn a_library_of_perl_or_ruby_before_the_one_that_was_found_counts() {
	for (command, file, text) in [
		(&["perl", "-I.", "-MMine", "-e", "1"][..], "Mine.pm", "package Mine; 1;\n"),
		(&["ruby", "-I.", "-rmine", "-e", "1"], "mine.rb", "MINE = 1\n"),
	] {
		let place = Place::new();
		for name in ["first", "second"] {
			fs::create_dir(place.at(name)).unwrap();
		}
		write(&place, &format!("second/{file}"), text);
		let [first, second] = ["first", "second"].map(|name| format!("-I{}", place.at(name).display()));
		place.warm(&[&[command[0], &first, &second], &command[2..]].concat());
		assert!(place.run(&["clone", "t", "-e", "1"]).status.success());
		write(&place, &format!("first/{file}"), text);
		let output = place.run(&["clone", "t", "-e", "1"]);
		assert_says(line(&output), &format!("first/{file} appeared"));
	}
}

#[test]
fn a_fresh_clone_warms_anew_what_has_changed_and_nothing_else() {
	let place = with_module();
	let code = format!(
		"import sys; sys.path.insert(0, {:?}); import mine; print('out'); print('err', file=sys.stderr)",
		place.path()
	);
	let command = ["warm", "--max-clones", "9", "t", "--", PYTHON, "-c", &code];
	assert!(place.flashfork(&command).env("FROM", "warm").current_dir("/usr").status().unwrap().success());
	let show = "import mine, os; print(mine.value)";
	let first = place.template_pid();
	let same = fresh(&place, show);
	assert_eq!((stdout(&same), stderr(&same), place.template_pid()), ("1\n", "", first));
	write(&place, "mine.py", "import os; value = os.getcwd() + os.environ['FROM']\n");
	let other = fresh(&place, show);
	// Of what is printed meanwhile only errors are for whoever waits.
	assert_eq!((stdout(&other), stderr(&other), other.status.code()), ("/usrwarm\n", "err\n", Some(0)));
	let second = place.template_pid();
	assert!(second != first && place.list()[0]["max_clones"] == 9);
	assert_eq!((shown(&place, show), place.template_pid()), ("/usrwarm".into(), second));
	until("the old one has ended", || !Path::new(&format!("/proc/{first}")).exists());
}

#[test]
fn clones_of_the_old_template_run_on_when_it_is_made_anew() {
	let place = with_module();
	warm(&place, "import mine");
	let mut old = place.flashfork(&["clone", "t", "-c", "import mine; input(); print(mine.value)"]);
	let mut old = old.start_talk();
	until("it runs", || place.list()[0]["clones_running"] == 1);
	write(&place, "mine.py", "value = 2\n");
	assert_eq!(stdout(&fresh(&place, "import mine; print(mine.value)")), "2\n");
	drop(old.stdin.take());
	let said = rest(old.stdout.as_mut().unwrap());
	// Its input has ended: an error, but its own.
	assert_eq!((old.wait().unwrap().code(), said.as_str()), (Some(1), ""));
}

#[test]
fn a_warm_up_that_fails_leaves_the_old_template_and_says_why() {
	let place = with_module();
	warm(&place, "import mine");
	let first = place.template_pid();
	write(&place, "mine.py", "value =\n");
	let failed = fresh(&place, "print(1)");
	let said = stderr(&failed);
	assert_eq!((failed.status.code(), stdout(&failed)), (Some(1), ""));
	assert!(said.contains("SyntaxError") && said.contains("can't warm t anew, and it stays as it was"), "{said}");
	assert!(place.template_pid() == first && refused(&place).contains("mine.py changed"));
	write(&place, "mine.py", "value = 3\n");
	assert_eq!(stdout(&fresh(&place, "import mine; print(mine.value)")), "3\n");
}

/// As a build runs them.
#[test]
fn of_many_fresh_clones_one_warms_and_none_is_lost() {
	let place = with_module();
	warm(&place, LOGS);
	all_get_what_one_has_warmed(&place, &["clone", "--fresh"]);
	until("one template is left", || pids(&place, "python3").len() <= 2);
}

#[test]
fn an_interrupted_fresh_clone_leaves_the_old_template_and_no_process() {
	let place = with_module();
	let warmed = place.at("warmed");
	warm(&place, &format!("import mine, os, time\nif mine.value > 1: open({warmed:?}, 'w'); time.sleep(1000)"));
	write(&place, "mine.py", "value = 2\n");
	let mut clone = place.flashfork(&["clone", "--fresh", "t", "-c", "print(1)"]).spawn().unwrap();
	until("it is warmed", || warmed.exists());
	signal(&clone, libc::SIGINT);
	assert_eq!(std::os::unix::process::ExitStatusExt::signal(&clone.wait().unwrap()), Some(libc::SIGINT));
	// The template, and the clone that it has made ahead.
	until("the warm-up has ended", || pids(&place, "python3").len() <= 2);
	assert_says(&refused(&place), "mine.py changed");
}

#[test]
fn a_template_with_threads_is_made_anew_too() {
	let place = Place::new();
	let (program, text) =
		(place.at("small"), "int main(int argc, char **argv) { flashfork_ready(&argc, &argv); puts(WORD); return 0; }");
	let make = |word: &str| {
		place.program_with("new", text, &[&format!("-DWORD=\"{word}\"")]);
		fs::rename(place.at("new"), &program).unwrap();
	};
	make("one");
	let command = ["warm", "--threads", "--ready", "call", "t", "--", program.to_str().unwrap()];
	good(place.run(&command));
	assert_eq!(stdout(&place.cloned()), "one\n");
	make("two");
	let output = place.cloned();
	assert!(line(&output).contains("/small changed") && stdout(&output).is_empty(), "{}", line(&output));
	let output = place.run(&["clone", "--fresh", "t"]);
	assert_eq!(both(&output), ("two\n", ""));
}

/// A template `t` of a Python in which this code has run, made anew by its callers.
fn watch(place: &Place, code: &str) {
	let code = format!("import sys; sys.path.insert(0, {:?})\n{code}", place.path());
	good(place.run(&["warm", "--watch", "t", "--", PYTHON, "-c", &code]));
}

#[test]
fn the_next_clone_of_a_watched_template_finds_it_made_anew() {
	let place = with_module();
	watch(&place, "import mine");
	let first = place.template_pid();
	let show = || shown(&place, "import mine; print(mine.value)");
	assert_eq!((show(), place.template_pid()), ("1".into(), first));
	for value in ["22", "333"] {
		write(&place, "mine.py", &format!("value = {value}\n"));
		assert_eq!((show(), show()), (value.into(), value.into()));
	}
	assert!(place.template_pid() != first && place.list()[0]["clones_made"] == 2);
	// By the command proper, too.
	write(&place, "mine.py", "value = 4\n");
	assert_eq!(stdout(&fresh(&place, "import mine; print(mine.value)")), "4\n");
	write(&place, "mine.py", "value =\n");
	let failed = place.run(&["clone", "t", "-c", "print('it ran')"]);
	assert_says(stderr(&failed), "can't warm t anew, and it stays as it was");
	assert_eq!((failed.status.code(), stdout(&failed)), (Some(1), ""));
	write(&place, "mine.py", "value = 5\n");
	assert_eq!(show(), "5");
}

#[test]
fn of_many_clones_of_a_watched_template_one_warms_and_none_is_lost() {
	let place = with_module();
	watch(&place, LOGS);
	all_get_what_one_has_warmed(&place, &["clone"]);
}

#[test]
fn a_clone_of_a_watched_template_has_its_callers_variables_of_the_start() {
	let place = Place::new();
	for name in ["one", "two"] {
		fs::create_dir(place.at(name)).unwrap();
		write(&place, &format!("{name}/mine.py"), &format!("value = {name:?}\n"));
	}
	let run = |arguments: &[&str], python_path: &str, path: &str| {
		let mut command = place.flashfork(arguments);
		command.env("PYTHONPATH", place.at(python_path)).env("PATH", path).env("OTHER", path);
		let output = command.output().unwrap();
		assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
		stdout(&output).to_owned()
	};
	let system = "/usr/bin:/bin";
	run(&["warm", "--watch", "t", "--", "python3", "-c", "import mine"], "one", system);
	let first = place.template_pid();
	let show = ["clone", "t", "-c", "import mine, sys; print(mine.value)"];
	// Another path to the same program, and variables that nobody has read, change nothing.
	fs::create_dir(place.at("bin")).unwrap();
	let bin = format!("{}/bin:{system}", place.path().display());
	assert_eq!((run(&show, "one", system), run(&show, "one", &bin)), ("one\n".into(), "one\n".into()));
	assert_eq!(place.template_pid(), first);
	assert_eq!((run(&show, "two", system), run(&show, "two", system)), ("two\n".into(), "two\n".into()));
	let second = place.template_pid();
	assert!(second != first && place.list()[0]["clones_made"] == 2);
	copy(Path::new("/usr/bin/python3"), &place.at("bin/python3"));
	assert_eq!(run(&show, "two", &bin), "two\n");
	assert!(place.template_pid() != second);
	// Without --watch one line says so, as ever.
	place.remove();
	run(&["warm", "t", "--", "python3", "-c", "import mine"], "one", system);
	let output = place.flashfork(&show).env("PYTHONPATH", place.at("two")).output().unwrap();
	assert!(stdout(&output) == "one\n" && stderr(&output).contains("PYTHONPATH"), "{}", stderr(&output));
}

#[test]
fn a_watched_template_with_threads_is_made_anew_too() {
	let place = Place::new();
	let code = "import os; value = os.environ.get('PYTHONPATH')";
	let run = |arguments: &[&str], path: &str| {
		let output = good(place.flashfork(arguments).env("PYTHONPATH", path).output().unwrap());
		stdout(&output).to_owned()
	};
	run(&["warm", "--watch", "--threads", "t", "--", PYTHON, "-c", code], "/one");
	let show = ["clone", "t", "-c", "import sys; print([p for p in sys.path if p in ('/one', '/two')])"];
	assert_eq!((run(&show, "/one"), place.list()[0]["clones_made"].as_u64()), ("['/one']\n".into(), Some(1)));
	assert_eq!((run(&show, "/two"), place.list()[0]["clones_made"].as_u64()), ("['/two']\n".into(), Some(1)));
	assert_eq!((run(&show, "/two"), place.list()[0]["clones_made"].as_u64()), ("['/two']\n".into(), Some(2)));
}

#[test]
fn data_that_the_warm_up_has_read_counts() {
	let place = Place::new();
	fs::create_dir(place.at("conf.d")).unwrap();
	write(&place, "conf.d/one", "1");
	write(&place, "settings.ini", "1");
	let code = "
import os, glob
os.chdir(sys.path[0])
one = open('settings.ini').read()
two = os.read(os.open('conf.d/one', os.O_RDONLY), 9)
all = glob.glob('conf.d/*')
try: open('local.ini')
except OSError: pass
# What the warm-up writes and takes away is its own, and what the system makes is nobody's.
open('cache', 'w').write('1'); open('cache').read(); open('cache', 'w').write('22')
open('log', 'a').write('1')
open('gone', 'w').write('1'); open('gone').read(); os.remove('gone')
open('/proc/self/stat').read(); os.listdir('/proc/self/fd')";
	for (name, text, why) in [
		("settings.ini", "2", "settings.ini changed"),
		("conf.d/one", "2", "/conf.d/one changed"),
		("conf.d/two", "2", "files in "),
		("local.ini", "2", "/local.ini appeared"),
		("cache", "333", "/cache changed"),
	] {
		warm(&place, code);
		let works = "open('cache').read(); open('log', 'a').write('1'); open('output', 'w')";
		shown(&place, &format!("import os; os.chdir({:?}); {works}", place.path()));
		fs::File::options().append(true).open(place.at("log")).unwrap().set_len(0).unwrap();
		shown(&place, "1");
		write(&place, name, text);
		assert!(refused(&place).contains(why), "{name}: {}", refused(&place));
		place.remove();
	}
	// Directories in which modules are looked for hold other things, too.
	warm(&place, "import importlib.metadata, os; list(importlib.metadata.distributions()); os.listdir(sys.path[0])");
	write(&place, "another", "");
	shown(&place, "1");
	place.remove();
	// Written after it was read, while the template was warmed, and not by the warm-up itself.
	let other =
		"import subprocess; open('settings.ini').read(); subprocess.run(['sh', '-c', 'echo 33 > settings.ini'])";
	warm(&place, &format!("import os; os.chdir(sys.path[0])\n{other}"));
	assert_says(&refused(&place), "settings.ini changed");
}

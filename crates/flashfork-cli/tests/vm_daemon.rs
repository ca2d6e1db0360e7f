//! `flashfork vm` where no daemon runs, and where another sits at its socket.

mod common;

use assert_cmd::Command;
use predicates::str::contains;
use std::path::Path;

/// `flashfork vm` in `dir`, with a relative path of the socket.
fn vm(dir: &Path) -> Command {
	let mut command = Command::new(common::flashfork());
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
	for of_clone in [
		&["console", "a"][..],
		&["exec", "a", "--", "true"],
		&["rollback", "a"],
		&["rm", "a"],
		&["port", "a", "0:80"],
		&["cp", "a:/etc", "."],
		&["cp", ".", "a:/etc"],
	] {
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
fn no_daemon_is_started_in_a_directory_that_is_not_there() {
	let dir = tempfile::tempdir().unwrap();
	for starts in [&["run", "--", "true"][..], &["template", "create", "a"], &["serve"]] {
		let says = format!("there is no directory {}\n", dir.path().join("new").display());
		vm(dir.path()).args(starts).assert().code(1).stderr(predicates::str::ends_with(says));
	}
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

/// Something that listens where a daemon would, and answers all that comes with `answer`.
fn listener(place: &Path, answer: &str) -> std::process::Child {
	std::fs::create_dir(place.parent().unwrap()).unwrap();
	let listen = "import signal, socket, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n\
				  while True:\n    c, _ = s.accept()\n    c.recv(1000) and c.sendall(sys.argv[2].encode())\n    c.close()";
	let mut listener =
		std::process::Command::new("python3").args(["-c", listen]).arg(place).arg(answer).spawn().unwrap();
	while std::os::unix::net::UnixStream::connect(place).is_err() {
		assert!(listener.try_wait().unwrap().is_none(), "it does not listen");
		std::thread::sleep(std::time::Duration::from_millis(10));
	}
	listener
}

#[test]
fn stop_ends_a_daemon_of_any_version_and_nothing_else() {
	let daemon = "HTTP/1.1 200 OK\r\n\r\n{\"flashfork\": \"0.0.0\", \"api\": 1, \"pid\": 1}";
	let other = [("HTTP/1.1 404 Not Found\r\n\r\n<p>", "is no VM daemon"), ("ready\r\n", "is no VM daemon")];
	for (answer, words) in [(daemon, ""), ("", "before it answered")].into_iter().chain(other) {
		let dir = tempfile::tempdir().unwrap();
		let mut listener = listener(&dir.path().join("new/vmd.sock"), answer);
		let stopped = vm(dir.path()).arg("stop").assert();
		if words.is_empty() {
			stopped.success().stdout("");
			let status = listener.try_wait().unwrap();
			assert_eq!(
				status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)),
				Some(libc::SIGINT)
			);
		} else {
			stopped.code(1).stderr(contains(words));
			assert!(listener.try_wait().unwrap().is_none(), "it is ended");
			listener.kill().unwrap();
			listener.wait().unwrap();
		}
	}
}

#[test]
fn a_template_without_clones_or_time_is_wrong_usage() {
	let dir = tempfile::tempdir().unwrap();
	for option in ["--max-clones", "--timeout"] {
		vm(dir.path()).args(["template", "create", "a", option, "0"]).assert().code(2).stderr(contains(option));
	}
}

#[test]
fn a_machine_that_cannot_be_made_is_wrong_usage() {
	let dir = tempfile::tempdir().unwrap();
	for (option, wrong) in [("--cpus", "9"), ("--cpus", "0"), ("--memory", "0"), ("--memory", "2T"), ("--memory", "x")]
	{
		vm(dir.path()).args(["template", "create", "a", option, wrong]).assert().code(2).stderr(contains(option));
	}
	for count in ["0", "1001"] {
		vm(dir.path()).args(["clone", "-n", count, "a"]).assert().code(2).stderr(contains("1..=1000"));
	}
}

#[test]
fn what_is_no_name_is_wrong_usage_and_asks_nobody() {
	let dir = tempfile::tempdir().unwrap();
	for name in ["", "a b", "a?x", "../x", "a\r\nb", "-a", "a/b"] {
		for with in [
			&["rm", "--"][..],
			&["template", "rm", "--"],
			&["template", "create", "--"],
			&["rollback", "--"],
			&["console", "--"],
			&["clone", "--"],
		] {
			vm(dir.path()).args(with).arg(name).assert().code(2).stderr(contains("is no name: a name is 1 to 64"));
		}
		let option = |option: &str| format!("{option}={name}");
		let (template, clone) = (option("--template"), option("--name"));
		vm(dir.path()).args(["run", &template, "--", "true"]).assert().code(2).stderr(contains("is no name"));
		vm(dir.path()).args(["clone", &clone, "a"]).assert().code(2).stderr(contains("is no name"));
		if !name.starts_with('-') {
			vm(dir.path()).args(["exec", name, "--", "true"]).assert().code(2).stderr(contains("is no name"));
			vm(dir.path()).args(["port", name, "0:80"]).assert().code(2).stderr(contains("is no name"));
			vm(dir.path()).args(["template", "save", name, "b"]).assert().code(2).stderr(contains("is no name"));
		}
	}
	assert!(!dir.path().join("new").exists());
}

#[test]
fn ports_and_copies_that_make_no_sense_are_wrong_usage() {
	let dir = tempfile::tempdir().unwrap();
	for ports in ["", "80", "80:0", "x:80", "1:2:3:4", "localhost:1:2"] {
		vm(dir.path()).args(["port", "a", ports]).assert().code(2).stderr(contains("[ADDRESS:]HOST:GUEST"));
	}
	for (source, destination, says) in [
		("a", "b", "has to be in a clone"),
		("a:/b", "c:/d", "has to be in a clone"),
		("a:b", "c", "no absolute path"),
		("a b:/c", "d", "is no name"),
		("", "a:/b", "no path"),
	] {
		vm(dir.path()).args(["cp", source, destination]).assert().code(2).stderr(contains(says));
	}
	assert!(!dir.path().join("new").exists());
}

//! Functions in virtual machines, as far as no guest has to run: what is refused, and what a server removes. The VM
//! daemon is this file's. What guests do is in tests/vm/functions.

use crate::common::{ONE, Server, until};
use serde_json::{Value, json};
use std::{
	collections::BTreeSet,
	fs,
	io::{BufRead, BufReader, Write},
	os::unix::{
		fs::{MetadataExt, PermissionsExt},
		net::UnixListener,
	},
	path::{Path, PathBuf},
	sync::{Arc, Mutex},
};

/// Where functions in processes see nothing.
const HIDDEN: &str = "/tmp";

/// A daemon with templates and clones that are names alone.
struct Daemon {
	has: Arc<Mutex<BTreeSet<String>>>,
	directory: tempfile::TempDir,
}

impl Daemon {
	fn start(place: &str) -> Daemon {
		let directory = tempfile::tempdir_in(place).unwrap();
		let socket = directory.path().join("vmd.sock");
		let listener = UnixListener::bind(&socket).unwrap();
		// Where root runs this, the server is another user.
		for (path, mode) in [(directory.path(), 0o755), (&socket, 0o777)] {
			fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
		}
		let has = Arc::new(Mutex::new(BTreeSet::from(["templates/kernel".to_owned()])));
		let daemon = Daemon { has: has.clone(), directory };
		std::thread::spawn(move || {
			for stream in listener.incoming() {
				let mut stream = BufReader::new(stream.unwrap());
				let mut line = String::new();
				// A server may end meanwhile.
				let read = stream.read_line(&mut line);
				let (Ok(1..), Some((method, rest))) = (read, line.split_once(" /v1/")) else { continue };
				let path = rest.split(' ').next().unwrap();
				let (status, body) = answer(&mut has.lock().unwrap(), method, path);
				let _ = write!(
					stream.get_mut(),
					"HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
					body.len()
				);
			}
		});
		daemon
	}

	fn socket(&self) -> String {
		self.directory.path().join("vmd.sock").to_str().unwrap().to_owned()
	}

	fn has(&self, name: &str) -> bool {
		self.has.lock().unwrap().contains(name)
	}
}

fn answer(has: &mut BTreeSet<String>, method: &str, path: &str) -> (u16, String) {
	let refused = |status, code, message| (status, json!({ "code": code, "message": message }).to_string());
	let show = |kind: &str, name: &str| {
		let mut all = json!({
			"name": name, "created_s": 0, "made_ns": 0, "clones_made": 0, "clones_alive": 0, "resident_bytes": 0,
			"shared_bytes": 0, "shape": { "memory_mib": 256, "vcpus": 1, "pages": "small", "disk": false },
		});
		if kind == "clones" {
			let claim = json!({ "check": 0, "map": 0, "devices": 0, "machine": 0, "vcpus": 0, "first_exit": 0 });
			all = json!({
				"name": name, "template": "t", "made_ns": 0, "generation": "", "state": "ready", "pid": 1, "cid": 3,
				"claim": claim, "first_exit_ns": 0,
			});
		}
		all
	};
	match (method, path.split_once('/')) {
		("GET", None) => {
			let all = has.iter().filter_map(|one| one.split_once('/')).filter(|(kind, _)| *kind == path);
			(200, all.map(|(kind, name)| show(kind, name)).collect::<Value>().to_string())
		}
		("GET", Some((kind, name))) if has.contains(path) => (200, show(kind, name).to_string()),
		// One that has clones stays.
		("DELETE", Some(("templates", name))) if has.iter().any(|one| one.starts_with(&format!("clones/{name}-"))) => {
			refused(409, "conflict", "it has clones")
		}
		("DELETE", _) if has.remove(path) => (204, String::new()),
		("POST", _) => refused(501, "unsupported", "this KVM runs tiny guests only"),
		_ => refused(404, "not-found", "there is no such template"),
	}
}

/// A package with this program.
fn package(name: &str, mode: u32) -> PathBuf {
	let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machines-{name}"));
	fs::create_dir_all(&place).unwrap();
	fs::write(place.join("bootstrap"), "#!/bin/sh\n").unwrap();
	fs::set_permissions(place.join("bootstrap"), PermissionsExt::from_mode(mode)).unwrap();
	place
}

/// Why it is not deployed with these options: one line.
#[track_caller]
fn refused(server: &Server, package: &Path, options: &[&str]) -> String {
	let done = server.command(&[&["deploy", package.to_str().unwrap()], options].concat());
	let said = String::from_utf8(done.stderr).unwrap();
	assert_eq!((done.status.code(), said.lines().next().is_some()), (Some(1), true), "{said}");
	said
}

#[test]
fn what_virtual_machines_can_not_have_is_refused_with_the_reason() {
	let daemon = Daemon::start(HIDDEN);
	let server = Server::start("machines", &["--vm-socket", &daemon.socket()]);
	let program = package("program", 0o755);
	for (options, why) in [
		(&["--vm", "kernel", "--secret", "A=b"][..], "can have no secrets"),
		(&["--vm", "kernel", "--reuse", "2"], "Reuse is for functions in processes"),
		(&["--vm", "kernel", "--memory", "64"], "has its template's memory"),
		(&["--vm", "kernel", "--runtime", "python3.12"], "Runtime is provided"),
		(&["--vm", "serve.0.0.0"], "Vm is the name of a template"),
		(&["--vm", "a/b"], "Vm is the name of a template"),
		(&["--vm", "other"], "there is no such template"),
		(&["--vm", "kernel"], "this KVM runs tiny guests only; `flashfork vm doctor` says"),
		(&["--vm", "kernel"], "functions without --vm need none"),
	] {
		let said = refused(&server, &program, options);
		assert!(said.contains(why), "{options:?}: {said}");
	}
	let said = refused(&server, &package("text", 0o644), &["--vm", "kernel"]);
	assert!(said.contains("chmod +x"), "{said}");
	// Nothing of these stays.
	assert_eq!(server.command(&["functions"]).stdout, b"");
	for place in fs::read_dir(server.state.join("code")).unwrap() {
		assert_eq!(fs::read_dir(place.unwrap().path()).unwrap().count(), 0);
	}
}

#[test]
fn a_daemon_that_is_not_there_or_that_functions_see_is_not_used() {
	let server = Server::start("machines-alone", &["--vm-socket", "/tmp/there-is-none/vmd.sock"]);
	let said = refused(&server, &package("alone", 0o755), &["--vm", "kernel"]);
	assert!(said.contains("there is no VM daemon at /tmp/there-is-none/vmd.sock"), "{said}");
	let user = fs::metadata(&server.state).unwrap().uid();
	assert!(said.contains(&format!("starts one, by user {user} ")), "{said}");
	drop(server);
	let daemon = Daemon::start(env!("CARGO_TARGET_TMPDIR"));
	let server = Server::start("machines-seen", &["--vm-socket", &daemon.socket()]);
	let said = refused(&server, &package("seen", 0o755), &["--vm", "kernel"]);
	assert!(said.contains("functions without --vm see the VM daemon's socket"), "{said}");
}

#[test]
fn owners_with_keys_have_the_templates_that_the_server_names() {
	let daemon = Daemon::start(HIDDEN);
	let program = package("owners", 0o755);
	let deploy = |server: &Server| {
		let done = server.command_as(Some(ONE), &["deploy", program.to_str().unwrap(), "--vm", "kernel"]);
		String::from_utf8(done.stderr).unwrap()
	};
	let (server, _) = Server::with_keys("machines-keys", &["--vm-socket", &daemon.socket()], |_| ());
	let said = deploy(&server);
	assert!(said.contains("if --vm-template of the server says so"), "{said}");
	drop(server);
	let options = ["--vm-socket", &daemon.socket(), "--vm-template", "web,kernel"];
	let (server, _) = Server::with_keys("machines-keys", &options, |_| ());
	let said = deploy(&server);
	assert!(said.contains("this KVM runs tiny guests only"), "{said}");
}

#[test]
fn what_a_killed_server_has_left_is_removed_and_nothing_else() {
	let daemon = Daemon::start(HIDDEN);
	let mut server = Server::start("machines-left", &["--vm-socket", &daemon.socket()]);
	let id = fs::read_to_string(server.state.join("machines")).unwrap();
	let own = format!("serve.{id}.01234567.0");
	let left = [format!("templates/{own}"), format!("clones/{own}-1"), format!("clones/serve.{id}.89abcdef.1")];
	let other = "serve.0123456789abcdef.01234567.0";
	let others = [format!("templates/{other}"), format!("clones/{other}-1"), "clones/kernel-1".into()];
	daemon.has.lock().unwrap().extend(left.iter().chain(&others).cloned());
	server.kill_and_start_again();
	until("something is left", || !left.iter().any(|name| daemon.has(name)));
	assert!(others.iter().all(|name| daemon.has(name)));
	assert!(daemon.has("templates/kernel"));
	// Its name stays.
	assert_eq!(fs::read_to_string(server.state.join("machines")).unwrap(), id);
}

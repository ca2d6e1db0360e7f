//! Functions with a runtime of their own, a program.

use crate::common::Server;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use tempfile::TempDir;

/// A package with that as its runtime.
fn package(fill: impl FnOnce(&Path)) -> TempDir {
	let place = tempfile::tempdir().unwrap();
	let program = place.path().join("bootstrap");
	fill(&program);
	if program.exists() {
		fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
	}
	place
}

/// Of `bootstrap.rs`.
fn built(options: &[&str]) -> TempDir {
	package(|program| {
		let mut build = Command::new("rustc");
		build.args(["--edition", "2024", "-o"]).arg(program).args(options);
		let done = build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handlers/bootstrap.rs")).output().unwrap();
		assert!(done.status.success(), "{done:?}");
	})
}

#[test]
fn programs_are_functions_with_any_connections_and_threads() {
	let server = Server::start("provided", &[]);
	let package = built(&[]);
	for (name, more) in [("one", &[][..]), ("threads", &["--env", "THREADS=1"])] {
		server.deploy_from(package.path(), name, &[&["--secret", "SECRET=key"], more].concat()).unwrap();
		for event in ["a", "b", "c"] {
			let answer = json!({ "call": 1, "event": event, "secret": "key" });
			assert_eq!(server.call(name, &json!(event)), (answer, false), "{name}");
		}
		let many = server.call(name, &json!("many")).0;
		assert_eq!(many["event"], 31, "{name}: {many}");
		let (error, failed) = server.call(name, &json!("leave"));
		assert_eq!((failed, &error["errorType"]), (true, &json!("Runtime.ExitError")), "{name}: {error}");
		assert_eq!(server.call(name, &json!("d")).0["call"], 1);
	}
	// A clone that is used again connects as often as it likes.
	server.deploy_from(package.path(), "again", &["--reuse", "100"]).unwrap();
	let calls = (1..=100).map(|_| server.call("again", &json!(0)).0["call"].clone());
	assert_eq!(calls.collect::<Vec<_>>(), (1..=100).map(|call| json!(call)).collect::<Vec<_>>());
	let log = server.command(&["logs", "one"]);
	assert!(log.stdout.starts_with(b"is warmed\nSTART"), "{log:?}");
	let config = server.ask("GET", "/2015-03-31/functions/one", "", b"").2;
	assert_eq!(serde_json::from_slice::<serde_json::Value>(&config).unwrap()["Configuration"]["Runtime"], "provided");
}

#[test]
fn programs_that_can_be_no_functions_are_refused_with_the_reason() {
	let server = Server::start("provided-not", &[]);
	let child = "#!/bin/sh\npython3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 1))'; exit 5";
	let no_program = package(|program| fs::write(program, "").unwrap());
	fs::set_permissions(no_program.path().join("bootstrap"), PermissionsExt::from_mode(0o644)).unwrap();
	for (package, options, why) in [
		(built(&["-C", "target-feature=+crt-static"]), &[][..], "statically linked"),
		(package(|_| ()), &["--runtime", "provided.al2023"], "no executable program bootstrap"),
		(no_program, &[], "no executable program bootstrap (chmod +x"),
		(package(|program| fs::write(program, "#!/nonexistent\n").unwrap()), &[], "can't be warmed"),
		(package(|program| fs::write(program, "#!/bin/sh\necho no; exit 3\n").unwrap()), &[], "exit status 3"),
		(package(|program| fs::write(program, child).unwrap()), &[], "the function's program itself must ask"),
	] {
		let told = server.deploy_from(package.path(), "f", options).unwrap_err();
		assert!(told.contains(why), "{told}");
	}
}

#[test]
fn what_is_left_running_is_refused_with_threads_too() {
	let server = Server::start("provided-leaves", &[]);
	let package = built(&[]);
	for what in ["LEAVES=one", "LEAVES=chain"] {
		for more in [&[][..], &["--env", "THREADS=1"]] {
			let told = server.deploy_from(package.path(), "f", &[&["--env", what], more].concat()).unwrap_err();
			assert!(told.contains("it has left a process running") && told.contains("in the handler"), "{told}");
		}
	}
}

//! Requests to the daemon, from bytes: whoever may open its socket can't bring it down, nor make it hang.

#[path = "common/daemon.rs"]
mod client;
mod common;
#[path = "common/fuzz.rs"]
mod fuzz;

use client::{Daemon, idler};
use flashfork_proto::api::{self, Template};
use serde_json::Value;
use std::{
	io::{Read, Write},
	net::Shutdown,
	os::unix::net::UnixStream,
	path::Path,
	process::Command,
	time::Duration,
};

/// More clones and templates than these are taken away again.
const KEPT: usize = 8;

fn tidy(daemon: &Daemon) {
	let clones = daemon.all_clones();
	let templates: Vec<Template> = daemon.get("/v1/templates");
	if clones.len() > KEPT || templates.len() > KEPT {
		// What is being made has no name yet, and what has a clone by now stays until the next time.
		clones.iter().for_each(|clone| drop(daemon.ask("DELETE", &format!("/v1/clones/{}", clone.name), &Value::Null)));
		let others = templates.iter().filter(|template| template.name != "t");
		others.for_each(|other| drop(daemon.ask("DELETE", &format!("/v1/templates/{}", other.name), &Value::Null)));
	}
}

#[test]
fn requests() {
	let nothing = |command: &mut Command, dir: &Path| {
		// No agent, so that no request downloads a kernel.
		command.args(["--agent", "/none", "--cache"]).arg(dir);
	};
	let Some(daemon) = Daemon::start_with(nothing) else { return };
	daemon.template("t", idler());
	let pid = daemon.child.id();
	fuzz::fuzz("http", 100, |input| {
		let mut stream = UnixStream::connect(&daemon.socket).unwrap();
		// A template whose guest is never ready takes the time that the request gives it.
		stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
		// Who is answered before the end may find the other side gone.
		let _ = stream.write_all(input).and_then(|()| stream.shutdown(Shutdown::Write));
		let mut answer = Vec::new();
		let _ = stream.read_to_end(&mut answer);
		assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
		assert_eq!(daemon.get::<api::Daemon>("/v1").pid, pid);
		tidy(&daemon);
	});
	// What was made is in order.
	let stats: api::Stats = daemon.get("/v1/stats");
	assert!(stats.templates >= 1, "{stats:?}");
}

#[test]
fn a_body_that_is_no_object_and_a_name_that_is_no_text_are_refused_in_words() {
	let Some(daemon) = Daemon::with_idler() else { return };
	for body in ["[]", "[1]", "[1,null,\"\",true]", "7", "\"x\"", "null"] {
		let body: Value = serde_json::from_str(body).unwrap();
		daemon.refuses_clones("t", &body, "object");
		daemon.refuses_template(&body, "object");
	}
	// Deeper than any recursion that would fit on a stack.
	let deep = "[".repeat(1 << 19);
	let head = "POST /v1/templates HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
	let mut stream = UnixStream::connect(&daemon.socket).unwrap();
	stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{deep}", deep.len()).as_bytes()).unwrap();
	let mut answer = String::new();
	stream.read_to_string(&mut answer).unwrap();
	assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
	assert_eq!(daemon.all_clones(), []);
	for path in ["templates/%ff", "clones/%c3%28", "templates/a%80/clones"] {
		let method = if path.ends_with("clones") { "POST" } else { "GET" };
		daemon.refused(method, &format!("/v1/{path}"), &serde_json::json!({}), "UTF-8");
	}
	daemon.clone_of("t");
}

/// Every path with a name in it says that there is no such thing, and not that there is no such path.
#[test]
fn the_interface_describes_itself() {
	let Some(daemon) = Daemon::start() else { return };
	let document: Value = daemon.get("/v1/openapi.json");
	let paths = document["paths"].as_object().unwrap();
	assert!(paths.len() > 10, "{paths:?}");
	for (path, methods) in paths {
		for method in methods.as_object().unwrap().keys().filter(|_| path.contains("{name}")) {
			let path = path.replace("{name}", "nothing");
			let (_, answer) = daemon.ask(&method.to_uppercase(), &path, &serde_json::json!({}));
			assert!(!answer.contains("no such path"), "{method} {path}: {answer}");
		}
	}
}

/// Kilobytes of memory that the daemon has to itself.
fn resident(daemon: &Daemon) -> u64 {
	let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", daemon.child.id())).unwrap();
	let line = rollup.lines().find(|line| line.starts_with("Pss_Anon:")).unwrap();
	line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn connections_that_ask_nothing_cost_next_to_nothing() {
	const MANY: u64 = 800;
	let Some(daemon) = Daemon::start() else { return };
	daemon.get::<api::Daemon>("/v1");
	let before = resident(&daemon);
	let silent: Vec<_> = (0..MANY).map(|_| UnixStream::connect(&daemon.socket).unwrap()).collect();
	// One that came after all these is answered.
	daemon.get::<api::Daemon>("/v1");
	let each = resident(&daemon).saturating_sub(before) * 1024 / MANY;
	assert!(each < 8192, "{each} bytes for each connection");
	drop(silent);
}

#[test]
fn a_body_that_does_not_come_keeps_no_connection() {
	let Some(daemon) = Daemon::start() else { return };
	let mut stream = UnixStream::connect(&daemon.socket).unwrap();
	let half =
		"POST /v1/templates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{";
	stream.write_all(half.as_bytes()).unwrap();
	stream.set_read_timeout(Some(client::PATIENCE)).unwrap();
	let mut answer = String::new();
	stream.read_to_string(&mut answer).unwrap();
	assert!(answer.contains("the body did not come within"), "{answer}");
}

//! What whoever runs the server is told.

use crate::common::{PYTHON, SERVE, Server, answer, until};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// The status and the body of what is at the operators' address.
fn get(server: &Server, path: &str) -> (u16, String) {
	let mut stream = TcpStream::connect(server.operations.as_ref().unwrap()).unwrap();
	write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
	let (status, _, body) = answer(&mut stream);
	(status, String::from_utf8(body).unwrap())
}

#[test]
fn what_is_counted_is_what_has_happened() {
	let mut server = Server::start("metrics", &["--operations", "127.0.0.1:0", "--event-retry", "0"]);
	server.deploy("f", &["--timeout", "20"]);
	server.deploy("short", &["--timeout", "1"]);
	for n in 0..3 {
		assert_eq!(server.call("f", &json!({ "n": n })).0, json!({ "n": n }));
	}
	assert!(server.call("f", &json!({ "do": "fail" })).1);
	assert!(server.call("f", &json!({ "do": "leave" })).1);
	assert!(server.call("short", &json!({ "do": "sleep" })).1);
	drop(server.sleeper(&format!("counted{}", std::process::id())));
	assert_eq!(server.ask("POST", "/2015-03-31/functions/f/invocations", "", b"nonsense").0, 400);
	let all = [
		"flashfork_serve_calls_total{function=\"local:f\",end=\"succeeded\"} 3",
		"flashfork_serve_calls_total{function=\"local:f\",end=\"failed\"} 2",
		"flashfork_serve_calls_total{function=\"local:f\",end=\"cancelled\"} 1",
		"flashfork_serve_calls_total{function=\"local:short\",end=\"timed_out\"} 1",
		"flashfork_serve_call_duration_seconds_count{function=\"local:f\"} 6",
		"flashfork_serve_clone_duration_seconds_count 7",
		"flashfork_serve_warm_duration_seconds_count 2",
		"flashfork_serve_requests_total{operation=\"invoke\",status=\"200\"} 6",
		"flashfork_serve_requests_total{operation=\"invoke\",status=\"400\"} 1",
		"flashfork_serve_requests_total{operation=\"deploy\",status=\"201\"} 2",
		"flashfork_serve_slots 32",
		"flashfork_serve_slots_used 0",
		"flashfork_serve_functions 2",
		"flashfork_serve_events_waiting 0",
		"# EOF",
	];
	// A call that has answered has its place until its clone's end.
	until("not all is counted", || {
		let text = get(&server, "/metrics").1;
		all.iter().all(|line| text.lines().any(|there| there == *line))
	});
	assert_eq!(get(&server, "/livez").0, 200);
	assert_eq!(get(&server, "/readyz"), (200, "ready\n".into()));
	assert_eq!(get(&server, "/2015-03-31/functions").0, 404);
	assert!(server.command(&["undeploy", "f"]).status.success());
	assert!(!get(&server, "/metrics").1.contains("local:f\""));
	server.kill_and_start_again();
	until("it is never ready", || get(&server, "/readyz").0 == 200);
	assert!(get(&server, "/metrics").1.contains("flashfork_serve_warm_duration_seconds_count 1\n"));
}

#[test]
fn a_log_of_json_has_an_object_on_each_line() {
	let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve-log");
	let _ = fs::remove_dir_all(&state);
	let log = state.with_extension("log");
	let mut server = Command::new(SERVE)
		.args(["serve", "--log", "json", "--listen", "127.0.0.1:0", "--python", &PYTHON, "--state"])
		.arg(&state)
		.stdout(Stdio::piped())
		.stderr(File::create(&log).unwrap())
		.spawn()
		.unwrap();
	let mut line = String::new();
	BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
	let ask = |arguments: &[&str]| {
		let endpoint = line.trim().rsplit(' ').next().unwrap();
		let done = Command::new(SERVE).args(arguments).args(["--endpoint", endpoint]).output().unwrap();
		assert!(done.status.success(), "{done:?}");
	};
	let code = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handlers");
	ask(&["deploy", code, "--name", "f", "--handler", "handlers.handler"]);
	ask(&["invoke", "f", "{}"]);
	server.kill().unwrap();
	server.wait().unwrap();
	let text = fs::read_to_string(&log).unwrap();
	let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
	let [warm, call] = &lines[..] else { panic!("{text}") };
	assert_eq!((&warm["message"], &warm["function"]), (&json!("warm"), &json!("local:f")));
	assert_eq!((&call["message"], &call["end"]), (&json!("call"), &json!("succeeded")));
	assert!(call["id"].is_string() && call["ms"].is_number() && call["timestamp"].is_string(), "{call}");
}

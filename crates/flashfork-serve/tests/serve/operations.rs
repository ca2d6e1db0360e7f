//! What whoever runs the server is told.

use crate::common::{Server, until};
use serde_json::{Value, json};
use std::{
	fs::{self, File},
	path::Path,
};

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
		"flashfork_serve_clone_duration_seconds_count 9",
		// One of each function.
		"flashfork_serve_clones_waiting 2",
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
		let text = server.operator("/metrics").1;
		all.iter().all(|line| text.lines().any(|there| there == *line))
	});
	assert_eq!(server.operator("/livez").0, 200);
	assert_eq!(server.operator("/readyz"), (200, "ready\n".into()));
	assert_eq!(server.operator("/2015-03-31/functions").0, 404);
	assert!(server.command(&["undeploy", "f"]).status.success());
	assert!(!server.operator("/metrics").1.contains("local:f\""));
	server.kill_and_start_again();
	until("it is never ready", || server.operator("/readyz").0 == 200);
	assert!(server.operator("/metrics").1.contains("flashfork_serve_warm_duration_seconds_count 1\n"));
}

#[test]
fn as_many_functions_are_warmed_at_a_time_as_calls_may_run() {
	let options = ["--operations", "127.0.0.1:0", "--concurrency", "1"];
	let mut server = Server::start("turns", &options);
	let alone = format!("ALONE=alone{}", std::process::id());
	std::thread::scope(|scope| {
		for name in ["a", "b", "c", "d"] {
			scope.spawn(|| server.deploy(name, &["--env", &alone]));
		}
	});
	server.kill_and_start_again();
	until("it is never ready", || server.operator("/readyz").0 == 200);
	let told = server.operator("/metrics").1;
	assert!(told.contains("_warm_duration_seconds_count 4\n") && told.contains("_warm_failures_total 0\n"), "{told}");
}

#[test]
fn a_log_of_json_has_an_object_on_each_line() {
	let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve-log.log");
	let file = File::create(&log).unwrap();
	let mut server = Server::start_as("log", &["--log", "json"], |command| {
		command.stderr(file);
	});
	server.deploy("f", &["--timeout", "20"]);
	server.call("f", &json!({}));
	server.kill();
	let text = fs::read_to_string(&log).unwrap();
	let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
	let [.., warm, call] = &lines[..] else { panic!("{text}") };
	assert_eq!((&warm["message"], &warm["function"]), (&json!("warm"), &json!("local:f")));
	assert_eq!((&call["message"], &call["end"]), (&json!("call"), &json!("succeeded")));
	assert!(call["id"].is_string() && call["ms"].is_number() && call["timestamp"].is_string(), "{call}");
}

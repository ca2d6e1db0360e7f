//! Events: none that was accepted is lost, and none has two results.

use crate::common::{Server, until};
use serde_json::{Value, json};
use std::{
	os::unix::{fs::MetadataExt, process::CommandExt},
	process::Command,
};

pub fn send(server: &Server, event: &Value) -> String {
	try_send(server, event).expect("it is accepted")
}

/// Its id, if it is accepted.
pub fn try_send(server: &Server, event: &Value) -> Option<String> {
	let path = "/2015-03-31/functions/f/invocations";
	let (status, headers, _) =
		server.ask("POST", path, "X-Amz-Invocation-Type: Event\r\n", event.to_string().as_bytes());
	let id = headers.lines().find_map(|line| line.strip_prefix("x-amzn-requestid: ").map(str::to_owned));
	id.filter(|_| status == 202)
}

pub fn result(server: &Server, id: &str) -> Value {
	let done = server.command(&["invoke", "f", "--result", id]);
	let told: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
	assert_eq!(done.status.success(), told["Status"] != "Failed", "{done:?}");
	told
}

#[test]
fn an_event_is_tried_three_times_and_its_result_is_kept() {
	let server = Server::start("event", &["--event-retry", "0"]);
	server.deploy("f", &["--timeout", "20"]);
	let ids = [json!({ "a": 1 }), json!({ "do": "leave" })].map(|event| send(&server, &event));
	until("no result", || ids.iter().all(|id| result(&server, id)["Status"] != "Pending"));
	let [good, bad] = ids.map(|id| result(&server, &id));
	assert_eq!(
		(&good["Status"], &good["Attempts"], &good["Payload"]),
		(&json!("Succeeded"), &json!(1), &json!("{\"a\": 1}"))
	);
	assert_eq!((&bad["Status"], &bad["Attempts"]), (&json!("Failed"), &json!(3)));
	assert!(bad["Payload"].as_str().unwrap().contains("Runtime.ExitError"), "{bad}");
}

#[test]
fn kills_lose_no_event_and_double_no_result() {
	let mut server = Server::start("events-killed", &["--event-retry", "0", "--concurrency", "2"]);
	server.deploy("f", &["--timeout", "20"]);
	let mut ids = Vec::new();
	for round in 0..3 {
		ids.extend((0..20).map(|i| send(&server, &json!({ "n": round * 20 + i }))));
		server.kill_and_start_again();
	}
	until("no result", || ids.iter().all(|id| result(&server, id)["Status"] != "Pending"));
	let file = std::fs::read_to_string(server.state.join("events")).unwrap();
	for (n, id) in ids.iter().enumerate() {
		let found = result(&server, id);
		assert_eq!((&found["Status"], &found["Payload"]), (&json!("Succeeded"), &json!(format!("{{\"n\": {n}}}"))));
		let results = file.lines().filter(|line| line.starts_with("{\"Ended\"") && line.contains(id.as_str())).count();
		assert_eq!(results, 1);
	}
}

#[test]
fn an_accepted_event_runs_also_when_its_sender_has_gone() {
	let server = Server::start("events-gone", &["--event-retry", "0"]);
	server.deploy("f", &["--timeout", "20"]);
	for _ in 0..100 {
		drop(server.send("f", "X-Amz-Invocation-Type: Event\r\nContent-Length: 2\r\n", "{}"));
	}
	let last = send(&server, &json!({}));
	until("no result", || result(&server, &last)["Status"] != "Pending");
	until("one that was accepted doesn't run", || {
		let file = std::fs::read_to_string(server.state.join("events")).unwrap();
		let count = |kind: &str| file.lines().filter(|line| line.starts_with(kind)).count();
		count("{\"Event\"") == count("{\"Ended\"")
	});
}

#[test]
fn a_result_that_finds_no_room_is_recorded_when_there_is_some() {
	let deaf = |command: &mut Command| {
		// SAFETY: one system call, which allocates nothing.
		unsafe {
			command.pre_exec(|| {
				libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
				Ok(())
			})
		};
	};
	let server = Server::start_as("events-full", &[], deaf);
	server.deploy("f", &["--timeout", "20"]);
	// As the server's user, who may.
	let owner = std::fs::metadata(&server.state).unwrap();
	let may_have = |most: &str| {
		let mut command = Command::new("prlimit");
		command.args(["--pid", &server.process.id().to_string(), &format!("--fsize={most}:unlimited")]);
		assert!(command.gid(owner.gid()).uid(owner.uid()).status().unwrap().success());
	};
	// For the event, and half of its result.
	let room = 150_000;
	may_have(&room.to_string());
	let id = send(&server, &json!({ "a": "x".repeat(100_000) }));
	let file = server.state.join("events");
	until("nobody has tried to record it", || std::fs::metadata(&file).unwrap().len() == room);
	assert_eq!(result(&server, &id)["Status"], "Pending");
	may_have("unlimited");
	until("no result", || result(&server, &id)["Status"] == "Succeeded");
}

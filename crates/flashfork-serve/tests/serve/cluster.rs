//! Many servers as one, by a real NATS server.

use crate::{
	common::{ONE, SERVE, Server, answer, runs, until},
	events::{result, send, try_send},
	nats::Nats,
};
use base64::{
	Engine,
	prelude::{BASE64_STANDARD, BASE64_URL_SAFE as BASE64},
};
use serde_json::{Value, json};
use std::{
	cell::RefCell,
	fs,
	io::{BufRead, BufReader},
	os::unix::fs::PermissionsExt,
	path::Path,
	process::{Command, Stdio},
	sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
	time::Duration,
};

/// What is a template's alone: two calls in clones of one answer alike.
fn born(server: &Server) -> Value {
	let (told, failed) = server.call("f", &json!({ "do": "born" }));
	assert!(!failed, "{told}");
	told
}

fn status_of(server: &Server, event: &Value) -> (u16, String, String) {
	let path = "/2015-03-31/functions/f/invocations";
	let (status, headers, body) = server.ask("POST", path, "", event.to_string().as_bytes());
	(status, headers, String::from_utf8(body).unwrap())
}

fn signal(process: u32, signal: &str) {
	assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

#[test]
fn a_function_is_deployed_and_called_at_any_node() {
	let nats = Nats::start("anywhere", "");
	let [one, two] = nats.nodes("anywhere", &["--operations", "127.0.0.1:0"]);
	one.deploy("f", &["--timeout", "20", "--env", "PLAIN=1"]);
	// It is warm at the first alone: there it runs.
	let first = born(&one);
	assert_eq!(born(&two), first);
	nats.until_node("n1", 2, "local:f");
	nats.until_node("n2", 2, "32/32");
	two.boto(
		r#"
import base64
context = base64.b64encode(json.dumps({"custom": {"a": "ä"}}).encode()).decode()
answer = client.invoke(FunctionName="f", Payload=json.dumps({"a": ["ä", 1]}), LogType="Tail", ClientContext=context)
assert json.load(answer["Payload"]) == {"a": ["ä", 1]} and "FunctionError" not in answer, answer
log = base64.b64decode(answer["LogResult"]).decode()
assert "said by f\n" in log and log.startswith("START RequestId: " + answer["ResponseMetadata"]["RequestId"]), log
answer = client.invoke(FunctionName="f", Payload='{"do": "fail"}')
assert answer["FunctionError"] == "Unhandled" and json.load(answer["Payload"])["errorType"] == "ValueError"
answer = client.invoke(FunctionName="f", Payload='{"do": "context"}', ClientContext=context)
assert json.load(answer["Payload"]) == {"a": "ä"}
assert [f["FunctionName"] for f in client.list_functions()["Functions"]] == ["f"]
"#,
	);
	// A message of NATS's has a megabyte, unless more is set.
	let (status, _, why) = status_of(&two, &json!({ "a": "x".repeat(2 << 20) }));
	assert!(status == 413 && why.contains("max_payload: 16MB"), "{status} {why}");
	let (status, _, why) = status_of(&two, &json!({ "a": vec![1; 400_000] }));
	assert!(status == 413 && why.contains("max_payload: 16MB"), "{status} {why}");
	assert_eq!(status_of(&one, &json!({ "a": "x".repeat(2 << 20) })).0, 200);
	// Deployed anew at the other, it is the new one everywhere; undeployed, nowhere.
	two.deploy("f", &["--timeout", "20", "--env", "PLAIN=2"]);
	until("the first still has the old one", || born(&one)[1] == "2");
	assert_ne!(born(&one), first);
	assert!(one.command(&["undeploy", "f"]).status.success());
	until("the second still has it", || status_of(&two, &json!({})).0 == 404);
	let packages = |server: &Server| fs::read_dir(server.state.join("code/local:f")).map_or(0, Iterator::count);
	until("a package is left", || packages(&one) + packages(&two) == 0);
	for server in [&one, &two] {
		until("it is still counted", || !server.operator("/metrics").1.contains("local:f"));
	}
	one.deploy("f", &[]);
	assert_eq!(status_of(&two, &json!({})).0, 200);
}

#[test]
fn the_best_of_those_who_bid_warms_what_is_warm_nowhere() {
	let nats = Nats::start("bids", "");
	let [mut one, two] = nats.nodes("bids", &[]);
	one.deploy("f", &["--timeout", "20"]);
	let first = born(&one);
	nats.kill_node(&mut one, "n1");
	// Its package comes from NATS. The call, larger than a message of NATS's, stays where it is.
	assert_eq!(status_of(&two, &json!({ "a": "x".repeat(2 << 20) })).0, 200);
	let second = born(&two);
	assert_ne!(first, second);
	one.kill_and_start_again();
	// It has its package, and warms it by itself.
	nats.until_node("n1", 2, "local:f");
	assert_eq!(born(&two), second);
	assert_ne!(born(&one), second);
}

#[test]
fn a_full_node_has_others_work() {
	let nats = Nats::start("full", "");
	let [one, two] = nats.nodes("full", &["--concurrency", "1", "--queue", "0"]);
	one.deploy("f", &["--timeout", "100"]);
	let words = [1, 2].map(|n| format!("full{}-{n}", std::process::id()));
	let first = one.sleeper(&words[0]);
	// On a busy machine nobody may bid in time: then it is refused, and asks again.
	let second = loop {
		let call = one.ask_sleeper(&words[1]);
		call.set_nonblocking(true).unwrap();
		let runs = || runs(&format!("sleep-{}", words[1]));
		until("the second has not taken it", || runs() || call.peek(&mut [0]).is_ok());
		if runs() {
			break call;
		}
	};
	for server in [&one, &two] {
		let (status, headers, _) = status_of(server, &json!({}));
		assert!(status == 429 && headers.contains("retry-after: 1"), "{status} {headers}");
	}
	drop((first, second));
	// Whoever goes away ends a call wherever it runs.
	until("they run on", || !words.iter().any(|word| runs(word)));
	for server in [&one, &two] {
		until("its slot stays taken", || status_of(server, &json!({})).0 == 200);
	}
}

#[test]
fn a_full_node_asks_who_is_free_while_another_parts() {
	let nats = Nats::start("parts", "");
	let [one, two] = nats.nodes("parts", &["--concurrency", "1", "--operations", "127.0.0.1:0"]);
	one.deploy("f", &["--timeout", "100"]);
	let word = format!("parts{}", std::process::id());
	let _first = one.sleeper(&word);
	until("the second does not warm it", || status_of(&two, &json!({})).0 == 200);
	// On a busy machine the second may not bid in time: then it waits at the first, and asks again.
	until("it waits for the first to be free", || {
		nats.publish("flashfork.part", r#"["local:f"]"#);
		let call = one.send("f", "Content-Length: 2\r\n", "{}");
		call.set_nonblocking(true).unwrap();
		let is_answered = || call.peek(&mut [0]).is_ok();
		let waits = || one.operator("/metrics").1.contains("flashfork_serve_queue_length 1\n");
		until("it is lost", || is_answered() || waits());
		is_answered()
	});
	assert!(runs(&format!("sleep-{word}")));
}

#[test]
fn a_call_that_has_waited_while_its_function_was_replaced_runs_the_new_one() {
	let nats = Nats::start("waited", "");
	let [one, two] = nats.nodes("waited", &["--concurrency", "1", "--operations", "127.0.0.1:0"]);
	one.deploy("f", &["--timeout", "100", "--env", "PLAIN=1"]);
	two.deploy("g", &["--timeout", "100"]);
	let words = [1, 2].map(|n| format!("waited{}-{n}", std::process::id()));
	let _first = one.sleeper(&words[0]);
	let body = json!({ "do": "fork", "word": words[1], "then": "sleep" }).to_string();
	let second = two.send("g", &format!("Content-Length: {}\r\n", body.len()), &body);
	until("it never began", || runs(&format!("sleep-{}", words[1])));
	let mut waits = two.send("f", "Content-Length: 14\r\n", r#"{"do": "born"}"#);
	until("it does not wait", || two.operator("/metrics").1.contains("flashfork_serve_queue_length 1\n"));
	// Where it waits there never was the package of the first.
	one.deploy("f", &["--timeout", "100", "--env", "PLAIN=2"]);
	let plain = |server: &Server| {
		let told = server.ask("GET", "/2015-03-31/functions/f", "", b"").2;
		let told: Value = serde_json::from_slice(&told).unwrap();
		told["Configuration"]["Environment"]["Variables"]["PLAIN"].clone()
	};
	until("the second has not heard of it", || plain(&two) == "2");
	drop(second);
	let (status, _, body) = answer(&mut waits);
	let body = String::from_utf8(body).unwrap();
	assert!(status == 200 && serde_json::from_str::<Value>(&body).unwrap()[1] == "2", "{status} {body}");
}

#[test]
fn a_package_that_does_not_come_is_waited_for_no_longer() {
	let nats = Nats::start("stalled", "");
	let [mut one, two] = nats.nodes("stalled", &["--event-retry", "0"]);
	one.deploy("f", &["--timeout", "20"]);
	nats.kill_node(&mut one, "n1");
	// What is said about it stays, as it does for a moment where it is deleted.
	let purged = nats.ask("$JS.API.STREAM.PURGE.OBJ_flashfork_packages", r#"{"filter": "$O.flashfork_packages.C.>"}"#);
	assert!(purged.contains(r#""purged":1"#), "{purged}");
	// One attempt for all who ask, whose calls are not begun; events are not tried for ever.
	let ask = || status_of(&two, &json!({}));
	let id = send(&two, &json!({}));
	for (status, _, why) in
		std::thread::scope(|scope| [(); 9].map(|()| scope.spawn(ask)).map(|one| one.join().unwrap()))
	{
		assert!(status == 502 && why.contains("NATS does not give the package of local:f"), "{status} {why}");
	}
	until("it is tried for ever", || result(&two, &id)["Status"] == "Failed");
	two.deploy("f", &["--timeout", "20"]);
	assert_eq!(status_of(&two, &json!({})).0, 200);
}

#[test]
fn packages_that_no_function_has_are_deleted() {
	let nats = Nats::start("sweep", "");
	let [one, mut two] = nats.nodes("sweep", &[]);
	one.deploy("f", &["--timeout", "20"]);
	let first = born(&one);
	// Two that were put there for f and g, and one just now.
	let young = humantime::format_rfc3339(std::time::SystemTime::now()).to_string();
	for (name, function, time) in [
		("b25l", "local.f", "2020-01-01T00:00:00Z"),
		("dHdv", "local.g", "2020-01-01T00:00:00Z"),
		("eW91bmc=", "local.f", &young),
	] {
		let id = String::from_utf8(BASE64.decode(name).unwrap()).unwrap();
		let package =
			json!({ "name": id, "description": function, "bucket": "flashfork_packages", "nuid": id, "mtime": time });
		let put = nats.ask(&format!("$O.flashfork_packages.M.{name}"), &package.to_string());
		assert!(put.contains(r#""seq":"#), "{put}");
	}
	let is_there = |name: &str| {
		let asked = json!({ "last_by_subj": format!("$O.flashfork_packages.M.{name}") }).to_string();
		let told = nats.ask("$JS.API.STREAM.MSG.GET.OBJ_flashfork_packages", &asked);
		let told: Value = serde_json::from_str(&told).unwrap();
		let package = BASE64.decode(told["message"]["data"].as_str().unwrap()).unwrap();
		serde_json::from_slice::<Value>(&package).unwrap()["deleted"] != true
	};
	assert!(is_there("b25l") && is_there("dHdv") && is_there("eW91bmc="));
	two.kill_and_start_again();
	until("they stay", || !is_there("b25l") && !is_there("dHdv"));
	assert!(is_there("eW91bmc="));
	// That has replaced nothing: not what is warm, nor its package.
	assert_eq!(born(&one), first);
	let mut one = one;
	nats.kill_node(&mut one, "n1");
	assert_ne!(born(&two), first);
}

#[test]
fn a_killed_node_is_an_error_of_its_calls_alone() {
	let nats = Nats::start("killed", "");
	let [mut one, mut two] = nats.nodes("killed", &[]);
	let word = format!("node{}", std::process::id());
	one.deploy("f", &["--timeout", "100", "--env", &format!("MARK={word}")]);
	let mut call = two.sleeper(&word);
	nats.kill_node(&mut one, "n1");
	let (status, headers, why) = answer(&mut call);
	assert!(status == 504 && headers.contains("x-amzn-errortype: serviceexception"), "{status} {headers}");
	assert!(String::from_utf8(why).unwrap().contains("n1 had begun"));
	until("something still runs", || !runs(&word));
	// The next is warmed by who is left.
	let left = born(&two);
	one.kill_and_start_again();
	nats.until_node("n1", 2, "local:f");
	let back = born(&one);
	assert_ne!(left, back);
	// A node that goes has nobody work for it. What it asks runs at the other when its own is not warm.
	assert!(nats.cluster(&["drain", "n2"]).status.success());
	assert_eq!(born(&two), back);
	let other = format!("asker{}", std::process::id());
	let _asked = two.sleeper(&other);
	two.kill();
	until("it runs on", || !runs(&other));
	assert_eq!(born(&one), back);
}

#[test]
fn a_node_that_stands_still_is_left_out_until_it_goes_on() {
	let nats = Nats::start("still", "");
	let [one, two] = nats.nodes("still", &[]);
	one.deploy("f", &["--timeout", "20"]);
	let first = born(&two);
	signal(one.process.id(), "-STOP");
	let threads = || fs::read_dir(format!("/proc/{}/task", one.process.id())).unwrap();
	let state = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
	until("it goes on", || threads().all(|thread| state(thread.unwrap()).contains(") T ")));
	// A call that goes there fails; the next ones go elsewhere.
	until("it is waited for", || status_of(&two, &json!({})).0 == 200);
	assert_ne!(born(&two), first);
	signal(one.process.id(), "-CONT");
	nats.until_node("n1", 1, "ready");
	assert_eq!(born(&one), first);
	// What came late has not run: these were the first call and the last.
	nats.until_node("n1", 4, "2");
}

#[test]
fn a_call_whose_package_nats_does_not_give_runs_where_its_function_is_warm_again() {
	let mut three = Nats::three("again");
	let [one, two] = three[0].nodes("again", &[]);
	one.deploy("f", &["--timeout", "20"]);
	let first = born(&two);
	// One of three gives nothing.
	three[1..].iter_mut().for_each(Nats::kill);
	signal(one.process.id(), "-STOP");
	assert_eq!(status_of(&two, &json!({})).0, 504);
	let asked = three[0].listen("$JS.API.STREAM.MSG.GET.OBJ_flashfork_packages");
	let mut call = two.send("f", "Content-Length: 14\r\nConnection: close\r\n", r#"{"do": "born"}"#);
	asked();
	signal(one.process.id(), "-CONT");
	let (status, _, body) = answer(&mut call);
	assert_eq!((status, serde_json::from_slice(&body).unwrap_or_default()), (200, first));
}

#[test]
fn events_have_one_result_whoever_runs_them() {
	let nats = Nats::start("events", "");
	let [one, two] = nats.nodes("events", &["--event-retry", "0"]);
	one.deploy("f", &["--timeout", "20"]);
	let mut ids: Vec<_> = (0..20).map(|n| send(if n % 2 == 0 { &one } else { &two }, &json!({ "n": n }))).collect();
	ids.push(send(&two, &json!({ "do": "leave" })));
	until("no result", || ids.iter().all(|id| result(&two, id)["Status"] != "Pending"));
	let bad = result(&one, &ids.pop().unwrap());
	assert_eq!((&bad["Status"], &bad["Attempts"]), (&json!("Failed"), &json!(3)));
	assert!(bad["Payload"].as_str().unwrap().contains("Runtime.ExitError"), "{bad}");
	for (n, id) in ids.iter().enumerate() {
		let good = result(&one, id);
		assert_eq!((&good["Status"], &good["Attempts"]), (&json!("Succeeded"), &json!(1)));
		assert_eq!(good["Payload"], json!(format!("{{\"n\": {n}}}")));
	}
	let unknown = one.command(&["invoke", "f", "--result", "0-0"]);
	assert!(!unknown.status.success() && String::from_utf8(unknown.stderr).unwrap().contains("no such event"));
}

#[test]
fn events_and_their_results_have_bounds() {
	let nats = Nats::start("bounds", "");
	// What an older node has made has a bound from now on; another one stays.
	let made = |name: &str, subjects: &str, more: &str| {
		let config = format!(r#"{{"name": "{name}", "subjects": ["{subjects}"], "storage": "file", {more}}}"#);
		let made = nats.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &config);
		assert!(made.contains(r#""did_create":true"#), "{made}");
	};
	let old = r#""max_msgs_per_subject": 1, "allow_rollup_hdrs": true, "deny_delete": true, "discard": "new""#;
	made("KV_flashfork_results", "$KV.flashfork_results.>", old);
	let bound = r#""retention": "workqueue", "discard": "new", "max_bytes": 100000"#;
	made("flashfork_events", "flashfork.event.>", bound);
	let node = nats.node("bounds", "n1", &[]);
	let results = nats.ask("$JS.API.STREAM.INFO.KV_flashfork_results", "");
	assert!(results.contains(r#""max_bytes":4294967296"#) && results.contains(r#""discard":"old""#), "{results}");
	node.deploy("f", &[]);
	assert!(nats.cluster(&["drain", "n1"]).status.success());
	let event = json!({ "a": "x".repeat(30_000) }).to_string();
	let send = || {
		let kind = "X-Amz-Invocation-Type: Event\r\n";
		let (status, _, why) = node.ask("POST", "/2015-03-31/functions/f/invocations", kind, event.as_bytes());
		(status, String::from_utf8(why).unwrap())
	};
	assert_eq!([send().0, send().0, send().0], [202; 3]);
	let (status, why) = send();
	assert!(status == 429 && why.contains("too many events wait"), "{status} {why}");
}

#[test]
fn events_that_have_a_result_do_not_stay_in_the_queue_and_others_do() {
	let nats = Nats::start("over", "");
	let one = nats.node("over", "n1", &[]);
	one.deploy("f", &["--timeout", "100"]);
	let id = send(&one, &json!({ "a": 1 }));
	until("no result", || result(&one, &id)["Status"] == "Succeeded");
	assert!(nats.cluster(&["drain", "n1"]).status.success());
	// As a NATS server leaves it that was killed: it is there, and given to nobody.
	assert!(nats.ask(&format!("flashfork.event.local.f.{id}"), "{}").contains(r#""seq":"#));
	let (head, _) = nats.exchange("$JS.API.CONSUMER.MSG.NEXT.flashfork_events.nodes", "");
	let answer = head.split(' ').find(|word| word.starts_with("$JS.ACK.")).unwrap();
	nats.ask(answer, r#"-NAK {"delay": 3600000000000}"#);
	// Nor is a part of a package that may yet be whole.
	assert!(nats.ask("$O.flashfork_packages.C.young", "part").contains(r#""seq":"#));
	let messages = |stream: &str| {
		let told: Value = serde_json::from_str(&nats.ask(&format!("$JS.API.STREAM.INFO.{stream}"), "")).unwrap();
		told["state"]["messages"].clone()
	};
	let packages = messages("OBJ_flashfork_packages");
	assert_eq!((messages("flashfork_events"), &packages), (json!(1), &json!(3)));
	// Of these two wait while the second node deletes that one: it has one slot.
	let words = [1, 2, 3].map(|n| format!("over{}-{n}", std::process::id()));
	words.iter().for_each(|word| drop(send(&one, &json!({ "do": "fork", "word": word, "then": "sleep" }))));
	let _two = nats.node("over", "n2", &["--concurrency", "1"]);
	until("it stays", || messages("flashfork_events") == 3);
	assert_eq!(messages("OBJ_flashfork_packages"), packages);
	let _three = nats.node("over", "n3", &[]);
	until("they are lost", || words.iter().all(|word| runs(&format!("sleep-{word}"))));
}

#[test]
fn events_that_a_purge_has_passed_over_run_when_a_node_starts() {
	let nats = Nats::start("passed", "");
	let one = nats.node("passed", "n1", &[]);
	one.deploy("f", &[]);
	assert!(nats.cluster(&["drain", "n1"]).status.success());
	let id = send(&one, &json!({ "a": 1 }));
	assert!(nats.ask("flashfork.event.local.f.other", "{}").contains(r#""seq":"#));
	let purged = nats.ask("$JS.API.STREAM.PURGE.flashfork_events", r#"{"filter": "flashfork.event.local.f.other"}"#);
	assert!(purged.contains(r#""purged":1"#), "{purged}");
	let two = nats.node("passed", "n2", &[]);
	until("it is lost", || result(&two, &id)["Status"] == "Succeeded");
}

#[test]
fn a_killed_node_uses_up_no_attempt_of_an_event() {
	let nats = Nats::start("attempts", "");
	let [mut one, two] = nats.nodes("attempts", &["--event-retry", "0"]);
	one.deploy("f", &["--timeout", "8"]);
	let word = format!("event{}", std::process::id());
	let id = send(&two, &json!({ "do": "fork", "word": word, "then": "sleep" }));
	until("it never began", || runs(&format!("sleep-{word}")));
	one.kill();
	until("no result", || result(&two, &id)["Status"] != "Pending");
	let ended = result(&two, &id);
	assert_eq!((&ended["Status"], &ended["Attempts"]), (&json!("Failed"), &json!(3)));
	// All of these were the second's.
	let log = String::from_utf8(two.command(&["logs", "f"]).stdout).unwrap();
	assert_eq!(log.matches(&format!("START RequestId: {id}")).count(), 3, "{log}");
	until("something still runs", || !runs(&word));
}

#[test]
fn a_drained_node_ends_its_work_and_passes_on_what_it_is_asked() {
	let nats = Nats::start("drain", "");
	let [mut one, two] = nats.nodes("drain", &["--operations", "127.0.0.1:0"]);
	one.deploy("f", &["--timeout", "15"]);
	let first = born(&one);
	let word = format!("drained{}", std::process::id());
	let mut call = two.sleeper(&word);
	let draining = nats.cluster_command(&["drain", "n1"]).stdout(Stdio::piped()).spawn().unwrap();
	nats.until_node("n1", 1, "draining");
	// Its front has the other warm what it had.
	let second = born(&one);
	assert_ne!(second, first);
	let (status, _, body) = answer(&mut call);
	assert!(status == 200 && String::from_utf8(body).unwrap().contains("Sandbox.Timedout"));
	let done = draining.wait_with_output().unwrap();
	assert!(done.status.success() && done.stdout == b"n1 is drained\n", "{done:?}");
	nats.until_node("n1", 1, "drained");
	assert_eq!(born(&one), second);
	assert_eq!([&one, &two].map(|node| node.operator("/readyz").0), [503, 200]);
	let nobody = nats.cluster(&["drain", "n3"]);
	assert!(String::from_utf8(nobody.stderr).unwrap().contains("there is no node n3"));
	// Started again it takes part; a signal to end drains it, too, and what it was asked is answered.
	one.kill_and_start_again();
	nats.until_node("n1", 2, "local:f");
	let third = born(&one);
	let word = format!("ended{}", std::process::id());
	let mut call = one.sleeper(&word);
	signal(one.process.id(), "-TERM");
	nats.until_node("n1", 1, "draining");
	assert_eq!(born(&one), second);
	assert_ne!(second, third);
	let (status, _, body) = answer(&mut call);
	assert!(status == 200 && String::from_utf8(body).unwrap().contains("Sandbox.Timedout"));
	assert!(one.process.wait().unwrap().success());
	assert_eq!(born(&two), second);
}

#[test]
fn what_a_node_was_asked_is_told_and_recorded_before_it_ends() {
	let nats = Nats::start("told", "");
	let [mut one, two] = nats.nodes("told", &["--event-retry", "0"]);
	// It is warm at the first: there a call and an event run, whoever took that.
	one.deploy("f", &["--timeout", "10"]);
	let words = [1, 2].map(|n| format!("told{}-{n}", std::process::id()));
	let id = send(&two, &json!({ "do": "fork", "word": words[0], "then": "sleep" }));
	until("it never began", || runs(&format!("sleep-{}", words[0])));
	let mut call = two.sleeper(&words[1]);
	signal(one.process.id(), "-TERM");
	assert!(one.process.wait().unwrap().success());
	let (status, _, body) = answer(&mut call);
	let body = String::from_utf8(body).unwrap();
	assert!(status == 200 && body.contains("Sandbox.Timedout"), "{status} {body}");
	until("no result", || result(&two, &id)["Status"] != "Pending");
	let ended = result(&two, &id);
	assert_eq!((&ended["Status"], &ended["Attempts"]), (&json!("Failed"), &json!(3)));
	// The first attempt has not run again.
	let log = String::from_utf8(two.command(&["logs", "f"]).stdout).unwrap();
	assert_eq!(log.matches(&format!("START RequestId: {id}")).count(), 2, "{log}");
}

/// Has clients, of which each pauses longer, ask a node until so many calls are answered, and while something happens
/// then. Slots may be taken.
fn no_call_is_lost(node: &Server, (clients, pause): (u64, u64), calls: usize, while_this: impl FnOnce()) {
	let (answered, over) = (AtomicUsize::new(0), AtomicBool::new(false));
	let ask = &|n| {
		while !over.load(Relaxed) {
			std::thread::sleep(Duration::from_millis(pause * n));
			let (status, _, why) = status_of(node, &json!({ "n": 1 }));
			assert!([200, 429].contains(&status), "{status} {why}");
			answered.fetch_add(usize::from(status == 200), Relaxed);
		}
	};
	std::thread::scope(|scope| {
		let all: Vec<_> = (0..clients).map(|n| scope.spawn(move || ask(n))).collect();
		let goes_on = || all.iter().any(|one| !one.is_finished());
		until("it stands still", || answered.load(Relaxed) > calls || !goes_on());
		while_this();
		over.store(true, Relaxed);
	});
}

#[test]
fn no_call_is_lost_as_last_slots_are_taken_or_a_node_is_drained() {
	let nats = Nats::start("last", "");
	let [mut one, two] = nats.nodes("last", &["--concurrency", "4", "--queue", "0"]);
	one.deploy("f", &["--timeout", "20"]);
	assert!(nats.cluster(&["drain", "n2"]).status.success());
	no_call_is_lost(&two, (8, 0), 1500, || {
		signal(one.process.id(), "-TERM");
		assert!(one.process.wait().unwrap().success());
	});
}

#[test]
fn no_call_is_lost_between_nats_servers() {
	let [near, far] = Nats::far("far");
	let [one, two] = [near.node("far", "n1", &["--concurrency", "4"]), far.node("far", "n2", &[])];
	one.deploy("f", &["--timeout", "20"]);
	assert!(far.cluster(&["drain", "n2"]).status.success());
	no_call_is_lost(&two, (12, 17), 60, || assert!(near.cluster(&["drain", "n1"]).status.success()));
}

#[test]
fn without_nats_what_is_warm_still_runs() {
	let mut nats = Nats::start("away", "");
	let [one, two] = nats.nodes("away", &["--event-retry", "0"]);
	one.deploy("f", &["--timeout", "20"]);
	let first = born(&two);
	nats.kill();
	until("it has not seen that", || {
		let (status, headers, why) = status_of(&two, &json!({}));
		status == 503 && headers.contains("x-amzn-errortype: serviceexception") && why.contains("NATS")
	});
	assert_eq!(born(&one), first);
	let done = two.deploy_as(None, "g", &[]);
	assert!(String::from_utf8(done.stderr).unwrap().contains("NATS"));
	nats.start_again();
	until("it does not come back", || status_of(&two, &json!({})).0 == 200);
	// So do events, and what nodes hear of each other.
	let id = send(&two, &json!({ "a": 1 }));
	until("no result", || result(&two, &id)["Status"] == "Succeeded");
	one.deploy("g", &["--timeout", "20"]);
	until("the second has not heard of it", || functions(&two).contains("g  handlers.handler"));
}

#[test]
fn what_nats_has_counts_when_it_has_lost_its_last_writes() {
	let mut nats = Nats::start("lost", "");
	let nodes = nats.nodes("lost", &[]);
	nodes[0].deploy("f", &["--env", "PLAIN=0"]);
	let copied = |nats: &mut Nats, command: &str| {
		nats.kill();
		assert!(Command::new("sh").args(["-c", command]).current_dir(&nats.directory).status().unwrap().success());
		nats.start_again();
	};
	let deploy = |node: &Server, name: &str, n: usize| {
		until("NATS is not back", || node.deploy_as(None, name, &["--env", &format!("PLAIN={n}")]).status.success());
	};
	let has = |n: usize| nodes.iter().all(|node| born(node)[1] == json!(n.to_string()));
	copied(&mut nats, "cp -a jetstream old");
	(1..6).for_each(|n| deploy(&nodes[0], "f", n));
	deploy(&nodes[0], "g", 0);
	until("they have not heard of it", || has(5) && nodes.iter().all(|node| functions(node).contains("g  ")));
	copied(&mut nats, "rm -r jetstream && mv old jetstream");
	until("what is lost stays", || nodes.iter().all(|node| !functions(node).contains("g  ")));
	for (n, node) in nodes.iter().enumerate() {
		deploy(node, "f", 10 + n);
		until("it is not in service", || has(10 + n));
	}
	assert!(nodes[0].command(&["undeploy", "f"]).status.success());
	until("it is still there", || nodes.iter().all(|node| status_of(node, &json!({})).0 == 404));
}

fn functions(node: &Server) -> String {
	String::from_utf8(node.command(&["functions"]).stdout).unwrap()
}

/// A file of mode 600 in a directory that functions don't see.
fn closed(state: &Path, name: &str, bytes: &[u8]) -> String {
	let directory = state.with_extension("closed");
	fs::create_dir_all(&directory).unwrap();
	let place = if rustix::process::geteuid().is_root() { &directory } else { state };
	fs::create_dir_all(place).unwrap();
	let path = place.join(name);
	fs::write(&path, bytes).unwrap();
	fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
	path.to_str().unwrap().to_owned()
}

/// What a server says that doesn't start.
fn refusal(state: &Path, options: &[&str]) -> String {
	let mut command = Command::new(SERVE);
	command.args(["serve", "--listen", "127.0.0.1:0", "--python", "python3", "--state"]).arg(state).args(options);
	let done = command.output().unwrap();
	assert!(!done.status.success(), "{done:?}");
	String::from_utf8(done.stderr).unwrap()
}

#[test]
fn secrets_lie_in_nats_sealed_or_not_at_all() {
	let nats = Nats::start("secrets", "");
	let url = nats.url();
	let alone = nats.node("secrets", "n0", &[]);
	let done = alone.deploy_as(None, "f", &["--vm", "kernel"]);
	assert!(
		String::from_utf8_lossy(&done.stderr).contains("a cluster has no functions in virtual machines"),
		"{done:?}"
	);
	let done = alone.deploy_as(None, "f", &["--secret", "SECRET=word-of-the-secret"]);
	assert!(String::from_utf8(done.stderr).unwrap().contains("--cluster-key"));
	// A node's directory, and its options with a key of these bytes.
	let with = |node: &str, key: &[u8]| {
		let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-secrets-{node}"));
		let key = closed(&state, "key", key);
		(state, ["--nats", &url, "--node-name", node, "--cluster-key", &key].map(str::to_owned))
	};
	let refused = |node: &str, key: &[u8]| {
		let (state, options) = with(node, key);
		refusal(&state, &options.each_ref().map(String::as_str))
	};
	// A cluster has a key from its beginning, or none.
	assert!(refused("n3", &[1; 32]).contains("have no --cluster-key"));
	drop(alone);
	until("its service is still there", || nats.status("n0").is_empty());
	let [mut one, two] = ["n1", "n2"].map(|node| {
		let (_, options) = with(node, &[1; 32]);
		Server::keep(&format!("secrets-{node}"), &options.each_ref().map(String::as_str))
	});
	assert!(refused("n3", &[2; 32]).contains("another --cluster-key"));
	assert!(refusal(&with("n3", &[]).0, &["--nats", &url, "--node-name", "n3"]).contains("have a --cluster-key"));
	assert!(refused("n3", &[1; 31]).contains("32 random bytes"));
	one.deploy("f", &["--secret", "SECRET=word-of-the-secret", "--timeout", "20"]);
	one.kill();
	let (found, failed) = two.call("f", &json!({ "do": "look", "state": two.state.canonicalize().unwrap() }));
	assert!(!failed && found["secret"] == "word-of-the-secret" && found["warmed_with"][0].is_null(), "{found}");
	let lies = |word: &str| {
		let found = Command::new("grep").args(["-rq", word]).arg(nats.directory.join("jetstream")).status();
		found.unwrap().code() == Some(0)
	};
	assert!(lies("handlers.handler") && !lies("word-of-the-secret"));
}

#[test]
fn nodes_are_known_to_nats_and_have_names_of_their_own() {
	let nats = Nats::start("names", "authorization { user: u, password: nats-password }");
	let url = nats.url();
	let state = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-names-{name}"));
	// What a server with this directory says that is to be a node.
	let password = |name: &str| closed(&state(name), "password", b"u:nats-password\n");
	let refused = |name: &str, node: &str, more: &[&str]| {
		let password = password(name);
		let options = [&["--nats", &url, "--nats-credentials", &password, "--node-name", node], more].concat();
		refusal(&state(name), &options)
	};
	let own = password("n1");
	let one = Server::keep("names-n1", &["--nats", &url, "--node-name", "n1", "--nats-credentials", &own]);
	one.deploy("f", &["--timeout", "20"]);
	assert!(refused("other", "n1", &[]).contains("there is a node n1 already"));
	assert!(refused("other", "a.b", &[]).contains("no name for a node"));
	assert!(refusal(&state("other"), &["--nats", &url]).contains("can't reach NATS"));
	assert!(refusal(&state("other"), &["--nats", "nats://u:nats-password@127.0.0.1:1"]).contains("command line"));
	let keys = format!("ID = {{ secret = \"{}\", owner = \"one\", may = [] }}", ONE.1);
	let keys = closed(&state("other"), "keys", keys.as_bytes());
	assert!(refusal(&state("other"), &["--nats", &url, "--keys", &keys]).contains("--nats-credentials"));
	let done = nats.cluster(&["status", "--nats-credentials", &own]);
	let told = String::from_utf8(done.stdout).unwrap();
	assert!(told.lines().any(|line| line.split_whitespace().take(3).eq(["n1", "ready", "local:f"])), "{told}");
	assert!(!nats.cluster(&["status"]).status.success());
	fs::set_permissions(&own, PermissionsExt::from_mode(0o644)).unwrap();
	let open = nats.cluster(&["status", "--nats-credentials", &own]);
	assert!(String::from_utf8(open.stderr).unwrap().contains("may be read by others"));
	// What a server alone has is not a node's.
	Server::start("names-alone", &[]).deploy("g", &[]);
	assert!(refused("alone", "n2", &[]).contains("a server alone"));
}

#[test]
fn of_nodes_of_one_name_that_begin_at_once_one_stays() {
	let nats = Nats::start("rivals", "");
	let stays = |n: usize| {
		let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-rivals-{n}"));
		let mut command = Command::new(SERVE);
		command.args(["serve", "--listen", "127.0.0.1:0", "--nats", &nats.url(), "--node-name", "n1", "--state"]);
		let mut process = command.arg(state).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
		let mut line = String::new();
		BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
		if line.is_empty() {
			let done = process.wait_with_output().unwrap();
			assert!(String::from_utf8_lossy(&done.stderr).contains("there is a node n1 already"), "{done:?}");
			return None;
		}
		Some(process)
	};
	let mut left: Vec<_> = std::thread::scope(|scope| {
		let all = [0, 1, 2].map(|n| scope.spawn(move || stays(n)));
		all.into_iter().filter_map(|one| one.join().unwrap()).collect()
	});
	for process in &mut left {
		process.kill().unwrap();
		process.wait().unwrap();
	}
	assert_eq!(left.len(), 1);
}

#[test]
fn who_can_not_warm_a_function_has_others_do_so() {
	let nats = Nats::start("unable", "");
	let [one, _two, mut three] = ["n1", "n2", "n3"].map(|name| nats.node("unable", name, &[]));
	let code = tempfile::tempdir().unwrap();
	// Of equal bids for this one the first node's counts.
	let text =
		"import os\nassert '-n1' not in os.environ['LAMBDA_TASK_ROOT']\ndef lambda_handler(event, context): return 1\n";
	fs::write(code.path().join("lambda_function.py"), text).unwrap();
	three.deploy_from(code.path(), "g", &["--timeout", "20"]).unwrap();
	nats.kill_node(&mut three, "n3");
	until("it asks nobody else", || one.ask("POST", "/2015-03-31/functions/g/invocations", "", b"{}").0 == 200);
}

#[test]
fn an_event_of_a_function_that_can_not_be_read_waits_until_it_can() {
	let nats = Nats::start("unread", "");
	let mut one = nats.node("unread", "n1", &["--event-retry", "0"]);
	one.deploy("f", &["--timeout", "20"]);
	let subject = "$KV.flashfork_functions.local.f";
	let asked = json!({ "last_by_subj": subject }).to_string();
	let told = nats.ask("$JS.API.STREAM.MSG.GET.KV_flashfork_functions", &asked);
	let told: Value = serde_json::from_str(&told).unwrap();
	let record = BASE64_STANDARD.decode(told["message"]["data"].as_str().unwrap()).unwrap();
	nats.kill_node(&mut one, "n1");
	nats.ask(subject, "{}");
	let event = json!({ "id": "e", "owner": "local", "function": "f", "payload": "{}" });
	nats.ask("flashfork.event.local.f.e", &event.to_string());
	one.kill_and_start_again();
	let tried = || !nats.ask("$JS.API.CONSUMER.INFO.flashfork_events.nodes", "").contains("\"num_redelivered\":0");
	until("it is not tried", || tried() || result(&one, "e")["Status"] != "Pending");
	nats.ask(subject, &String::from_utf8(record).unwrap());
	until("it never runs", || result(&one, "e")["Status"] != "Pending");
	assert_eq!(result(&one, "e")["Status"], "Succeeded");
}

/// Three NATS servers, of which the events' leader is killed while they run.
#[test]
#[ignore = "a minute: make test-all"]
fn no_event_is_lost_with_a_nats_server() {
	let mut three = Nats::three("three");
	let servers = three.iter().map(Nats::url).collect::<Vec<_>>().join(",");
	let nodes = ["n1", "n2"].map(|name| {
		Server::start(&format!("three-{name}"), &["--nats", &servers, "--node-name", name, "--event-retry", "0"])
	});
	nodes[0].deploy("f", &["--timeout", "20"]);
	let ids = RefCell::new(Vec::new());
	// Where its connection has just broken a node says that it can't accept one.
	let send = |i: usize, n: usize| {
		until("it is not accepted", || {
			let id = try_send(&nodes[i % 2], &json!({ "n": n }));
			ids.borrow_mut().extend(id.clone());
			id.is_some()
		});
	};
	for (round, nats) in three.iter_mut().enumerate() {
		(0..30).for_each(|i| send(i, round * 30 + i));
		nats.kill();
		(0..4).for_each(|i| send(i, 1000 + i));
		nats.start_again();
	}
	let ids = ids.into_inner();
	for id in &ids {
		// Asked for while a leader is elected it says that it can't tell.
		until("no result", || {
			let done = nodes[1].command(&["invoke", "f", "--result", id]);
			let told = serde_json::from_slice::<Value>(&done.stdout).unwrap_or_default();
			assert_ne!(told["Status"], "Failed", "{told}");
			told["Status"] == "Succeeded"
		});
	}
	assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 102);
}

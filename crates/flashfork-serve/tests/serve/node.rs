//! Functions in Node, in AWS's runtime client for it, unmodified.

use crate::common::{Server, checkout, processes, runs, until};
use serde_json::{Value, json};
use std::{
	collections::BTreeSet,
	fs,
	process::{Command, Stdio},
	sync::LazyLock,
};

/// The directory of modules with the runtime client. The keeper is built by then.
static MODULES: LazyLock<String> = LazyLock::new(|| {
	let mut make = Command::new(checkout().join("scripts/node-libraries"));
	let made = make.arg("runtime").stderr(Stdio::inherit()).output().unwrap();
	assert!(made.status.success(), "the runtime client is not there: scripts/node-libraries runtime");
	checkout().join(String::from_utf8(made.stdout).unwrap().trim()).to_str().unwrap().to_owned()
});

fn server(name: &str) -> Server {
	Server::start(name, &["--node-modules", &MODULES])
}

/// Deploys one of `handlers.js`.
fn deploy(server: &Server, name: &str, handler: &str, options: &[&str]) {
	let code = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handlers");
	let own = ["deploy", code, "--name", name, "--runtime", "nodejs18.x", "--handler", handler];
	let done = server.command(&[&own, options].concat());
	assert!(done.status.success(), "{done:?}");
}

/// Deploys a directory of these files; what that says if it is refused.
fn deploy_files(server: &Server, files: &[(&str, &str)], options: &[&str]) -> Result<(), String> {
	let code = tempfile::tempdir().unwrap();
	for (name, text) in files {
		fs::write(code.path().join(name), text).unwrap();
	}
	server.deploy_from(code.path(), "own", &[&["--timeout", "60"], options].concat())
}

#[test]
fn functions_in_node_are_served() {
	let server = server("node");
	for name in ["handler", "nothing", "callback", "stream"] {
		deploy(&server, name, &format!("handlers.{name}"), &["--timeout", "60"]);
	}
	server.boto(
		r#"
import base64
answer = client.invoke(FunctionName="handler", Payload=json.dumps({"a": ["ä", 1]}), LogType="Tail")
assert json.load(answer["Payload"]) == {"a": ["ä", 1]} and "FunctionError" not in answer
id, log = answer["ResponseMetadata"]["RequestId"], base64.b64decode(answer["LogResult"]).decode()
assert log.startswith("START RequestId: " + id) and id + "\tINFO\tsaid by handler 3\nEND" in log, log
answer = client.invoke(FunctionName="handler", Payload='{"do": "fail"}')
error = json.load(answer["Payload"])
assert answer["FunctionError"] == "Unhandled" and error["errorType"] == "TypeError" and error["trace"], error
assert client.get_function(FunctionName="handler")["Configuration"]["Runtime"] == "nodejs18.x"
"#,
	);
	for (name, event, answer) in [
		("nothing", json!({}), json!(null)),
		("callback", json!({ "b": 2 }), json!({ "got": { "b": 2 } })),
		("stream", json!({}), json!({ "parts": [1, 2] })),
	] {
		assert_eq!(server.call(name, &event), (answer, false), "{name}");
	}
	let (error, failed) = server.call("stream", &json!({ "fails": true }));
	assert_eq!((&error["errorMessage"], failed), (&json!("in the middle"), true));
	let (told, failed) = server.call("handler", &json!({ "do": "threads" }));
	assert!(!failed && told["keys"] == 5 && told["child"] == "\n", "{told}");
}

#[test]
fn the_package_and_its_handler_say_what_it_runs_in() {
	let server = server("node-runtime");
	let module = ("index.mjs", "export const handler = async (event) => ({ got: event });");
	let python = ("lambda_function.py", "def lambda_handler(event, context): return 'python'");
	for (files, options, answer) in [
		(&[module][..], &[][..], json!({ "got": {} })),
		(&[module, python], &[], json!("python")),
		(&[module, python], &["--handler", "index.handler"], json!({ "got": {} })),
		(&[module, python], &["--runtime", "nodejs22.x"], json!({ "got": {} })),
	] {
		deploy_files(&server, files, options).unwrap();
		assert_eq!(server.call("own", &json!({})), (answer, false), "{files:?} {options:?}");
	}
	let why = deploy_files(&server, &[module], &["--runtime", "ruby3.3"]).unwrap_err();
	assert!(why.contains("Runtime is python, nodejs or java"), "{why}");
	let plain = Server::start("node-less", &["--node", "/nonexistent/node"]);
	let why = deploy_files(&plain, &[module], &[]).unwrap_err();
	assert!(why.contains("start the server with --node"), "{why}");
	let plain = Server::start("node-without", &[]);
	let why = deploy_files(&plain, &[module], &[]).unwrap_err();
	assert!(why.contains("npm install aws-lambda-ric") && why.contains("--node-modules"), "{why}");
}

#[test]
fn calls_in_node_see_nothing_of_each_other_nor_of_the_server() {
	let server = server("node-apart");
	deploy(&server, "look", "handlers.handler", &["--secret", "SECRET=key", "--env", "PLAIN=ä", "--timeout", "60"]);
	let state = server.state.canonicalize().unwrap();
	let look = || server.call("look", &json!({ "do": "look", "state": state }));
	let all: Vec<_> = std::thread::scope(|scope| {
		let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| [look(), look()])).collect();
		threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
	});
	let mut random = BTreeSet::new();
	for (found, failed) in &all {
		assert!(!failed, "{found}");
		assert_eq!((&found["calls"], &found["files"], &found["writable"]), (&json!(1), &json!([]), &json!([])));
		assert_eq!((&found["warmedWith"], &found["secret"]), (&json!([null, "ä"]), &json!("key")));
		// The second is the first of the call's namespace, and the keeper's.
		assert_eq!(
			(&found["processes"], &found["state"], &found["names"]),
			(&json!(2), &json!(["names", "task"]), &json!([]))
		);
		assert_eq!((&found["rights"], &found["bound"]), (&json!(vec!["0000000000000000"; 5]), &json!("1")));
		assert!(found["user"] != 0 && found["directory"] == json!(state.join("task")), "{found}");
		random.extend(found["random"].as_array().unwrap().iter().enumerate().map(|(i, drawn)| format!("{i} {drawn}")));
	}
	assert_eq!(random.len(), all.len() * 5, "{random:?}");
	let (told, _) = server.call("look", &json!({ "do": "threads" }));
	assert_eq!((&told["told"][1], &told["child"]), (&json!("key"), &json!("key\n")));
}

#[test]
fn an_end_in_node_is_that_calls_error() {
	let server = server("node-ends");
	deploy(&server, "f", "handlers.handler", &["--memory", "256", "--timeout", "60"]);
	deploy(&server, "short", "handlers.handler", &["--timeout", "1"]);
	for (name, how, kind) in [
		("f", "fail", "TypeError"),
		("f", "later", "RangeError"),
		("f", "stray", "EvalError"),
		("f", "leave", "Runtime.ExitError"),
		("f", "crash", "Runtime.ExitError"),
		("f", "large", "Function.ResponseSizeTooLarge"),
		("f", "buffer", "RangeError"),
		("f", "heap", "Runtime.ExitError"),
		("short", "sleep", "Sandbox.Timedout"),
		("short", "spin", "Sandbox.Timedout"),
	] {
		let (error, failed) = server.call(name, &json!({ "do": how }));
		assert_eq!((failed, &error["errorType"]), (true, &json!(kind)), "{how}: {error}");
	}
	let (count, failed) = server.call("f", &json!({ "do": "breed" }));
	assert!(!failed && count.as_u64().unwrap() < 300, "{count}");
	assert_eq!(server.call("f", &json!({ "a": 1 })), (json!({ "a": 1 }), false));
	for (i, then) in ["", "leave", "spin", "crash"].iter().enumerate() {
		let word = format!("left{}-node-{i}", std::process::id());
		server.call("short", &json!({ "do": "fork", "then": then, "word": word }));
		until(&format!("{then}: children are left"), || !runs(&word));
	}
}

#[test]
fn what_calls_in_node_could_not_have_is_refused_with_the_cure() {
	let server = server("node-refused");
	for (code, why) in [
		("require('fs').openSync('/tmp/log', 'a')", "open it in the handler"),
		("require('child_process').spawn('/bin/sleep', ['1000'])", "have it end its children before it is ready"),
	] {
		let told = deploy_files(&server, &[("index.js", code)], &[]).unwrap_err();
		assert!(told.contains(why), "{told}");
	}
	let told = deploy_files(&server, &[("index.js", "require('nothing-of-this-name')")], &[]).unwrap_err();
	assert!(told.contains("fails when it is loaded: Runtime.ImportModuleError: "), "{told}");
}

#[test]
fn a_template_in_node_that_dies_is_made_anew_and_a_killed_server_leaves_nothing() {
	let mut server = server("node-killed");
	let word = format!("mark{}", std::process::id());
	deploy(&server, "f", "handlers.handler", &["--env", &format!("MARK={word}"), "--timeout", "100"]);
	let born = || -> Value { server.call("f", &json!({ "do": "born" })).0 };
	let first = born();
	assert_eq!(born(), first);
	// Its keeper and all that hangs on it.
	for pid in processes(&word) {
		let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
	}
	assert_ne!(born(), first);
	let _waits = server.sleeper(&word);
	server.kill();
	until("something still runs", || !runs(&word));
	server.kill_and_start_again();
	assert_eq!(server.call("f", &json!({ "a": 2 })), (json!({ "a": 2 }), false));
}

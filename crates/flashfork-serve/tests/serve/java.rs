//! Functions in Java, in AWS's runtime client for it, unmodified.

use crate::common::{Server, checkout, runs, until};
use serde_json::json;
use std::{
	collections::BTreeSet,
	fs,
	process::{Command, Stdio},
	sync::LazyLock,
};
use tempfile::TempDir;

/// The directory of jars with the runtime client.
static JARS: LazyLock<String> = LazyLock::new(|| {
	let made = Command::new(checkout().join("scripts/java-libraries")).stderr(Stdio::inherit()).output().unwrap();
	assert!(made.status.success(), "the runtime client is not there: scripts/java-libraries");
	checkout().join(String::from_utf8(made.stdout).unwrap().trim()).to_str().unwrap().to_owned()
});

const HANDLERS: &str = r#"
package app;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import java.io.File;
import java.security.SecureRandom;
import java.util.List;
import java.util.Map;
import java.util.UUID;

public class Handlers implements RequestHandler<Map<String, Object>, Object> {
	static final String WARMED_WITH = System.getenv("SECRET") + " " + System.getenv("PLAIN");
	static final SecureRandom RANDOM = new SecureRandom();
	static int calls;

	static { RANDOM.nextLong(); UUID.randomUUID(); Math.random(); }

	public Object handleRequest(Map<String, Object> event, Context context) {
		System.out.println("said by " + context.getFunctionName());
		return event;
	}

	public Object look(Map<String, Object> event) throws Exception {
		String[] files = new File("/tmp").list();
		new File("/tmp/left").createNewFile();
		return Map.of("calls", ++calls, "files", List.of(files), "warmedWith", WARMED_WITH, "secret", "" + System.getenv("SECRET"),
			"random", List.of("" + RANDOM.nextLong(), UUID.randomUUID().toString(), "" + Math.random()));
	}

	public Object end(Map<String, Object> event) throws Exception {
		switch ((String) event.get("do")) {
			case "fail": throw new IllegalStateException("it failed");
			case "leave": System.exit(3);
			case "heap": return new long[1 << 30];
			case "large": return "x".repeat(7 << 20);
			case "fork": new ProcessBuilder("sh", "-c", ": " + event.get("word") + "; sleep 1000 & sleep 1001").start();
			default: Thread.sleep(1000000);
		}
		return null;
	}
}
"#;

/// A package of [`HANDLERS`]: their classes, or a jar of these in its directory `lib`.
fn package(in_jar: bool) -> TempDir {
	let place = tempfile::tempdir().unwrap();
	let (source, package) = (place.path().join("Handlers.java"), place.path().join("package"));
	fs::write(&source, HANDLERS).unwrap();
	let run = |program: &str, arguments: &[&str]| {
		let done = Command::new(program).args(arguments).current_dir(place.path()).output().unwrap();
		assert!(done.status.success(), "{done:?}");
	};
	run("javac", &["-cp", &format!("{}/*", *JARS), "-d", package.to_str().unwrap(), "Handlers.java"]);
	if in_jar {
		fs::create_dir_all(place.path().join("jar/lib")).unwrap();
		run("jar", &["--create", "--file", "jar/lib/app.jar", "-C", "package", "."]);
		fs::remove_dir_all(&package).unwrap();
		fs::rename(place.path().join("jar"), &package).unwrap();
	}
	place
}

#[test]
fn functions_in_java_are_served() {
	let server = Server::start("java", &["--java-jars", &JARS]);
	let [classes, jar] = [false, true].map(package);
	let slow = ["--timeout", "60", "--handler"];
	server.deploy_from(&classes.path().join("package"), "f", &[&slow[..], &["app.Handlers"]].concat()).unwrap();
	server
		.deploy_from(&jar.path().join("package"), "jar", &[&slow[..], &["app.Handlers::handleRequest"]].concat())
		.unwrap();
	server.deploy_from(&classes.path().join("package"), "end", &[&slow[..], &["app.Handlers::end"]].concat()).unwrap();
	server.boto(
		r#"
import base64
for name in ("f", "jar"):
	answer = client.invoke(FunctionName=name, Payload=json.dumps({"a": ["ä", 1]}), LogType="Tail")
	assert json.load(answer["Payload"]) == {"a": ["ä", 1]} and "FunctionError" not in answer
	id, log = answer["ResponseMetadata"]["RequestId"], base64.b64decode(answer["LogResult"]).decode()
	assert log.startswith("START RequestId: " + id) and "\nsaid by %s\nEND" % name in log, log
answer = client.invoke(FunctionName="end", Payload='{"do": "fail"}')
error = json.load(answer["Payload"])
assert answer["FunctionError"] == "Unhandled" and error["errorType"] == "java.lang.IllegalStateException", error
assert error["errorMessage"] == "it failed" and error["stackTrace"], error
assert client.get_function(FunctionName="f")["Configuration"]["Runtime"] == "java"
"#,
	);
	for (how, kind) in [
		("leave", "Runtime.ExitError"),
		("heap", "java.lang.OutOfMemoryError"),
		("large", "Function.ResponseSizeTooLarge"),
	] {
		let (error, failed) = server.call("end", &json!({ "do": how }));
		assert_eq!((failed, &error["errorType"]), (true, &json!(kind)), "{how}: {error}");
	}
	server
		.deploy_from(&classes.path().join("package"), "short", &["--timeout", "1", "--handler", "app.Handlers::end"])
		.unwrap();
	let word = format!("java{}", std::process::id());
	let (error, _) = server.call("short", &json!({ "do": "fork", "word": word }));
	assert_eq!(error["errorType"], "Sandbox.Timedout");
	until("children are left", || !runs(&word));
}

#[test]
fn calls_in_java_see_nothing_of_each_other() {
	let server = Server::start("java-apart", &["--java-jars", &JARS]);
	let options = ["--handler", "app.Handlers::look", "--secret", "SECRET=key", "--env", "PLAIN=ä", "--timeout", "60"];
	server.deploy_from(&package(false).path().join("package"), "look", &options).unwrap();
	let look = || server.call("look", &json!({}));
	let all: Vec<_> = std::thread::scope(|scope| {
		let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| [look(), look()])).collect();
		threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
	});
	let mut random = BTreeSet::new();
	for (found, failed) in &all {
		assert!(!failed, "{found}");
		assert_eq!((&found["calls"], &found["files"], &found["secret"]), (&json!(1), &json!([]), &json!("key")));
		assert_eq!(found["warmedWith"], "null ä");
		random.extend(found["random"].as_array().unwrap().iter().enumerate().map(|(i, drawn)| format!("{i} {drawn}")));
	}
	assert_eq!(random.len(), all.len() * 3, "{random:?}");
}

#[test]
fn what_java_lacks_is_said_with_the_cure() {
	let package = package(false);
	let plain = Server::start("java-without", &[]);
	let why = plain.deploy_from(&package.path().join("package"), "f", &["--handler", "app.Handlers"]).unwrap_err();
	assert!(why.contains("--java-jars DIR"), "{why}");
	let why = plain.deploy_from(&package.path().join("package"), "f", &["--runtime", "java21"]).unwrap_err();
	assert!(why.contains("CLASS::METHOD"), "{why}");
	let less = Server::start("java-less", &["--java", "/nonexistent/java", "--java-jars", &JARS]);
	let why = less.deploy_from(&package.path().join("package"), "f", &["--handler", "app.Handlers"]).unwrap_err();
	assert!(why.contains("start the server with --java"), "{why}");
}

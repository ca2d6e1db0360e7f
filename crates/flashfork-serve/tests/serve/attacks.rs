//! What strangers try.

use crate::common::{Server, answer, processes, runs, until};
use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use serde_json::{Value, json};
use std::io::{Cursor, Write};

const CALL: &str = "/2015-03-31/functions/f/invocations";

/// A server with the function f.
fn server(name: &str, options: &[&str]) -> Server {
	let server = Server::start(name, options);
	server.deploy("f", &["--timeout", "30"]);
	server
}

fn still_serves(server: &Server) {
	assert_eq!(server.call("f", &json!({ "a": 1 })), (json!({ "a": 1 }), false));
}

#[test]
fn a_request_has_one_end() {
	let server = server("smuggling", &[]);
	let inner = format!("GET /2015-03-31/functions HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
	for head in [
		&format!("Content-Length: 2\r\nContent-Length: {}\r\n", inner.len()),
		"Content-Length: 2, 3\r\n",
		"Content-Length: +2\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Transfer-Encoding: xchunked\r\n",
		&format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", inner.len() + 2),
	] {
		let (status, _, rest) = answer(&mut server.send("f", head, &format!("{{}}{inner}")));
		assert_eq!(status, 400, "{head}");
		assert!(!String::from_utf8_lossy(&rest).contains("HTTP/1.1"), "{head}: a second request was answered");
	}
	assert_eq!(server.ask("POST", CALL, &format!("Host: {}\r\n", server.address), b"{}").0, 400);
	still_serves(&server);
}

#[test]
fn bodies_that_are_huge_or_slow_hold_nobody_up() {
	let server = server("bodies", &[]);
	let (status, _, _) = server.ask("POST", CALL, "", &vec![b'1'; (6 << 20) + 1]);
	assert_eq!(status, 413);
	let mut stream = server.send("f", "Transfer-Encoding: chunked\r\nConnection: close\r\n", "");
	for _ in 0..8 {
		let chunk = [format!("{:x}\r\n", 1 << 20).into_bytes(), vec![b'1'; 1 << 20], b"\r\n".to_vec()].concat();
		if stream.write_all(&chunk).is_err() {
			break;
		}
	}
	assert_eq!(answer(&mut stream).0, 413);
	let mut slow: Vec<_> = (0..50).map(|_| server.send("f", "Content-Length: 100\r\n", "{")).collect();
	still_serves(&server);
	// Nothing more comes: they are told so, and closed.
	assert_eq!(answer(&mut slow[0]).0, 408);
}

#[test]
fn who_is_refused_before_all_is_sent_is_told_so() {
	let server = Server::start("early", &[]);
	let body = vec![b' '; 20 << 20];
	let mut stream = server.send("f", &format!("Content-Length: {}\r\nConnection: close\r\n", body.len()), "");
	stream.write_all(&body).unwrap();
	assert_eq!(answer(&mut stream).0, 413);
}

#[test]
fn bodies_of_all_requests_together_have_a_limit() {
	let server = server("room", &[]);
	// All but the last byte of each, 240 MB in all.
	let body = vec![b' '; (6 << 20) - 1];
	let head = format!("Content-Length: {}\r\nConnection: close\r\n", body.len() + 1);
	let ends: Vec<u16> = std::thread::scope(|scope| {
		let one = || {
			let mut stream = server.send("f", &head, "");
			let _ = stream.write_all(&body);
			answer(&mut stream).0
		};
		let all: Vec<_> = (0..40).map(|_| scope.spawn(one)).collect();
		all.into_iter().map(|one| one.join().unwrap()).collect()
	});
	// Nothing more comes of those that have room; the others wait until these have none.
	assert!(ends.iter().all(|status| [408, 429].contains(status)) && ends.contains(&408), "{ends:?}");
	let most = most_memory(&server);
	assert!(most < 190 << 10, "{most} kB");
	still_serves(&server);
}

/// Most kilobytes that it has ever had.
fn most_memory(server: &Server) -> u64 {
	let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
	let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
	most.unwrap()
}

#[test]
fn answers_that_nobody_reads_have_a_limit_together() {
	let server = server("unread", &["--concurrency", "2", "--operations", "127.0.0.1:0"]);
	let body = json!({ "do": "large", "bytes": 6_000_000 }).to_string();
	let head = format!("Content-Length: {}\r\n", body.len());
	let mut unread: Vec<_> = (0..60).map(|_| server.send("f", &head, &body)).collect();
	// Each call runs once. Who doesn't read is cut off, so that the next ones come by.
	let ran = |count: usize| {
		let all = server.operator("/metrics").1;
		all.contains(&format!("flashfork_serve_calls_total{{function=\"local:f\",end=\"succeeded\"}} {count}\n"))
	};
	until("they don't run", || ran(60));
	let most = most_memory(&server);
	assert!(most < 240 << 10, "{most} kB");
	assert!(answer(&mut unread[0]).2.len() < 6_000_000);
	assert_eq!(server.call("f", &json!({ "do": "large", "bytes": 6_000_000 })).0.as_str().unwrap().len(), 6_000_000);
	assert!(ran(61));
}

/// Deploys a package as function g, unless the configuration says otherwise; the status, and what comes back.
fn deploy(server: &Server, mut config: Value, package: &[u8]) -> (u16, String) {
	config["Code"] = json!({ "ZipFile": BASE64.encode(package) });
	if config["FunctionName"].is_null() {
		config["FunctionName"] = "g".into();
	}
	let (status, _, why) = server.ask("POST", "/2015-03-31/functions", "", config.to_string().as_bytes());
	(status, String::from_utf8(why).unwrap())
}

fn zipped(fill: impl FnOnce(&mut zip::ZipWriter<Cursor<Vec<u8>>>)) -> Vec<u8> {
	let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
	fill(&mut archive);
	archive.finish().unwrap().into_inner()
}

#[test]
fn packages_stay_in_their_place_and_their_size() {
	let server = server("packages", &[]);
	let options = zip::write::SimpleFileOptions::default();
	let file = |name: &'static str| {
		zipped(move |archive| {
			archive.start_file(name, options).unwrap();
			archive.write_all(b"x = 1").unwrap();
		})
	};
	let bomb = zipped(|archive| {
		archive.start_file("zeros", options).unwrap();
		(0..251).for_each(|_| archive.write_all(&vec![0; 1 << 20]).unwrap());
	});
	assert!(bomb.len() < 1 << 20);
	let deep = zipped(|archive| archive.start_file("d/".repeat(40) + "x", options).unwrap());
	let link = zipped(|archive| archive.add_symlink("link", "/etc/passwd", options).unwrap());
	let both = |names: [&'static str; 2]| {
		zipped(move |archive| names.into_iter().for_each(|name| archive.start_file(name, options).unwrap()))
	};
	let twice = {
		let mut bytes = zipped(|archive| {
			for name in ["aa", "ab"] {
				archive.start_file(name, options).unwrap();
			}
		});
		while let Some(at) = bytes.windows(2).position(|two| two == b"ab") {
			bytes[at + 1] = b'a';
		}
		bytes
	};
	for (what, package) in [
		("a way out", file("../../escaped")),
		("a way out inside", file("a/../../escaped")),
		("a link", link),
		("a deep directory", deep),
		("a bomb", bomb),
		("a name twice", twice),
		("a file that is a directory, too", both(["a", "a/b"])),
		("a directory that is a file, too", both(["a/b", "a"])),
		("a file that is an empty directory, too", both(["a", "a/"])),
		("no archive", b"PK\x03\x04 nothing".to_vec()),
	] {
		let (status, why) = deploy(&server, json!({}), &package);
		// Of a name that is there twice the second file alone may count.
		assert!(status == 400 || what == "a name twice" && status == 201, "{what}: {status} {why}");
	}
	deploy(&server, json!({}), &file("/etc/flashfork-escaped"));
	let outside = ["/etc/flashfork-escaped", "code/escaped", "code/local:g/escaped"];
	assert!(outside.iter().all(|path| !server.state.join(path).exists()));
	still_serves(&server);
}

#[test]
fn names_and_json_are_checked() {
	let server = server("names", &[]);
	for name in [
		"..%2f..%2fetc",
		"%2e%2e",
		"f%00",
		"%ff",
		"f%2f..%2ff",
		"-f",
		"x".repeat(65).as_str(),
		"f:1",
		"arn:aws:s3:local:function:f",
	] {
		let (status, _, body) = server.ask("POST", &format!("/2015-03-31/functions/{name}/invocations"), "", b"{}");
		assert!([400, 404].contains(&status), "{name}: {status} {}", String::from_utf8_lossy(&body));
		assert!(serde_json::from_slice::<Value>(&body).unwrap()["Message"].is_string());
		assert_eq!(deploy(&server, json!({ "FunctionName": name }), &zipped(|_| ())).0, 400, "{name}");
	}
	for bad in [&b"{"[..], b"{}{}", b"nan", b"\"\\ud8", b"\x01", b"\"\xff\"", &b"[".repeat(100_000)] {
		assert_eq!(server.ask("POST", CALL, "", bad).0, 400, "{}", String::from_utf8_lossy(&bad[..bad.len().min(20)]));
	}
	for bad in
		["[]", "1", "\"x\"", "null", "{\"Code\":\"x\"}", "{\"Code\":[]}", "{\"Code\":{}}", "{\"FunctionName\":\"g\"}"]
	{
		assert_eq!(server.ask("POST", "/2015-03-31/functions", "", bad.as_bytes()).0, 400, "{bad}");
	}
	let much = json!({ "Secrets": { "A": "x".repeat(64 << 10) } });
	assert_eq!(deploy(&server, much, &zipped(|_| ())).0, 400);
	for bad in [json!({ "LD_PRELOAD": "x" }), json!({ "A=B": "x" }), json!({ "A": "x\0y" })] {
		let (status, why) = deploy(&server, json!({ "Environment": { "Variables": bad } }), &zipped(|_| ()));
		assert!(status == 400 && why.contains("names of variables"), "{why}");
	}
	assert_eq!(server.ask("POST", CALL, "X-Amz-Client-Context: Cg==\r\n", b"{}").0, 400);
	// Of an ARN the name counts alone.
	let arn = json!({ "FunctionName": "arn:aws:lambda:/../../../../escaped:local:function:h" });
	let handler = "def lambda_handler(event, context): pass";
	let package = zipped(|zip| {
		zip.start_file("lambda_function.py", zip::write::SimpleFileOptions::default()).unwrap();
		zip.write_all(handler.as_bytes()).unwrap();
	});
	let done = deploy(&server, arn, &package);
	assert_eq!(done.0, 201, "{}", done.1);
	let code = std::fs::read_dir(server.state.join("code")).unwrap();
	let mut code: Vec<_> = code.map(|entry| entry.unwrap().file_name()).collect();
	code.sort();
	assert_eq!(code, ["local:f", "local:h"]);
	for page in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
		assert_eq!(server.ask("POST", CALL, page, b"{}").0, 403);
	}
	let mut stream = server.connect();
	write!(stream, "GET /2015-03-31/functions HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
	assert_eq!(answer(&mut stream).0, 403);
	still_serves(&server);
}

#[test]
fn a_call_ends_when_its_caller_vanishes() {
	let server = server("vanish", &[]);
	let word = format!("vanished{}", std::process::id());
	drop(server.sleeper(&word));
	until("it runs on", || !runs(&word));
	still_serves(&server);
}

#[test]
fn clients_that_go_before_they_are_answered_end_nothing() {
	let server = server("gone", &[]);
	let ask = format!("GET /2015-03-31/functions HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
	for _ in 0..200 {
		// The second answer is for a connection that is closed, as the first one has shown.
		server.connect().write_all(ask.repeat(3).as_bytes()).unwrap();
	}
	still_serves(&server);
}

#[test]
fn a_runtime_that_lies_answers_its_own_call_once() {
	let server = server("lies", &[]);
	let (told, failed) = server.call("f", &json!({ "do": "lie", "other": "8476a536-e9f4-11e8-9739-2dfe598c3fcd" }));
	assert_eq!((told, failed), (json!([400, 400, 404, 403]), false));
}

#[test]
fn who_would_wait_for_too_long_is_told_to_come_back() {
	let server = server("queue", &["--concurrency", "1", "--queue", "0"]);
	let word = format!("queued{}", std::process::id());
	let first = server.sleeper(&word);
	let (status, headers, _) = server.ask("POST", CALL, "", b"{}");
	assert_eq!(status, 429);
	assert!(headers.contains("retry-after: 1") && headers.contains("x-amzn-errortype: toomanyrequestsexception"));
	drop(first);
	until("its place stays taken", || server.ask("POST", CALL, "", b"{}").0 == 200);
}

#[test]
fn more_connections_than_descriptors_that_say_nothing_keep_nobody_out() {
	let few = |command: &mut std::process::Command| {
		let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(256) };
		// SAFETY: one system call, which allocates nothing.
		unsafe {
			std::os::unix::process::CommandExt::pre_exec(command, move || {
				Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?)
			})
		};
	};
	let server = Server::start_as("descriptors", &[], few);
	server.deploy("f", &["--timeout", "30"]);
	let mut silent: Vec<_> = (0..150).map(|_| server.connect()).collect();
	still_serves(&server);
	// Who came first has made room, and not all have.
	let is_cut = |stream: &mut std::net::TcpStream| {
		stream.set_nonblocking(true).unwrap();
		std::io::Read::read(stream, &mut [0]).is_ok()
	};
	assert!(is_cut(&mut silent[0]) && !is_cut(&mut silent[149]));
}

#[test]
fn a_template_that_stands_still_ends_with_its_calls() {
	let server = Server::start("hangs", &["--concurrency", "1"]);
	let word = format!("hangs{}", std::process::id());
	server.deploy("f", &["--timeout", "4", "--env", &format!("WORD={word}")]);
	let mut call = server.sleeper(&format!("{word}-call"));
	let has = |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
	let parent = |pid: i32| has(pid, "stat").rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok();
	let is_warden = |pid: i32| has(pid, "cmdline").contains("warden of a function");
	let all = processes(&format!("WORD={word}")).into_iter();
	let template = all.map(|pid| pid.as_raw_nonzero().get()).find(|pid| parent(*pid).is_some_and(is_warden));
	let stopped = std::process::Command::new("kill").args(["-STOP", &template.unwrap().to_string()]).status();
	assert!(stopped.unwrap().success());
	let (_, _, told) = answer(&mut call);
	assert!(String::from_utf8(told).unwrap().contains("Sandbox.Timedout"));
	until("its call runs on", || !runs(&word));
	// Its place is free, and it is warm again.
	still_serves(&server);
}

#[test]
fn handlers_of_forks_run_in_calls_alone() {
	let server = Server::start("handlers", &[]);
	server.deploy("f", &["--timeout", "30", "--env", "HANDLERS=1"]);
	for _ in 0..3 {
		// With the limits of a call, in its own space of processes.
		let ran = json!([["before", 256, 0], "child"]);
		assert_eq!(server.call("f", &json!({ "do": "handlers" })), (ran, false));
	}
}

#[test]
fn no_call_gives_its_template_s_name_to_another() {
	let server = Server::start("holds", &[]);
	server.deploy("f", &["--timeout", "30", "--env", "HOLDS=1"]);
	// EROFS.
	assert_eq!(server.call("f", &json!({ "do": "hold" })), (json!([30, 30]), false));
	still_serves(&server);
}

#[test]
fn what_the_kernel_has_of_the_server_s_user_is_no_call_s() {
	let server = server("users", &["--concurrency", "1"]);
	// ENOSYS: there are no keys, which another function could read.
	assert_eq!(server.call("f", &json!({ "do": "keys" })), (json!(38), false));
	// Nothing answers for a file system, which could keep a call from its end.
	let (fuse, _) = server.call("f", &json!({ "do": "fuse" }));
	assert!(fuse.is_null() || fuse == server.call("f", &json!({ "do": "fuse", "path": "/dev/null" })).0, "{fuse}");
	let (count, failed) = server.call("f", &json!({ "do": "namespaces" }));
	assert!(!failed && count.as_u64().unwrap() < 80, "{count}");
}

#[test]
fn no_handler_of_signals_runs_in_a_template() {
	let server = Server::start("signals", &[]);
	let word = format!("signals{}", std::process::id());
	server.deploy("f", &["--timeout", "30", "--env", &format!("MARK={word}")]);
	// It has blocked all but SIGKILL and SIGSTOP: those, too, that glibc leaves out.
	let has_blocked = |pid: &rustix::process::Pid| {
		let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
		status.is_ok_and(|status| status.contains("SigBlk:\tfffffffffffbfeff"))
	};
	assert!(processes(&word).iter().any(has_blocked));
}

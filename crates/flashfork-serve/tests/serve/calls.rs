//! What calls come to, and what they leave.

use crate::common::{PYTHON, SERVE, Server, answer, processes, runs, until};
use rustix::process::{Pid, Signal};
use serde_json::json;
use std::{
	fs,
	io::{BufRead, BufReader, Write},
	path::Path,
	process::{Command, Stdio},
	time::Duration,
};

#[test]
fn unmodified_clients_and_runtime_clients_are_served() {
	let server = Server::start("boto", &[]);
	server.boto(
        r#"
import base64, io, zipfile
package = io.BytesIO()
with zipfile.ZipFile(package, "w") as file:
    file.writestr("app.py", "def run(event, context):\n print('said', context.client_context.custom['a'] if context.client_context else '')\n return {'got': event}\ndef bad(event, context): raise KeyError('k')\n")
for handler in ("run", "bad"):
    made = client.create_function(FunctionName=handler, Runtime="python3.12", Role="arn:aws:iam::000000000000:role/x", Handler="app." + handler, Code={"ZipFile": package.getvalue()}, Timeout=20)
    assert made["State"] == "Active", made
context = base64.b64encode(json.dumps({"custom": {"a": "context"}}).encode()).decode()
answer = client.invoke(FunctionName="run", Payload=json.dumps({"a": ["ä", 1]}), LogType="Tail", ClientContext=context)
assert json.load(answer["Payload"]) == {"got": {"a": ["ä", 1]}} and "FunctionError" not in answer
log = base64.b64decode(answer["LogResult"]).decode()
assert "said context\n" in log and log.startswith("START RequestId: " + answer["ResponseMetadata"]["RequestId"]), log
answer = client.invoke(FunctionName=made["FunctionArn"])
assert answer["FunctionError"] == "Unhandled"
error = json.load(answer["Payload"])
assert error["errorType"] == "KeyError" and error["stackTrace"], error
assert client.invoke(FunctionName="run", InvocationType="DryRun", Qualifier="$LATEST")["StatusCode"] == 204
assert client.invoke(FunctionName="local:function:run:$LATEST", InvocationType="DryRun")["StatusCode"] == 204
for what in client.invoke, client.get_function:
    for version in dict(FunctionName="run", Qualifier="1"), dict(FunctionName=made["FunctionArn"] + ":PROD"):
        refused(lambda: what(**version), "ResourceNotFoundException")
assert client.get_function(FunctionName="run")["ResponseMetadata"]["RequestId"]
assert client.invoke(FunctionName="run", InvocationType="Event")["StatusCode"] == 202
assert [f["FunctionName"] for f in client.list_functions()["Functions"]] == ["bad", "run"]
pages = client.get_paginator("list_functions").paginate(PaginationConfig={"PageSize": 1})
assert [[f["FunctionName"] for f in page["Functions"]] for page in pages] == [["bad"], ["run"]]
assert client.get_function(FunctionName="run")["Configuration"]["Handler"] == "app.run"
client.delete_function(FunctionName="run")
try:
    client.invoke(FunctionName="run")
    raise SystemExit("it is still there")
except client.exceptions.ResourceNotFoundException:
    pass
"#,
    );
}

#[test]
fn calls_see_nothing_of_each_other_nor_of_the_server() {
	let server = Server::start("apart", &[]);
	server.deploy("look", &["--secret", "SECRET=key", "--env", "PLAIN=ä", "--timeout", "60"]);
	let state = server.state.canonicalize().unwrap();
	let all: Vec<_> = (0..3).map(|_| server.call("look", &json!({ "do": "look", "state": state }))).collect();
	for (found, failed) in &all {
		assert!(!failed, "{found}");
		assert_eq!((&found["calls"], &found["files"], &found["writable"]), (&json!(1), &json!([]), &json!([])));
		assert_eq!((&found["warmed_with"], &found["secret"]), (&json!([null, "ä"]), &json!("key")));
		assert_eq!(
			(&found["processes"], &found["state"], &found["names"]),
			(&json!(2), &json!(["names", "task"]), &json!([]))
		);
		assert!(
			found["user"] != 0 && found["rights"].as_array().unwrap()[..3].iter().all(|set| set == "0000000000000000")
		);
	}
	for i in 0..2 {
		assert_ne!(all[0].0["random"][i], all[1].0["random"][i]);
	}
}

#[test]
fn an_end_is_that_calls_error() {
	let server = Server::start("ends", &[]);
	server.deploy("f", &["--timeout", "20", "--memory", "256"]);
	server.deploy("short", &["--timeout", "1"]);
	server.deploy("ignores", &["--timeout", "20", "--env", "IGNORES=1"]);
	for (name, how, kind) in [
		("ignores", "leave", "Runtime.ExitError"),
		("f", "fail", "ValueError"),
		("f", "leave", "Runtime.ExitError"),
		("f", "crash", "Runtime.ExitError"),
		("f", "large", "Function.ResponseSizeTooLarge"),
		("f", "eat", "MemoryError"),
		("short", "sleep", "Sandbox.Timedout"),
	] {
		let (error, failed) = server.call(name, &json!({ "do": how }));
		assert_eq!((failed, &error["errorType"]), (true, &json!(kind)), "{how}: {error}");
	}
	let (count, failed) = server.call("f", &json!({ "do": "breed" }));
	assert!(!failed && count.as_u64().unwrap() < 300, "{count}");
	assert_eq!(server.call("f", &json!({ "a": 1 })), (json!({ "a": 1 }), false));
	let log = String::from_utf8(server.command(&["logs", "f"]).stdout).unwrap();
	assert!(log.contains("said by f\n") && log.contains("ValueError"), "{log}");
}

#[test]
fn signals_of_a_handler_to_itself_end_it_and_its_orphans_are_waited_for() {
	let server = Server::start("init", &[]);
	server.deploy("f", &["--timeout", "20"]);
	for (how, signal) in [("abort", 6), ("terminate", 15)] {
		let (error, failed) = server.call("f", &json!({ "do": how }));
		let told = error["errorMessage"].as_str().unwrap();
		assert!(failed && told.ends_with(&format!("exited with error: signal: {signal}")), "{told}");
	}
	assert_eq!(server.call("f", &json!({ "do": "orphans" })), (json!([true, 0]), false));
}

#[test]
fn code_that_can_not_be_loaded_is_refused_and_tried_again_by_the_next_call() {
	let server = Server::start("import", &[]);
	let code = tempfile::tempdir().unwrap();
	let deploy = |text: &str| {
		std::fs::write(code.path().join("broken.py"), text).unwrap();
		let path = code.path().to_str().unwrap();
		server.command(&["deploy", path, "--name", "broken", "--handler", "broken.handler", "--timeout", "20"])
	};
	for (text, why) in [
		("import nothing_of_this_name", "Runtime.ImportModuleError: "),
		("def handler(", "Runtime.UserCodeSyntaxError: "),
		("other = 1", "Runtime.HandlerNotFound: "),
	] {
		let done = deploy(text);
		let told = String::from_utf8_lossy(&done.stderr);
		assert!(!done.status.success() && told.contains(&format!("fails when it is loaded: {why}")), "{told}");
	}
	// What it needs may come and go.
	let [needed, gone] = ["needed", "gone"].map(|name| server.state.with_extension(name));
	std::fs::write(&needed, "").unwrap();
	let done = deploy(&format!("open({needed:?})\ndef handler(event, context): return 1"));
	assert!(done.status.success(), "{done:?}");
	std::fs::rename(&needed, &gone).unwrap();
	let mut server = server;
	server.kill_and_start_again();
	let call = || server.ask("POST", "/2015-03-31/functions/broken/invocations", "", b"");
	let (status, _, why) = call();
	let why = String::from_utf8(why).unwrap();
	assert!(status == 502 && why.contains("FileNotFoundError"), "{status} {why}");
	std::fs::rename(&gone, &needed).unwrap();
	assert_eq!(call().0, 200);
}

#[test]
fn a_file_that_all_calls_would_share_is_refused() {
	let server = Server::start("shared", &[]);
	let code = tempfile::tempdir().unwrap();
	let deploy = |text: &str| {
		std::fs::write(code.path().join("lambda_function.py"), text).unwrap();
		server.command(&["deploy", code.path().to_str().unwrap(), "--name", "f"])
	};
	for open in ["open('/tmp/log', 'a')", "__import__('tempfile').TemporaryFile()"] {
		let done = deploy(&format!("log = {open}"));
		let why = String::from_utf8_lossy(&done.stderr);
		assert!(!done.status.success() && why.contains("open it in the handler"), "{why}");
	}
	let done = deploy("open('/tmp/log', 'a').close()\ndef lambda_handler(event, context): open('/tmp/log', 'x')");
	assert!(done.status.success(), "{done:?}");
	for _ in 0..2 {
		assert_eq!(server.call("f", &json!({})), (json!(null), false));
	}
}

#[test]
fn a_connection_that_all_calls_would_share_is_cut_in_them() {
	let server = Server::start("connections", &[]);
	let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
	let code = tempfile::tempdir().unwrap();
	let text = format!(
		"import socket\nconnection = socket.create_connection({:?})\nconnection.sendall(b'warm')\n\
		 def lambda_handler(event, context):\n try: connection.sendall(b'call')\n except OSError as e: told = repr(e)\n \
		 return [told, connection.recv(9).decode()]\n",
		("127.0.0.1", listener.local_addr().unwrap().port())
	);
	std::fs::write(code.path().join("lambda_function.py"), text).unwrap();
	let done = server.command(&["deploy", code.path().to_str().unwrap(), "--name", "f", "--timeout", "20"]);
	assert!(done.status.success(), "{done:?}");
	let (mut there, _) = listener.accept().unwrap();
	std::io::Write::write_all(&mut there, b"for one call alone").unwrap();
	for _ in 0..2 {
		let told = server.call("f", &json!({})).0;
		assert_eq!(told, json!(["BrokenPipeError(32, 'Broken pipe')", ""]));
	}
	drop(server);
	let mut heard = Vec::new();
	let _ = std::io::Read::read_to_end(&mut there, &mut heard);
	assert_eq!(heard, b"warm");
}

#[test]
fn what_leads_from_one_call_to_another_is_refused() {
	let server = Server::start("leads", &[]);
	let code = tempfile::tempdir().unwrap();
	for (made, why) in [
		("__import__('os').pipe()", "a pipe, which all calls would share"),
		("[__import__('socket').socketpair() for _ in range(2)]", "a pair of sockets, which all calls would share"),
		("__import__('select').epoll()", "an epoll instance, which all calls would share"),
		("__import__('mmap').mmap(-1, 4096)", "memory that is mapped shared, which all calls would share"),
		("__import__('signal').alarm(1000)", "a timer that is set, which its calls would not have"),
		(
			"[s := __import__('signal'), s.pthread_sigmask(s.SIG_BLOCK, [10]), s.raise_signal(10)]",
			"a signal that it blocks, which its calls would not have",
		),
		("__import__('os').memfd_create('x')", "a file in memory, which all calls would share"),
		("__import__('os').eventfd(0)", "a counter, timer or watch of the kernel's, which all calls would share"),
		("__import__('ctypes').CDLL(None).inotify_init()", "a counter, timer or watch of the kernel's"),
		("__import__('ctypes').CDLL(None).mq_open(b'/q', 0o102, 0o600, None)", "a message queue"),
		("__import__('os').openpty()", "a terminal or device, which all calls would share"),
		(
			"[os := __import__('os'), os.mkfifo('/tmp/f'), os.open('/tmp/f', os.O_RDWR)]",
			"a pipe, which all calls would share",
		),
		("__import__('subprocess').Popen(['sleep', '1000'])", "a child process, which its calls would not have"),
		("__import__('threading').Thread(target=__import__('time').sleep, args=(9,)).start()", "it has other threads"),
		("__import__('os').system('sleep 1000 &')", "it has left a process running"),
	] {
		std::fs::write(code.path().join("lambda_function.py"), format!("kept = {made}")).unwrap();
		let done = server.command(&["deploy", code.path().to_str().unwrap(), "--name", "f"]);
		let told = String::from_utf8_lossy(&done.stderr);
		assert!(!done.status.success() && told.contains(why) && told.contains("in the handler"), "{told}");
		assert!(!told.contains("--ready"), "{told}");
	}
}

#[test]
fn each_call_has_a_pair_of_sockets_of_its_own_where_the_runtime_client_has_one() {
	let server = Server::start("pair", &[]);
	let code = tempfile::tempdir().unwrap();
	let text = "import os, socket\n\
		def unix(fd):\n try: one = socket.socket(fileno=os.dup(fd))\n except OSError: return []\n \
		return [one] if one.family == socket.AF_UNIX else []\n\
		def heard(one):\n try: return one.recv(9, socket.MSG_DONTWAIT).decode()\n except OSError: return ''\n\
		def lambda_handler(event, context):\n fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n all = [one for fd in fds if fd > 2 for one in unix(fd)]\n \
		told = [heard(one) for one in all]\n [one.send(b'left') for one in all]\n return told\n";
	fs::write(code.path().join("lambda_function.py"), text).unwrap();
	server.deploy_from(code.path(), "f", &["--timeout", "20"]).unwrap();
	for _ in 0..3 {
		let told = server.call("f", &json!({})).0;
		assert!(told.as_array().is_some_and(|all| all.len() > 1 && all.iter().all(|one| one == "")), "{told}");
	}
}

#[test]
fn each_call_has_what_the_program_has_set_and_its_own_positions_in_files_sockets_and_group() {
	let server = Server::start("own", &[]);
	let code = tempfile::tempdir().unwrap();
	let text = "import os, socket\nfile, dir = open(__file__, 'rb', 0), os.open('.', os.O_RDONLY)\nfile.read(6)\n\
		twin, os.environ['SET'], os.environ['PLAIN'] = os.dup(file.fileno()), 'warm', 'new'\n\
		os.umask(0o77)\nos.sched_setaffinity(0, [max(os.sched_getaffinity(0))])\nos.environ.setdefault('SECRET', 'none')\ndel os.environ['GONE']\nfree = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
		def lambda_handler(event, context):\n free.sendto(b'', ('127.0.0.1', 9))\n os.kill(0, 0)\n \
		told = [os.environ.get(name) for name in ('SET', 'PLAIN', 'SECRET', 'GONE')]\n \
		told += [os.umask(0), len(os.sched_getaffinity(0))]\n \
		return [file.read(1 + event['n']).decode(), os.lseek(twin, 0, 1), len(os.listdir(dir)), os.getpgrp() == os.getpid(), told]\n";
	fs::write(code.path().join("lambda_function.py"), text).unwrap();
	let options = ["--timeout", "20", "--env", "PLAIN=old", "--env", "GONE=1", "--secret", "SECRET=word"];
	server.deploy_from(code.path(), "f", &options).unwrap();
	std::thread::scope(|scope| {
		for n in 0..8 {
			let server = &server;
			scope.spawn(move || {
				let told = server.call("f", &json!({ "n": n })).0;
				let variables = json!(["warm", "new", "word", null, 0o77, 1]);
				assert_eq!(told, json!([&text[6..=6 + n], 7 + n, 1, true, variables]));
			});
		}
	});
}

#[test]
fn a_function_that_is_warmed_can_not_fill_the_disk() {
	let server = Server::start("fill", &[]);
	let code = tempfile::tempdir().unwrap();
	let text = "import os\nall = files = 0\nfor place, _, _ in os.walk(os.path.dirname(os.getcwd())):\n try:\n  \
		with open(place + '/fill', 'wb', 0) as file:\n   while all < 8 << 20: all += file.write(bytes(1 << 16))\n \
		except OSError: pass\n try:\n  while files < 999:\n   open(f'{place}/{files}', 'x').close()\n   files += 1\n \
		except OSError: pass\ndef lambda_handler(event, context): return [all, files]\n";
	fs::write(code.path().join("lambda_function.py"), text).unwrap();
	server.deploy_from(code.path(), "f", &["--timeout", "20"]).unwrap();
	let told = server.call("f", &json!({})).0;
	assert!(told[0].as_u64() <= Some(1 << 20) && told[1].as_u64() < Some(64), "{told}");
}

#[test]
fn a_slow_deployment_keeps_no_other_back() {
	let server = Server::start("slow", &[]);
	let code = tempfile::tempdir().unwrap();
	std::fs::write(code.path().join("lambda_function.py"), "import time\ntime.sleep(1000)\n").unwrap();
	let word = format!("slow{}", std::process::id());
	let mut slow = std::process::Command::new(crate::common::SERVE);
	slow.args(["deploy", code.path().to_str().unwrap(), "--name", "slow", "--env", &format!("MARK={word}")]);
	let mut slow = slow.args(["--endpoint", &server.url]).spawn().unwrap();
	until("it is not being warmed", || processes(&word).len() > 1);
	server.deploy("f", &["--timeout", "20"]);
	assert!(server.command(&["undeploy", "f"]).status.success());
	assert!(slow.try_wait().unwrap().is_none());
	slow.kill().unwrap();
	slow.wait().unwrap();
}

#[test]
fn what_a_call_has_started_ends_with_it() {
	let server = Server::start("forks", &[]);
	server.deploy("f", &["--timeout", "3"]);
	for (i, then) in ["", "leave", "sleep", "crash"].iter().enumerate() {
		let word = format!("left{}-{i}", std::process::id());
		server.call("f", &json!({ "do": "fork", "then": then, "word": word }));
		until(&format!("{then}: children are left"), || !runs(&word));
	}
}

#[test]
fn a_server_that_is_to_end_answers_who_has_asked() {
	let mut server = Server::start("term", &[]);
	server.deploy("f", &["--timeout", "3"]);
	let mut call = server.sleeper(&format!("term{}", std::process::id()));
	assert!(Command::new("kill").arg(server.process.id().to_string()).status().unwrap().success());
	until("it takes more", || std::net::TcpStream::connect(&server.address).is_err());
	let (status, _, body) = answer(&mut call);
	assert!(status == 200 && String::from_utf8(body).unwrap().contains("Sandbox.Timedout"));
	assert!(server.process.wait().unwrap().success());
}

#[test]
fn a_killed_server_leaves_nothing_and_comes_back_with_its_functions() {
	let mut server = Server::start("killed", &[]);
	let word = format!("mark{}", std::process::id());
	server.deploy("f", &["--env", &format!("MARK={word}"), "--timeout", "100"]);
	let _waits = server.sleeper(&word);
	server.kill();
	until("something still runs", || !runs(&word));
	server.kill_and_start_again();
	assert_eq!(server.call("f", &json!({ "a": 2 })), (json!({ "a": 2 }), false));
	let undone = server.command(&["undeploy", "f"]);
	assert!(undone.status.success(), "{undone:?}");
	until("its template still runs", || !runs(&word));
}

#[test]
fn what_a_warden_begins_ends_with_it_at_any_moment() {
	let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
	let word = format!("warden{}", std::process::id());
	let path = |name: &str| place.path().join(name);
	fs::create_dir(path("code")).unwrap();
	fs::write(path("code/f.py"), "def handler(event, context): pass\n").unwrap();
	let arguments = ["-m", "awslambdaric", "f.handler"].map(|text| json!({ "Unix": text.as_bytes() }));
	let order = json!({
		"state": place.path(), "code": path("code"),
		"program": { "path": *PYTHON, "arguments": arguments, "variables": [], "threads": false },
		"shim": Path::new(SERVE).with_file_name("libflashfork_preload.so"),
		"namespaces": 99, "config": { "FunctionName": "f", "Environment": { "Variables": { "WORD": word } } },
	});
	// SAFETY: takes nothing.
	let cpu = unsafe { libc::sched_getcpu() }.to_string();
	for n in 0..60 {
		// On one CPU, where a child may run after its parent.
		let mut warden = Command::new("taskset");
		warden.args(["-c", &cpu, SERVE, "warden of a function"]);
		let mut warden = warden.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
		let mut line = warden.stdin.take().unwrap();
		writeln!(line, "{order}").unwrap();
		// The server goes as soon as that is said; once it waits, so that it is known to make sense.
		if n == 0 {
			let mut told = String::new();
			BufReader::new(warden.stdout.take().unwrap()).read_line(&mut told).unwrap();
			assert!(told.starts_with("{\"Ok\":"), "{told}");
		}
		drop(line);
		warden.wait().unwrap();
	}
	until("what it was warming runs on", || !runs(&word));
}

/// Kills one, if it has not ended meanwhile, and waits for the end of the process that stands for it outside, which the
/// server sees.
fn kill_clone(pid: Pid) {
	let field = |pid: &str, name: &str| {
		let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
		status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().last().map(str::to_owned))
	};
	let Some(outside) = field(&pid.as_raw_nonzero().to_string(), "PPid:") else { return };
	let _ = rustix::process::kill_process(pid, Signal::KILL);
	// Where the one outside has ended before, its parent is the first process of the namespace, which lives on.
	let is_there = || field(&outside, "NSpid:").is_some_and(|number| number != "1");
	until("it lives on", || !is_there());
}

#[test]
fn a_clone_that_dies_before_its_call_is_replaced() {
	let word = format!("ahead{}", std::process::id());
	let server = Server::start("ahead", &["--operations", "127.0.0.1:0"]);
	server.deploy("f", &["--timeout", "20", "--env", &format!("WORD={word}")]);
	let clones = || {
		// In a number space of its own, which the template is not.
		let is_clone = |pid: &Pid| {
			let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
			status.lines().any(|line| line.starts_with("NSpid:") && line.split_whitespace().count() == 4)
		};
		processes(&word).into_iter().filter(is_clone).collect::<Vec<_>>()
	};
	for n in 0..3 {
		until("no clone waits", || !clones().is_empty());
		clones().into_iter().for_each(kill_clone);
		assert_eq!(server.call("f", &json!({ "n": n })).0, json!({ "n": n }));
	}
	assert!(server.operator("/metrics").1.contains("flashfork_serve_clones_waiting 1\n"));
	assert!(server.command(&["undeploy", "f"]).status.success());
	until("what waits for calls of what was removed lives on", || !runs(&word));
}

#[test]
fn a_call_ends_where_all_clones_die_before_they_ask_for_it() {
	let server = Server::start("mute", &[]);
	let code = tempfile::tempdir().unwrap();
	// A runtime client of its own, whose clones can be taken for a while.
	let word = format!("half{}", std::process::id());
	let mute = server.state.with_extension("mute");
	let _ = fs::remove_file(&mute);
	let client = format!(
		"import os, socket, time\nline = socket.create_connection(('127.0.0.1', 1))\nif not os.path.exists({mute:?}):\n \
		  line.sendall(b'GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n line.recv(1)\n os._exit(3)\n\
		 time.sleep(0.5)\nif os.fork() == 0:\n  os.execv('/bin/sleep', ['{word}', '1000'])\ntime.sleep(0.5)\nos._exit(3)\n"
	);
	fs::write(code.path().join("lambda_function.py"), client).unwrap();
	let done = server.command(&["deploy", code.path().to_str().unwrap(), "--name", "f", "--timeout", "20"]);
	assert!(done.status.success(), "{done:?}");
	// The first one asks for its call. The next one, which begins when that is taken, lives on when it dies, and so
	// on.
	fs::write(&mute, "").unwrap();
	assert_eq!(server.call("f", &json!({})).0["errorType"], "Runtime.ExitError");
	until("no clone waits", || runs(&word));
	let mut call = server.send("f", "Content-Length: 2\r\nConnection: close\r\n", "{}");
	call.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
	let (status, _, error) = answer(&mut call);
	assert_eq!(status, 200);
	let error = String::from_utf8(error).unwrap();
	assert!(error.contains("Runtime.ExitError"), "{error}");
}

#[test]
fn processes_of_one_call_take_none_from_others() {
	let server = Server::start("crowd", &[]);
	server.deploy("f", &["--timeout", "100"]);
	let word = format!("crowd{}", std::process::id());
	let body = json!({ "do": "crowd", "word": word }).to_string();
	let _full = server.send("f", &format!("Content-Length: {}\r\n", body.len()), &body);
	until("it never had as many as it may", || runs(&format!("full-{word}")));
	// More at a time than have been made ahead.
	std::thread::scope(|scope| {
		for _ in 0..8 {
			scope.spawn(|| assert_eq!(server.call("f", &json!({ "do": "fork", "word": word })), (json!(null), false)));
		}
	});
}

#[test]
fn a_clone_is_used_again_where_that_is_its_policy() {
	let word = format!("again{}", std::process::id());
	let server = Server::start("reuse", &["--concurrency", "2"]);
	server.deploy("f", &["--timeout", "20", "--reuse", "3", "--env", &format!("WORD={word}")]);
	server.deploy("short", &["--timeout", "1", "--reuse", "3"]);
	let look = |name: &str| server.call(name, &json!({ "do": "look", "state": server.state })).0["calls"].clone();
	assert_eq!([(); 7].map(|()| look("f")), [1, 2, 3, 1, 2, 3, 1]);
	// One that fails goes on; one that ends, or takes too long, doesn't.
	assert!(server.call("f", &json!({ "do": "fail" })).1);
	assert_eq!(look("f"), 2);
	assert!(server.call("f", &json!({ "do": "leave" })).1);
	assert_eq!(look("f"), 1);
	let late = format!("late{}", std::process::id());
	assert!(server.call("short", &json!({ "do": "fork", "word": late, "then": "sleep" })).1);
	until("one whose time was up lives on", || !runs(&format!("sleep-{late}")));
	// One is killed while it waits for a call.
	let inside = server.call("f", &json!({ "do": "number" })).0;
	let is_it = |pid: &String| {
		let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
		let number = inside[0].to_string();
		let is = |line: &str| line.starts_with("NSpid:") && line.split_whitespace().last() == Some(&number);
		let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
		status.lines().any(is) && namespace.to_str() == inside[1].as_str()
	};
	let all = || fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
	let pid = all().find(is_it).unwrap();
	kill_clone(Pid::from_raw(pid.parse().unwrap()).unwrap());
	assert_eq!(look("f"), 1);
	// Two at a time are in two clones.
	let first = server.sleeper("twice");
	assert_eq!(look("f"), 1);
	drop(first);
	assert!(server.command(&["undeploy", "f"]).status.success());
	until("what waits for calls of what was removed lives on", || !runs(&word));
}

#[test]
fn a_clone_that_computes_while_it_waits_is_ended() {
	let server = Server::start("spin", &[]);
	let words = [1, 2, 3, 4].map(|n| format!("waits{}-{n}", std::process::id()));
	let all = [("f", "fork"), ("g", "spin"), ("h", "drift"), ("i", "reaped")];
	for ((name, what), word) in all.into_iter().zip(&words) {
		server.deploy(name, &["--timeout", "20", "--reuse", "9"]);
		assert_eq!(server.call(name, &json!({ "do": what, "word": word })), (json!(null), false));
		until("it does not compute", || name == "f" || runs(&format!("spin-{word}")));
	}
	// One that only waits has begun to do so before, and does longer.
	for word in &words[1..] {
		until("it computes on", || !runs(&format!("spin-{word}")));
	}
	assert!(runs(&format!("sleep-{}", words[0])));
	assert_eq!(server.call("g", &json!({ "a": 1 })), (json!({ "a": 1 }), false));
}

#[test]
fn what_a_replaced_function_had_goes_with_its_last_call() {
	let server = Server::start("replaced", &[]);
	server.deploy("f", &["--timeout", "100"]);
	let call = server.sleeper(&format!("replaced{}", std::process::id()));
	server.deploy("f", &["--timeout", "100"]);
	let packages = || fs::read_dir(server.state.join("code/local:f")).unwrap().count();
	assert_eq!(packages(), 2);
	drop(call);
	until("it stays", || packages() == 1);
	assert_eq!(server.call("f", &json!({ "a": 1 })), (json!({ "a": 1 }), false));
}

//! A runtime of a function's own. Each answer goes by another connection than the call came by.

use std::env::var;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Asks, and hears the headers and the body of what comes back.
fn ask(mut stream: &TcpStream, line: &str, body: &str) -> (String, String) {
	let length = body.len();
	write!(stream, "{line} HTTP/1.1\r\nHost: api\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
	let (mut reader, mut head) = (BufReader::new(stream), String::new());
	while !head.ends_with("\r\n\r\n") {
		assert!(reader.read_line(&mut head).unwrap() > 0);
	}
	let head = head.to_lowercase();
	let mut body = vec![0; field(&head, "content-length").parse().unwrap()];
	reader.read_exact(&mut body).unwrap();
	(head, String::from_utf8(body).unwrap())
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
	head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap()
}

unsafe extern "C" {
	fn fork() -> i32;
	fn wait(status: *mut i32) -> i32;
	fn _exit(status: i32) -> !;
	fn unshare(kinds: i32) -> i32;
	fn mount(source: *const i8, place: *const i8, kind: *const i8, flags: u64, options: *const i8) -> i32;
}

/// What can be done to this process's control group where its own namespace shows it: limits lifted, others made.
fn escape() -> usize {
	// Of control groups, mounts and users.
	assert_eq!(unsafe { unshare(0x0200_0000 | 0x0002_0000 | 0x1000_0000) }, 0);
	let done = unsafe { mount(c"x".as_ptr(), c"/tmp".as_ptr(), c"cgroup2".as_ptr(), 0, std::ptr::null()) };
	assert!(done == 0 && std::fs::exists("/tmp/cgroup.procs").unwrap());
	let lifted = std::fs::write("/tmp/memory.max", "max").is_ok();
	usize::from(lifted) + usize::from(std::fs::create_dir("/tmp/left").is_ok())
}

/// Starts processes that have so many megabytes each; how many do, in the end.
fn hold(processes: usize, megabytes: &str) -> usize {
	let one = |_| {
		let mut one = Command::new("/proc/self/exe");
		one.env("MEGABYTES", megabytes).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
	};
	let mut all: Vec<_> = (0..processes).map(one).collect();
	all.iter_mut().map(|one| one.stdout.as_mut().unwrap().read(&mut [0]).unwrap()).sum()
}

/// Leaves a process that is followed by its child, and so on for some seconds.
fn chain() {
	let end = Instant::now() + Duration::from_secs(4);
	// SAFETY: this process has one thread; its child calls nothing that takes a lock.
	unsafe {
		if fork() != 0 {
			wait(std::ptr::null_mut());
			return;
		}
		while Instant::now() < end {
			if fork() != 0 {
				_exit(0);
			}
		}
		std::thread::sleep(Duration::from_secs(1000));
		_exit(0);
	}
}

fn main() {
	if let Ok(megabytes) = var("MEGABYTES") {
		let held = vec![1u8; megabytes.parse::<usize>().unwrap() << 20];
		println!("{}", held.iter().filter(|byte| **byte == 1).count());
		std::io::stdin().read_exact(&mut [0]).unwrap_err();
		return;
	}
	let api = var("AWS_LAMBDA_RUNTIME_API").unwrap();
	println!("is warmed");
	if var("LEAVES").is_ok_and(|what| what == "chain") {
		chain();
	}
	// It may have been started before, and killed.
	std::fs::File::create_new("/tmp/begun").unwrap();
	if var("THREADS").is_ok() {
		std::thread::spawn(|| loop {
			std::thread::park();
		});
	}
	if var("LEAVES").is_ok_and(|what| what == "one") {
		std::process::Command::new("sh").args(["-c", "sleep 1000 &"]).status().unwrap();
	}
	let mut stream = TcpStream::connect(&api).unwrap();
	for call in 1.. {
		let (head, mut event) = ask(&stream, "GET /2018-06-01/runtime/invocation/next", "");
		let secret = var("SECRET").unwrap_or_default();
		if event == "\"leave\"" {
			std::process::exit(3);
		}
		if event == "\"many\"" {
			// How many there may be beside this one.
			let more: Vec<_> = (0..40).map_while(|_| TcpStream::connect(&api).ok()).collect();
			event = more.len().to_string();
		}
		if let [processes, megabytes] = event.split_whitespace().collect::<Vec<_>>()[..] {
			event = hold(processes.trim_matches('"').parse().unwrap(), megabytes.trim_matches('"')).to_string();
		}
		if event == "\"escape\"" {
			event = escape().to_string();
		}
		let next = TcpStream::connect(&api).unwrap();
		stream.shutdown(Shutdown::Both).unwrap();
		let id = field(&head, "lambda-runtime-aws-request-id");
		let answer = format!("{{\"call\": {call}, \"event\": {event}, \"secret\": \"{secret}\"}}");
		ask(&next, &format!("POST /2018-06-01/runtime/invocation/{id}/response"), &answer);
		stream = next;
	}
}

//! The daemon among shells taken over: they don't read, don't answer, or say too much.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, PATIENCE, eventually, exists, fake_shell, idler, send, tiny};
use flashfork_proto::api::{self, CloneState};
use rustix::process::Signal;
use serde_json::json;
use std::{
	io::{ErrorKind, Read, Write},
	os::unix::net::UnixStream,
};

/// Speaks a shell's protocol until it is told to boot or claimed, then does something else.
const FAKE: &str = r#"#!/usr/bin/python3
import socket, time
PREAMBLE, READY, BOOT, CLAIMED = 100, b"\x00", 1, b"\x05" + b"\0" * 6
s = socket.socket(fileno=0)
s.send(s.recv(PREAMBLE))
s.recv(1 << 20)
s.send(READY)
if s.recv(1 << 20)[0] == BOOT:
	# Packets of this version's protocol begin with a small number.
	s.send(b"\xff" * 10)
else:
	s.send(CLAIMED)
	# FAILED, with 180000 characters, for ever.
	n = 180000
	length = bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14])
	try:
		while True:
			s.send(b"\x0b" + length + b"x" * n)
	except OSError:
		pass
time.sleep(600)
"#;

/// Is claimed, and forked, but keeps what it has copied mapped for writing.
const KEEPS: &str = r#"#!/usr/bin/python3
import array, mmap, os, socket, time
s = socket.socket(fileno=0)
s.send(s.recv(100))
s.recv(1 << 20)
s.send(b"\x00")
claim = s.recv(1 << 20)
def number(at):
	value, shift = 0, 0
	while True:
		value |= (claim[at] & 127) << shift
		at, shift = at + 1, shift + 7
		if claim[at - 1] < 128:
			return value, at
length, at = number(1)
index, at = number(at + length)
length, at = number(at + 16)
disks, at = number(at + length + 32)
cid, at = number(at)
begin = at
length, at = number(at)
state = claim[begin:at + length]
s.send(b"\x05" + b"\0" * 6)
kept = []
while True:
	data, rest, _, _ = s.recvmsg(1 << 20, 1 << 10)
	if not data:
		break
	if data[0] == 4:
		files = array.array("i")
		files.frombytes(rest[0][2])
		for file in files:
			memory = mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED)
			memory[-4096:] = b"\xff" * 4096
			kept.append(memory)
		s.send(b"\x02")
	elif data[0] == 5:
		s.send(b"\x03" + state + b"\0" * 5)
"#;

/// Kilobytes of its own memory.
fn anonymous(pid: u32) -> u64 {
	let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
	let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
	line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn upgrade(daemon: &Daemon, what: &str) -> (UnixStream, String) {
	let mut stream = UnixStream::connect(&daemon.socket).unwrap();
	stream.set_read_timeout(Some(PATIENCE)).unwrap();
	let request =
		format!("POST /v1/clones/{what} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: flashfork\r\n\r\n");
	stream.write_all(request.as_bytes()).unwrap();
	let mut answer = [0; 512];
	let count = stream.read(&mut answer).unwrap();
	(stream, String::from_utf8_lossy(&answer[..count]).into_owned())
}

/// While the shell stands still.
fn answers(daemon: &Daemon) {
	let _: api::Daemon = daemon.get("/v1");
}

#[test]
fn a_shell_that_talks_nonsense_or_too_much_is_ended() {
	let Some(daemon) = Daemon::with_fake_shell(FAKE) else { return };
	// Nonsense instead of an answer: the request ends, and so does the shell.
	let mut boots = tiny("boots", idler());
	boots["timeout_s"] = json!(3600);
	daemon.refuses_template(&boots, "no message of this protocol");
	daemon.refuses_template(&boots, "no message of this protocol");
	// An answer that nobody asked for: the clone ends, and the daemon keeps none of it.
	let before = anonymous(daemon.child.id());
	let clone = daemon.clone_of("t");
	eventually(|| daemon.shown("t-1").state == CloneState::Ended && !exists(clone.pid));
	let how = daemon.shown("t-1").ended.unwrap();
	assert!(how.contains("out of turn"), "{how}");
	let grown = anonymous(daemon.child.id()).saturating_sub(before);
	assert!(grown < 16 << 10, "{grown} KiB");
	// What it says is all right, but not what comes along.
	let floods = FAKE.replace("s.send(b\"\\x0b\" +", "socket.send_fds(s, [b\"\\x0a\\0\"], [0] * 60) #");
	fake_shell(daemon.dir.path(), &floods);
	// Some that wait already are the others.
	eventually(|| {
		let clone = daemon.clone_of("t");
		eventually(|| !exists(clone.pid));
		daemon.shown(&clone.name).ended.is_some_and(|how| how.contains("more descriptors than may come with it"))
	});
}

#[test]
fn what_a_shell_says_moves_no_cursor() {
	// TROUBLE, and FAILED when it is asked for anything.
	let says = r#"s.send(CLAIMED)
	s.send(b"\x09\x06x\n\x1b[2J")
	s.recv(1 << 20)
	s.send(b"\x0b\x06y\n\x1b[2J")
	time.sleep(600)"#;
	let Some(daemon) = Daemon::with_fake_shell(&FAKE.replace("s.send(CLAIMED)", says)) else { return };
	daemon.clone_of("t");
	eventually(|| daemon.shown("t-1").trouble.is_some_and(|line| line == r"x\n\u{1b}[2J"));
	daemon.refuses_rollback("t-1", r"y\n\u{1b}[2J");
}

#[test]
fn a_shell_that_does_not_read_holds_up_nobody() {
	let Some(daemon) = Daemon::with_idler() else { return };
	let clones = daemon.clones_of("t", 2);
	send(clones[0].pid, Signal::STOP);
	// Typing: the console ends, after a while.
	let (mut console, head) = upgrade(&daemon, "t-1/console");
	assert!(head.starts_with("HTTP/1.1 101"), "{head}");
	console.set_write_timeout(Some(PATIENCE)).unwrap();
	let typed = (0..1000).try_for_each(|_| console.write_all(&[b'x'; 4096]));
	answers(&daemon);
	assert!(matches!(typed, Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)));
	// Streams: refused, since there is no room.
	let refused = (0..1000).map(|_| upgrade(&daemon, "t-1/agent").1).find(|answer| !answer.contains(" 101 "));
	let refused = refused.unwrap();
	assert!(refused.starts_with("HTTP/1.1 409") && refused.contains("doesn't listen"), "{refused}");
	// A rollback: the clone stays what it was.
	let before = daemon.shown("t-1");
	daemon.refuses_rollback("t-1", "doesn't listen");
	let after = daemon.shown("t-1");
	assert_eq!((after.generation, after.state), (before.generation, CloneState::Starting));
	answers(&daemon);
	daemon.roll_back("t-2");
	// It need not agree to its end.
	daemon.remove_clone("t-1");
	eventually(|| !exists(clones[0].pid));
}

#[test]
fn a_rollback_without_an_answer_ends_the_clone() {
	let Some(daemon) = Daemon::with_idler() else { return };
	let clone = daemon.clone_of("t");
	send(clone.pid, Signal::STOP);
	daemon.refuses_rollback("t-1", "did not answer within 20 s");
	eventually(|| !exists(clone.pid));
	let ended = daemon.shown("t-1").ended.unwrap();
	assert!(ended.contains("rollback"), "{ended}");
	daemon.refuses_rollback("t-1", "has ended");
}

#[test]
fn what_a_shell_could_still_change_is_no_template() {
	let Some(daemon) = Daemon::with_fake_shell(KEEPS) else { return };
	let clones = daemon.clones_of("t", 2);
	let bodies = [json!({ "now": true }), json!({ "now": true, "count": 0, "template": "never" })];
	for (clone, body) in clones.iter().zip(bodies) {
		daemon.refuses_fork(&clone.name, &body, "still mapped for writing");
		// It could make it more and more.
		eventually(|| !exists(clone.pid));
		let ended = daemon.shown(&clone.name).ended.unwrap();
		assert!(ended.contains("mapped"), "{ended}");
	}
	assert_eq!(daemon.templates().len(), 1);
	eventually(|| daemon.shown_template("t").clones_alive == 0);
}

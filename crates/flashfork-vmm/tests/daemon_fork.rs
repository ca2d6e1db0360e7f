//! Live forks through the daemon: trees of clones, whose parents go on, or go.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, eventually, exists, idler, kill, restart, upgraded};
use common::{DONE, FORK, counting::counting};
use flashfork_proto::api::{self, Clone, Template};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{io::Write, os::unix::net::UnixStream, process::Command};

fn now(count: u32) -> Value {
	json!({ "count": count, "now": true })
}

/// Types a character on a clone's console, which ends with the clone.
fn type_on(daemon: &Daemon, clone: &str, character: u8) -> UnixStream {
	let mut stream = upgraded(daemon, &format!("{clone}/console"));
	stream.write_all(&[character]).unwrap();
	stream
}

/// Ends a guest that counts: all its memory is of one moment.
fn finish(daemon: &Daemon, clone: &str) {
	let _console = type_on(daemon, clone, b'e');
	let how = ended(daemon, clone);
	assert!(how.starts_with("ended with status 0"), "{clone} {how}");
}

fn ended(daemon: &Daemon, clone: &str) -> String {
	eventually(|| daemon.shown(clone).ended.is_some());
	daemon.shown(clone).ended.unwrap()
}

/// A daemon with a clone that has counted to 128 at least, `t-1`.
fn counted() -> Option<Daemon> {
	let daemon = Daemon::start()?;
	daemon.template("t", counting());
	daemon.clone_of("t");
	eventually(|| {
		let child = daemon.fork("t-1", &now(1)).clones.remove(0).name;
		let _console = type_on(&daemon, &child, b'?');
		ended(&daemon, &child).starts_with("ended with status 0")
	});
	Some(daemon)
}

#[test]
fn forks_of_forks_live_on_whoever_is_removed() {
	let Some(daemon) = counted() else { return };
	let forked = daemon.fork("t-1", &json!({ "count": 2, "now": true, "job": "x" }));
	assert!(forked.pause.total() > 0 && forked.template.is_none());
	let names: Vec<_> = forked.clones.iter().map(|clone| clone.name.clone()).collect();
	assert!(names.iter().all(|name| name.starts_with("t-")), "{names:?}");
	for clone in &forked.clones {
		assert_eq!((clone.template.as_str(), clone.forked_from.as_deref()), ("t", Some("t-1")));
	}
	let deeper = daemon.fork(&names[0], &now(1)).clones.remove(0);
	assert_eq!(deeper.forked_from.as_deref(), Some(names[0].as_str()));
	// The one in the middle, then the first.
	for name in [names[0].as_str(), "t-1"] {
		daemon.remove_clone(name);
	}
	eventually(|| daemon.shown_template("t").clones_alive == 0);
	daemon.remove_template("t");
	let deepest = daemon.fork(&deeper.name, &now(1)).clones.remove(0);
	[&names[1], &deeper.name, &deepest.name].into_iter().for_each(|name| finish(&daemon, name));
	// With the last clone all memory goes.
	eventually(|| daemon.get::<api::Stats>("/v1/stats").template_bytes == 0);
}

#[test]
fn a_fork_can_become_a_template_with_a_name() {
	let Some(daemon) = counted() else { return };
	let forked = daemon.fork("t-1", &json!({ "count": 0, "now": true, "template": "warm" }));
	let template = forked.template.unwrap();
	assert_eq!((template.name.as_str(), template.forked_from.as_deref()), ("warm", Some("t-1")));
	assert!(template.shared_bytes > 0 && template.shared_bytes < template.resident_bytes, "{template:?}");
	daemon.refuses_fork("t-1", &json!({ "now": true, "template": "warm" }), "a template warm already");
	let clones = daemon.clones("warm", &json!({ "count": 2 }));
	assert!(clones.iter().all(|clone| clone.template == "warm" && clone.forked_from.is_none()), "{clones:?}");
	daemon.refused("DELETE", "/v1/templates/warm", &Value::Null, "template warm has 2 clones");
	// Whole in its directory, without what it shares.
	let saved = daemon.dir.path().join("saved");
	daemon.save("warm", &saved);
	daemon.load("again", &saved);
	let loaded = daemon.clone_of("again");
	for name in ["t-1", &clones[0].name, &clones[1].name, &loaded.name] {
		finish(&daemon, name);
	}
}

#[test]
fn what_can_not_be_forked_is_told_and_the_clone_goes_on() {
	let Some(daemon) = counted() else { return };
	daemon.refuses_fork("t-1", &json!({ "count": 0, "now": true }), "ask for 1 to");
	daemon.refuses_fork("t-1", &json!({ "count": 1001, "now": true }), "ask for 1 to");
	daemon.refuses_fork("t-1", &json!({ "count": 2, "name": "two", "now": true }), "one name for several clones");
	daemon.refuses_fork("none", &now(1), "no clone none");
	// Nobody answers in this guest.
	daemon.refuses_fork("t-1", &json!({}), "--now");
	// What it signals by itself is refused, and it counts on.
	drop(type_on(&daemon, "t-1", b'f'));
	finish(&daemon, "t-1");
	daemon.refuses_fork("t-1", &now(1), "has ended");
}

/// Gives the fork signal, and in a clone says that it is alive. An `f` that is typed has it give the signal again; any
/// other character ends it, its status being the answer to the last signal.
fn forking() -> Vec<u8> {
	[
		// again:
		&[0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xec][..], // mov dx, 0x1234; mov al, FORK; out dx, al; in al, dx: status
		&[0xa2, 0x00, 0x38, 0x84, 0xc0, 0x75, 0x21],     // mov [0x3800], al; test al, al; jnz wait
		&[0xba, 0x3c, 0x12, 0xbf, 0x00, 0x30, 0xb9, 0x20, 0x00, 0xfc, 0xf3, 0x6c], // 32 bytes of the reply to 0x3000
		&[0x80, 0x3e, 0x00, 0x30, 0x00, 0x74, 0x0e],     // cmp byte [0x3000], the template's role; je wait
		&[0xbe, 0x10, 0x30, 0xb9, 0x10, 0x00, 0xf3, 0x6e], // mov si, 0x3010: generation; mov cx, 16; rep outsb
		&[0xba, 0x34, 0x12, 0xb0, 0x40, 0xee],           // ALIVE
		// wait:
		&[0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xf8], // mov dx, 0x3fd; in al, dx; test al, 1; jz wait
		&[0xba, 0xf8, 0x03, 0xec, 0x3c, b'f', 0x74, 0xc1], // mov dx, 0x3f8; in al, dx; cmp al, 'f'; je again
		&[0xba, 0x3c, 0x12, 0xa0, 0x00, 0x38, 0xee, 0x30, 0xc0, 0xee, 0xee, 0xee], // the answer, four bytes
		DONE,
	]
	.concat()
}

fn ends_with(daemon: &Daemon, clone: &str, status: u32) {
	let _console = type_on(daemon, clone, b'e');
	let how = ended(daemon, clone);
	assert!(how.starts_with(&format!("ended with status {status}")), "{clone} {how}");
}

#[test]
fn a_guest_forks_itself_as_often_as_it_may() {
	let Some(mut daemon) = Daemon::start() else { return };
	daemon.template("t", forking());
	daemon.clones("t", &json!({ "forks": 2, "job": "x" }));
	for (parent, child) in [("t-1", "t-2"), ("t-2", "t-3")] {
		drop(type_on(&daemon, parent, b'f'));
		let is_ready = |clone: &Clone| clone.name == child && clone.state == api::CloneState::Ready;
		eventually(|| daemon.all_clones().iter().any(is_ready));
		assert_eq!(daemon.shown(child).forked_from.as_deref(), Some(parent));
		// Whichever daemon it was that had allowed it; a fork that is not over yet is given up.
		let under_way = format!("grep -qs 'own fork' /proc/{}/task/*/comm", daemon.child.id());
		eventually(|| !Command::new("sh").args(["-c", &under_way]).status().unwrap().success());
		restart(&mut daemon, Signal::KILL);
	}
	// Its parents have used up what all of them may.
	drop(type_on(&daemon, "t-3", b'f'));
	ends_with(&daemon, "t-3", 3);
	// A rollback takes it back to where it was forked.
	daemon.roll_back("t-2");
	ends_with(&daemon, "t-2", 0);
	ends_with(&daemon, "t-1", 0);
}

/// Forks itself twenty times in a row; its status is the answer to the last signal. Its clones are alive, and halt.
fn prolific() -> Vec<u8> {
	let reply: &[u8] = &[0xba, 0x3c, 0x12, 0xbf, 0x00, 0x30, 0xb9, 0x20, 0x00, 0xfc, 0xf3, 0x6c]; // 32 bytes to 0x3000
	let alive: &[u8] = &[0xbe, 0x10, 0x30, 0xb9, 0x10, 0x00, 0xf3, 0x6e, 0xba, 0x34, 0x12, 0xb0, 0x40, 0xee];
	[
		FORK,
		reply,
		alive,
		&[0xbb, 20, 0x00], // mov bx, 20
		// again:
		&[0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xec, 0x84, 0xc0, 0x75, 0x16], // FORK; in al, dx: status; jnz end
		reply,
		&[0x80, 0x3e, 0x00, 0x30, 0x00, 0x75, 0x13], // cmp byte [0x3000], the template's role; jne clone
		&[0x4b, 0x75, 0xdf],                         // dec bx; jnz again
		// end:
		&[0xba, 0x3c, 0x12, 0xee, 0x30, 0xc0, 0xee, 0xee, 0xee], // the status
		DONE,
		// clone:
		alive,
		&[0xf4, 0xeb, 0xfd],
	]
	.concat()
}

/// A signal that came right after a fork was refused, or forked without being told, so that a clone was nobody's.
#[test]
fn a_guest_that_forks_itself_again_at_once_is_told_of_each_clone() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("t", prolific());
	daemon.clones("t", &json!({ "forks": 20 }));
	let how = ended(&daemon, "t-1");
	assert!(how.starts_with("ended with status 0"), "{how}");
	eventually(|| daemon.all_clones().iter().filter(|clone| clone.state == api::CloneState::Ready).count() == 20);
}

#[test]
fn a_guest_that_may_not_make_another_clone_goes_on() {
	let Some(mut daemon) = Daemon::start() else { return };
	let mut request = client::tiny("t", forking());
	request["max_clones"] = json!(1);
	daemon.post::<Template>("/v1/templates", &request);
	daemon.clones("t", &json!({ "forks": 5 }));
	drop(type_on(&daemon, "t-1", b'f'));
	eventually(|| daemon.shown("t-1").trouble.is_some());
	let trouble = daemon.shown("t-1").trouble.unwrap();
	assert!(trouble.contains("did not fork itself") && trouble.contains("make a new one"), "{trouble}");
	restart(&mut daemon, Signal::KILL);
	assert_eq!(daemon.shown("t-1").trouble, Some(trouble));
	ends_with(&daemon, "t-1", 3);
}

/// With each fork of a fork names grew, until there could be none.
#[test]
fn forks_of_forks_are_called_after_their_template_however_deep() {
	let Some(daemon) = Daemon::with_idler() else { return };
	let mut last = daemon.clone_of("t").name;
	for number in 2..=30 {
		let child = daemon.fork(&last, &now(1)).clones.remove(0).name;
		assert_eq!(child, format!("t-{number}"));
		daemon.remove_clone(&last);
		last = child;
	}
	let warm = daemon.fork(&last, &json!({ "now": true, "template": "warm" }));
	assert_eq!(warm.clones[0].name, "warm-31");
}

#[test]
fn names_and_numbers_that_can_not_be_had_are_told_before_a_clone_is_forked() {
	let Some(daemon) = Daemon::start() else { return };
	let long = "x".repeat(64);
	daemon.limited("t", idler(), 3);
	daemon.template(&long, idler());
	daemon.refuses_clones(&long, &json!({ "wait": false }), "--name");
	daemon.clone_of("t");
	daemon.refuses_fork("t-1", &json!({ "now": true, "name": "t-1" }), "a clone t-1 already");
	daemon.refuses_fork("t-1", &json!({ "now": true, "template": "u", "count": 0, "name": "n" }), "name for no clone");
	daemon.refuses_fork("t-1", &json!({ "now": true, "template": long }), "already");
	daemon.refuses_fork("t-1", &json!({ "now": true, "template": "y".repeat(64) }), "--name");
	daemon.refuses_fork("t-1", &json!({ "now": true, "count": 3 }), "has had 1 of the 3 clones");
	// None of that has cost a number, nor a template.
	let names: Vec<_> = daemon.fork("t-1", &now(2)).clones.into_iter().map(|clone| clone.name).collect();
	assert_eq!(names, ["t-2", "t-3"]);
	assert_eq!(daemon.templates().len(), 2);
}

#[test]
fn a_shell_that_dies_while_it_is_forked_costs_its_own_clone_only() {
	let Some(daemon) = counted() else { return };
	let kept = daemon.fork("t-1", &now(1)).clones.remove(0);
	let victim = daemon.shown("t-1");
	std::thread::scope(|scope| {
		let forks = scope.spawn(|| {
			let mut made = 0;
			loop {
				let (status, body) = daemon.ask("POST", "/v1/clones/t-1/fork", &now(1));
				if status != 200 {
					let error: api::Error = serde_json::from_str(&body).unwrap();
					assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error}");
					return made;
				}
				made += 1;
			}
		});
		std::thread::sleep(std::time::Duration::from_millis(300));
		kill(victim.pid);
		forks.join().unwrap();
	});
	eventually(|| !exists(victim.pid));
	finish(&daemon, &kept.name);
}

#[test]
fn a_hundred_forks_in_a_row_leave_nothing() {
	let Some(daemon) = Daemon::with_idler() else { return };
	daemon.clone_of("t");
	daemon.fork("t-1", &now(1));
	daemon.settle_with(2);
	// A request that is over may still be among them.
	let before = daemon.descriptors();
	let count = if std::env::var_os("FLASHFORK_TEST_ALL").is_some() { 1000 } else { 100 };
	for _ in 0..count {
		let child = daemon.fork("t-1", &now(1)).clones.remove(0);
		daemon.remove_clone(&child.name);
	}
	daemon.settle_with(2);
	eventually(|| daemon.descriptors() <= before);
}

/// All that was asked for, or none of it: some clones are made, and the shells for others don't answer.
#[test]
fn a_fork_that_makes_too_few_clones_leaves_no_template() {
	let Some(_) = common::kvm() else { return };
	let daemon = Daemon::start().unwrap();
	daemon.template("t", idler());
	daemon.clone_of("t");
	daemon.settle_with(1);
	let request = json!({ "now": true, "count": 40, "template": "warm" });
	let (status, body) = std::thread::scope(|scope| {
		let asked = scope.spawn(|| daemon.ask("POST", "/v1/clones/t-1/fork", &request));
		let clones = || daemon.all_clones();
		eventually(|| clones().len() >= 4);
		while !asked.is_finished() {
			let made = clones();
			let waiting = daemon.shells().into_iter().filter(|pid| made.iter().all(|clone| clone.pid != *pid));
			for pid in waiting.filter_map(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
				// It may have ended.
				let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
			}
		}
		asked.join().unwrap()
	});
	assert_eq!(status, 500, "{body}");
	let templates = daemon.templates();
	assert_eq!(templates.iter().map(|template| &*template.name).collect::<Vec<_>>(), ["t"]);
	eventually(|| daemon.all_clones().len() == 1);
}

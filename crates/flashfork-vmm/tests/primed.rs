//! The daemon's shells primed for a template: for whom, what they cost when they fail, and when they go.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, eventually, idler, kill, teller, tiny, told};
use common::{NONCE, guest_code};
use flashfork_proto::{
	api::{self, Clone, CloneState, Template},
	signal::Forked,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path, process::Command, thread};

/// Whether its shell was primed: then its memory was mapped before.
fn was_primed(clone: &Clone) -> bool {
	clone.claim.map == 0
}

/// Makes one clone, and waits until the pool is as full as it was.
fn one(daemon: &Daemon, template: &str) -> Clone {
	let before = daemon.stats().clones;
	let clone = daemon.clone_of(template);
	daemon.settle_with(before as usize + 1);
	clone
}

#[test]
fn the_template_that_was_asked_for_last_has_a_shell_and_those_in_turn_don_t_take_it_from_each_other() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("a", idler());
	daemon.template("b", idler());
	daemon.settle();
	let misses = daemon.stats().pools[0].misses;
	let primed =
		|names: &str| names.chars().map(|name| was_primed(&one(&daemon, &name.to_string()))).collect::<Vec<_>>();
	assert_eq!(primed("aaa"), [false, true, true]);
	// Nobody's shell is lost when templates are asked for in turn.
	assert_eq!(primed("baba"), [false, true, false, true]);
	assert_eq!(primed("bbb"), [false, false, true]);
	assert_eq!(primed("abaa"), [false, true, false, false]);
	assert_eq!(daemon.stats().pools[0].misses, misses, "one of them had to wait");
}

#[test]
fn a_template_that_a_fork_made_has_a_shell_before_anybody_asks_for_its_clones() {
	let Some(daemon) = Daemon::with_idler() else { return };
	one(&daemon, "t");
	// It has the shell of `t`, which is asked for no more.
	let request = json!({ "count": 0, "now": true, "template": "warm" });
	daemon.fork("t-1", &request);
	eventually(|| daemon.stats().pools[0].primed == 1);
	assert!(was_primed(&one(&daemon, "warm")) && was_primed(&one(&daemon, "warm")));
}

#[test]
fn siblings_from_primed_shells_share_neither_entropy_nor_generation() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("t", teller());
	let clones: Vec<_> = (0..4).map(|_| one(&daemon, "t")).collect();
	assert_eq!(clones.iter().map(was_primed).collect::<Vec<_>>(), [false, true, true, true]);
	let told: Vec<_> = clones.iter().map(|clone| Forked::decode(&told(&daemon, &clone.name)[..136]).unwrap()).collect();
	for (index, (clone, told)) in (0..).zip(clones.iter().zip(&told)) {
		assert_eq!((told.identity.name.as_str(), told.identity.index), (clone.name.as_str(), index));
		assert_eq!(flashfork_proto::generation_hex(&told.identity.generation), clone.generation);
	}
	let different = |of: fn(&Forked) -> Vec<u8>| told.iter().map(of).collect::<BTreeSet<_>>().len();
	assert_eq!(different(|told| told.entropy.to_vec()), 4);
	assert_eq!(different(|told| told.identity.generation.to_vec()), 4);
}

/// Whether a thread of it is left. Of a process that has ended the daemon may not know it yet.
fn runs(pid: u32) -> bool {
	let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
	let states = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
	states
		.filter_map(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next()))
		.any(|state| state != Some('Z'))
}

#[test]
fn a_shell_that_is_killed_while_it_waits_primed_costs_nobody_a_clone() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("t", guest_code());
	daemon.clones("t", &json!({}));
	let kill_all = || {
		daemon.settle();
		let shells = daemon.shells();
		shells.iter().copied().for_each(kill);
		eventually(|| !shells.iter().any(|pid| runs(*pid)));
		shells
	};
	for round in 0..3 {
		kill_all();
		let clones = daemon.clones("t", &json!({ "count": 2 }));
		let expected = [2, 3].map(|n| format!("t-{}", round * 2 + n));
		assert_eq!(clones.iter().map(|clone| clone.name.clone()).collect::<Vec<_>>(), expected);
		assert!(clones.iter().all(|clone| clone.ended.as_ref().unwrap().contains("status 0")), "{clones:?}");
	}
	// Nor is it missed for long when nobody asks.
	let killed = kill_all();
	eventually(|| !daemon.shells().iter().any(|pid| killed.contains(pid)));
	daemon.settle();
	assert!(was_primed(&daemon.clones("t", &json!({})).remove(0)));
}

#[test]
fn a_template_s_memory_goes_with_it_and_no_shell_waits_for_one_that_is_used_up() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("stays", idler());
	daemon.template("goes", guest_code());
	daemon.clones("goes", &json!({}));
	daemon.settle();
	assert_eq!(daemon.stats().pools[0].primed, 1);
	daemon.remove_template("goes");
	let only_ready = || daemon.shells().len() == 2 && daemon.stats().pools.iter().all(|pool| pool.primed == 0);
	eventually(only_ready);
	daemon.limited("limited", idler(), 2);
	one(&daemon, "limited");
	daemon.fork("limited-1", &json!({ "now": true }));
	daemon.remove_clone("limited-1");
	daemon.remove_clone("limited-2");
	eventually(only_ready);
	daemon.refuses_clones("limited", &json!({}), "make a new one");
	eventually(only_ready);
	// And the last template of a shape takes all shells with it.
	daemon.clones("stays", &json!({ "wait": false, "name": "c" }));
	daemon.settle_with(1);
	daemon.remove_clone("c");
	for name in ["stays", "limited"] {
		eventually(|| daemon.ask("DELETE", &format!("/v1/templates/{name}"), &Value::Null).0 == 204);
	}
	eventually(|| daemon.shells().is_empty() && daemon.stats().pools.is_empty());
}

#[test]
fn who_keeps_no_shells_has_none_primed() {
	let none = |command: &mut Command, dir: &Path| {
		*command = Command::new(env!("CARGO_BIN_EXE_flashfork-vmd"));
		command.arg("--socket").arg(dir.join("vmd.sock")).args(["--pool", "0"]);
	};
	let Some(daemon) = Daemon::start_with(none) else { return };
	daemon.template("t", guest_code());
	for _ in 0..3 {
		assert!(!was_primed(&daemon.clones("t", &json!({})).remove(0)));
	}
	eventually(|| daemon.shells().is_empty());
}

#[test]
fn a_template_with_a_disk_is_primed_too() {
	let Some(daemon) = Daemon::start() else { return };
	let image = daemon.dir.path().join("image");
	std::fs::write(&image, vec![7; 1 << 20]).unwrap();
	let mut request = tiny("t", guest_code());
	request["shape"]["disk"] = json!(true);
	request["disk"] = json!(image);
	let _: Template = daemon.post("/v1/templates", &request);
	daemon.settle();
	for primed in [false, true, true] {
		let clone = daemon.clones("t", &json!({})).remove(0);
		assert_eq!((was_primed(&clone), clone.state), (primed, CloneState::Ended));
		daemon.settle();
	}
}

#[test]
fn claims_of_two_templates_by_many_at_once_are_all_served_and_none_is_another_s() {
	let Some(daemon) = Daemon::start() else { return };
	let other = 0x1234_u16;
	let changed = {
		let mut code = guest_code();
		let at = code.windows(2).position(|pair| pair == NONCE.to_le_bytes()).unwrap();
		code[at..at + 2].copy_from_slice(&other.to_le_bytes());
		code
	};
	daemon.template("a", guest_code());
	daemon.template("b", changed);
	let clones: Vec<Clone> = thread::scope(|scope| {
		let ask = |number: usize| {
			let daemon = &daemon;
			move || {
				let template = ["a", "b"][number / 2 % 2];
				(0..6).flat_map(|n| daemon.clones(template, &json!({ "count": 1 + n % 2 }))).collect::<Vec<_>>()
			}
		};
		let threads: Vec<_> = (0..8).map(|number| scope.spawn(ask(number))).collect();
		threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
	});
	assert_eq!(clones.len(), 8 * 9);
	assert_eq!(clones.iter().map(|clone| &clone.generation).collect::<BTreeSet<_>>().len(), clones.len());
	for clone in &clones {
		let (template, number) = clone.name.split_once('-').unwrap();
		let nonce = if template == "a" { NONCE } else { other };
		let index = number.parse::<u32>().unwrap() - 1;
		let result = [&nonce.to_le_bytes()[..], &index.to_le_bytes()].concat();
		let result = String::from_utf8_lossy(&result);
		let shown =
			result.trim().chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() });
		let expected = format!("ended with status 0: {}", shown.collect::<String>());
		assert_eq!(clone.ended.as_deref(), Some(expected.as_str()), "{clone:?}");
	}
	daemon.settle();
}

/// Speaks a shell's protocol, but is none: answers a claim as if the guest ran, and what is put in here when it is told
/// to prime (`PRIME`) and to go (`GO`).
const FAKE: &str = r#"#!/usr/bin/python3
import socket, sys, time
READY, PRIMED, CLAIMED, FAILED = b"\x00", b"\x0d", b"\x05" + b"\0" * 6, b"\x0b\x03why"
s = socket.socket(fileno=0)
s.send(s.recv(100))
s.recv(1 << 20)
s.send(READY)
order = s.recv(1 << 20)[0]
if order == 14:
    PRIME
    if s.recv(1 << 20)[0] == 16:
        GO
else:
    # With one nanosecond for the memory.
    s.send(b"\x05\0\1\0\0\0\0")
time.sleep(600)
"#;

#[test]
fn what_a_primed_shell_answers_harms_nobody() {
	// What it does; whether it passes for primed; whether its own answer passes for a claim.
	let cases = [
		("s.send(b'\\xff' * 10)", "pass", false, false),
		("s.send(CLAIMED)", "pass", false, false),
		("s.send(FAILED)", "pass", false, false),
		("sys.exit(1)", "pass", false, false),
		("s.send(PRIMED)", "sys.exit(1)", true, false),
		("s.send(PRIMED)", "s.send(b'\\xff' * 10)", true, false),
		("s.send(PRIMED)", "s.send(FAILED)", true, false),
		("s.send(PRIMED)", "s.send(PRIMED); s.send(FAILED)", true, false),
		("s.send(PRIMED)", "s.send(CLAIMED)", true, true),
		// Nothing, until the daemon's patience is over.
		("s.send(PRIMED)", "pass", true, false),
	];
	for (prime, go, primes, claims) in cases {
		let program = FAKE.replace("PRIME\n", &format!("{prime}\n")).replace("GO\n", &format!("{go}\n"));
		let Some(daemon) = Daemon::with_fake_shell(&program) else { return };
		let first = daemon.clone_of("t");
		assert!(!was_primed(&first), "{prime}");
		let place =
			|| daemon.stats().pools.iter().map(|pool| (pool.primed, pool.ready, pool.preparing)).collect::<Vec<_>>();
		eventually(|| place() == [(u32::from(primes), 2, 0)]);
		if primes && !claims {
			// Nobody knows whether its guest has run: its number is used, and nobody else's.
			let (status, body) = daemon.ask("POST", "/v1/templates/t/clones", &json!({ "wait": false }));
			let error: api::Error = serde_json::from_str(&body).unwrap();
			assert!(status >= 400 && !error.message.contains('\n'), "{prime} {go}: {error}");
			assert_eq!(daemon.stats().clones_made, 1, "{prime} {go}");
			assert_eq!(daemon.shown_template("t").clones_made, 2);
		} else {
			let second = daemon.clone_of("t");
			assert_eq!((second.name.as_str(), was_primed(&second)), ("t-2", claims), "{prime} {go}");
			assert_eq!(daemon.stats().clones_made, 2);
		}
	}
}

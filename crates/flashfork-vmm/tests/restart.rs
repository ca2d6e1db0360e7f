//! Templates and clones that outlive their daemon, however it ends: the real programs, seen through the socket.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, again, answers, attempt, command, end, eventually, exists, idler, is_store, kill, restart, tiny};
use flashfork_proto::api::{Clone, CloneState, Forked, Template};
use rustix::{
	net::{
		AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, send, socket_with, sockopt::socket_peercred,
	},
	process::{Pid, Resource, Rlimit, Signal, geteuid, kill_process, prlimit},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
	collections::BTreeMap,
	fs,
	io::{BufRead, BufReader, Read},
	iter::repeat_with,
	os::{
		fd::OwnedFd,
		unix::{
			fs::{MetadataExt, PermissionsExt},
			process::CommandExt,
		},
	},
	path::{Path, PathBuf},
	process::{Child, Command, Stdio},
	time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How a conversation with the store begins.
const HELLO: &[u8] = b"FLFKSTO\n\x02";

fn remove_all(daemon: &Daemon) {
	daemon.all_clones().iter().for_each(|clone| daemon.remove_clone(&clone.name));
	daemon.templates().iter().for_each(|template| daemon.remove_template(&template.name));
}

fn place(daemon: &Daemon) -> PathBuf {
	daemon.socket.with_file_name("vmd.sock.store")
}

fn connect(daemon: &Daemon) -> OwnedFd {
	let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
	rustix::net::connect(&stream, &SocketAddrUnix::new(place(daemon)).unwrap()).unwrap();
	stream
}

/// Process id of its store, which has its socket from the daemon.
fn store_of(daemon: &Daemon) -> u32 {
	let pid = || socket_peercred(connect(daemon)).unwrap().pid.as_raw_pid().cast_unsigned();
	eventually(|| is_store(pid()));
	pid()
}

#[test]
fn clones_and_templates_live_on_over_their_daemon_s_end() {
	let Some(mut daemon) = Daemon::start() else { return };
	let made = daemon.template("t", idler()).made_ns;
	let before = daemon.clones("t", &json!({ "count": 2, "wait": false, "job": "it" }));
	assert!(before.iter().all(|clone| clone.made_ns > made), "{made}: {before:?}");
	for signal in [Signal::TERM, Signal::KILL, Signal::KILL] {
		restart(&mut daemon, signal);
		let after = daemon.all_clones();
		assert_eq!(after.len(), 2);
		for (before, after) in before.iter().zip(&after) {
			assert_eq!((&before.name, before.pid, &before.generation), (&after.name, after.pid, &after.generation));
			assert_eq!((before.cid, before.claim, before.state), (after.cid, after.claim, after.state));
			assert_eq!(before.made_ns, after.made_ns);
			assert!(exists(after.pid) && after.memory_bytes.is_some(), "{after:?}");
		}
		let template = daemon.templates().remove(0);
		assert_eq!((template.clones_made, template.clones_alive, template.shared_bytes), (2, 2, 0));
		assert_eq!(template.made_ns, made);
	}
	// All can be done that could be before.
	assert_ne!(daemon.roll_back("t-1").generation, before[0].generation);
	let forked = daemon.fork("t-2", &json!({ "count": 1, "now": true, "wait": false }));
	assert_eq!(forked.clones[0].forked_from.as_deref(), Some("t-2"));
	assert!(forked.clones[0].made_ns > before[1].made_ns);
	let new = daemon.clones("t", &json!({ "wait": false }));
	assert_eq!(new[0].name, "t-5", "no number is given twice");
	assert!(before.iter().all(|clone| clone.cid != new[0].cid));
	restart(&mut daemon, Signal::KILL);
	daemon.refused("DELETE", "/v1/templates/t", &Value::Null, "3 clones");
	assert!(["t-1", "t-2", "t-4", "t-5"].iter().all(|name| exists(daemon.shown(name).pid)));
	remove_all(&daemon);
	restart(&mut daemon, Signal::KILL);
	assert_eq!((daemon.all_clones().len(), daemon.templates().len()), (0, 0));
	eventually(|| before.iter().chain(&new).all(|clone| !exists(clone.pid)));
}

#[test]
fn a_daemon_that_may_open_too_few_files_ends_nothing() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made = daemon.clones_of("t", 10);
	end(&mut daemon, Signal::KILL);
	let mut refused = 0;
	for limit in (20..).step_by(3) {
		let vmd = command(&daemon.socket);
		let mut less = Command::new("sh");
		less.arg("-c")
			.arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\""))
			.arg(vmd.get_program())
			.args(vmd.get_args());
		daemon.child = less.stderr(Stdio::piped()).spawn().unwrap();
		let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
		eventually(|| attempt(&daemon.socket, "GET", "/v1", &Value::Null).is_some() || ended(&mut daemon.child));
		assert!(made.iter().all(|clone| exists(clone.pid)), "{limit}");
		if !ended(&mut daemon.child) {
			break;
		}
		let mut said = String::new();
		daemon.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
		refused += usize::from(said.contains("templates and clones go on") && said.contains("raise"));
	}
	assert!(made.iter().all(|clone| daemon.shown(&clone.name).ended.is_none()));
	assert!(refused > 1);
}

#[test]
fn a_clone_that_ended_while_there_was_no_daemon_is_shown_as_ended() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made = daemon.clones_of("t", 2);
	end(&mut daemon, Signal::KILL);
	kill(made[0].pid);
	again(&mut daemon);
	eventually(|| daemon.shown("t-1").ended.is_some_and(|how| how.contains("its shell ended")));
	// It was seen to end, and the next daemon knows it, too.
	restart(&mut daemon, Signal::KILL);
	assert_eq!(daemon.shown("t-1").state, CloneState::Ended);
	assert_eq!(daemon.shown("t-2").state, CloneState::Starting);
	remove_all(&daemon);
	let store = store_of(&daemon);
	end(&mut daemon, Signal::TERM);
	eventually(|| !exists(store));
	assert!(!place(&daemon).exists(), "nothing is held");
}

#[test]
fn what_waits_ends_with_its_daemon_and_clones_end_with_daemon_and_store() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made: Vec<_> = daemon.clones_of("t", 2).iter().map(|clone| clone.pid).collect();
	daemon.settle_with(2);
	let all = daemon.shells();
	// None can do anything about it: as if it had been taken over.
	all.iter().for_each(|pid| kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::STOP).unwrap());
	let store = store_of(&daemon);
	end(&mut daemon, Signal::KILL);
	eventually(|| all.iter().all(|pid| exists(*pid) == made.contains(pid)));
	kill(store);
	eventually(|| !made.iter().any(|pid| exists(*pid)));
	again(&mut daemon);
	assert_eq!(daemon.templates(), []);
}

#[test]
fn a_store_that_ends_is_replaced_by_one_that_has_everything() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made = daemon.clones_of("t", 2);
	let stamp = || fs::metadata(place(&daemon)).ok().map(|place| (place.ctime(), place.ctime_nsec()));
	// One that doesn't read is as good as none.
	for signal in [Signal::KILL, Signal::STOP] {
		let (store, before) = (store_of(&daemon), stamp());
		kill_process(Pid::from_raw(store.cast_signed()).unwrap(), signal).unwrap();
		eventually(|| {
			// Until there is no more room for it.
			daemon.roll_back("t-2");
			![before, None].contains(&stamp())
		});
		eventually(|| !exists(store));
		// It has everything before anything else is put.
		daemon.roll_back("t-2");
	}
	restart(&mut daemon, Signal::KILL);
	assert!(made.iter().all(|clone| daemon.shown(&clone.name).pid == clone.pid && exists(clone.pid)));
	daemon.clone_of("t");
}

#[test]
fn what_the_store_has_no_room_for_is_refused_before_it_is_acknowledged() {
	let Some(mut daemon) = Daemon::start() else { return };
	daemon.template("t0", idler());
	daemon.settle();
	let store = store_of(&daemon);
	// An earlier daemon may have been given less, and so it.
	let least = (0..).find(|number| !Path::new(&format!("/proc/{store}/fd/{number}")).exists());
	let pid = Pid::from_raw(store.cast_signed());
	prlimit(pid, Resource::Nofile, Rlimit { current: least, maximum: least }).unwrap();
	let make = |number| daemon.ask("POST", "/v1/templates", &tiny(&format!("t{number}"), idler()));
	let (made, (_, why)) = (1..20).map(|n| (n, make(n))).find(|(_, (status, _))| *status != 200).expect("no room");
	assert!(why.contains("may open no more files"), "{why}");
	restart(&mut daemon, Signal::KILL);
	assert_eq!((daemon.templates().len(), store_of(&daemon)), (made, store));
}

/// The end of a session's leader is a signal for stopped processes in it.
#[test]
fn a_stopped_store_outlives_its_daemon_and_not_an_end_for_good() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made = &daemon.clone_of("t");
	let store = store_of(&daemon);
	let signal = |signal| kill_process(Pid::from_raw(store.cast_signed()).unwrap(), signal).unwrap();
	signal(Signal::STOP);
	end(&mut daemon, Signal::KILL);
	signal(Signal::CONT);
	again(&mut daemon);
	assert!(daemon.shown(&made.name).pid == made.pid && exists(made.pid));
	signal(Signal::STOP);
	end(&mut daemon, Signal::INT);
	eventually(|| !exists(store) && !exists(made.pid));
}

#[test]
fn strangers_and_nonsense_get_nothing_of_a_store_and_do_it_no_harm() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let clone = daemon.clone_of("t");
	let store = store_of(&daemon);
	end(&mut daemon, Signal::KILL);
	let mut random = generator(7);
	// It may not be read at all. A daemon of another version is told this one's.
	let read = |peer: &OwnedFd| rustix::io::read(peer, &mut [0; 64]).unwrap_or(0);
	let begins: [(&[u8], usize); 3] = [(b"", 0), (b"FLFKSTO\n\x7f", 9), (HELLO, 9)];
	for ((begin, said), length) in begins.into_iter().flat_map(|begin| [0, 1, 100, 100_000].map(|n| (begin, n))) {
		let peer = connect(&daemon);
		let nonsense: Vec<u8> = repeat_with(|| 5 + random(251) as u8).take(length).collect();
		if said > 0 {
			send(&peer, begin, SendFlags::NOSIGNAL).unwrap();
			assert_eq!(read(&peer), said);
		}
		if length > 0 {
			let _ = send(&peer, &nonsense, SendFlags::NOSIGNAL);
		}
		let _ = rustix::net::shutdown(&peer, rustix::net::Shutdown::Write);
		assert_eq!(read(&peer), 0, "{begin:?} {length}");
	}
	if geteuid().is_root() {
		// Another user, for whom the place is open.
		for path in [daemon.dir.path(), &place(&daemon)] {
			fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
		}
		let asks = "import socket as s, sys; c = s.socket(s.AF_UNIX, s.SOCK_SEQPACKET); c.connect(sys.argv[1])\n\
					try: c.send(b'FLFKSTO\\n\\x02'); print(len(c.recv(64)))\nexcept OSError: print(0)";
		let mut stranger = Command::new("python3");
		let said = stranger.arg("-c").arg(asks).arg(place(&daemon)).uid(65534).output().unwrap();
		assert_eq!(said.stdout, b"0\n", "{}", String::from_utf8_lossy(&said.stderr));
	}
	again(&mut daemon);
	assert_eq!((store_of(&daemon), daemon.shown("t-1").pid), (store, clone.pid));
}

#[test]
fn what_can_not_be_read_is_ended_and_told() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let made = daemon.clones_of("t", 2);
	end(&mut daemon, Signal::KILL);
	// This test is a daemon that writes in another way: of one clone.
	let peer = connect(&daemon);
	let send = |bytes: &[u8]| send(&peer, bytes, SendFlags::NOSIGNAL).unwrap();
	let mut packet = [0; 200_000];
	let mut receive = || rustix::io::read(&peer, &mut packet).map(|length| packet[..length].to_vec()).unwrap();
	send(HELLO);
	receive();
	send(&[4]);
	// Its number, and that it is a clone, are in the first bytes.
	let held: Vec<_> = repeat_with(receive).take_while(|held| held[0] == 0).collect();
	send(&[0, held.iter().find(|held| held[2] == 1).unwrap()[1], 1, 3, b'n', b'e', b'w']);
	drop(peer);
	daemon.child = command(&daemon.socket).stderr(Stdio::piped()).spawn().unwrap();
	let mut said = String::new();
	BufReader::new(daemon.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
	assert!(said.contains("a clone of an earlier daemon can't be taken over and ends"), "{said}");
	answers(&daemon);
	assert_eq!(daemon.all_clones().len(), 1);
	eventually(|| made.iter().filter(|clone| exists(clone.pid)).count() == 1);
}

#[derive(Default)]
struct Told {
	templates: Vec<String>,
	clones: BTreeMap<String, u32>,
}

impl Told {
	/// Asks for one thing after the other until there is no answer.
	fn ask(&mut self, socket: &Path, random: &mut impl FnMut(usize) -> usize) -> Option<()> {
		loop {
			let template = self.templates.get(random(self.templates.len().max(1))).cloned();
			let clone = self.clones.keys().nth(random(self.clones.len().max(1))).cloned();
			let made = match (random(6), template, clone) {
				(1 | 2, Some(name), _) if self.clones.len() < 12 => {
					let body = json!({ "count": 1 + random(3), "wait": false });
					asked::<Vec<Clone>>(socket, "POST", &format!("/v1/templates/{name}/clones"), &body)?
				}
				(3, _, Some(name)) if self.clones.len() < 12 => {
					let body = json!({ "count": 1, "now": true, "wait": false });
					asked::<Forked>(socket, "POST", &format!("/v1/clones/{name}/fork"), &body)?.clones
				}
				(4, _, Some(name)) => {
					asked::<Clone>(socket, "POST", &format!("/v1/clones/{name}/rollback"), &Value::Null)?;
					Vec::new()
				}
				(5, _, Some(name)) => {
					self.clones.remove(&name);
					assert_eq!(attempt(socket, "DELETE", &format!("/v1/clones/{name}"), &Value::Null)?.0, 204);
					Vec::new()
				}
				_ if self.templates.len() < 4 => {
					let name = format!("t{}", random(1 << 30));
					asked::<Template>(socket, "POST", "/v1/templates", &tiny(&name, idler()))?;
					self.templates.push(name);
					Vec::new()
				}
				_ => Vec::new(),
			};
			self.clones.extend(made.into_iter().map(|clone| (clone.name, clone.pid)));
		}
	}
}

fn asked<T: DeserializeOwned>(socket: &Path, method: &str, path: &str, body: &Value) -> Option<T> {
	let (status, answer) = attempt(socket, method, path, body)?;
	assert_eq!(status, 200, "{answer}");
	Some(serde_json::from_str(&answer).unwrap())
}

fn descriptors(pid: u32) -> Vec<PathBuf> {
	let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
	all.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect()
}

/// The shells that the daemons of a store have started, by the pipe that all have in common.
fn on_leash(store: u32) -> usize {
	let own = descriptors(store);
	let is_shell = |pid: &u32| {
		let leash = fs::read_link(format!("/proc/{pid}/fd/2")).unwrap_or_default();
		let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
		comm == "flashfork-shell\n" && exists(*pid) && leash.to_string_lossy().contains("pipe") && own.contains(&leash)
	};
	let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
	all.filter(is_shell).count()
}

/// Numbers below another (xorshift).
fn generator(mut seed: u64) -> impl FnMut(usize) -> usize {
	move |below| {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		(seed % below as u64) as usize
	}
}

/// 15 times; 300 with `FLASHFORK_TEST_ALL=1`.
#[test]
fn a_daemon_that_is_killed_at_any_moment_has_lost_nothing_and_left_nothing_unknown() {
	let Some(mut daemon) = Daemon::start() else { return };
	let all = std::env::var_os("FLASHFORK_TEST_ALL").is_some_and(|all| all == "1");
	let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
	println!("seed {seed}");
	let (mut moments, mut choices) = (generator(seed), generator(seed.rotate_left(32) | 1));
	let mut told = Told::default();
	daemon.template("first", idler());
	let (store, socket) = (store_of(&daemon), daemon.socket.clone());
	for _ in 0..if all { 300 } else { 15 } {
		std::thread::scope(|scope| {
			let asks = scope.spawn(|| told.ask(&socket, &mut choices));
			std::thread::sleep(Duration::from_micros(moments(400_000) as u64));
			end(&mut daemon, Signal::KILL);
			assert_eq!(asks.join().unwrap(), None);
		});
		again(&mut daemon);
		let (clones, templates) = (daemon.all_clones(), daemon.templates());
		for (name, pid) in &told.clones {
			let found = clones.iter().find(|clone| clone.name == *name);
			assert!(found.is_some_and(|found| found.pid == *pid && found.ended.is_none()), "{name} {pid}: {found:?}");
		}
		assert!(told.templates.iter().all(|name| templates.iter().any(|template| template.name == *name)));
		// What was not acknowledged may be there, and then it can be removed.
		let others = clones.iter().filter(|clone| !told.clones.contains_key(&clone.name));
		others.for_each(|clone| daemon.remove_clone(&clone.name));
		assert_eq!(store_of(&daemon), store);
		// Whoever isn't root sees no shell's descriptors.
		eventually(|| {
			let waiting: u32 = daemon.stats().pools.iter().map(|pool| pool.ready + pool.primed).sum();
			!geteuid().is_root() || on_leash(store) == waiting as usize + told.clones.len()
		});
	}
	remove_all(&daemon);
	let is_held = |file: &PathBuf| ["memfd:", "pidfd"].iter().any(|kind| file.to_string_lossy().contains(kind));
	eventually(|| on_leash(store) == 0 && !descriptors(store).iter().any(is_held));
}

//! The daemon, its shells and tiny guests: the real programs, seen through the socket.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, PATIENCE, command, eventually, exists, idler, kill, send, tiny, upgraded};
use common::{FORK, HALTS, SHOWS, WRITES, guest_code, kvm};
use flashfork_proto::api::{self, Clone, CloneState, Template};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::{
	io::{Read, Write},
	os::{
		fd::OwnedFd,
		unix::{
			net::{UnixDatagram, UnixListener, UnixStream},
			process::CommandExt,
		},
	},
	path::Path,
	process::Command,
	sync::atomic::{AtomicBool, Ordering},
	time::Duration,
};

#[test]
fn templates_and_clones_come_and_go() {
	let Some(daemon) = Daemon::start() else { return };
	let template = daemon.template("t", guest_code());
	assert_eq!((template.clones_made, template.name.as_str()), (0, "t"));
	// Its work is done before it is ever ready: that is an end as good as any.
	let clones = daemon.clones("t", &json!({ "count": 3 }));
	assert_eq!(clones.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["t-1", "t-2", "t-3"]);
	assert!(clones.iter().all(|c| c.state == CloneState::Ended && c.first_exit_ns > 0), "{clones:?}");
	eventually(|| daemon.shown_template("t").clones_alive == 0);
	daemon.remove_clone("t-1");
	daemon.remove_template("t");
	daemon.refused("GET", "/v1/templates/t", &Value::Null, "no template t");
	daemon.refuses_template(&tiny("load", idler()), "give another");
}

/// As `systemd.socket(5)` says: the socket is descriptor 3, and stays when the daemon ends.
#[test]
fn a_socket_that_systemd_has_made_is_served_and_left_there() {
	if kvm().is_none() {
		return;
	}
	let place = tempfile::tempdir().unwrap();
	let socket = place.path().join("vmd.sock");
	let listener = UnixListener::bind(&socket).unwrap();
	let notified = UnixDatagram::bind(place.path().join("notify")).unwrap();
	notified.set_read_timeout(Some(PATIENCE)).unwrap();
	let start = || {
		let mut shell = Command::new("sh");
		shell.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" 3<&0", env!("CARGO_BIN_EXE_flashfork-vmd")]);
		shell.env("NOTIFY_SOCKET", place.path().join("notify")).stdin(OwnedFd::from(listener.try_clone().unwrap()));
		shell.spawn().unwrap()
	};
	for _ in 0..2 {
		// Who comes before it listens waits.
		let early = UnixStream::connect(&socket).unwrap();
		let child = start();
		let mut said = [0; 64];
		let length = notified.recv(&mut said).unwrap();
		assert_eq!(std::str::from_utf8(&said[..length]).unwrap().trim_end(), "READY=1");
		let mut daemon = Daemon { child, socket: socket.clone(), dir: tempfile::tempdir().unwrap() };
		assert_eq!(daemon.get::<api::Daemon>("/v1").pid, daemon.child.id());
		let late = UnixStream::connect(&socket).unwrap();
		let peer = rustix::net::sockopt::socket_peercred(&late).unwrap().pid.as_raw_nonzero().get();
		assert_eq!(peer.cast_unsigned(), daemon.child.id(), "who is ended by `vm stop`");
		// Nor does another daemon take it.
		let other = command(&socket).output().unwrap();
		let why = String::from_utf8_lossy(&other.stderr);
		assert!(!other.status.success() && why.contains("listens at") && why.contains("already"), "{why}");
		drop((early, late));
		rustix::process::kill_process(Pid::from_child(&daemon.child), Signal::TERM).unwrap();
		assert!(daemon.child.wait().unwrap().success());
		assert!(socket.exists());
	}
}

#[test]
fn a_killed_shell_harms_no_other() {
	let Some(daemon) = Daemon::with_idler() else { return };
	let clones = daemon.clones_of("t", 2);
	// Shells that wait are replaced.
	daemon.settle_with(2);
	let waiting: Vec<_> = daemon.shells().into_iter().filter(|pid| clones.iter().all(|c| c.pid != *pid)).collect();
	kill(waiting[0]);
	kill(clones[0].pid);
	let state = |name: &str| daemon.shown(name).state;
	eventually(|| state("t-1") == CloneState::Ended);
	let ended = daemon.shown("t-1");
	assert!(ended.ended.as_ref().unwrap().contains("SIGKILL") && ended.memory_bytes.is_none(), "{ended:?}");
	assert_eq!(state("t-2"), CloneState::Starting);
	let rolled = daemon.roll_back("t-2");
	assert_ne!(rolled.generation, clones[1].generation);
	eventually(|| !exists(waiting[0]));
	daemon.settle_with(1);
	assert_eq!(daemon.clones_of("t", 3).len(), 3);
}

#[test]
fn a_shell_that_ends_before_it_reads_its_claim_costs_no_clone() {
	let Some(daemon) = Daemon::with_idler() else { return };
	let mut clones = Vec::new();
	// The first time none is primed, the second time one is.
	for ready in [1, 2] {
		daemon.settle_with(clones.len());
		let waiting: Vec<_> = daemon.shells().into_iter().filter(|pid| !clones.contains(pid)).collect();
		waiting.iter().for_each(|pid| send(*pid, Signal::STOP));
		let stands = |pid: &u32| {
			let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
			let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap();
			threads.all(|task| status(task.unwrap()).contains("State:\tT"))
		};
		eventually(|| waiting.iter().all(stands));
		clones.push(std::thread::scope(|scope| {
			let clone = scope.spawn(|| daemon.clone_of("t"));
			eventually(|| {
				let pool = &daemon.stats().pools[0];
				(pool.ready, pool.primed) == (ready, 0)
			});
			waiting.iter().for_each(|pid| kill(*pid));
			clone.join().unwrap().pid
		}));
		assert!(exists(clones[clones.len() - 1]) && !waiting.contains(&clones[clones.len() - 1]));
	}
}

#[test]
fn a_number_whose_name_somebody_has_chosen_is_left_out() {
	let Some(daemon) = Daemon::with_idler() else { return };
	for name in ["t-3", "other"] {
		daemon.clones("t", &json!({ "name": name, "wait": false }));
	}
	let names: Vec<_> = daemon.clones_of("t", 2).into_iter().map(|clone| clone.name).collect();
	assert_eq!(names, ["t-4", "t-5"]);
	// Where none is left for that, no number is used up.
	daemon.limited("l", idler(), 2);
	for name in ["l-1", "l-2"] {
		daemon.clones("t", &json!({ "name": name, "wait": false }));
	}
	daemon.refuses_clones("l", &json!({ "wait": false }), "a clone l-2 already");
	daemon.remove_clone("l-1");
	assert_eq!(daemon.clone_of("l").name, "l-1");
}

#[test]
fn a_killed_daemon_leaves_no_shell_but_clones_and_its_socket_to_the_next_one() {
	let Some(mut daemon) = Daemon::with_idler() else { return };
	let clone = daemon.clone_of("t");
	daemon.settle_with(1);
	let shells = daemon.shells();
	daemon.child.kill().unwrap();
	daemon.child.wait().unwrap();
	eventually(|| shells.iter().all(|pid| exists(*pid) == (*pid == clone.pid)));
	assert!(daemon.socket.exists());
	daemon.child = command(&daemon.socket).spawn().unwrap();
	eventually(|| UnixStream::connect(&daemon.socket).is_ok());
	let second = command(&daemon.socket).output().unwrap();
	assert!(String::from_utf8_lossy(&second.stderr).contains("already"), "{second:?}");
	assert_eq!(daemon.all_clones()[0].pid, clone.pid);
}

#[test]
fn what_clones_add_is_what_they_write() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.template("idle", idler());
	daemon.template("writes", [FORK, WRITES, SHOWS, HALTS].concat());
	let clone = |template: &str| daemon.clone_of(template).name;
	let added = |name: &str| {
		let shown: Clone = daemon.get(&format!("/v1/clones/{name}"));
		shown.memory_bytes.unwrap()
	};
	let (idle, writes) = (clone("idle"), clone("writes"));
	eventually(|| added(&writes) >= added(&idle) + (48 << 10));
	let difference = added(&writes) - added(&idle);
	// The kernel charges a control group 64 pages at a time on each processor (MEMCG_CHARGE_BATCH).
	let batches = std::thread::available_parallelism().unwrap().get() as u64 * (256 << 10);
	assert!(difference < (64 << 10) + batches, "{difference}");
	assert!(added(&idle) < 8 << 20, "{}", added(&idle));
	// What the kernel holds for its VM is in it: more than the process has.
	let pid = daemon.shown(&idle).pid;
	let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
	let kib = |name: &str| -> u64 {
		let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
		line.trim().trim_end_matches(" kB").parse().unwrap()
	};
	let process = (kib("RssAnon:") + kib("VmSwap:") + kib("VmPTE:")) << 10;
	assert!(added(&idle) >= process + (200 << 10), "{} with KVM's share, {process} without", added(&idle));
	let stats: api::Stats = daemon.get("/v1/stats");
	assert_eq!((stats.clones, stats.templates), (2, 2));
	assert!(stats.clone_bytes >= added(&idle) && stats.clone_bytes < 16 << 20, "{stats:?}");
	assert!((4096..2 << 20).contains(&stats.template_bytes), "{stats:?}");
}

#[test]
fn a_guest_of_two_cpus_is_cloned_and_rolled_back() {
	let Some(daemon) = Daemon::start() else { return };
	let mut request = tiny("two", idler());
	request["shape"]["vcpus"] = json!(2);
	let template: Template = daemon.post("/v1/templates", &request);
	assert_eq!(template.shape.vcpus, 2);
	let clones = daemon.clones_of("two", 2);
	for clone in &clones {
		let rolled = daemon.roll_back(&clone.name);
		assert!(rolled.generation != clone.generation && rolled.state == CloneState::Starting, "{rolled:?}");
	}
	daemon.remove_clone("two-1");
	assert_eq!(daemon.shown("two-2").state, CloneState::Starting);
}

#[test]
fn of_ended_clones_the_last_are_remembered() {
	let remember = |command: &mut Command, _: &Path| {
		command.args(["--remember", "10"]);
	};
	let Some(daemon) = Daemon::start_with(remember) else { return };
	daemon.template("t", guest_code());
	daemon.clones("t", &json!({}));
	daemon.settle();
	let before = daemon.descriptors();
	for _ in 0..3 {
		daemon.clones("t", &json!({ "count": 5 }));
	}
	let clones = || daemon.all_clones();
	eventually(|| clones().len() == 10 && clones().iter().all(|clone| clone.state == CloneState::Ended));
	assert!(clones().iter().all(|clone| clone.ended.as_deref().is_some_and(|how| how.contains("status 0"))));
	daemon.refused("GET", "/v1/clones/t-1", &Value::Null, "no clone t-1");
	daemon.settle();
	eventually(|| daemon.descriptors() <= before);
}

#[test]
fn a_console_has_what_was_written_and_takes_what_is_typed() {
	let Some(daemon) = Daemon::with_idler() else { return };
	daemon.clone_of("t");
	let mut stream = upgraded(&daemon, "t-1/console");
	let mut byte = [0];
	stream.read_exact(&mut byte).unwrap();
	assert_eq!(&byte, b"x");
	stream.write_all(b"typed").unwrap();
	daemon.remove_clone("t-1");
	assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "the end of the clone is the console's");
}

#[test]
fn templates_are_saved_and_loaded() {
	let Some(daemon) = Daemon::start() else { return };
	daemon.limited("t", guest_code(), 2);
	daemon.clones("t", &json!({}));
	let directory = daemon.socket.with_file_name("saved");
	daemon.save("t", &directory);
	let loaded = daemon.load("u", &directory);
	assert_eq!((loaded.name.as_str(), loaded.boot_ns), ("u", None));
	assert_eq!((loaded.clones_made, loaded.max_clones), (1, Some(2)), "it goes on where it was saved");
	assert_eq!(daemon.clones("u", &json!({})).len(), 1);
	daemon.refuses_clones("u", &json!({}), "make a new one");
	std::fs::write(directory.join("manifest"), b"damaged").unwrap();
	daemon.refused("POST", "/v1/templates/load", &json!({ "name": "v", "directory": directory }), "manifest");
}

#[test]
fn a_rollback_is_another_clone_with_its_own_index_and_counts_as_one() {
	let Some(daemon) = Daemon::start() else { return };
	let teller = [
		FORK,
		&[0xba, 0x3c, 0x12, 0x66, 0xed, 0x66, 0xed, 0x66, 0xed], // mov dx, 0x123c; in eax, dx: role, zero, index
		&[0x04, b'0', 0xba, 0xf8, 0x03, 0xee, 0xf4, 0xeb, 0xfd], // add al, '0'; mov dx, 0x3f8; out dx, al; hlt; jmp hlt
	];
	daemon.limited("t", teller.concat(), 3);
	daemon.clones_of("t", 2);
	let indices = |told: &[u8]| {
		let mut index = vec![0; told.len()];
		upgraded(&daemon, "t-1/console").read_exact(&mut index).unwrap();
		assert_eq!(index, told);
	};
	// It is a clone before it has told its index.
	indices(b"0");
	let rolled = daemon.roll_back("t-1");
	let template = || daemon.shown_template("t");
	assert_eq!((template().clones_made, template().clones_alive), (3, 2));
	indices(b"02");
	daemon.refuses_rollback("t-1", "make a new one");
	let after = daemon.shown("t-1");
	assert_eq!((after.generation, after.state), (rolled.generation, CloneState::Starting));
	// The template stays while they live, and goes when they have ended.
	daemon.refused("DELETE", "/v1/templates/t", &Value::Null, "2 clones");
	daemon.shells().into_iter().for_each(kill);
	eventually(|| template().clones_alive == 0);
	daemon.refuses_rollback("t-1", "has ended");
	daemon.remove_template("t");
}

/// More requests than any fixed number of threads that one would think of.
const HUNG: usize = 70;

/// A client that waits for a template of a guest that halts with interrupts off, and never says that it is ready.
fn hung(daemon: &Daemon, name: &str) -> UnixStream {
	let mut body = tiny(name, vec![0xfa, 0xf4, 0xeb, 0xfd]);
	body["timeout_s"] = json!(u32::MAX);
	let body = body.to_string();
	let mut stream = UnixStream::connect(&daemon.socket).unwrap();
	let head = "POST /v1/templates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
	stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
	stream
}

#[test]
fn a_boot_ends_with_its_client_and_until_then_its_name_is_that_of_what_is_being_made() {
	let Some(daemon) = Daemon::start() else { return };
	let client = hung(&daemon, "t");
	let request = tiny("t", idler());
	eventually(|| daemon.shells().len() == 1);
	daemon.refuses_template(&request, "template t is being made: try again");
	drop(client);
	eventually(|| daemon.ask("POST", "/v1/templates", &request).0 == 200);
	daemon.refuses_template(&request, "there is a template t already");
	daemon.settle();
}

#[test]
fn sixty_four_hung_guests_stop_nobody() {
	let Some(daemon) = Daemon::start() else { return };
	let requests: Vec<_> = (0..HUNG).map(|number| hung(&daemon, &format!("hung-{number}"))).collect();
	// Two more wait in the pool.
	eventually(|| daemon.shells().len() >= 64);
	daemon.template("t", idler());
	let clone = daemon.clone_of("t");
	daemon.remove_clone(&clone.name);
	drop(requests);
}

#[test]
fn connections_to_a_guest_that_hangs_are_gone_when_their_clients_are() {
	let Some(daemon) = Daemon::with_idler() else { return };
	daemon.clone_of("t");
	daemon.settle_with(1);
	let before = daemon.descriptors();
	let connect = |much| {
		let mut stream = upgraded(&daemon, "t-1/agent");
		stream.write_all(b"asks").unwrap();
		stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
		// Until no more is taken.
		while much && stream.write(&[b'x'; 1 << 16]).is_ok() {}
		stream
	};
	let clients: Vec<_> = (0..20).map(|number| connect(number % 2 == 0)).collect();
	// Two for each, and before there may have been a few more than there are now.
	eventually(|| daemon.descriptors() >= before + 30);
	drop(clients);
	eventually(|| daemon.descriptors() <= before);
}

#[test]
fn consoles_of_a_quiet_guest_are_gone_when_their_clients_are_and_who_only_reads_stays() {
	let Some(daemon) = Daemon::with_idler() else { return };
	daemon.clone_of("t");
	daemon.settle_with(1);
	let before = daemon.descriptors();
	let mut reads = upgraded(&daemon, "t-1/console");
	reads.shutdown(std::net::Shutdown::Write).unwrap();
	// An end with something unread is no end, but an error.
	let mut clients: Vec<_> = (0..20).map(|_| upgraded(&daemon, "t-1/console")).collect();
	clients.iter_mut().for_each(|client| client.read_exact(&mut [0]).unwrap());
	drop(clients);
	eventually(|| daemon.descriptors() <= before + 1);
	reads.set_nonblocking(true).unwrap();
	assert_eq!(reads.read_to_end(&mut Vec::new()).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn shells_of_one_request_are_made_at_the_same_time() {
	let Some(daemon) = Daemon::with_idler() else { return };
	eventually(|| daemon.shells().len() == 2);
	let stop = AtomicBool::new(false);
	let most = std::thread::scope(|scope| {
		let watch = || {
			let mut most = 0;
			while !stop.load(Ordering::Relaxed) {
				let stats: api::Stats = daemon.get("/v1/stats");
				most = stats.pools.iter().map(|pool| pool.preparing).max().max(Some(most)).unwrap();
			}
			most
		};
		let watch = scope.spawn(watch);
		let clones = daemon.clones_of("t", 40);
		stop.store(true, Ordering::Relaxed);
		assert_eq!(clones.len(), 40);
		watch.join().unwrap()
	});
	assert!(most >= 2, "never more than {most} under way");
}

#[test]
fn a_file_that_would_wait_for_a_writer_is_refused() {
	let Some(daemon) = Daemon::start() else { return };
	let pipe = daemon.dir.path().join("pipe");
	rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
	let mut request = tiny("t", idler());
	request.as_object_mut().unwrap().remove("tiny");
	for file in [pipe.as_path(), Path::new("/dev/zero")] {
		request["kernel"] = json!(file);
		daemon.refuses_template(&request, "neither a file nor a block device");
	}
}

#[test]
fn a_terminal_that_a_request_names_does_not_become_the_daemon_s() {
	let new_session = |command: &mut Command, _: &Path| {
		// SAFETY: a system call.
		unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(|_| ())?)) };
	};
	let Some(daemon) = Daemon::start_with(new_session) else { return };
	let terminal = nix::pty::openpty(None, None).unwrap();
	let mut request = tiny("t", idler());
	request.as_object_mut().unwrap().remove("tiny");
	request["kernel"] = json!(nix::unistd::ttyname(&terminal.slave).unwrap());
	daemon.refuses_template(&request, "neither a file nor a block device");
	let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.child.id())).unwrap();
	let tty = stat.rsplit(") ").next().unwrap().split(' ').nth(4).unwrap();
	assert_eq!(tty, "0", "{stat}");
}

//! Callers and templates that are none, or break the rules: one line each, nothing left behind.

use crate::place::{
	Before, FalseTemplate, Place, Start, assert_says, good, kill, limit, line, often, pids, signal, stderr, stdout,
	until,
};
use flashfork_warm::{Ask, Facts, ReadyAt, Step, Tell};
use nix::sys::socket::{
	AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg, socket,
};
use std::{
	fs::File,
	io::{IoSlice, Write},
	os::fd::{AsRawFd, OwnedFd, RawFd},
	process::{Command, Stdio},
};

fn caller(place: &Place) -> OwnedFd {
	let address = UnixAddr::new(&place.at("flashfork/templates/t")).unwrap();
	let end = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
	connect(end.as_raw_fd(), &address).unwrap();
	end
}

fn send(end: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) {
	let rights = [ControlMessage::ScmRights(descriptors)];
	let with: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
	sendmsg::<()>(end.as_raw_fd(), &[IoSlice::new(bytes)], with, MsgFlags::MSG_NOSIGNAL, None).unwrap();
}

fn answer(end: &OwnedFd) -> Option<Tell> {
	let mut bytes = [0; Tell::LEN];
	let count = recv(end.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
	Tell::decode(&bytes[..count])
}

fn heard(command: &mut Command) -> std::process::Child {
	command.start_both()
}

fn descriptors_of(pid: i32) -> usize {
	std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn file(bytes: &[u8]) -> File {
	let mut file = tempfile::tempfile().unwrap();
	file.write_all(bytes).unwrap();
	file
}

#[test]
fn any_other_number_of_descriptors_is_refused_and_none_is_kept() {
	let place = Place::with_shell();
	let pid = place.template_pid();
	// The clone that waits has one, too.
	place.ahead();
	until("questions are over", || descriptors_of(pid) <= 10);
	let before = descriptors_of(pid);
	let null = File::open("/dev/null").unwrap();
	for count in [0, 1, 4, 6, 12, 13, 100, 253] {
		let end = caller(&place);
		send(&end, &Ask::Clone { job: true }.encode(), &vec![null.as_raw_fd(); count]);
		let refused = Tell::Failed { step: Step::Request, errno: 0 };
		assert_eq!(answer(&end), Some(refused), "{count}");
		// With another message they are nobody's.
		send(&end, &Ask::Status.encode(), &vec![null.as_raw_fd(); count]);
		assert!(matches!(answer(&end), Some(Tell::Facts(_))), "{count}");
		send(&end, &[7; 3], &vec![null.as_raw_fd(); count]);
		assert_eq!(answer(&end), Some(refused), "{count}");
	}
	until("all are closed", || descriptors_of(pid) <= before);
	assert_eq!(stdout(&place.shell("echo on").output().unwrap()), "on\n");
}

/// Where the arguments should be there is something else, or the directory is none.
#[test]
fn senseless_arguments_end_their_clone_only() {
	let place = Place::with_shell();
	let (null, root) = (File::options().read(true).write(true).open("/dev/null").unwrap(), File::open("/").unwrap());
	let (pipe, _writer) = nix::unistd::pipe().unwrap();
	let long = tempfile::tempfile().unwrap();
	long.set_len(1 << 40).unwrap();
	let magic = flashfork_warm::START_MAGIC.to_ne_bytes();
	let lies = [&magic[..], &4096u64.to_ne_bytes(), &u64::MAX.to_ne_bytes(), &[0xff; 4072]].concat();
	let files = [file(&[]), file(&[0; 100]), file(&[0; 9000]), file(&[0xff; 9000]), file(&lies), long];
	let odd = [null.as_raw_fd(), root.as_raw_fd(), pipe.as_raw_fd()];
	for memory in files.iter().map(AsRawFd::as_raw_fd).chain(odd) {
		let end = caller(&place);
		let null = null.as_raw_fd();
		send(&end, &Ask::Clone { job: true }.encode(), &[memory, root.as_raw_fd(), null, null, null]);
		let told = answer(&end);
		assert!(matches!(told, Some(Tell::Failed { step: Step::Request | Step::Map, .. })), "{told:?}");
		// A message that comes where the clone has ended already.
		send(&end, &Ask::Signal { signal: libc::SIGKILL, group: true }.encode(), &[]);
	}
	let end = caller(&place);
	let null = null.as_raw_fd();
	send(&end, &Ask::Clone { job: true }.encode(), &[files[0].as_raw_fd(), null, null, null, null]);
	assert!(matches!(answer(&end), Some(Tell::Failed { step: Step::Directory, .. })));
	until("all have ended", || place.list()[0]["clones_running"] == 0);
	assert_eq!(stdout(&place.shell("echo on").output().unwrap()), "on\n");
}

#[test]
fn callers_that_say_nothing_or_leave_at_once_are_no_burden() {
	let place = Place::with_shell();
	let pid = place.template_pid();
	let silent: Vec<_> = (0..50).map(|_| caller(&place)).collect();
	for _ in 0..50 {
		let end = caller(&place);
		send(&end, &Ask::Status.encode(), &[]);
	}
	assert_eq!(stdout(&place.shell("echo on").output().unwrap()), "on\n");
	drop(silent);
	until("their descriptors are closed", || descriptors_of(pid) < 12);
}

#[test]
fn more_callers_than_descriptors_are_told() {
	let place = Place::new();
	let mut warm = place.flashfork(&["warm", "t", "--", "sh"]);
	good(warm.before(|| limit(libc::RLIMIT_NOFILE, 40, 40)).output().unwrap());
	let mut running = Vec::new();
	let refused = loop {
		let mut child = heard(place.shell("echo on; read x").stdin(Stdio::piped()));
		let mut on = [0; 3];
		match std::io::Read::read(child.stdout.as_mut().unwrap(), &mut on).unwrap() {
			0 => break child.wait_with_output().unwrap(),
			_ => running.push(child),
		}
		assert!(running.len() < 40);
	};
	assert!(running.len() > 10, "{}", running.len());
	assert!(
		line(&refused).contains("out of descriptors") && line(&refused).contains("ulimit -n"),
		"{}",
		line(&refused)
	);
	assert_eq!(place.list()[0]["clones_running"], running.len(), "questions are answered still");
	drop(running.pop().unwrap().stdin.take());
	until("there is room again", || place.shell("true").status().unwrap().success());
	for mut child in running {
		drop(child.stdin.take());
		child.wait().unwrap();
	}
}

#[test]
fn nonsense_from_a_template_is_one_line() {
	let place = Place::new();
	let facts = Facts {
		pid: 1,
		at: ReadyAt::Main,
		sealed: 0,
		unsealed: None,
		made: 0,
		running: 0,
		max: 0,
		changed: 0,
		unwatched: 0,
	};
	let started = |pid| Tell::Started { pid }.encode().to_vec();
	let lies: [&[Vec<u8>]; 8] = [
		&[],
		&[vec![0xff; Tell::LEN]],
		&[vec![3]],
		&[vec![0; 4000]],
		&[started(1)],
		&[started(-1)],
		&[Tell::Facts(facts).encode().to_vec()],
		&[Tell::Failed { step: Step::Retired, errno: 9999 }.encode().to_vec()],
	];
	for lie in lies {
		let template = FalseTemplate::new(&place, "t");
		let child = heard(&mut place.shell("true"));
		let end = template.request();
		for bytes in lie {
			send(&end, bytes, &[]);
		}
		drop(end);
		let output = child.wait_with_output().unwrap();
		assert!(line(&output).starts_with("flashfork: the template t "), "{}", line(&output));
		if lie.is_empty() || lie[0].len() == Tell::LEN && lie[0][0] == 1 {
			continue;
		}
		for arguments in [&["ls", "--json"][..], &["rm", "t"]] {
			let child = heard(&mut place.flashfork(arguments));
			let end = template.request();
			send(&end, &lie[0], &[]);
			let output = child.wait_with_output().unwrap();
			if arguments[0] == "rm" {
				assert_says(line(&output), "don't understand each other");
			} else {
				assert!(stdout(&output).contains("\"state\": \"strange\""), "{}{}", stdout(&output), stderr(&output));
			}
		}
	}
}

/// Numbers below what is asked for, other ones in each run.
fn random(which: u64) -> impl FnMut(u64) -> u64 {
	let mut seed = u64::from(std::process::id()) << 20 | which << 1 | 1;
	eprintln!("seed {seed}");
	move |below| {
		// Marsaglia's xorshift64.
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		seed % below
	}
}

/// Whoever of them is killed at whatever moment, in the end nobody runs and no name is left.
#[test]
fn nothing_is_left_when_anybody_is_killed_at_any_moment() {
	let rounds = often(15, 200);
	let place = Place::new();
	let mut random = random(0);
	for round in 0..rounds {
		let quiet = |mut command: Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
		let mut commands = vec![quiet(place.flashfork(&["warm", "t", "--", "sh"]))];
		if random(3) > 0 {
			commands[0].wait().unwrap();
			commands.extend((0..3).map(|_| quiet(place.shell("exec sleep 1000"))));
		}
		std::thread::sleep(std::time::Duration::from_micros(random(30_000)));
		let all = pids(&place, "");
		if let Some(victim) = all.get(random(all.len().max(1) as u64) as usize) {
			kill(*victim, libc::SIGKILL);
		}
		// What was not killed ends as ever.
		std::thread::sleep(std::time::Duration::from_micros(random(3000)));
		commands[0].wait().unwrap();
		for command in &mut commands[1..] {
			signal(command, libc::SIGTERM);
			command.wait().unwrap();
		}
		let removed = place.run(&["rm", "t"]);
		assert!(removed.status.success(), "round {round}: {}", stderr(&removed));
		place.until_empty();
		assert!(place.list().is_empty());
	}
	place.warm_shell();
	place.remove();
	assert_eq!(place.names(), 0);
}

/// Each finds the name free, taken, or its template gone, and says so; a name never leads to nobody for long, nor is
/// one lost.
#[test]
fn commands_on_one_name_at_once_do_not_confuse_each_other() {
	let rounds = often(25, 300);
	let place = Place::new();
	let known = [
		"flashfork: there is a template t; ",
		"flashfork: there is no template t; ",
		"flashfork: the template t has ended, ",
		"flashfork: the template t is being removed; ",
	];
	let work = &|which| {
		let mut random = random(which);
		for _ in 0..rounds {
			let arguments = match random(6) {
				0 | 1 => &["warm", "t", "--", "sh"][..],
				2 | 3 => &["clone", "t", "-c", "exit 42"],
				4 => &["rm", "t"],
				_ => &["ls", "--json"],
			};
			let output = place.run(arguments);
			match (arguments[0], output.status.code()) {
				("warm" | "rm", Some(0)) | ("clone", Some(42)) => {}
				("ls", Some(0)) => {
					let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
					if let Some(pid) = rows.first().and_then(|row| row["pid"].as_i64()).filter(|_| random(2) == 0) {
						kill(i32::try_from(pid).unwrap(), libc::SIGKILL);
					}
				}
				("warm" | "clone", Some(1)) => {
					assert!(known.iter().any(|known| line(&output).starts_with(known)), "{}", line(&output));
				}
				other => panic!("{other:?}: {}", stderr(&output)),
			}
		}
	};
	std::thread::scope(|scope| (1..=4).for_each(|which| drop(scope.spawn(move || work(which)))));
	place.remove();
	place.until_empty();
	assert_eq!(place.names(), 0);
}

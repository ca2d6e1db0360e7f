//! The agent over a Unix socket, as an ordinary process of the host: commands, their streams and
//! ends, and what a hostile host can do to it.

mod host;

use std::{
	io::{Read, Write},
	path::PathBuf,
};

use flashfork_proto::{
	Preamble, Protocol,
	agent::{
		Client, ClientError, ErrorKind, Exec, Exit, MAX_CONNECTIONS, MAX_FRAME, Reply, Request, STDIN_WINDOW, Stamp,
		TerminalSize,
	},
};
use host::{Agent, wait_until};
use rustix::process::Pid;
use serde_bytes::ByteBuf;

const LIMIT: usize = 64 << 20;

fn command(words: &[&str]) -> Exec {
	Exec { argv: words.iter().map(|word| ByteBuf::from(*word)).collect(), ..Exec::default() }
}

fn shell(script: &str) -> Exec {
	command(&["sh", "-c", script])
}

fn kind(result: Result<impl std::fmt::Debug, ClientError>) -> ErrorKind {
	match result {
		Err(ClientError::Agent(error)) => error.kind,
		other => panic!("{other:?}"),
	}
}

#[test]
fn commands_get_input_and_give_output_and_status() {
	let agent = Agent::start();
	let mut client = agent.client();
	let output = client.run(&shell("cat; echo two >&2; exit 3"), b"one", LIMIT).unwrap();
	assert_eq!((output.exit, &*output.stdout, &*output.stderr), (Exit::Code(3), &b"one"[..], &b"two\n"[..]));
	// The same connection serves the next.
	let output = client.run(&shell("kill -9 $$"), b"", LIMIT).unwrap();
	assert_eq!(output.exit, Exit::Signal(9));
	assert_eq!(output.exit.shell_status(), 137);
}

#[test]
fn megabytes_pass_both_ways_at_once_unchanged() {
	let agent = Agent::start();
	let input: Vec<u8> = (0..10 * STDIN_WINDOW).map(|i| (i ^ (i >> 8)) as u8).collect();
	let output = agent.client().run(&command(&["cat"]), &input, LIMIT).unwrap();
	assert_eq!(output.exit, Exit::Code(0));
	assert!(output.stdout == input);
}

#[test]
fn input_that_nobody_reads_holds_nothing_up() {
	let agent = Agent::start();
	let input = vec![0; 4 * STDIN_WINDOW as usize];
	// Never reads it; closes it.
	for script in ["true", "exec <&-; sleep 0.1; echo x"] {
		let output = agent.client().run(&shell(script), &input, LIMIT).unwrap();
		assert_eq!(output.exit, Exit::Code(0), "{script}: {output:?}");
	}
	// Leaves it to a child that never reads it, and is still there.
	let script = "sleep 1000 >/dev/null 2>&1 & echo $!; exit 5";
	let output = agent.client().run(&shell(script), &input, LIMIT).unwrap();
	assert_eq!(output.exit, Exit::Code(5), "{output:?}");
	let child = String::from_utf8(output.stdout).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
	rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_end_does_not_wait_for_descendants_that_hold_the_output() {
	let agent = Agent::start();
	let output = agent.client().run(&shell("sleep 1000 & echo $!"), b"", LIMIT).unwrap();
	let child = String::from_utf8(output.stdout).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
	// It is there still: nobody has waited for it.
	rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn environment_directory_and_user_are_as_asked() {
	let agent = Agent::start();
	let exec = Exec {
		env: vec![(ByteBuf::from("WORD"), ByteBuf::from("a b\n"))],
		cwd: Some(ByteBuf::from("/usr")),
		user: Some("nobody:daemon".into()),
		..shell("pwd; id -un; id -gn; id -G | wc -w; echo \"$WORD$HOME\"; env | grep -c CARGO")
	};
	if !rustix::process::geteuid().is_root() {
		assert_eq!(kind(agent.client().run(&exec, b"", LIMIT)), ErrorKind::Denied);
		return;
	}
	let output = agent.client().run(&exec, b"", LIMIT).unwrap();
	assert_eq!(String::from_utf8(output.stdout).unwrap(), "/usr\nnobody\ndaemon\n1\na b\n/nonexistent\n0\n");
}

#[test]
fn what_can_not_be_started_says_why_and_the_connection_goes_on() {
	let agent = Agent::start();
	let mut client = agent.client();
	let mut try_to = |exec: &Exec| kind(client.run(exec, b"", LIMIT));
	assert_eq!(try_to(&command(&["/no/such/program"])), ErrorKind::NotFound);
	assert_eq!(try_to(&command(&["/etc/passwd"])), ErrorKind::Denied);
	assert_eq!(try_to(&command(&[])), ErrorKind::Invalid);
	assert_eq!(try_to(&command(&["nul\0inside"])), ErrorKind::Invalid);
	assert_eq!(try_to(&Exec { cwd: Some(ByteBuf::from("/no/such")), ..shell("") }), ErrorKind::NotFound);
	assert_eq!(try_to(&Exec { user: Some("no-such".into()), ..shell("") }), ErrorKind::NotFound);
	assert_eq!(client.run(&shell("exit 4"), b"", LIMIT).unwrap().exit, Exit::Code(4));
}

#[test]
fn a_terminal_is_one_and_has_its_size() {
	let agent = Agent::start();
	let exec = Exec { terminal: Some(TerminalSize { rows: 40, columns: 100 }), ..shell("tty; stty size; echo $TERM") };
	let output = agent.client().run(&exec, b"", LIMIT).unwrap();
	let text = String::from_utf8(output.stdout).unwrap();
	assert!(text.starts_with("/dev/pts/") && text.ends_with("\r\n40 100\r\nlinux\r\n"), "{text:?}");
}

#[test]
fn signals_reach_the_whole_group_and_pings_are_answered_meanwhile() {
	let agent = Agent::start();
	let (mut requests, mut replies) = agent.client().split();
	requests.send(&Request::Exec(shell("sleep 1000; true"))).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Started { .. }));
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Pong { .. }));
	requests.send(&Request::Exec(shell("true"))).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Failed(error) if error.kind == ErrorKind::Busy));
	requests.send(&Request::Signal(15)).unwrap();
	assert_eq!(replies.receive().unwrap(), Reply::Exited(Exit::Signal(15)));
	// Too late, and no harm.
	requests.send(&Request::Signal(15)).unwrap();
	requests.send(&Request::StdinEnd).unwrap();
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Pong { .. }));
}

#[test]
fn a_command_dies_with_its_connection_unless_it_may_survive() {
	let agent = Agent::start();
	for survives in [false, true] {
		let (mut requests, mut replies) = agent.client().split();
		// Writes more than any buffer holds, long after the connection is gone.
		let exec = Exec { survives, ..shell("sleep 0.3; seq 100000; exec sleep 60") };
		requests.send(&Request::Exec(exec)).unwrap();
		let Reply::Started { pid } = replies.receive().unwrap() else { panic!("not started") };
		drop((requests, replies));
		let program = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
		if survives {
			wait_until(|| program() == "sleep\x0060\0");
			let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
			rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
		}
		// Neither it nor a zombie is left.
		wait_until(|| !PathBuf::from(format!("/proc/{pid}")).exists());
	}
}

#[test]
fn an_agent_of_a_host_leaves_the_machine_alone() {
	let agent = Agent::start();
	let mut client = agent.client();
	for request in [
		Request::SetClock(Stamp { seconds: 0, nanoseconds: 0 }),
		Request::Reseed(ByteBuf::from(vec![0; 32])),
		Request::PowerOff,
	] {
		assert_eq!(kind(client.call(&request)), ErrorKind::Denied);
	}
}

#[test]
fn hello_tells_boots_apart_and_clocks_go_on() {
	let agent = Agent::start();
	let (first, second) = (agent.client().hello().clone(), agent.client().hello().clone());
	assert_eq!(first.boot_id, second.boot_id);
	assert!(second.monotonic_ns > first.monotonic_ns);
	assert!(second.realtime >= first.realtime);
}

#[test]
fn nonsense_from_the_host_ends_its_connection_and_nothing_else() {
	let mut agent = Agent::start();
	let greeting = Preamble(Protocol::Agent).bytes();
	let framed = |length: u32, content: &[u8]| [&greeting[..], &length.to_le_bytes(), content].concat();
	let window = flashfork_proto::agent::STDIN_WINDOW as usize;
	let mut too_much = framed(0, &[]);
	too_much.truncate(greeting.len());
	flashfork_proto::frame::encode(&Request::Exec(command(&["sleep", "60"])), MAX_FRAME, &mut too_much).unwrap();
	flashfork_proto::frame::encode(&Request::Stdin(ByteBuf::from(vec![0; window + 1])), MAX_FRAME, &mut too_much)
		.unwrap();
	let mut no_signal = greeting.to_vec();
	flashfork_proto::frame::encode(&Request::Exec(command(&["sleep", "60"])), MAX_FRAME, &mut no_signal).unwrap();
	flashfork_proto::frame::encode(&Request::Signal(i32::MIN), MAX_FRAME, &mut no_signal).unwrap();
	for bytes in [
		b"GET / HTTP/1.1\r\n\r\n".to_vec(),
		framed(u32::MAX, &[]),
		framed(3, &[0xff, 0xff, 0xff]),
		framed(10, &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
		too_much,
		no_signal,
	] {
		let mut socket = agent.socket();
		// It may close while this still writes.
		let _ = socket.write_all(&bytes);
		let mut rest = Vec::new();
		// Ends, or is reset because of what it has not read.
		let _ = socket.read_to_end(&mut rest);
	}
	assert!(agent.is_alive());
	assert_eq!(agent.client().run(&shell("exit 6"), b"", LIMIT).unwrap().exit, Exit::Code(6));
}

#[test]
fn more_connections_than_it_serves_are_closed_and_later_ones_served() {
	let agent = Agent::start();
	let held: Vec<_> = (0..MAX_CONNECTIONS + 20).map(|_| agent.socket()).collect();
	drop(held);
	wait_until(|| {
		let socket = agent.socket();
		Client::connect(socket.try_clone().unwrap(), socket).is_ok()
	});
}

#[test]
fn frames_of_random_bytes_do_no_harm() {
	let mut agent = Agent::start();
	// xorshift64, so that a failure repeats.
	let mut state = 0x9e37_79b9_7f4a_7c15_u64;
	let mut random = move || {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		state
	};
	for _ in 0..300 {
		let mut bytes = Preamble(Protocol::Agent).bytes().to_vec();
		for _ in 0..random() % 8 {
			let content: Vec<u8> = (0..random() % 40).map(|_| random() as u8).collect();
			bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
			// Most begin as a request does: one that makes no file on this host and connects to nobody's port.
			bytes.push(Some((random() % 18) as u8).filter(|kind| !matches!(kind, 10 | 14)).unwrap_or(0));
			bytes.extend(content.iter().skip(1));
		}
		let mut socket = agent.socket();
		// It may close while this still writes.
		let _ = socket.write_all(&bytes);
		socket.shutdown(std::net::Shutdown::Write).unwrap_or(());
		let _ = socket.read_to_end(&mut Vec::new());
	}
	assert!(agent.is_alive());
	assert_eq!(agent.client().run(&shell("exit 6"), b"", LIMIT).unwrap().exit, Exit::Code(6));
}

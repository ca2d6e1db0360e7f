//! `flashfork vm port` as users meet it: half-closed connections, many at once, refused and cut ones, ends.

mod common;
#[path = "common/guest.rs"]
mod guest;

use guest::{Guest, end, eventually};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt::set_socket_linger};
use std::{
	io::{BufRead, BufReader, ErrorKind, Read, Write},
	net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
	process::{Child, Stdio},
	thread,
	time::Duration,
};

/// `flashfork vm port clone 0:PORT`, and where it listens.
struct Port {
	command: Child,
	here: SocketAddr,
	stderr: BufReader<std::process::ChildStderr>,
}

impl Port {
	fn start(guest: &Guest, port: u16) -> Self {
		let mut command = guest.vm();
		command.args(["port", "clone", &format!("0:{port}")]).stdout(Stdio::piped()).stderr(Stdio::piped());
		let mut command = command.spawn().unwrap();
		let mut line = String::new();
		BufReader::new(command.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
		let (here, rest) = line.split_once(' ').unwrap();
		assert_eq!(rest, format!("leads to port {port} of clone; Ctrl-C ends it\n"));
		let stderr = BufReader::new(command.stderr.take().unwrap());
		Self { here: here.parse().unwrap(), command, stderr }
	}

	fn connect(&self) -> TcpStream {
		let client = TcpStream::connect(self.here).unwrap();
		client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
		client
	}

	fn said(&mut self) -> String {
		let mut line = String::new();
		self.stderr.read_line(&mut line).unwrap();
		line
	}
}

impl Drop for Port {
	fn drop(&mut self) {
		let _ = self.command.kill();
		let _ = self.command.wait();
	}
}

/// A program of the guest's.
fn listener() -> (TcpListener, u16) {
	let listener = TcpListener::bind("127.0.0.1:0").unwrap();
	let port = listener.local_addr().unwrap().port();
	(listener, port)
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
	let mut rest = Vec::new();
	stream.read_to_end(&mut rest).unwrap();
	rest
}

fn is_reset(stream: &mut TcpStream) -> bool {
	stream.read_to_end(&mut Vec::new()).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn sixty_four_connections_at_once_each_half_closed_by_its_client() {
	let guest = Guest::start();
	let (listener, port) = listener();
	let command = Port::start(&guest, port);
	let server = thread::spawn(move || {
		// All are there before the first is answered.
		let clients: Vec<_> = (0..64).map(|_| listener.accept().unwrap().0).collect();
		for mut client in clients {
			let question = rest(&mut client);
			client.write_all(&question.repeat(100_000)).unwrap();
		}
	});
	let clients: Vec<_> = (0..64_u8)
		.map(|n| {
			let mut client = command.connect();
			client.write_all(&[n]).unwrap();
			client.shutdown(Shutdown::Write).unwrap();
			thread::spawn(move || assert!(rest(&mut client) == [n].repeat(100_000), "{n}"))
		})
		.collect();
	clients.into_iter().for_each(|client| client.join().unwrap());
	server.join().unwrap();
}

#[test]
fn the_guest_s_program_ends_its_half_and_gets_the_rest() {
	let guest = Guest::start();
	let (listener, port) = listener();
	let command = Port::start(&guest, port);
	let mut client = command.connect();
	let mut server = listener.accept().unwrap().0;
	server.write_all(b"all").unwrap();
	server.shutdown(Shutdown::Write).unwrap();
	assert_eq!(rest(&mut client), b"all");
	client.write_all(&[3; 3_000_000]).unwrap();
	drop(client);
	assert_eq!(rest(&mut server).len(), 3_000_000);
}

#[test]
fn a_port_where_nobody_listens_in_the_guest_is_said_and_later_ones_work() {
	let guest = Guest::start();
	// Nobody else gets it, and nobody listens.
	let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
	bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
	let port = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap().port();
	let mut command = Port::start(&guest, port);
	assert!(is_reset(&mut command.connect()));
	let said = command.said();
	let expected = format!(
		"flashfork: closed a connection to port {port} of clone: nobody listens at 127.0.0.1:{port} in the guest\n"
	);
	assert_eq!(said, expected);
	listen(&socket, 1).unwrap();
	let mut client = command.connect();
	TcpListener::from(socket).accept().unwrap().0.write_all(b"here").unwrap();
	assert_eq!(rest(&mut client), b"here");
}

#[test]
fn the_end_of_the_clone_is_said_and_cuts_what_was_under_way() {
	let mut guest = Guest::start();
	let (listener, port) = listener();
	let mut command = Port::start(&guest, port);
	let mut client = command.connect();
	let mut server = listener.accept().unwrap().0;
	server.write_all(b"half an answer").unwrap();
	client.read_exact(&mut [0; 14]).unwrap();
	guest.end();
	assert!(is_reset(&mut client), "an end would say that all had come");
	assert_eq!(command.said(), "flashfork: clone clone has ended: the guest\\u{1b} powered off\n");
	assert_eq!(end(&mut command.command).code(), Some(1));
	// From the start on.
	let output = guest.vm().args(["port", "clone", "0:80"]).output().unwrap();
	let said = String::from_utf8_lossy(&output.stderr);
	assert!(output.status.code() == Some(1) && said.contains("has ended"), "{said}");
}

#[test]
fn who_ends_the_command_cuts_its_connections_and_frees_its_port() {
	let guest = Guest::start();
	let (listener, port) = listener();
	let mut command = Port::start(&guest, port);
	let mut client = command.connect();
	let mut server = listener.accept().unwrap().0;
	server.write_all(b"x").unwrap();
	client.read_exact(&mut [0]).unwrap();
	let pid = nix::unistd::Pid::from_raw(command.command.id().cast_signed());
	nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
	let status = end(&mut command.command);
	assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status:?}");
	assert!(is_reset(&mut client) && is_reset(&mut server));
	assert!(TcpStream::connect(command.here).is_err());
}

#[test]
fn a_port_that_is_taken_is_said_with_a_cure() {
	let guest = Guest::start();
	let (_taken, port) = listener();
	let output = guest.vm().args(["port", "clone", &format!("{port}:80")]).output().unwrap();
	let said = String::from_utf8_lossy(&output.stderr);
	assert_eq!(output.status.code(), Some(1));
	assert!(said.starts_with(&format!("flashfork: can't listen at 127.0.0.1:{port}: ")), "{said}");
	assert!(said.ends_with("give another port, or 0 for any that is free\n") && said.lines().count() == 1, "{said}");
	let output = guest.vm().args(["port", "clone", "192.0.2.1:0:80"]).output().unwrap();
	assert!(String::from_utf8_lossy(&output.stderr).contains("give an address of this host"), "{output:?}");
}

#[test]
fn programs_find_the_port_in_json() {
	let guest = Guest::start();
	let mut command = guest.vm();
	command.args(["--json", "port", "clone", "[::1]:0:80"]).stdout(Stdio::piped()).stderr(Stdio::null());
	let mut command = command.spawn().unwrap();
	let mut said = String::new();
	let mut stdout = BufReader::new(command.stdout.take().unwrap());
	while !said.ends_with("}\n") {
		assert!(stdout.read_line(&mut said).unwrap() > 0, "{said}");
	}
	let value: serde_json::Value = serde_json::from_str(&said).unwrap();
	let here: SocketAddr = value["listens"].as_str().unwrap().parse().unwrap();
	assert!(here.ip().is_loopback() && here.is_ipv6() && here.port() > 0, "{said}");
	assert_eq!((&value["clone"], &value["port"]), (&"clone".into(), &80.into()));
	command.kill().unwrap();
	command.wait().unwrap();
}

#[test]
fn a_client_that_goes_away_takes_its_connection_along() {
	let guest = Guest::start();
	let (listener, port) = listener();
	let command = Port::start(&guest, port);
	for _ in 0..20 {
		let mut client = command.connect();
		let mut server = listener.accept().unwrap().0;
		server.write_all(b"x").unwrap();
		client.read_exact(&mut [0]).unwrap();
		set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
		drop(client);
		assert!(is_reset(&mut server));
	}
	// Nothing of them is left: two threads, for the clone's end and for the next connection.
	let tasks = || std::fs::read_dir(format!("/proc/{}/task", command.command.id())).unwrap().count();
	eventually(|| tasks() == 2);
}

#[test]
fn at_a_prompt_the_names_of_clones_are_offered_and_where_there_is_no_daemon_nothing_is() {
	let guest = Guest::start();
	let there = format!("--socket={}", guest.dir.path().join("vmd.sock").display());
	for command in ["port", "exec", "console", "rollback", "rm"] {
		for (socket, offered) in [(there.as_str(), "clone"), ("--socket=/nonexistent", "")] {
			let line = ["flashfork", "vm", socket, command, "cl"];
			let mut ask = std::process::Command::new(common::flashfork());
			ask.env("FLASHFORK_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string());
			let output = ask.env("_CLAP_IFS", "\n").arg("--").args(line).output().unwrap();
			let said = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
			assert_eq!((said.0.as_str(), said.1.as_str()), (offered, ""), "{command} {socket}");
		}
	}
}

//! Ports and files over a Unix socket to the agent, which is an ordinary process of the host.

mod host;

use std::{
	fs,
	io::{ErrorKind, Read, Write},
	net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
	os::unix::{ffi::OsStrExt, fs::symlink, net::UnixStream},
	path::Path,
	thread,
};

use flashfork_proto::agent::{
	Client, ClientError, ErrorKind as Kind, Exec, MAX_DIALED, Piece, Replies, Reply, Request, Requests, Store,
};
use flashfork_transfer::{Destination, Receiver, Sender, Source};
use host::{Agent, PATIENCE, wait_until};
use rustix::net::{AddressFamily, SocketType};
use serde_bytes::ByteBuf;

type Halves = (Requests<UnixStream>, Replies<UnixStream>, UnixStream);

fn halves(agent: &Agent) -> Halves {
	let socket = agent.socket();
	let client = Client::connect(socket.try_clone().unwrap(), socket.try_clone().unwrap()).unwrap();
	let (requests, replies) = client.split();
	(requests, replies, socket)
}

/// A connection to a new server's port, both sides of it.
fn dial(agent: &Agent, listener: &TcpListener) -> (Halves, TcpStream) {
	let (mut requests, mut replies, socket) = halves(agent);
	requests.send(&Request::Dial(listener.local_addr().unwrap().port())).unwrap();
	assert_eq!(replies.receive().unwrap(), Reply::Dialed);
	let server = listener.accept().unwrap().0;
	server.set_read_timeout(Some(PATIENCE)).unwrap();
	((requests, replies, socket), server)
}

fn listener() -> TcpListener {
	TcpListener::bind("127.0.0.1:0").unwrap()
}

fn data(text: &str) -> Request {
	Request::Data(ByteBuf::from(text))
}

fn read(server: &mut TcpStream) -> Vec<u8> {
	let mut rest = Vec::new();
	server.read_to_end(&mut rest).unwrap();
	rest
}

fn failure(reply: Reply) -> (Kind, String) {
	match reply {
		Reply::Failed(error) => (error.kind, error.message),
		other => panic!("{other:?}"),
	}
}

#[test]
fn a_port_is_dialled_and_its_halves_end_one_by_one() {
	let agent = Agent::start();
	let listener = listener();
	// The host's first.
	let ((mut requests, mut replies, _), mut server) = dial(&agent, &listener);
	requests.send(&data("question")).unwrap();
	requests.send(&Request::DataEnd).unwrap();
	assert_eq!(read(&mut server), b"question");
	server.write_all(b"answer").unwrap();
	assert_eq!(replies.receive().unwrap(), Reply::Data(ByteBuf::from("answer")));
	drop(server);
	assert_eq!(replies.receive().unwrap(), Reply::DataEnd);
	assert!(matches!(replies.receive(), Err(ClientError::Closed)), "the agent hangs up");
	// The guest's first.
	let ((mut requests, mut replies, _), mut server) = dial(&agent, &listener);
	server.shutdown(Shutdown::Write).unwrap();
	assert_eq!(replies.receive().unwrap(), Reply::DataEnd);
	let sender = thread::spawn(move || {
		for _ in 0..100 {
			requests.send(&Request::Data(ByteBuf::from(vec![5; 60_000]))).unwrap();
		}
		requests.send(&Request::DataEnd).unwrap();
		requests
	});
	assert_eq!(read(&mut server).len(), 6_000_000);
	let _requests = sender.join().unwrap();
	assert!(matches!(replies.receive(), Err(ClientError::Closed)));
}

#[test]
fn a_port_where_nobody_listens_is_said_and_the_connection_goes_on() {
	let agent = Agent::start();
	// Nobody else gets it, and nobody listens.
	let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
	rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
	let port = SocketAddrV4::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap().port();
	let (mut requests, mut replies, _) = halves(&agent);
	requests.send(&Request::Dial(port)).unwrap();
	let (kind, message) = failure(replies.receive().unwrap());
	assert!(kind == Kind::NotFound && message.contains(&format!("nobody listens at 127.0.0.1:{port}")), "{message}");
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Pong { .. }));
}

#[test]
fn a_host_that_goes_away_resets_the_program_in_the_guest_and_the_other_way_round() {
	let agent = Agent::start();
	let listener = listener();
	let is_reset = |server: &mut TcpStream| {
		let mut rest = Vec::new();
		server.read_to_end(&mut rest).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
	};
	// Silent; with half of what it had to say, which nobody reads.
	for busy in [false, true] {
		let ((mut requests, replies, socket), mut server) = dial(&agent, &listener);
		socket.set_write_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
		while busy && requests.send(&Request::Data(ByteBuf::from(vec![5; 60_000]))).is_ok() {}
		drop((requests, replies, socket));
		assert!(is_reset(&mut server), "{busy}");
	}
	// Nonsense.
	let ((mut requests, mut replies, _socket), mut server) = dial(&agent, &listener);
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive(), Err(ClientError::Closed)));
	assert!(is_reset(&mut server));
	// The program resets: no end is said.
	let ((_requests, mut replies, _socket), server) = dial(&agent, &listener);
	rustix::net::sockopt::set_socket_linger(&server, Some(std::time::Duration::ZERO)).unwrap();
	drop(server);
	assert!(matches!(replies.receive(), Err(ClientError::Closed)));
}

#[test]
fn sixty_four_connections_at_once_and_commands_beside_as_many_as_there_may_be() {
	let agent = Agent::start();
	let listener = listener();
	let mut connections: Vec<_> = (0..64).map(|_| dial(&agent, &listener)).collect();
	for (n, ((requests, _, _), _)) in connections.iter_mut().enumerate() {
		requests.send(&data(&n.to_string())).unwrap();
		requests.send(&Request::DataEnd).unwrap();
	}
	for (n, ((_, replies, _), server)) in connections.iter_mut().enumerate() {
		assert_eq!(read(server), n.to_string().as_bytes());
		server.write_all(n.to_string().as_bytes()).unwrap();
		assert_eq!(replies.receive().unwrap(), Reply::Data(ByteBuf::from(n.to_string())));
	}
	let more: Vec<_> = (64..MAX_DIALED).map(|_| dial(&agent, &listener)).collect();
	let (mut requests, mut replies, _) = halves(&agent);
	requests.send(&Request::Dial(listener.local_addr().unwrap().port())).unwrap();
	let (kind, message) = failure(replies.receive().unwrap());
	assert!(kind == Kind::Busy && message.contains("as many as there may be"), "{message}");
	let exec = Exec { argv: vec![ByteBuf::from("true")], ..Exec::default() };
	agent.client().run(&exec, b"", 100).unwrap();
	drop((connections, more));
	// They are given back.
	wait_until(|| {
		let (mut requests, mut replies, _) = halves(&agent);
		requests.send(&Request::Dial(listener.local_addr().unwrap().port())).unwrap();
		replies.receive().unwrap() == Reply::Dialed
	});
}

fn path(path: &Path) -> ByteBuf {
	ByteBuf::from(path.as_os_str().as_bytes())
}

fn store(agent: &Agent, from: &Path, to: &Path, name: Option<&str>) -> Result<Vec<String>, (Kind, String)> {
	let (mut requests, mut replies, _) = halves(agent);
	requests.send(&Request::Store(Store { path: path(to), name: name.map(ByteBuf::from) })).unwrap();
	match replies.receive().unwrap() {
		Reply::Storing => {}
		other => return Err(failure(other)),
	}
	let sender = thread::spawn({
		let source = Source::open(from).unwrap();
		move || source.send(&mut |piece| requests.send(&Request::Piece(piece))).map(|()| requests)
	});
	let mut said = Vec::new();
	loop {
		match replies.receive().unwrap() {
			Reply::Trouble(trouble) => said.push(trouble),
			Reply::Stored => break,
			other => panic!("{other:?}"),
		}
	}
	let mut requests = sender.join().unwrap().unwrap();
	// The connection goes on.
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Pong { .. }));
	Ok(said)
}

fn fetch(agent: &Agent, from: &Path, to: &Path) -> Result<Vec<String>, (Kind, String)> {
	let (mut requests, mut replies, _) = halves(agent);
	let mut receiver = Receiver::new(Destination::find(to, None).unwrap(), Sender::Guest);
	requests.send(&Request::Fetch(path(from))).unwrap();
	let mut said = Vec::new();
	while !receiver.has_ended() {
		match replies.receive().unwrap() {
			Reply::Piece(piece) => said.extend(receiver.take(piece).unwrap()),
			other => return Err(failure(other)),
		}
	}
	requests.send(&Request::Ping).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Pong { .. }));
	Ok(said)
}

#[test]
fn files_go_both_ways_unchanged() {
	let agent = Agent::start();
	let dir = tempfile::tempdir().unwrap();
	let at = |name: &str| dir.path().join(name);
	fs::create_dir_all(at("from/sub")).unwrap();
	fs::create_dir(at("guest")).unwrap();
	let large: Vec<u8> = (0..5_000_001_u32).map(|i| (i ^ (i >> 8)) as u8).collect();
	fs::write(at("from/sub/large"), &large).unwrap();
	symlink("sub", at("from/link")).unwrap();
	assert_eq!(store(&agent, &at("from"), &at("guest"), Some("named")), Ok(vec![]));
	assert_eq!(fetch(&agent, &at("guest/named"), &at("back")), Ok(vec![]));
	assert!(fs::read(at("back/sub/large")).unwrap() == large);
	assert_eq!(fs::read_link(at("back/link")).unwrap(), Path::new("sub"));
	// Of what can't be stored the agent says so, and goes on.
	fs::create_dir(at("guest/named/other")).unwrap();
	fs::write(at("from/other"), "a file").unwrap();
	fs::write(at("from/zlast"), "last").unwrap();
	let said = store(&agent, &at("from"), &at("guest"), Some("named")).unwrap();
	assert!(said.len() == 1 && said[0].contains("named/other: is there already and is a directory"), "{said:?}");
	assert_eq!(fs::read_to_string(at("guest/named/zlast")).unwrap(), "last");
}

#[test]
fn copies_that_make_no_sense_are_refused() {
	let agent = Agent::start();
	let dir = tempfile::tempdir().unwrap();
	let at = |name: &str| dir.path().join(name);
	fs::write(at("one"), "one").unwrap();
	let none = at("none/two");
	assert_eq!(fetch(&agent, &none, &at("to")).unwrap_err().0, Kind::NotFound);
	assert_eq!(fetch(&agent, Path::new("/dev/null"), &at("to")).unwrap_err().0, Kind::Failed);
	assert_eq!(fetch(&agent, Path::new("etc"), &at("to")).unwrap_err().0, Kind::Invalid);
	let (kind, message) = store(&agent, &at("one"), &none, Some("one")).unwrap_err();
	assert!(kind == Kind::NotFound && message.contains("none/two"), "{message}");
	for name in ["..", "a/b", "/", ""] {
		assert_eq!(store(&agent, &at("one"), dir.path(), Some(name)).unwrap_err().0, Kind::Invalid, "{name}");
	}
	// Cut off in the middle, with something else in the middle, and with nonsense.
	let begin = || {
		let (mut requests, mut replies, socket) = halves(&agent);
		let store = Store { path: path(&at("two")), name: Some(ByteBuf::from("one")) };
		requests.send(&Request::Store(store)).unwrap();
		assert_eq!(replies.receive().unwrap(), Reply::Storing);
		requests.send(&Request::Piece(Piece::File { name: ByteBuf::new(), mode: 0o644 })).unwrap();
		requests.send(&Request::Piece(Piece::Bytes(ByteBuf::from("half")))).unwrap();
		wait_until(|| fs::read_to_string(at("two")).is_ok_and(|half| half == "half"));
		(requests, replies, socket)
	};
	drop(begin());
	wait_until(|| !at("two").exists());
	for request in [Request::Ping, Request::Piece(Piece::Leave)] {
		let (mut requests, mut replies, _socket) = begin();
		requests.send(&request).unwrap();
		assert!(matches!(replies.receive(), Err(ClientError::Closed)));
		assert!(!at("two").exists());
	}
	// Not asked for.
	for request in [data("x"), Request::DataEnd, Request::Piece(Piece::End)] {
		let (mut requests, mut replies, _socket) = halves(&agent);
		requests.send(&request).unwrap();
		assert_eq!(failure(replies.receive().unwrap()).0, Kind::Invalid);
		assert!(matches!(replies.receive(), Err(ClientError::Closed)));
	}
	// While a command runs.
	let (mut requests, mut replies, _socket) = halves(&agent);
	let argv = ["sleep", "1000"].map(ByteBuf::from).into();
	requests.send(&Request::Exec(Exec { argv, ..Exec::default() })).unwrap();
	assert!(matches!(replies.receive().unwrap(), Reply::Started { .. }));
	requests.send(&Request::Fetch(path(dir.path()))).unwrap();
	assert_eq!(failure(replies.receive().unwrap()).0, Kind::Busy);
}

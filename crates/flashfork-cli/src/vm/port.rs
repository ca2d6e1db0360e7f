//! A port of this host that leads to one of a clone.

use super::{
	Printer,
	agent::{self, guest, unanswered},
	client::Client,
	places::Ports,
};
use flashfork_proto::{
	agent::{ClientError, Reply, Request},
	api::{self, CloneState},
};
use flashfork_terminal::{CliError, output};
use flashfork_transfer::{Passed, Peer, Side, printable, relay};
use rustix::net::sockopt::set_socket_linger;
use serde_bytes::ByteBuf;
use serde_json::json;
use std::{
	io::{self, ErrorKind},
	net::{Shutdown, TcpListener, TcpStream},
	os::{
		fd::{AsFd, BorrowedFd},
		unix::net::UnixStream,
	},
	process::ExitCode,
	sync::{Arc, Mutex, PoisonError},
	thread,
	time::Duration,
};

/// How long nobody is accepted when descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);

struct Target {
	client: Client,
	clone: String,
	port: u16,
}

/// Listens, and passes all connections on to the clone, until that ends.
pub fn port(client: &Client, clone: &str, ports: &Ports, print: &Printer) -> Result<ExitCode, CliError> {
	let path = format!("/v1/clones/{clone}");
	let life = client.upgrade(&format!("{path}/console"))?;
	let shown: api::Clone = client.get(&path)?;
	if let Some(ended) = ended(&shown, shown.pid) {
		return Err(ended);
	}
	let listener = TcpListener::bind(ports.here).map_err(|e| unable_to_listen(ports, &e))?;
	let here = listener.local_addr().map_err(guest)?;
	// A client that goes away is none of the others'.
	output::outlive_the_pipe();
	let value = json!({ "listens": here, "clone": clone, "port": ports.guest });
	print.print(&value, || format!("{here} leads to port {} of {clone}; Ctrl-C ends it", ports.guest))?;
	let target = Arc::new(Target { client: client.clone(), clone: clone.to_owned(), port: ports.guest });
	thread::spawn(move || accept(&listener, &target));
	Err(end_of(client, clone, shown.pid, life))
}

fn unable_to_listen(ports: &Ports, error: &io::Error) -> CliError {
	let cure = match error.kind() {
		ErrorKind::AddrInUse => "; give another port, or 0 for any that is free",
		ErrorKind::PermissionDenied => "; give a port from 1024 on, or 0 for any that is free",
		ErrorKind::AddrNotAvailable => "; give an address of this host",
		_ => "",
	};
	CliError::Unable(format!("can't listen at {}: {error}{cure}", ports.here))
}

/// Waits until the clone whose shell is `pid` has ended. Its console ends with it, and before that only if this command
/// was too slow to read it.
fn end_of(client: &Client, clone: &str, pid: u32, mut console: io::BufReader<UnixStream>) -> CliError {
	loop {
		let _ = io::copy(&mut console, &mut io::sink());
		let path = format!("/v1/clones/{clone}");
		let again = client.get::<api::Clone>(&path).and_then(|shown| match ended(&shown, pid) {
			Some(ended) => Err(ended),
			None => client.upgrade(&format!("{path}/console")),
		});
		match again {
			Ok(next) => console = next,
			Err(CliError::Unable(why)) if !why.contains(" has ended") => {
				return CliError::Unable(format!("clone {clone} has ended: {why}"));
			}
			Err(error) => return error,
		}
	}
}

fn ended(shown: &api::Clone, pid: u32) -> Option<CliError> {
	let name = &shown.name;
	if shown.pid != pid {
		return Some(CliError::Unable(format!("clone {name} has ended; another has its name now")));
	}
	let how = shown.ended.as_deref().unwrap_or("nobody knows how");
	(shown.state == CloneState::Ended).then(|| CliError::Unable(format!("clone {name} has ended: {}", printable(how))))
}

fn accept(listener: &TcpListener, target: &Arc<Target>) {
	loop {
		match listener.accept() {
			Ok((tcp, _)) => {
				let target = target.clone();
				let serve = move || {
					if let Err(error) = target.serve(&tcp) {
						let (port, clone) = (target.port, &target.clone);
						complain(format!("closed a connection to port {port} of {clone}: {error}"));
					}
				};
				if let Err(error) = thread::Builder::new().spawn(serve) {
					complain(format!("closed a connection: there can be no thread for it: {error}"));
				}
			}
			// The client has gone already.
			Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
			// Too few descriptors: some are given back as others end.
			Err(_) => thread::sleep(PAUSE),
		}
	}
}

fn complain(message: String) {
	output::complain(&CliError::Unable(message));
}

impl Target {
	fn serve(&self, tcp: &TcpStream) -> Result<(), CliError> {
		// An end of the connection before the guest's is a reset.
		set_socket_linger(tcp, Some(Duration::ZERO)).map_err(guest)?;
		tcp.set_nodelay(true).map_err(guest)?;
		let agent::Connection { mut requests, mut replies, socket, .. } = agent::connect(&self.client, &self.clone)?;
		let answer = requests.send(&Request::Dial(self.port)).map_err(ClientError::Frame);
		match answer.and_then(|()| replies.receive()).map_err(|e| unanswered(e, &self.clone))? {
			Reply::Dialed => {}
			Reply::Failed(error) => return Err(CliError::Unable(printable(&error.message))),
			_ => return Err(CliError::Unable("the guest's agent answered out of turn".into())),
		}
		// From now on a connection may be silent for as long as it likes.
		socket.set_read_timeout(None).map_err(guest)?;
		let receive = || match replies.receive() {
			Ok(Reply::Data(bytes)) => Some(Passed::Data(bytes)),
			Ok(Reply::DataEnd) => Some(Passed::End),
			_ => None,
		};
		let peer = Guest { requests: Mutex::new(requests), socket };
		// One that was cut, its client has noticed.
		relay(tcp, &peer, receive, Side::Host).map(drop).map_err(guest)
	}
}

struct Guest {
	requests: Mutex<agent::Requests>,
	socket: UnixStream,
}

impl AsFd for Guest {
	fn as_fd(&self) -> BorrowedFd<'_> {
		self.socket.as_fd()
	}
}

impl Peer for Guest {
	fn send(&self, data: Option<&[u8]>) -> bool {
		let request = data.map_or(Request::DataEnd, |bytes| Request::Data(ByteBuf::from(bytes)));
		self.requests.lock().unwrap_or_else(PoisonError::into_inner).send(&request).is_ok()
	}

	fn hang_up(&self) {
		// Fails if it is gone.
		let _ = self.socket.shutdown(Shutdown::Both);
	}
}

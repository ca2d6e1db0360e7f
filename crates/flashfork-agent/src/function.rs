//! The runtime of a function of `flashfork serve`: started here, and connected to the server, which speaks the Runtime
//! API, through ports that the agent dials ([`flashfork_proto::function`]).

use std::{
	collections::VecDeque,
	io::{self, ErrorKind, PipeReader, Read, Write},
	net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
	os::{
		fd::{AsFd, AsRawFd, OwnedFd},
		unix::process::ExitStatusExt,
	},
	path::Path,
	process::{Child, Command, Stdio},
	thread,
};

use flashfork_proto::{
	agent::Exit,
	frame,
	function::{BOOTSTRAP, MAX_FRAME, NEXT, Said},
};
use rustix::{
	event::{PollFd, PollFlags, poll},
	io::retry_on_intr,
	process::{Pid, PidfdFlags, pidfd_open},
};
use serde_bytes::ByteBuf;

use crate::pipes;

/// Most bytes that a pipe holds (pipe(7)): what had been printed at a moment is no more.
const PIPE: usize = 64 << 10;

struct Function {
	/// For the runtime; `None` when that has ended.
	api: Option<TcpListener>,
	messages: TcpListener,
	streams: TcpListener,
	/// Who hears messages.
	server: Option<TcpStream>,
	runtime: Child,
	/// Tells of its end.
	end: OwnedFd,
	/// What it prints; `None` from its end on.
	output: Option<PipeReader>,
	/// Whether it has ever asked for anything.
	asked: bool,
	/// Its connections of which no request has come.
	silent: Vec<TcpStream>,
	/// Those of which one has.
	asking: VecDeque<TcpStream>,
	/// The server's, for these.
	answering: VecDeque<TcpStream>,
}

/// What there is something of.
#[derive(Clone, Copy)]
enum Ready {
	Api,
	Messages,
	Streams,
	Server,
	Output,
	End,
	Silent(usize),
}

/// Serves the runtime in the package at `root`; returns only if that can't be.
pub fn run(root: &Path) -> Result<(), String> {
	let started = start(root).map_err(|error| format!("{BOOTSTRAP} can't be started: {error}"))?;
	started.serve().map_err(|error| format!("cannot serve a function's runtime: {error}"))
}

fn start(root: &Path) -> io::Result<Function> {
	let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
	let (api, messages, streams) = (listen()?, listen()?, listen()?);
	let (output, theirs) = io::pipe()?;
	pipes::set_nonblocking(&output)?;
	let runtime = Command::new(root.join(BOOTSTRAP))
		.current_dir(root)
		.env("AWS_LAMBDA_RUNTIME_API", api.local_addr()?.to_string())
		.stdin(Stdio::null())
		.stdout(theirs.try_clone()?)
		.stderr(theirs)
		.spawn()?;
	let end = pidfd_open(Pid::from_child(&runtime), PidfdFlags::empty())?;
	for listener in [&api, &messages, &streams] {
		// Who has gone before it is accepted is not waited for.
		listener.set_nonblocking(true)?;
	}
	writeln!(io::stdout(), "{} {}", messages.local_addr()?.port(), streams.local_addr()?.port())?;
	let (silent, asking, answering) = Default::default();
	let (api, output, server, asked) = (Some(api), Some(output), None, false);
	Ok(Function { api, messages, streams, server, runtime, end, output, asked, silent, asking, answering })
}

impl Function {
	fn serve(mut self) -> io::Result<()> {
		loop {
			// The last first: silent ones are taken out by their indices.
			for ready in self.wait()?.into_iter().rev() {
				self.act(ready)?;
			}
			while !self.asking.is_empty()
				&& let Some(answering) = self.answering.pop_front()
			{
				self.asking.pop_front().map(|asking| connect(asking, answering)).transpose()?;
			}
		}
	}

	fn wait(&self) -> io::Result<Vec<Ready>> {
		let entry = |fd, ready| (PollFd::from_borrowed_fd(fd, PollFlags::IN), ready);
		let mut all = vec![entry(self.messages.as_fd(), Ready::Messages), entry(self.streams.as_fd(), Ready::Streams)];
		all.extend(self.api.iter().map(|api| entry(api.as_fd(), Ready::Api)));
		if let Some(server) = &self.server {
			all.push(entry(server.as_fd(), Ready::Server));
			all.extend(self.output.iter().map(|output| entry(output.as_fd(), Ready::Output)));
			all.extend(self.api.iter().map(|_| entry(self.end.as_fd(), Ready::End)));
		}
		// Nobody would hear of the first request.
		if self.server.is_some() || self.asked {
			let silent = self.silent.iter().enumerate();
			all.extend(silent.map(|(i, connection)| entry(connection.as_fd(), Ready::Silent(i))));
		}
		let (mut fds, all): (Vec<_>, Vec<_>) = all.into_iter().unzip();
		retry_on_intr(|| poll(&mut fds, None))?;
		Ok(fds.iter().zip(all).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, ready)| ready).collect())
	}

	fn act(&mut self, ready: Ready) -> io::Result<()> {
		match ready {
			Ready::Api => {
				if let Some(connection) = self.api.as_ref().and_then(accept) {
					// Its first line is there by then.
					wake_at(&connection, NEXT.len())?;
					self.silent.push(connection);
				}
			}
			Ready::Messages => {
				if let Some(server) = accept(&self.messages) {
					self.server = Some(server);
					let lines: Vec<_> = self.asking.iter().filter_map(first_line).collect();
					lines.into_iter().for_each(|line| self.say(&Said::Asks(line)));
				}
			}
			// When the runtime has ended nobody asks.
			Ready::Streams => self.answering.extend(accept(&self.streams).filter(|_| self.api.is_some())),
			Ready::Server => match self.server.as_mut().map(|server| server.read(&mut [0])) {
				Some(Ok(1)) => {
					self.print(PIPE);
					self.say(&Said::Flushed);
				}
				_ => self.server = None,
			},
			Ready::Output => self.print(1),
			Ready::End => {
				let status = self.runtime.wait()?;
				self.print(PIPE);
				let exit = status.signal().map_or(Exit::Code(status.code().unwrap_or_default() as u8), Exit::Signal);
				self.say(&Said::Ended(exit));
				self.api = None;
				self.silent.clear();
				self.asking.clear();
				self.answering.clear();
			}
			Ready::Silent(i) => {
				let connection = self.silent.remove(i);
				// None from one that has ended.
				if let Some(line) = first_line(&connection) {
					let first = !std::mem::replace(&mut self.asked, true);
					if first {
						self.print(PIPE);
					}
					self.say(&Said::Asks(line));
					if first {
						self.server = None;
					}
					self.asking.push_back(connection);
				}
			}
		}
		Ok(())
	}

	/// Passes on what the runtime has printed, at least so many bytes if there are.
	fn print(&mut self, least: usize) {
		let (mut buffer, mut sum) = (vec![0; PIPE / 2], 0);
		while sum < least
			&& let Some(output) = &mut self.output
		{
			match output.read(&mut buffer) {
				Ok(count @ 1..) => {
					sum += count;
					self.say(&Said::Printed(ByteBuf::from(&buffer[..count])));
				}
				Err(error) if error.kind() == ErrorKind::Interrupted => {}
				Err(error) if error.kind() == ErrorKind::WouldBlock => return,
				Ok(_) | Err(_) => self.output = None,
			}
		}
	}

	fn say(&mut self, said: &Said) {
		if self.server.as_mut().is_some_and(|server| frame::write(server, said, MAX_FRAME).is_err()) {
			self.server = None;
		}
	}
}

/// Who came, unless they have gone.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
	let (connection, _) = listener.accept().ok()?;
	// A small answer isn't held back until there is more.
	let _ = connection.set_nodelay(true);
	Some(connection)
}

/// The beginning of what comes, which stays there.
fn first_line(connection: &TcpStream) -> Option<ByteBuf> {
	let mut bytes = [0; 128];
	let count = connection.peek(&mut bytes).ok().filter(|count| *count > 0)?;
	bytes[..count].split(|byte| b"\r\n".contains(byte)).next().map(ByteBuf::from)
}

/// Has poll(2) tell of the connection when so many bytes are there, or its end: socket(7), SO_RCVLOWAT.
fn wake_at(connection: &TcpStream, least: usize) -> io::Result<()> {
	let least = least as libc::c_int;
	let (fd, length) = (connection.as_raw_fd(), size_of_val(&least) as libc::socklen_t);
	// SAFETY: `least` can be read and is as long as said.
	let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const least).cast(), length) };
	if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Passes everything on between both, up to the end of each.
fn connect(asking: TcpStream, answering: TcpStream) -> io::Result<()> {
	wake_at(&asking, 1)?;
	let copies = (asking.try_clone()?, answering.try_clone()?);
	thread::Builder::new().spawn(move || pass(&asking, &answering))?;
	thread::Builder::new().spawn(move || pass(&copies.1, &copies.0)).map(drop)
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
	// One that is cut is no end of the other. Both fail if it is gone.
	if io::copy(&mut from, &mut to).is_ok() {
		let _ = to.shutdown(Shutdown::Write);
	} else {
		let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
	}
}

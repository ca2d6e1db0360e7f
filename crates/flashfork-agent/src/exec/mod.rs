//! Commands on behalf of the host: start, input, output, end.

mod program;
mod stdio;

use std::{
	fs::File,
	io::{self, PipeReader, PipeWriter},
	sync::{
		Arc, Mutex, PoisonError,
		atomic::{AtomicBool, AtomicU32, Ordering},
		mpsc::{Receiver, Sender, channel},
	},
	thread,
};

use flashfork_proto::agent::{AgentError, CHUNK, ErrorKind, Exec, Exit, Reply, Request, STDIN_WINDOW, TerminalSize};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_bytes::ByteBuf;

use crate::{conn::Conn, log, pipes, reaper::Reaper};
use stdio::Stdio;
pub use stdio::control;

/// Output is read in pieces of this many bytes, which one frame can hold.
const OUTPUT_CHUNK: usize = CHUNK / 2;

/// A command on a connection. Dropping it kills the command, unless that may survive.
pub struct Running {
	/// The process group, while the command lives.
	group: Arc<Mutex<Option<Pid>>>,
	/// The command has not been reported ended yet.
	running: Arc<AtomicBool>,
	stdin: Option<Sender<ByteBuf>>,
	/// Bytes of input that are not credited yet.
	under_way: Arc<AtomicU32>,
	terminal: Option<File>,
	survives: bool,
}

/// Starts what `exec` says; its output and end go to `conn` by themselves.
pub fn start(exec: &Exec, conn: &Conn, reaper: &Reaper) -> Result<Running, AgentError> {
	let system = |error: io::Error| AgentError {
		kind: ErrorKind::Failed,
		message: format!("the command can't be given its standard input and output: {error}"),
	};
	let mut command = program::command(exec)?;
	let Stdio { stdin, stdout, stderr, terminal } = stdio::attach(&mut command, exec.terminal).map_err(system)?;
	let (ended, ender) = io::pipe().map_err(system)?;
	let spawned = reaper.spawn(&mut command);
	// The command's ends of its pipes: while one is open here, none of them ends.
	drop(command);
	let (pid, exit) = spawned.map_err(|error| program::not_started(exec, &error))?;

	let running = Running {
		group: Arc::new(Mutex::new(Some(pid))),
		running: Arc::new(AtomicBool::new(true)),
		stdin: None,
		under_way: Arc::default(),
		terminal,
		survives: exec.survives,
	};
	conn.send(&Reply::Started { pid: pid.as_raw_nonzero().get().unsigned_abs() });
	running.run(Streams { stdin, stdout, stderr, ended }, ender, exit, conn).map_err(system)
}

/// This side's ends of a command's streams, and of the pipe that ends with it.
struct Streams {
	stdin: File,
	stdout: File,
	stderr: Option<File>,
	ended: PipeReader,
}

impl Running {
	/// Whether its end has not been reported.
	pub fn is_running(&self) -> bool {
		self.running.load(Ordering::Acquire)
	}

	/// Starts the threads that serve the command. One that does not start kills it.
	fn run(mut self, streams: Streams, ender: PipeWriter, exit: Receiver<Exit>, conn: &Conn) -> io::Result<Self> {
		let Streams { stdin, stdout, stderr, ended } = streams;
		let mut pumps = vec![output(stdout, ended.try_clone()?, conn.clone(), Reply::Stdout)?];
		if let Some(stderr) = stderr {
			pumps.push(output(stderr, ended.try_clone()?, conn.clone(), Reply::Stderr)?);
		}
		let (sender, receiver) = channel();
		input(stdin, ended, receiver, Arc::clone(&self.under_way), conn.clone())?;
		self.stdin = Some(sender);

		let (group, running, conn) = (Arc::clone(&self.group), Arc::clone(&self.running), conn.clone());
		thread::Builder::new().spawn(move || {
			// The reaper drops no waiter; it would be as if the command had been killed.
			let exit = exit.recv().unwrap_or(Exit::Signal(libc::SIGKILL));
			*group.lock().unwrap_or_else(PoisonError::into_inner) = None;
			drop(ender);
			for pump in pumps {
				// A pump does not panic, and its errors are its own.
				let _ = pump.join();
			}
			running.store(false, Ordering::Release);
			conn.send(&Reply::Exited(exit));
		})?;
		Ok(self)
	}

	/// Acts on a request that concerns the running command; an error is the host's fault.
	pub fn control(&mut self, request: Request) -> Result<(), &'static str> {
		match request {
			Request::Stdin(bytes) => {
				let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
				let before = self.under_way.fetch_add(length, Ordering::AcqRel);
				if before.checked_add(length).is_none_or(|sum| sum > STDIN_WINDOW) {
					return Err("more standard input than there was credit for");
				}
				if let Some(stdin) = &self.stdin {
					// Fails after the command's end, when nobody wants it.
					let _ = stdin.send(bytes);
				}
			}
			Request::StdinEnd => self.stdin = None,
			Request::Signal(number) => match Signal::from_named_raw(number) {
				Some(signal) => self.kill(signal),
				None => return Err("a number that is no signal"),
			},
			Request::Resize(size) => {
				if let Some(terminal) = &self.terminal {
					resize(terminal, size);
				}
			}
			_ => {}
		}
		Ok(())
	}

	fn kill(&self, signal: Signal) {
		if let Some(group) = *self.group.lock().unwrap_or_else(PoisonError::into_inner) {
			// Fails when all of it is gone.
			let _ = kill_process_group(group, signal);
		}
	}
}

impl Drop for Running {
	fn drop(&mut self) {
		if !self.survives {
			self.kill(Signal::KILL);
		}
	}
}

fn resize(terminal: &File, size: TerminalSize) {
	if let Err(errno) = stdio::set_size(terminal, size) {
		log::line(&format!("cannot resize a terminal: {errno}"));
	}
}

/// A thread that passes output on; once the connection is lost it only takes it off the command's hands.
fn output(
	mut from: File,
	ended: PipeReader,
	conn: Conn,
	reply: fn(ByteBuf) -> Reply,
) -> io::Result<thread::JoinHandle<()>> {
	pipes::set_nonblocking(&from)?;
	thread::Builder::new().spawn(move || {
		let passed = pipes::drain(&mut from, &ended, OUTPUT_CHUNK, |bytes| {
			conn.send(&reply(ByteBuf::from(bytes)));
		});
		if let Err(error) = passed {
			log::line(&format!("cannot read a command's output: {error}"));
		}
	})
}

/// A thread that writes input and gives credit for it; input the command does not want is dropped.
fn input(
	mut to: File,
	ended: PipeReader,
	pieces: Receiver<ByteBuf>,
	under_way: Arc<AtomicU32>,
	conn: Conn,
) -> io::Result<()> {
	pipes::set_nonblocking(&to)?;
	thread::Builder::new().spawn(move || {
		let mut wanted = true;
		for piece in pieces {
			wanted = wanted && pipes::write_all(&mut to, &piece, &ended).is_ok();
			let length = piece.len() as u32;
			under_way.fetch_sub(length, Ordering::AcqRel);
			conn.send(&Reply::StdinCredit(length));
		}
	})?;
	Ok(())
}

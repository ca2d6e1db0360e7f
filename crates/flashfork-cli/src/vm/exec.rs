//! A command in a clone, as if it ran here: standard streams, terminal, signals, exit status.

use super::{
	agent::{self, guest, unanswered},
	client::Client,
	terminal::{self, Raw},
};
use crate::warm::caller;
use flashfork_proto::{
	agent::{AgentError, CHUNK, ErrorKind, Exec, Reply, Request, STDIN_WINDOW},
	frame::FrameError,
};
use flashfork_terminal::CliError;
use serde_bytes::ByteBuf;
use signal_hook::{
	consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH},
	iterator::Signals,
	low_level::emulate_default_handler,
};
use std::{
	ffi::OsString,
	io::{Read, Write},
	os::unix::ffi::OsStrExt,
	process::ExitCode,
	sync::{Arc, Condvar, Mutex, PoisonError},
	thread,
};

/// Signals that the command in the guest gets in place of this one.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What a terminal in its usual mode takes for the end of input: Ctrl-D.
const END_OF_INPUT: u8 = 4;

/// Bytes of standard input that may be sent.
type Credit = Arc<(Mutex<usize>, Condvar)>;

/// The way to the agent, for the threads of input and of signals.
type Requests = Arc<Mutex<agent::Requests>>;

/// Runs `argv` in the clone with this command's standard streams; its exit status becomes this command's. It gets a
/// terminal if `terminal` says so, or somebody sits at both ends of this command. Of `signals` caught before the
/// command has those that came too, and none ends this process.
pub fn exec(
	client: &Client,
	clone: &str,
	argv: &[OsString],
	terminal: bool,
	mut signals: Option<Signals>,
) -> Result<ExitCode, CliError> {
	let terminal = terminal || terminal::is_there();
	let agent::Connection { requests, mut replies, socket, .. } = agent::connect(client, clone)?;
	let requests: Requests = Arc::new(Mutex::new(requests));
	send(&requests, &Request::Exec(command(argv, terminal))).map_err(guest)?;
	let credit: Credit = Arc::new((Mutex::new(STDIN_WINDOW as usize), Condvar::new()));
	let mut raw = None;
	loop {
		match replies.receive().map_err(|e| unanswered(e, clone))? {
			Reply::Started { .. } => {
				socket.set_read_timeout(None).map_err(guest)?;
				raw = terminal.then(Raw::begin).transpose()?;
				let end_alone = signals.is_none();
				pass_signals(&requests, terminal, signals.take().map_or_else(catch, Ok)?, end_alone)?;
				let (requests, credit) = (requests.clone(), credit.clone());
				// Ends with this process: nothing can interrupt its read.
				thread::spawn(move || pass_input(&requests, &credit, terminal));
			}
			Reply::Stdout(bytes) => pass(&mut std::io::stdout().lock(), &bytes, "standard output")?,
			Reply::Stderr(bytes) => pass(&mut std::io::stderr().lock(), &bytes, "standard error")?,
			Reply::StdinCredit(more) => {
				*credit.0.lock().unwrap_or_else(PoisonError::into_inner) += more as usize;
				credit.1.notify_one();
			}
			Reply::Exited(exit) => {
				drop(raw);
				return Ok(ExitCode::from(u8::try_from(exit.shell_status()).unwrap_or(1)));
			}
			Reply::Failed(e) => return not_started(e),
			_ => return Err(CliError::Unable("the guest's agent answered out of turn".into())),
		}
	}
}

fn command(argv: &[OsString], terminal: bool) -> Exec {
	let bytes = |word: &OsString| ByteBuf::from(word.as_bytes());
	// What keys and colours there are, the user's terminal decides.
	let kind = std::env::var_os("TERM").filter(|_| terminal);
	Exec {
		argv: argv.iter().map(bytes).collect(),
		env: kind.iter().map(|kind| (ByteBuf::from(*b"TERM"), bytes(kind))).collect(),
		terminal: terminal.then(terminal::size),
		..Exec::default()
	}
}

fn send(requests: &Requests, request: &Request) -> Result<(), FrameError> {
	requests.lock().unwrap_or_else(PoisonError::into_inner).send(request)
}

fn pass(to: &mut impl Write, bytes: &[u8], name: &str) -> Result<(), CliError> {
	to.write_all(bytes).and_then(|()| to.flush()).map_err(CliError::file("write", name))
}

/// A command that is not there, or may not run, is what it is for a shell.
fn not_started(error: AgentError) -> Result<ExitCode, CliError> {
	let status = match error.kind {
		ErrorKind::NotFound => 127,
		ErrorKind::Denied => 126,
		_ => return Err(guest(error)),
	};
	eprintln!("flashfork: {error}");
	Ok(ExitCode::from(status))
}

/// Catches what goes to a command in a guest; it is kept until there is one.
pub fn catch() -> Result<Signals, CliError> {
	// What is ignored (nohup, jobs in the background of a script) stays so.
	let wanted = PASSED_ON.iter().filter(|signal| caller::ignored() & caller::bit(**signal) == 0);
	Signals::new(wanted).map_err(CliError::file("catch", "signals"))
}

/// From now on signals go to the command; so does the terminal's size.
fn pass_signals(requests: &Requests, terminal: bool, mut signals: Signals, end_alone: bool) -> Result<(), CliError> {
	if terminal {
		signals.add_signal(SIGWINCH).map_err(CliError::file("catch", "signals"))?;
	}
	let requests = requests.clone();
	thread::spawn(move || {
		for signal in &mut signals {
			let request = if signal == SIGWINCH { Request::Resize(terminal::size()) } else { Request::Signal(signal) };
			if send(&requests, &request).is_err() && signal != SIGWINCH && end_alone {
				// There is nobody any more who could be told.
				let _ = emulate_default_handler(signal);
			}
		}
	});
	Ok(())
}

/// Sends standard input as the guest takes it. A guest or command that is gone ends it.
fn pass_input(requests: &Requests, credit: &Credit, terminal: bool) {
	let mut bytes = vec![0; CHUNK];
	loop {
		let mut left = credit.0.lock().unwrap_or_else(PoisonError::into_inner);
		while *left == 0 {
			left = credit.1.wait(left).unwrap_or_else(PoisonError::into_inner);
		}
		let room = (*left).min(CHUNK);
		drop(left);
		let count = match std::io::stdin().lock().read(&mut bytes[..room]) {
			// A terminal has no end that could be closed.
			Ok(0) | Err(_) if terminal => break drop(send(requests, &Request::Stdin(ByteBuf::from([END_OF_INPUT])))),
			Ok(0) | Err(_) => break drop(send(requests, &Request::StdinEnd)),
			Ok(count) => count,
		};
		*credit.0.lock().unwrap_or_else(PoisonError::into_inner) -= count;
		if send(requests, &Request::Stdin(ByteBuf::from(&bytes[..count]))).is_err() {
			break;
		}
	}
}

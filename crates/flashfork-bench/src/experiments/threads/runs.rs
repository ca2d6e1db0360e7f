//! One run of a program, timed from outside.

use std::{
	io::{Read, Write},
	net::{Ipv4Addr, SocketAddr, TcpStream},
	os::fd::{AsFd, BorrowedFd},
};

pub use crate::subjects::command::flashfork as command;
use crate::{prelude::*, subjects::command::printed};
use flashfork::templates::{Directory, Template};

const PATIENCE: Duration = Duration::from_secs(120);

const LINE: &[u8] = b"1\n";

/// Microseconds of one run.
#[derive(Clone, Copy)]
pub struct Taken {
	/// Until the first answer is there.
	pub answer: f64,
	/// Until the command has ended; none of a server.
	pub whole: Option<f64>,
}

/// Microseconds since a clone was asked for.
#[derive(Clone, Copy)]
pub struct Asked {
	/// Until it ran.
	pub running: f64,
	/// Until it had answered a request of HTTP; none of what is no server.
	pub served: Option<f64>,
}

/// Starts a command, and waits for its answer, and its end.
///
/// The answer is a line, or that of a server at `port`.
pub fn run(mut command: Command, port: Option<u16>, what: &str) -> Result<Taken> {
	let doing = format!("run {what}");
	let output = if port.is_none() { Stdio::piped() } else { Stdio::null() };
	let begin = Instant::now();
	let mut child = command.stdout(output).stderr(Stdio::null()).spawn().or_cant(&doing)?;
	match port {
		Some(port) => {
			let answered = http(port, || Ok(child.try_wait()?.is_some())).map(|()| micros(begin));
			let ended = child.kill().and_then(|()| child.wait());
			ended.or_cant(&doing)?;
			Ok(Taken { answer: answered.or_cant(&doing)?, whole: None })
		}
		None => {
			let printed = printed(&mut child, LINE, begin).or_cant(&doing)?;
			let status = child.wait().or_cant(&doing)?;
			let whole = micros(begin);
			match printed.line {
				Some(answer) if status.success() && printed.output == LINE => Ok(Taken { answer, whole: Some(whole) }),
				_ => Err(BenchError::Clone { what: format!("running {what}"), status: status.to_string() }),
			}
		}
	}
}

/// Asks a server again and again until it has answered, or has `ended`.
fn http(port: u16, mut ended: impl FnMut() -> std::io::Result<bool>) -> std::io::Result<()> {
	let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
	let begin = Instant::now();
	loop {
		let asked = TcpStream::connect(address).and_then(|mut connection| {
			connection.set_read_timeout(Some(PATIENCE))?;
			connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
			let mut answer = Vec::new();
			connection.read_to_end(&mut answer).map(|_| answer)
		});
		match asked {
			Ok(answer) if answer.ends_with(b"\r\n\r\n1\n") => return Ok(()),
			Ok(_) | Err(_) if begin.elapsed() > PATIENCE => return Err(std::io::ErrorKind::TimedOut.into()),
			_ => {}
		}
		if ended()? {
			return Err(std::io::ErrorKind::BrokenPipe.into());
		}
		// Not there yet: others need the processor.
		std::thread::sleep(Duration::from_micros(100));
	}
}

/// Asks for a clone by the library. It is waited for; a server, whose `port` is given, is ended when it has answered.
pub fn request(names: &Path, name: &str, arguments: &[String], port: Option<u16>, what: &str) -> Result<Asked> {
	let null = std::fs::File::open("/dev/null").or_cant("open /dev/null")?;
	let begin = Instant::now();
	let clone = start(names, name, arguments, null.as_fd())?;
	let running = micros(begin);
	let mut served = None;
	if let Some(port) = port {
		let ended = || clone.try_wait().map(|status| status.is_some()).map_err(std::io::Error::other);
		let answered = http(port, ended).map(|()| micros(begin));
		clone.kill().or_cant("end a clone")?;
		served = Some(answered.or_cant(format_args!("ask {what}"))?);
	}
	clone.wait().map_err(BenchError::unable)?;
	Ok(Asked { running, served })
}

/// A clone, by the library. What it prints nobody reads.
pub fn start(
	names: &Path,
	name: &str,
	arguments: &[String],
	input: BorrowedFd<'_>,
) -> Result<flashfork::templates::Clone> {
	let directory = Directory::open(Directory::place(Some(names))).map_err(BenchError::unable)?;
	let name = name.parse().map_err(|_| unable!("{name} is no name"))?;
	let template = Template::named(&directory, name);
	let output = std::fs::File::options().write(true).open("/dev/null");
	let output = output.or_cant("open /dev/null")?;
	let streams = [input, output.as_fd(), output.as_fd()].map(Some);
	let run = template.run().args(arguments).streams(streams).envs(std::env::vars_os());
	run.start().map_err(BenchError::unable)
}

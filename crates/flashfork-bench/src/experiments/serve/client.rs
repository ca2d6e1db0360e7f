//! Clients: each has one call at a time answered, in one way.

use http_body_util::{BodyExt, Full};
use hyper::{
	Request, StatusCode,
	body::Bytes,
	client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
	io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
	net::TcpStream,
	process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{function, server::Server};
use crate::prelude::{BenchError, OrCant, Result, Stdio, VariantArray, monotonic, unable};
use std::rc::Rc;

/// How a call is answered.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// By the server, in a fresh clone.
	Clone,
	/// By a process started for it.
	Process,
	/// By a process that is used again.
	Worker,
	/// No call: the server tells what the function is (`GetFunction`).
	Describe,
}

/// Nanoseconds on the clock of all processes.
#[derive(Clone, Copy)]
pub struct Taken {
	pub asked: u64,
	/// When the handler began, and when it was done; none of what is no call.
	pub handler: Option<[u64; 2]>,
	pub answered: u64,
}

/// What is called.
pub struct Called {
	/// Of the function.
	pub name: String,
	/// The process that answers one event on its standard input, or one for each line.
	pub program: Rc<dyn Fn(bool) -> Command>,
}

enum Line {
	Http(SendRequest<Full<Bytes>>),
	Process,
	Worker(Box<Worker>),
}

struct Worker {
	input: ChildStdin,
	lines: Lines<BufReader<ChildStdout>>,
	_process: Child,
}

pub struct Client {
	way: Way,
	line: Line,
	path: String,
	host: String,
	program: Rc<dyn Fn(bool) -> Command>,
}

impl Client {
	/// Made within a runtime, on which its connection lives.
	pub async fn new(way: Way, server: &Server, called: &Called) -> Result<Self> {
		let path = format!("/2015-03-31/functions/{}", called.name);
		let path = if way == Way::Clone { path + "/invocations" } else { path };
		let (host, program) = (server.address.clone(), called.program.clone());
		let mut client = Self { way, line: Line::Process, path, host, program };
		client.line = match way {
			Way::Process => Line::Process,
			Way::Worker => client.worker().await?,
			Way::Clone | Way::Describe => {
				let stream = TcpStream::connect(&server.address).await.or_cant("connect to flashfork serve")?;
				stream.set_nodelay(true).or_cant("set up a connection")?;
				let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(BenchError::unable)?;
				tokio::spawn(connection);
				Line::Http(sender)
			}
		};
		Ok(client)
	}

	fn command(&self, each_line: bool) -> Command {
		let mut command = (self.program)(each_line);
		command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
		command
	}

	/// One that has imported all.
	async fn worker(&self) -> Result<Line> {
		let doing = "start a Python that is used again";
		let mut process = self.command(true).spawn().or_cant(doing)?;
		let (input, output) = (process.stdin.take(), process.stdout.take());
		let (Some(input), Some(output)) = (input, output) else { return Err(unable!("a process has no streams")) };
		let mut lines = BufReader::new(output).lines();
		lines.next_line().await.or_cant(doing)?;
		Ok(Line::Worker(Box::new(Worker { input, lines, _process: process })))
	}

	/// Has the event `number` answered.
	pub async fn call(&mut self, number: u64) -> Result<Taken> {
		let event = function::event(number);
		let asked = monotonic();
		let text = match &mut self.line {
			Line::Http(sender) => {
				let request = if self.way == Way::Clone { Request::post(&self.path) } else { Request::get(&self.path) };
				let body = if self.way == Way::Clone { Bytes::from(event) } else { Bytes::new() };
				let request = request.header("host", &self.host).body(Full::new(body)).map_err(BenchError::unable)?;
				let response = sender.send_request(request).await.map_err(BenchError::unable)?;
				let (parts, body) = response.into_parts();
				let body = body.collect().await.map_err(BenchError::unable)?.to_bytes();
				if parts.status != StatusCode::OK || parts.headers.contains_key("x-amz-function-error") {
					let told = String::from_utf8_lossy(&body).into_owned();
					return Err(BenchError::Void(format!("flashfork serve says {}: {told}", parts.status)));
				}
				body.to_vec()
			}
			Line::Process => {
				let doing = "run a process";
				let mut process = self.command(false).spawn().or_cant(doing)?;
				if let Some(mut input) = process.stdin.take() {
					input.write_all(event.as_bytes()).await.or_cant(doing)?;
				}
				process.wait_with_output().await.or_cant(doing)?.stdout
			}
			Line::Worker(worker) => {
				let doing = "ask a process";
				worker.input.write_all(format!("{event}\n").as_bytes()).await.or_cant(doing)?;
				worker.lines.next_line().await.or_cant(doing)?.unwrap_or_default().into_bytes()
			}
		};
		let answered = monotonic();
		if self.way == Way::Describe {
			return Ok(Taken { asked, handler: None, answered });
		}
		let answer = function::answer(&text, number, self.way != Way::Worker)?;
		Ok(Taken { asked, handler: Some([answer.begun, answer.ended]), answered })
	}
}

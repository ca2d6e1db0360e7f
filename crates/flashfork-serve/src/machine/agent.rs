//! The agent of a clone, and connections through it to ports of its guest (`flashfork_proto::agent`).

use super::daemon::Daemon;
use crate::error::ApiError;
use flashfork_proto::{
	PREAMBLE_LEN, Preamble, Protocol,
	agent::{CHUNK, Exec, MAX_FRAME, Reply, Request, Store},
	frame, printable,
};
use flashfork_transfer::Source;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::{
	io::{Error, ErrorKind, Result},
	path::Path,
	time::Duration,
};
use tokio::{
	io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split},
	sync::mpsc,
	time::timeout,
};

/// How long a guest may take to answer; one that hangs never does.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection to an agent.
pub struct Agent {
	from: From,
	to: To,
}

type From = BufReader<ReadHalf<TokioIo<Upgraded>>>;
type To = WriteHalf<TokioIo<Upgraded>>;

/// What comes in its time.
async fn patiently<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
	let late = |_| Err(Error::new(ErrorKind::TimedOut, "the guest's agent gives no answer for 60 seconds"));
	timeout(ANSWER, what).await.unwrap_or_else(late)
}

impl Agent {
	pub async fn connect(daemon: &Daemon, clone: &str) -> Result<Agent> {
		patiently(async {
			let stream = daemon.agent(clone).await.map_err(|refusal| Error::other(ApiError::from(refusal).why))?;
			let (from, mut to) = split(stream);
			to.write_all(&Preamble(Protocol::Agent).bytes()).await?;
			let (mut from, mut greeting) = (BufReader::new(from), [0; PREAMBLE_LEN]);
			from.read_exact(&mut greeting).await?;
			Preamble(Protocol::Agent).check(&greeting).map_err(Error::other)?;
			match hear(&mut from).await? {
				Reply::Hello(_) => Ok(Agent { from, to }),
				_ => Err(out_of_turn()),
			}
		})
		.await
	}

	/// Starts a command that outlives this connection: the first line that it prints. One that complains has failed.
	pub async fn start(&mut self, command: Exec) -> Result<String> {
		ask(&mut self.to, &Request::Exec(command)).await?;
		let mut said = Vec::new();
		patiently(async {
			while !said.ends_with(b"\n") && said.len() < CHUNK {
				match hear(&mut self.from).await? {
					Reply::Started { .. } | Reply::StdinCredit(_) => {}
					Reply::Stdout(bytes) => said.extend_from_slice(&bytes),
					Reply::Stderr(bytes) => {
						return Err(Error::other(printable(String::from_utf8_lossy(&bytes).trim())));
					}
					_ => return Err(out_of_turn()),
				}
			}
			Ok(printable(String::from_utf8_lossy(&said).trim()))
		})
		.await
	}

	/// Copies the directory `from` into the guest's directory `to`, by this name.
	pub async fn store(mut self, from: &Path, to: &str, name: &str) -> Result<()> {
		let source = Source::open(from)?;
		ask(&mut self.to, &Request::Store(Store { path: ByteBuf::from(to), name: Some(ByteBuf::from(name)) })).await?;
		let Reply::Storing = patiently(hear(&mut self.from)).await? else { return Err(out_of_turn()) };
		let (pieces, mut queue) = mpsc::channel(4);
		let walk = tokio::task::spawn_blocking(move || source.send(&mut |piece| pieces.blocking_send(piece)));
		let sends = async {
			while let Some(piece) = queue.recv().await {
				patiently(ask(&mut self.to, &Request::Piece(piece))).await?;
			}
			Ok(())
		};
		// Both ways at once: with a trouble it is over.
		let hears = async {
			match hear(&mut self.from).await? {
				Reply::Stored => Ok(()),
				Reply::Trouble(why) => Err(Error::other(printable(&why))),
				_ => Err(out_of_turn()),
			}
		};
		tokio::try_join!(sends, hears)?;
		walk.await?.map_err(|_| ErrorKind::UnexpectedEof.into())
	}

	/// Connects to a port of the guest's 127.0.0.1.
	pub async fn dial(mut self, port: u16) -> Result<DuplexStream> {
		ask(&mut self.to, &Request::Dial(port)).await?;
		let Reply::Dialed = patiently(hear(&mut self.from)).await? else { return Err(out_of_turn()) };
		let (ours, theirs) = duplex(CHUNK);
		tokio::spawn(self.pass_on(theirs));
		Ok(ours)
	}

	/// Until both have sent all, or either is gone.
	async fn pass_on(mut self, stream: DuplexStream) -> Result<()> {
		let (mut read, mut write) = split(stream);
		let there = async {
			let mut bytes = vec![0; CHUNK / 2];
			while let count @ 1.. = read.read(&mut bytes).await? {
				ask(&mut self.to, &Request::Data(ByteBuf::from(&bytes[..count]))).await?;
			}
			ask(&mut self.to, &Request::DataEnd).await
		};
		let back = async {
			loop {
				match hear(&mut self.from).await? {
					Reply::Data(bytes) => write.write_all(&bytes).await?,
					Reply::DataEnd => return write.shutdown().await,
					_ => return Err(out_of_turn()),
				}
			}
		};
		tokio::try_join!(there, back).map(drop)
	}
}

fn out_of_turn() -> Error {
	Error::other("the guest's agent answered out of turn")
}

async fn ask(to: &mut To, request: &Request) -> Result<()> {
	let mut bytes = Vec::new();
	frame::encode(request, MAX_FRAME, &mut bytes).map_err(Error::other)?;
	to.write_all(&bytes).await?;
	to.flush().await
}

async fn hear(from: &mut From) -> Result<Reply> {
	match receive(from, MAX_FRAME).await? {
		Reply::Failed(e) => Err(Error::other(printable(&e.message))),
		reply => Ok(reply),
	}
}

/// Receives a message, as `flashfork_proto::frame` has it.
pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin), limit: usize) -> Result<T> {
	let mut bytes = [0; 4].to_vec();
	from.read_exact(&mut bytes).await?;
	let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
	// Grows as bytes arrive; a length beyond the limit is refused with what has come.
	from.take(length.min(limit) as u64).read_to_end(&mut bytes).await?;
	frame::read(&mut &*bytes, limit).map_err(Error::other)?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

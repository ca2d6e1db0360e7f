//! A worker's process and the two pipes to it.

use std::{
	fs::File,
	io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
	os::unix::process::CommandExt,
	process::{Child, ChildStdin, ChildStdout, Command, Stdio},
	time::{Duration, Instant},
};

use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	fs::{MemfdFlags, memfd_create},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{ARGUMENT, Line};
use crate::{BenchError, Result};

/// How long a worker may take for one answer; filling several gigabytes is the slowest.
const PATIENCE: Duration = Duration::from_secs(600);
/// How much of a dead worker's standard error is quoted, in bytes.
const QUOTED: u64 = 2000;

/// A running worker process. Dropping it kills and reaps the process.
#[derive(Debug)]
pub(super) struct Channel {
	name: String,
	process: Child,
	input: ChildStdin,
	output: BufReader<ChildStdout>,
	errors: File,
}

impl Channel {
	/// Starts this program again as the worker for `subject`, with `environment` on top of the caller's. `name` is used
	/// in errors.
	pub(super) fn open(subject: &str, name: String, environment: Vec<(&'static str, String)>) -> Result<Self> {
		let failed = |error: std::io::Error| BenchError::system(format!("start worker {name}"), error);
		let errors =
			File::from(memfd_create("worker-stderr", MemfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?);
		// Not the file's name: the file may have been replaced since this program was started.
		let mut process = Command::new("/proc/self/exe")
			.args([ARGUMENT, subject, &std::process::id().to_string()])
			.envs(environment)
			.stdin(Stdio::piped())
			.stdout(Stdio::piped())
			.stderr(errors.try_clone().map_err(failed)?)
			// The terminal's Ctrl-C is for the coordinator, which ends its workers when it has what it wants to keep.
			.process_group(0)
			.spawn()
			.map_err(failed)?;
		match (process.stdin.take(), process.stdout.take()) {
			(Some(input), Some(output)) => Ok(Self { name, process, input, output: BufReader::new(output), errors }),
			_ => unreachable!("both were asked to be pipes"),
		}
	}

	pub(super) fn pid(&self) -> u32 {
		self.process.id()
	}

	pub(super) fn write<T: Serialize>(&mut self, message: &T) -> Result {
		let mut line = serde_json::to_vec(message).map_err(|error| self.failed("ask", error.into()))?;
		line.push(b'\n');
		match self.input.write_all(&line) {
			Ok(()) => Ok(()),
			// A worker that failed has said why before it closed its end.
			Err(error) => Err(self.read::<()>().err().unwrap_or_else(|| self.failed("ask", error))),
		}
	}

	pub(super) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
		if !self.readable_within(PATIENCE)? {
			return Err(BenchError::WorkerSilent { worker: self.name.clone(), seconds: PATIENCE.as_secs() });
		}
		let mut line = String::new();
		self.output.read_line(&mut line).map_err(|error| self.failed("hear", error))?;
		if line.is_empty() {
			return Err(self.died());
		}
		match serde_json::from_str(&line).map_err(|error| self.failed("understand", error.into()))? {
			Line::Done(answer) => Ok(answer),
			Line::Failed { text, void } => Err(BenchError::Worker { worker: self.name.clone(), text, void }),
		}
	}

	/// Whether an answer, or the worker's end, is there within `patience`.
	pub(super) fn readable_within(&self, patience: Duration) -> Result<bool> {
		let end = Instant::now() + patience;
		loop {
			let left = end.saturating_duration_since(Instant::now());
			let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
			let mut fds = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
			match poll(&mut fds, Some(&left)) {
				Ok(ready) => return Ok(ready > 0),
				// A signal, such as the user's Ctrl-C: the worker's answer is still to be waited for.
				Err(rustix::io::Errno::INTR) => {}
				Err(errno) => return Err(self.failed("wait for", errno.into())),
			}
		}
	}

	fn failed(&self, what: &str, error: std::io::Error) -> BenchError {
		BenchError::system(format!("{what} worker {}", self.name), error)
	}

	/// Reaps a worker that has closed its end and says how it ended.
	fn died(&mut self) -> BenchError {
		let status = self.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
		let stderr = self.last_words().unwrap_or_else(|error| format!("its standard error can't be read: {error}"));
		BenchError::WorkerDied { worker: self.name.clone(), status, stderr }
	}

	fn last_words(&mut self) -> std::io::Result<String> {
		let length = self.errors.seek(SeekFrom::End(0))?;
		self.errors.seek(SeekFrom::Start(length.saturating_sub(QUOTED)))?;
		let mut text = Vec::new();
		self.errors.read_to_end(&mut text)?;
		Ok(String::from_utf8_lossy(&text).into_owned())
	}
}

impl Drop for Channel {
	fn drop(&mut self) {
		// Both fail only when the process has been reaped already, which is what they are for.
		let _ = self.process.kill();
		let _ = self.process.wait();
	}
}

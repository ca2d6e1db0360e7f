//! One boot: reads the guest's lines until it is gone or its time is over, and judges the end.

use std::{
	io::{self, Read},
	os::fd::AsFd,
	time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Accel, LabError, Outcome, Output, Phase, console::Console, control::Control, qemu::Qemu};

/// Time a guest has to power off once its command is reported.
const POWER_OFF: Duration = Duration::from_secs(5);
/// Time a guest that is not at its end in time has to say where it is.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How much of QEMU's messages is kept.
const MESSAGES: usize = 4096;

/// A guest from power-on to its end.
pub(crate) struct Session<'a> {
	qemu: Qemu,
	output: &'a mut dyn Output,
	console: Console,
	control: Control,
	messages: Vec<u8>,
	started: Instant,
	ready: Option<Instant>,
	/// When its end and all its output were in.
	ended: Option<Instant>,
}

/// The streams in the order they are polled: output before the control line, so that nothing of
/// it is missing when the end is reported.
#[derive(Clone, Copy)]
enum Stream {
	Stdout,
	Stderr,
	Console,
	Control,
	Messages,
}

const STREAMS: [Stream; 5] = [Stream::Stdout, Stream::Stderr, Stream::Console, Stream::Control, Stream::Messages];

impl<'a> Session<'a> {
	/// Takes over a QEMU that has just been started.
	pub fn new(qemu: Qemu, output: &'a mut dyn Output) -> Self {
		Self {
			qemu,
			output,
			console: Console::default(),
			control: Control::default(),
			messages: Vec::new(),
			started: Instant::now(),
			ready: None,
			ended: None,
		}
	}

	/// Follows the guest to its end, which comes after `limit` at the latest.
	pub fn run(mut self, accel: Accel, limit: Duration) -> Result<Outcome, LabError> {
		let timed_out = !self.follow(self.started + limit)?;
		if timed_out && self.ended.is_none() {
			// What it comes to from here on, it has not come to in time.
			let phase = self.phase();
			self.qemu.interrupt();
			self.follow(Instant::now() + LAST_WORDS)?;
			self.console.finish();
			return Err(LabError::Timeout { limit, phase, console: self.console.tail_for_error() });
		}
		self.console.finish();
		if let (Some(status), Some(ready), Some(ended)) = (self.control.status, self.ready, self.ended) {
			return Ok(Outcome {
				status,
				accel,
				kernel_release: self.control.release.take().unwrap_or_default(),
				boot: ready - self.started,
				command: ended - ready,
				kernel_warnings: self.console.warnings,
				oom_kills: self.console.oom_kills,
				console_tail: self.console.tail.into(),
			});
		}
		Err(self.failure(timed_out.then_some(limit)))
	}

	/// Reads until all lines are closed, which is when QEMU is gone (true), or until the time is
	/// over (false).
	fn follow(&mut self, mut deadline: Instant) -> Result<bool, LabError> {
		let mut open = STREAMS.to_vec();
		while !open.is_empty() {
			let left = deadline.saturating_duration_since(Instant::now());
			if left.is_zero() {
				return Ok(false);
			}
			for at in self.wait(&open, left)?.into_iter().rev() {
				if self.read(open[at])? == 0 {
					open.remove(at);
				}
			}
			let now = Instant::now();
			if self.control.release.is_some() {
				self.ready.get_or_insert(now);
			}
			if self.ended.is_none() && (self.control.ended || self.control.failure.is_some()) {
				self.ended = Some(now);
				deadline = deadline.min(now + POWER_OFF);
			}
		}
		Ok(true)
	}

	/// Waits for at most `left`; returns the places in `open` of those streams that have something.
	fn wait(&self, open: &[Stream], left: Duration) -> Result<Vec<usize>, LabError> {
		let mut polled: Vec<PollFd<'_>> = open
			.iter()
			.map(|stream| match stream {
				Stream::Stdout => self.qemu.stdout.as_fd(),
				Stream::Stderr => self.qemu.stderr.as_fd(),
				Stream::Console => self.qemu.console.as_fd(),
				Stream::Control => self.qemu.control.as_fd(),
				Stream::Messages => self.qemu.messages.as_fd(),
			})
			.map(|line| PollFd::from_borrowed_fd(line, PollFlags::IN))
			.collect();
		let left = Timespec::try_from(left).expect("Options::check bounds the timeout");
		match poll(&mut polled, Some(&left)) {
			Ok(_) => {}
			Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
			Err(errno) => return Err(lost_line(errno.into())),
		}
		Ok(polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| at).collect())
	}

	/// Reads once from a stream that has something; returns the number of bytes, 0 at its end.
	fn read(&mut self, stream: Stream) -> Result<usize, LabError> {
		let mut buffer = [0; 65536];
		let length = match stream {
			Stream::Stdout => self.qemu.stdout.read(&mut buffer),
			Stream::Stderr => self.qemu.stderr.read(&mut buffer),
			Stream::Console => self.qemu.console.read(&mut buffer),
			Stream::Control => self.qemu.control.read(&mut buffer),
			Stream::Messages => self.qemu.messages.read(&mut buffer),
		}
		.map_err(lost_line)?;
		let bytes = &buffer[..length];
		if !bytes.is_empty() {
			match stream {
				Stream::Stdout => self.output.stdout(bytes).map_err(LabError::Output)?,
				Stream::Stderr => self.output.stderr(bytes).map_err(LabError::Output)?,
				Stream::Console => self.console.feed(bytes),
				Stream::Control => self.control.feed(bytes)?,
				Stream::Messages => {
					self.messages.extend_from_slice(bytes);
					let excess = self.messages.len().saturating_sub(MESSAGES);
					self.messages.drain(..excess);
				}
			}
		}
		Ok(length)
	}

	fn phase(&self) -> Phase {
		if self.ready.is_some() { Phase::Running } else { Phase::Booting }
	}

	fn failure(mut self, timed_out: Option<Duration>) -> LabError {
		let console = self.console.tail_for_error();
		let phase = self.phase();
		if let Some(reason) = self.control.failure.take() {
			return LabError::Setup { reason, console };
		}
		if self.console.panicked {
			return LabError::Panic { phase, console };
		}
		if let Some(limit) = timed_out {
			return LabError::Timeout { limit, phase, console };
		}
		match self.qemu.child.wait() {
			Ok(status) if !status.success() => LabError::Qemu { status, detail: self.last_message(), console },
			_ => LabError::WentDown { phase, console },
		}
	}

	/// QEMU's last message that is more than a remark on the CPU model.
	fn last_message(&self) -> String {
		let text = String::from_utf8_lossy(&self.messages);
		text.lines()
			.rfind(|line| !line.trim().is_empty() && !line.contains("warning:"))
			.unwrap_or("it gave no reason")
			.to_owned()
	}
}

fn lost_line(error: io::Error) -> LabError {
	LabError::io("cannot read", "the guest's serial lines".as_ref())(error)
}

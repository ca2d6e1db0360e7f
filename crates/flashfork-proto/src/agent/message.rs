//! The messages themselves.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Piece;
use crate::Generation;

/// From the host to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
	/// Answered with [`Reply::Pong`].
	Ping,
	/// Runs a command.
	Exec(Exec),
	/// Standard input of the running command; ignored when none runs.
	Stdin(ByteBuf),
	/// The end of standard input.
	StdinEnd,
	/// Sends a signal, by its Linux number, to the command's process group; ignored when none runs.
	Signal(i32),
	/// The terminal has a new size; ignored without a terminal.
	Resize(TerminalSize),
	/// Credits these bytes as entropy and makes the kernel's generator use them at once.
	Reseed(ByteBuf),
	/// Steps the wall clock to this time.
	SetClock(Stamp),
	/// Runs the hooks in `/etc/flashfork/clone.d`.
	Hooks(CloneIdentity),
	/// Ends the guest.
	PowerOff,
	/// Connects to this TCP port of the guest's own 127.0.0.1.
	Dial(u16),
	/// For who was dialled.
	Data(ByteBuf),
	/// The end of that.
	DataEnd,
	/// Asks for what is at this absolute path.
	Fetch(ByteBuf),
	/// Announces what is to be at a path.
	Store(Store),
	/// The next part of what was announced.
	Piece(Piece),
}

/// From the agent to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
	/// First frame of every connection.
	Hello(Hello),
	/// The agent lives; its monotonic clock in nanoseconds.
	Pong {
		/// CLOCK_MONOTONIC of the guest.
		monotonic_ns: u64,
	},
	/// The command runs.
	Started {
		/// Its process id in the guest.
		pid: u32,
	},
	/// What it wrote to its standard output, or to its terminal.
	Stdout(ByteBuf),
	/// What it wrote to its standard error.
	Stderr(ByteBuf),
	/// This many more bytes of standard input may be sent.
	StdinCredit(u32),
	/// The command ended; all its output has been sent. What its descendants still write is not.
	Exited(Exit),
	/// The kernel's generator was reseeded.
	Reseeded,
	/// The wall clock was stepped.
	ClockSet {
		/// By how much, in nanoseconds; negative if it was ahead.
		step_ns: i64,
	},
	/// All hooks have run, each with how it ended.
	Hooked(Vec<HookRun>),
	/// The guest is going down.
	PoweringOff,
	/// The request could not be done.
	Failed(AgentError),
	/// Somebody listens there and is connected.
	Dialed,
	/// From who was dialled.
	Data(ByteBuf),
	/// The end of that.
	DataEnd,
	/// The next part of what was asked for.
	Piece(Piece),
	/// There is a place for what was announced.
	Storing,
	/// Something of it could not be stored: what and why, in one line.
	Trouble(String),
	/// All of it has come; what could not be stored was said.
	Stored,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
	/// Version of the agent, such as `0.1.0`.
	pub agent: String,
	/// The guest kernel's `boot_id`: the same in a template and its clones, another after a reboot.
	pub boot_id: [u8; 16],
	/// CLOCK_MONOTONIC of the guest, in nanoseconds.
	pub monotonic_ns: u64,
	/// CLOCK_REALTIME of the guest.
	pub realtime: Stamp,
}

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
	/// Program, searched in PATH if it has no `/`, and arguments; at least the program.
	pub argv: Vec<ByteBuf>,
	/// Added to the agent's own environment (PATH, HOME, USER, SHELL; TERM with a terminal).
	pub env: Vec<(ByteBuf, ByteBuf)>,
	/// Working directory; the user's home by default.
	pub cwd: Option<ByteBuf>,
	/// `USER` or `USER:GROUP`, each a name of the guest or a number; root by default.
	pub user: Option<String>,
	/// Gives the command a terminal of this size instead of three pipes.
	pub terminal: Option<TerminalSize>,
	/// Lets the command live on when the connection is lost; its output is then discarded.
	pub survives: bool,
}

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
	/// An absolute path. If a directory is there, the copy goes into it.
	pub path: ByteBuf,
	/// What the copy is called in such a directory; without a name the copy is a directory, and its content goes there.
	pub name: Option<ByteBuf>,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
	/// Lines.
	pub rows: u16,
	/// Characters per line.
	pub columns: u16,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
	/// It exited with this status, 0 to 255.
	Code(u8),
	/// This signal, by its Linux number, killed it.
	Signal(i32),
}

impl Exit {
	/// The status a shell would show: the code, or 128 and the signal.
	#[must_use]
	pub fn shell_status(self) -> i32 {
		match self {
			Self::Code(code) => i32::from(code),
			Self::Signal(signal) => 128_i32.saturating_add(signal),
		}
	}
}

/// A time of the wall clock since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
	/// Whole seconds.
	pub seconds: i64,
	/// Nanoseconds of the second, below 1,000,000,000.
	pub nanoseconds: u32,
}

/// Who a clone is. Its hooks find it in `FLASHFORK_CLONE`, `FLASHFORK_INDEX`, `FLASHFORK_GENERATION`
/// (32 hexadecimal digits) and `FLASHFORK_JOB`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneIdentity {
	/// The clone's name; see [`is_name`](crate::api::is_name).
	pub name: String,
	/// How many clones of the template were made before it.
	pub index: u64,
	/// Its generation id.
	pub generation: Generation,
	/// What it is for, as its maker put it; at most [`MAX_JOB`](crate::signal::MAX_JOB) bytes.
	#[serde(with = "serde_bytes")]
	pub job: Vec<u8>,
}

/// How one hook ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRun {
	/// Its file name.
	pub name: String,
	/// How it ended; `None` if it could not be started or was killed because it took too long.
	pub exit: Option<Exit>,
	/// The last line it wrote, or why it was not run to its end.
	pub message: String,
}

impl HookRun {
	/// Whether it exited with 0.
	#[must_use]
	pub fn succeeded(&self) -> bool {
		self.exit == Some(Exit::Code(0))
	}
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
	/// What kind of failure.
	pub kind: ErrorKind,
	/// What, why, and what to do, in one line.
	pub message: String,
}

/// Kinds of failures that a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
	/// There is no such program, directory, file or user, or nobody listens.
	NotFound,
	/// The guest's kernel does not permit it.
	Denied,
	/// A command runs on this connection already, or there are as many connections as there may be.
	Busy,
	/// The request makes no sense.
	Invalid,
	/// Anything else.
	Failed,
}

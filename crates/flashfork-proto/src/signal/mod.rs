//! Signals between guest and monitor through I/O ports: no driver, no interrupt, no memory shared.
//!
//! | port | size | written | read |
//! |---|---|---|---|
//! | 0x1234 | 1 | a command: does it | the status of the last command |
//! | 0x1238 | 4 | any value: forgets the payload written so far | bytes of reply left |
//! | 0x123c | any | appends to the payload | takes from the reply; zeros after its end |
//!
//! A command takes the payload written before it and leaves a reply. String instructions
//! (`rep outsb`, `rep insb`) move a payload in one exit. Numbers are little-endian.
//!
//! | command | payload | reply | meaning |
//! |---|---|---|---|
//! | 0x01 | | u32 version | is there a monitor, and which version does it speak? |
//! | 0x10 fork | | [`Forked`] | the guest is warm: from here clones go on, and so may this guest |
//! | 0x20 done | optional u32 status, result | | the guest's work is over: the monitor ends it |
//! | 0x30 reset | | u64 nanoseconds since the last reset or the start | restarts the monitor's timer |
//! | 0x40 alive | 16 bytes, the generation id | | this clone has its entropy, clock and hooks |
//!
//! A byte of 0x10, 0x20 or 0x30 to port 0x1234 is all that the HyperFork thesis's protocol knows:
//! its programs work unchanged. Guests use the ports from one CPU at a time.

mod device;
mod guest;
mod message;

pub use device::{Access, Device};
pub use guest::{GuestError, PortIo, Signals};
pub use message::{AttachedDisk, Done, Forked, Role, Signal};

/// Version of this protocol.
pub const VERSION: u32 = 1;

/// Commands and status.
pub const COMMAND_PORT: u16 = 0x1234;
/// Length of the reply; forgetting of the payload.
pub const LENGTH_PORT: u16 = 0x1238;
/// Payload and reply.
pub const DATA_PORT: u16 = 0x123c;
/// Number of ports from [`COMMAND_PORT`] on that belong to the protocol.
pub const PORTS: u16 = 12;

/// Greatest payload or reply in bytes. What a guest writes beyond it is counted, not kept, and makes
/// the next command fail with [`Status::BadPayload`].
pub const MAX_PAYLOAD: usize = 4096;

/// Greatest length of a clone's job in bytes, less what is said of [its disks](AttachedDisk::length).
pub const MAX_JOB: usize = MAX_PAYLOAD - message::HEADER;

/// Numbers of the commands.
pub mod command {
	/// Asks for the version.
	pub const VERSION: u8 = 0x01;
	/// See [`Signal::Fork`](super::Signal::Fork).
	pub const FORK: u8 = 0x10;
	/// See [`Signal::Done`](super::Signal::Done).
	pub const DONE: u8 = 0x20;
	/// See [`Signal::Reset`](super::Signal::Reset).
	pub const RESET: u8 = 0x30;
	/// See [`Signal::Alive`](super::Signal::Alive).
	pub const ALIVE: u8 = 0x40;
}

/// What became of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Status {
	/// Done.
	#[default]
	Ok = 0,
	/// No such command.
	Unknown = 1,
	/// The payload does not fit the command.
	BadPayload = 2,
	/// The monitor won't: a generation id that is not the clone's, a fork without anyone to make clones.
	Refused = 3,
}

impl Status {
	/// The status of this number; none for 0xff, which is what a port without a device reads as.
	#[must_use]
	pub fn from_number(number: u8) -> Option<Self> {
		[Self::Ok, Self::Unknown, Self::BadPayload, Self::Refused].into_iter().find(|status| *status as u8 == number)
	}
}

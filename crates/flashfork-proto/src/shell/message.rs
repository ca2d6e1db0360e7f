//! The messages themselves.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{MAX_POPULATED, MAX_RUNS};
use crate::{
	Generation,
	agent::CloneIdentity,
	printable,
	shape::Shape,
	signal::{AttachedDisk, Done, Forked, Role},
};

/// From the daemon to a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToShell {
	/// Prepare a machine of this shape. First message; answered with [`FromShell::Ready`].
	Prepare(Shape),
	/// Boot a guest that is to become a template. Comes with a memory file for its RAM and, if the shape has a disk,
	/// one for what is written to it; then the kernel unless it is a tiny guest, the initramfs if any, and, if the
	/// shape has a disk, its base image: these opened for reading. Answered with [`FromShell::Done`] when the guest
	/// runs.
	Boot(Box<Boot>),
	/// Stop the booted guest, unless it stands at a fork signal already, and freeze it. Answered with
	/// [`FromShell::Frozen`]; the machine does not go on.
	Freeze,
	/// Become a clone. Comes with the files of the template's memory; then, of each of its disks, the base image,
	/// opened for reading, and the files of what was written to it; then, of each disk attached now, the image and a
	/// sealed file that is empty. Answered with [`FromShell::Claimed`].
	Claim(Box<Claim>),
	/// Begin a live fork: copy what the guest has written since its claim, while it runs. Comes with an empty memory
	/// file for RAM and one for what was written to each disk: as long as these and a bit for each page. Answered with
	/// [`FromShell::Copied`] when next to nothing is left.
	Copy,
	/// After [`FromShell::Copied`]: stop the guest for a moment, copy the rest, save its state, and let it go on. A
	/// guest that stands at a fork signal has its answer. Answered with [`FromShell::Branched`].
	Branch {
		/// Not to fork a guest that stands at no fork signal: nothing would make its clones their own.
		at_signal: bool,
	},
	/// Forget a fork that was begun, and refuse the fork signal at which the guest may stand. Has no answer of its own;
	/// a [`ToShell::Copy`] that has none yet is answered with [`FromShell::Failed`].
	Abandon,
	/// Refuse the fork signal at which the guest stands. Has no answer.
	Refuse,
	/// Connect the stream socket that comes along to this vsock port of the guest. Whether the guest
	/// accepts shows on the socket.
	Connect {
		/// The guest's port.
		port: u32,
	},
	/// Stop all virtual CPUs. Answered with [`FromShell::Done`].
	Pause,
	/// Let them go on. Answered with [`FromShell::Done`].
	Resume,
	/// Drop every write since the claim and start again from the template, as another generation.
	/// Answered with [`FromShell::Claimed`].
	Rollback(Box<Renewal>),
	/// Bytes for the guest's console.
	Input(#[serde(with = "serde_bytes")] Vec<u8>),
	/// End. Answered with [`FromShell::Ended`].
	Stop,
	/// Become all of a clone that one is before anybody has asked for it: memory, disk and virtual CPUs, but no clock,
	/// timer or interrupt. Comes with what a [`ToShell::Claim`] comes with. Answered with [`FromShell::Primed`].
	Prime(Box<Origin>),
	/// After [`FromShell::Primed`], once: have these pages of RAM there as the clone's own. Answered with
	/// [`FromShell::Primed`] again.
	Populate(Vec<Run>),
	/// Become the clone that the shell was primed for. Answered with [`FromShell::Claimed`].
	Go(Box<Go>),
	/// Tell which pages of RAM the clone has written. Answered with [`FromShell::Written`].
	Tell,
	/// Another daemon has come: as [`ToShell::Abandon`], and all that earlier ones have asked for is answered before
	/// this, with [`FromShell::Adopted`] and the same number, which no other daemon has.
	Adopt(u64),
}

/// What makes a copy of a template one of its own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
	/// Its name, index, generation id and job.
	pub identity: CloneIdentity,
	/// Fresh random bytes for the guest; secret.
	pub entropy: [u8; 32],
	/// Disks that the template didn't have.
	pub disks: Vec<AttachedDisk>,
}

impl Renewal {
	/// What the clone's guest finds as the reply to its fork signal, at this time of the host's clock in nanoseconds.
	#[must_use]
	pub fn forked(&self, realtime_ns: u64) -> Forked {
		let Self { identity, entropy, disks } = self.clone();
		Forked { role: Role::Clone, identity, realtime_ns, entropy, disks }
	}
}

/// Entropy is not shown.
impl fmt::Debug for Renewal {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("Renewal").field("identity", &self.identity).finish_non_exhaustive()
	}
}

/// A guest to boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
	/// Its vsock context id, 3 or more.
	pub cid: u32,
	/// What to run in it.
	pub guest: BootGuest,
	/// If the shape has a disk.
	pub disk: Option<BootDisk>,
}

/// How a guest sees its disk, and its clones theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootDisk {
	/// Bytes that the guest may write, and each clone over that; beyond them it gets I/O errors.
	pub limit: u64,
	/// Its serial number; the first [`MAX_SERIAL`](crate::api::MAX_SERIAL) bytes.
	pub serial: String,
	/// The guest may not write at all.
	pub read_only: bool,
}

/// What runs in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootGuest {
	/// A kernel.
	Linux {
		/// Its command line.
		cmdline: String,
		/// Whether an initramfs comes along.
		initramfs: bool,
	},
	/// Real-mode code of at most a page, for tests and measurements.
	Tiny(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// What a shell needs, beside descriptors, to become a clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
	/// Who the clone is.
	pub renewal: Renewal,
	/// Its vsock context id, 3 or more.
	pub cid: u32,
	/// What of.
	pub origin: Origin,
	/// Disks for the first slots with none yet.
	pub attach: Vec<BootDisk>,
}

/// What a clone is made of, beside descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
	/// The machine's state, encoded and checksummed by the monitor.
	#[serde(with = "serde_bytes")]
	pub state: Vec<u8>,
	/// How the files make up RAM.
	pub ram: Vec<Extent>,
	/// How the files make up what was written to each disk.
	pub disks: Vec<Vec<Extent>>,
}

/// Pages of 4 KiB of a memory that are in one of its files. The first extent begins where the memory does, and each
/// other one where the last has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
	/// How many, at least one.
	pub pages: u32,
	/// Which of the files that came along, from 0.
	pub file: u8,
}

/// Pages of 4 KiB of RAM, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
	/// The first one's number, from 0.
	pub first: u32,
	/// How many.
	pub pages: u32,
}

impl Run {
	/// Whether a shell can have `runs` there beforehand, of a RAM of so many pages.
	#[must_use]
	pub fn fit(runs: &[Self], pages: u64) -> bool {
		let inside = |run: &Self| u64::from(run.first) + u64::from(run.pages) <= pages;
		let all: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
		runs.len() <= MAX_RUNS && all <= MAX_POPULATED.into() && runs.iter().all(inside)
	}
}

/// What a shell that was primed needs to become a clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Go {
	/// Who the clone is.
	pub renewal: Renewal,
	/// Its vsock context id, 3 or more.
	pub cid: u32,
}

/// From a shell to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromShell {
	/// The machine is prepared and the shell is locked in: it can be claimed.
	Ready,
	/// The guest gave the fork signal and waits there: a booted one for its [`ToShell::Freeze`], a clone for
	/// [`ToShell::Branch`] or [`ToShell::Abandon`].
	Forked,
	/// What the guest had written when a [`ToShell::Copy`] came is copied, and nearly all since.
	Copied,
	/// The guest was forked, and runs on. The files that came with [`ToShell::Copy`] have what it had written; this
	/// shell has no mapping of them any more.
	Branched {
		/// The machine's state at the fork, encoded and checksummed by the monitor.
		#[serde(with = "serde_bytes")]
		state: Vec<u8>,
		/// How long the guest stood still, and why.
		pause: Pause,
	},
	/// The booted guest is a template now. Comes with its sealed memory and, if the shape has a disk, the
	/// sealed file of what the guest wrote to it, which may be nothing.
	Frozen {
		/// The machine's state, encoded and checksummed by the monitor.
		#[serde(with = "serde_bytes")]
		state: Vec<u8>,
	},
	/// The clone runs: its first exit to the monitor was seen.
	Claimed(ClaimTimes),
	/// The guest says that it has its entropy, clock and hooks.
	Alive(Generation),
	/// The guest restarted its timer, which had run for so many nanoseconds.
	Lap(u64),
	/// A [`ToShell::Pause`] or [`ToShell::Resume`] was done.
	Done,
	/// Something went wrong that the machine goes on with, such as a disk that is full: one line. Once for each
	/// kind and generation.
	Trouble(String),
	/// What the guest wrote to its console.
	Console(#[serde(with = "serde_bytes")] Vec<u8>),
	/// The last request could not be done: what, why, and what to do, in one line.
	Failed(String),
	/// The machine is no more, and the shell is about to exit.
	Ended(Ended),
	/// A [`ToShell::Prime`] was done: the shell can become a clone of that template, and of no other.
	Primed,
	/// The pages that the clone has written, ascending, [`MAX_RUNS`] and [`MAX_POPULATED`] at most.
	Written(Vec<Run>),
	/// A [`ToShell::Adopt`] was done. What comes from here on is nobody else's answer.
	Adopted(u64),
}

/// Nanoseconds of the steps of a claim or rollback, in the shell, from the message's arrival on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimTimes {
	/// Message decoded, seals and state checked.
	pub check: u64,
	/// Memory mapped.
	pub map: u64,
	/// Devices restored, identity written.
	pub devices: u64,
	/// Interrupt controllers, timer and clock set.
	pub machine: u64,
	/// Virtual CPUs set.
	pub vcpus: u64,
	/// From `KVM_RUN` to the guest's first exit.
	pub first_exit: u64,
}

/// Nanoseconds for which a live fork stopped its guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pause {
	/// From the first virtual CPU that was stopped until all and the devices had.
	pub stop: u64,
	/// What was left to be copied.
	pub copy: u64,
	/// The machine's state was saved.
	pub save: u64,
	/// Pages of 4 KiB left to be copied.
	pub pages: u64,
	/// Whether the rest was copied before. Before Linux 6.7, or where nobody may use userfaultfd(2), it can't be told
	/// what is written meanwhile, and all that the guest has written is copied in the pause.
	pub tracked: bool,
}

impl Pause {
	/// All steps together.
	#[must_use]
	pub fn total(&self) -> u64 {
		self.stop.saturating_add(self.copy).saturating_add(self.save)
	}
}

impl ClaimTimes {
	/// All steps together.
	#[must_use]
	pub fn total(&self) -> u64 {
		let steps = [self.check, self.map, self.devices, self.machine, self.vcpus, self.first_exit];
		steps.into_iter().fold(0, u64::saturating_add)
	}
}

/// Why a machine is no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
	/// The guest signalled that its work is over.
	Done(Done),
	/// The guest powered off.
	PowerOff,
	/// The guest reset itself, or met a triple fault.
	Reset,
	/// The daemon asked for it.
	Stopped,
	/// The monitor failed.
	Failed(String),
	/// KVM can't run the guest any further.
	Kvm(String),
}

impl fmt::Display for Ended {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		match self {
			Self::Done(done) if done.result.is_empty() => write!(f, "ended with status {}", done.status),
			Self::Done(done) => {
				let result = String::from_utf8_lossy(&done.result);
				write!(f, "ended with status {}: {}", done.status, printable(result.trim()))
			}
			Self::PowerOff => f.write_str("powered off"),
			Self::Reset => f.write_str("reset itself, or met a triple fault"),
			Self::Stopped => f.write_str("was stopped"),
			Self::Failed(why) => write!(f, "failed: {}", printable(why)),
			Self::Kvm(why) => write!(f, "could not go on: {}", printable(why)),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_a_guest_gave_back_is_shown_on_one_line() {
		let done = Done { status: 3, result: b"one\n\x1b[2Jtwo\xff \n".to_vec() };
		assert_eq!(Ended::Done(done).to_string(), "ended with status 3: one\\n\\u{1b}[2Jtwo\u{fffd}");
	}

	#[test]
	fn times_that_nothing_takes_add_up_to_no_less() {
		let pause = Pause { stop: u64::MAX, copy: 1, save: 1, ..Pause::default() };
		assert_eq!(pause.total(), u64::MAX);
		let times = ClaimTimes { check: u64::MAX, first_exit: 1, ..ClaimTimes::default() };
		assert_eq!(times.total(), u64::MAX);
	}
}

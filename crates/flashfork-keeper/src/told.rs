//! What `flashfork warm` tells: descriptors and numbers in one argument, as it tells the shim, then when the program is
//! ready, what to preload, and the program.

use crate::moment::Moment;
use flashfork_warm::ReadyAt;
use std::{
	ffi::OsString,
	os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Where a descriptor is out of the program's way.
const HIGH: RawFd = 100;

/// What it was told.
#[derive(Debug)]
pub struct Told {
	/// The socket to the command, until the template is ready.
	pub control: OwnedFd,
	/// Where callers come.
	pub listener: OwnedFd,
	/// The directory of the names.
	pub directory: OwnedFd,
	/// What it was made by.
	pub recipe: OwnedFd,
	/// Whether its callers make it anew when it is stale.
	pub renews: bool,
	/// Where the program says itself that it is ready, if that was said.
	pub at: u8,
	/// Most clones to make; 0 for any number.
	pub max: u64,
	/// The template's name.
	pub name: String,
	/// When it is ready.
	pub moment: Moment,
	/// For `LD_PRELOAD`.
	pub preload: OsString,
	/// The program and its arguments.
	pub command: Vec<OsString>,
}

impl Told {
	/// `None` for what `flashfork warm` would not tell.
	pub fn of(arguments: &mut impl Iterator<Item = OsString>) -> Option<Told> {
		let order = arguments.next()?.into_string().ok()?;
		let mut fields = order.splitn(8, ',');
		let mut number = || fields.next()?.parse::<u64>().ok();
		let (control, listener, directory, recipe) = (number()?, number()?, number()?, number()?);
		let (at, max, renews) = (number()?, number()?, number()?);
		let name = fields.next()?.to_owned();
		let take = |fd: u64| {
			let fd = RawFd::try_from(fd).ok().filter(|fd| *fd > 2)?;
			// SAFETY: passed to this process for it alone, and taken once.
			let fd = unsafe { OwnedFd::from_raw_fd(fd) };
			// Not for the program.
			rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok().map(|()| fd)
		};
		// Low numbers are the program's, which may be allowed few.
		let high = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, HIGH).unwrap_or(fd);
		let moment = Moment::of(&arguments.next()?.into_string().ok()?)?;
		let preload = arguments.next()?;
		let command: Vec<_> = arguments.skip(1).collect();
		let told = Told {
			control: take(control)?,
			listener: take(listener)?,
			directory: take(directory)?,
			recipe: high(take(recipe)?),
			renews: renews != 0,
			at: u8::try_from(at).ok()?,
			max,
			name,
			moment,
			preload,
			command,
		};
		(!told.command.is_empty()).then_some(told)
	}

	/// Where it counts as ready.
	pub fn ready_at(&self) -> ReadyAt {
		match (&self.moment, ReadyAt::new(u64::from(self.at))) {
			(Moment::Idle(_), _) => ReadyAt::Idle,
			(Moment::Listen(_), _) => ReadyAt::Listen,
			(Moment::Line(_), _) => ReadyAt::Line,
			(Moment::Itself, at) => {
				at.or(ReadyAt::of_runtime(self.command[0].as_encoded_bytes())).unwrap_or(ReadyAt::Main)
			}
		}
	}
}

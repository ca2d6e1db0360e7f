//! One shell's process, from the daemon's side.

use super::{cgroup::Cgroup, process::Process};
use crate::store::{Held, Kind, Store, StoreError};
use flashfork_cgroup::Cgroups;
use flashfork_proto::{
	shape::Shape,
	shell::{Channel, ChannelError, FromShell, Origin, Run, ToShell},
};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
};
use std::{
	ffi::OsString,
	io,
	os::fd::{BorrowedFd, OwnedFd},
	path::PathBuf,
	process::{Command, Stdio},
	sync::{Arc, Weak},
	time::{Duration, Instant},
};

/// How long making a machine may take.
const PREPARE: Duration = Duration::from_secs(20);

/// How long a shell's answer is waited for awake: the end of a sleep costs a claim a tenth of its time, on an idle
/// processor of a virtual machine. Whoever else wants the processor gets it.
const AWAKE: Duration = Duration::from_micros(500);

/// What a shell is.
#[derive(Debug, Clone)]
pub struct Program {
	/// `flashfork-shell`.
	pub path: PathBuf,
	/// Its arguments; none but in tests.
	pub args: Vec<OsString>,
}

/// A process that waits to become a VM, or is one. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Shell {
	channel: Arc<Channel>,
	process: Process,
	shape: Shape,
	primed: bool,
	/// Where the daemon has some to give. It goes after the process.
	cgroup: Option<Arc<Cgroup>>,
	/// Process and channel, for the next daemon. It goes after the process, too.
	held: Arc<Held>,
}

/// Where a shell's memory is counted.
#[derive(Debug, Clone)]
pub struct Footprint {
	/// Its process.
	pub pid: u32,
	/// What it is.
	pub shape: Shape,
	/// Gone after its end.
	pub cgroup: Option<Weak<Cgroup>>,
}

/// Why a shell was not made, or is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum ShellFailure {
	/// The program can't be run.
	#[error("cannot run {}: {cause}; is flashfork installed completely?", path.display())]
	Program {
		/// Its path.
		path: PathBuf,
		/// The system's reason.
		cause: io::Error,
	},
	/// A descriptor for it.
	#[error("no descriptor for a shell: {0}; raise the daemon's limit (ulimit -n)")]
	Descriptor(io::Error),
	/// It can't be kept.
	#[error(transparent)]
	Store(#[from] StoreError),
	/// Its limits.
	#[error("cannot limit the memory of a shell by its control group: {0}")]
	Cgroup(io::Error),
	/// Its own words.
	#[error("{0}")]
	Said(String),
	/// It copied more for a fork than its guest can have written.
	#[error("the shell has copied more than its guest may have written")]
	Copied,
	/// It is gone.
	#[error("the shell ended unexpectedly ({0})")]
	Gone(String),
	/// It doesn't answer.
	#[error("the shell did not answer within {} s", .0.as_secs())]
	Silent(Duration),
	/// It talks nonsense.
	#[error("the shell's channel: {0}")]
	Channel(#[from] ChannelError),
	/// Another answer than the one asked for.
	#[error("the shell answered out of turn")]
	Unexpected,
}

impl ShellFailure {
	/// Of several waits in a row: what the whole wait was.
	pub(crate) fn after(self, patience: Duration) -> Self {
		if let Self::Silent(_) = self { Self::Silent(patience) } else { self }
	}
}

impl Shell {
	/// Starts one, in its own cgroup if there are `cgroups`, and waits until its machine is prepared and it is locked
	/// in. It ends with this process until `store` is told otherwise.
	pub fn start(
		program: &Program,
		kvm: &OwnedFd,
		shape: Shape,
		cgroups: Option<&Cgroups>,
		store: &Arc<Store>,
	) -> Result<Self, ShellFailure> {
		let (ours, theirs) = Channel::pair().map_err(ShellFailure::Descriptor)?;
		let mut command = Command::new(&program.path);
		command.args(&program.args).env_clear().current_dir("/");
		// By posix_spawn(3), which a closure between fork and exec would rule out: a fork leaves every page of this
		// process to be copied on its next write, in the claims that come. The daemon's standard error isn't shared;
		// what a shell has to say comes through the channel.
		let kvm = kvm.try_clone().map_err(ShellFailure::Descriptor)?;
		let leash = store.leash().map_err(ShellFailure::Descriptor)?;
		command.stdin(theirs.into_descriptor()).stdout(kvm).stderr(Stdio::from(leash));
		let child = command.spawn().map_err(|cause| ShellFailure::Program { path: program.path.clone(), cause })?;
		// Its ends of all.
		drop(command);
		let mut process = Process::started(child).map_err(ShellFailure::Descriptor)?;
		let channel = Arc::new(ours);
		let held = store.hold(Kind::Passing, Vec::new(), vec![process.descriptor(), channel.clone()]);
		let held = held.inspect_err(|_| {
			process.kill();
			process.wait();
		})?;
		let mut shell = Self { channel, process, shape, primed: false, cgroup: None, held };
		// It waits for its first message, so that what it takes from here on is charged where it belongs.
		let cgroup = cgroups.map(|cgroups| Cgroup::new(cgroups, shape, shell.pid())).transpose();
		shell.cgroup = cgroup.map_err(ShellFailure::Cgroup)?.map(Arc::new);
		shell.prepare(shape).map_err(|failure| shell.explain(failure))?;
		Ok(shell)
	}

	/// One that an earlier daemon has made a clone of, whose `held` has these for process and channel.
	#[must_use]
	pub fn adopt(
		held: Arc<Held>,
		pid: u32,
		process: Arc<OwnedFd>,
		channel: Arc<Channel>,
		shape: Shape,
		cgroup: Option<PathBuf>,
	) -> Self {
		let cgroup = cgroup.map(|path| Arc::new(Cgroup::adopt(path, shape)));
		Self { channel, process: Process::adopted(pid, process), shape, primed: false, cgroup, held }
	}

	/// What holds it beside this daemon.
	#[must_use]
	pub fn held(&self) -> Arc<Held> {
		self.held.clone()
	}

	fn prepare(&self, shape: Shape) -> Result<(), ShellFailure> {
		self.channel.greet()?;
		self.wait(Instant::now() + PREPARE, PREPARE)?;
		self.channel.expect_greeting()?;
		self.send(&ToShell::Prepare(shape), &[])?;
		match self.hear(PREPARE)? {
			FromShell::Ready => Ok(()),
			FromShell::Failed(why) => Err(ShellFailure::Said(why)),
			_ => Err(ShellFailure::Unexpected),
		}
	}

	/// Has it take what a template is, and the descriptors that belong to that, and waits until it has: then it becomes
	/// a clone of that by [`ToShell::Go`], and is good for nothing else. Its guest may write `disk` bytes to its disk,
	/// and is known to write the pages `written` of its RAM first of all.
	///
	/// # Errors
	/// [`ShellFailure`]; it is of no more use.
	pub fn prime(
		&mut self,
		origin: Origin,
		fds: &[BorrowedFd<'_>],
		disk: u64,
		written: &[Run],
	) -> Result<(), ShellFailure> {
		self.promise(disk)?;
		self.send(&ToShell::Prime(Box::new(origin)), fds)?;
		self.until_primed()?;
		if !written.is_empty() {
			self.send(&ToShell::Populate(written.to_vec()), &[])?;
			self.until_primed()?;
		}
		self.primed = true;
		Ok(())
	}

	fn until_primed(&self) -> Result<(), ShellFailure> {
		match self.hear(PREPARE)? {
			FromShell::Primed => Ok(()),
			FromShell::Failed(why) => Err(ShellFailure::Said(why)),
			_ => Err(ShellFailure::Unexpected),
		}
	}

	/// Whether it was primed.
	#[must_use]
	pub fn is_primed(&self) -> bool {
		self.primed
	}

	/// A channel that closed says nothing; how the process ended does.
	fn explain(&mut self, failure: ShellFailure) -> ShellFailure {
		match failure {
			// It may have closed it and live on.
			ShellFailure::Channel(e) if e.is_gone() => ShellFailure::Gone(self.put_down()),
			other => other,
		}
	}

	/// Its end of the channel, for a thread that reads and others that write.
	#[must_use]
	pub fn channel(&self) -> Arc<Channel> {
		self.channel.clone()
	}

	/// Sends a message, without waiting for a shell that doesn't read.
	///
	/// # Errors
	/// [`ShellFailure::Channel`].
	pub fn send(&self, message: &ToShell, fds: &[BorrowedFd<'_>]) -> Result<(), ShellFailure> {
		Ok(self.channel.try_send(message, fds)?)
	}

	/// The next message, if it comes in time.
	pub fn receive(&self, within: Duration) -> Result<(FromShell, Vec<OwnedFd>), ShellFailure> {
		self.wait(Instant::now() + within, within)?;
		Ok(self.channel.receive()?)
	}

	/// The next message, which no descriptors may come with, if it comes in time.
	pub fn hear(&self, within: Duration) -> Result<FromShell, ShellFailure> {
		self.wait(Instant::now() + within, within)?;
		Ok(self.channel.receive_bare()?)
	}

	fn wait(&self, deadline: Instant, patience: Duration) -> Result<(), ShellFailure> {
		let asleep = Instant::now() + AWAKE;
		loop {
			let now = Instant::now();
			let left = if now < asleep { Duration::ZERO } else { deadline.saturating_duration_since(now) };
			let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
			match poll(&mut [PollFd::new(&*self.channel, PollFlags::IN)], Some(&left)) {
				Ok(0) if now < asleep => std::thread::yield_now(),
				Ok(0) => return Err(ShellFailure::Silent(patience)),
				Ok(_) => return Ok(()),
				Err(Errno::INTR) => {}
				Err(e) => return Err(ChannelError::Io(e.into()).into()),
			}
		}
	}

	/// Lets its guest write `bytes` to its disk, in memory. Before there is a guest; until then it is nothing.
	///
	/// # Errors
	/// [`ShellFailure::Cgroup`].
	pub fn promise(&self, bytes: u64) -> Result<(), ShellFailure> {
		match &self.cgroup {
			Some(cgroup) if bytes > 0 => cgroup.promise(bytes).map_err(ShellFailure::Cgroup),
			_ => Ok(()),
		}
	}

	/// Where its memory is counted.
	#[must_use]
	pub fn footprint(&self) -> Footprint {
		Footprint { pid: self.pid(), shape: self.shape, cgroup: self.cgroup.as_ref().map(Arc::downgrade) }
	}

	/// Its process id.
	#[must_use]
	pub fn pid(&self) -> u32 {
		self.process.pid()
	}

	/// Whether its process still runs.
	pub fn lives(&mut self) -> bool {
		self.process.lives()
	}

	/// Kills it, without waiting.
	pub fn kill(&mut self) {
		self.process.kill();
	}

	/// Kills it if it hasn't ended by itself, and says how it ended.
	pub fn put_down(&mut self) -> String {
		self.kill();
		self.end()
	}

	/// Waits for its end, and says how it came.
	pub fn end(&mut self) -> String {
		self.process.wait()
	}
}

#[cfg(test)]
impl Shell {
	/// One that a test plays, at this end of its channel, whose patience has an end.
	pub(crate) fn played(shape: Shape) -> (Self, Channel) {
		use rustix::net::sockopt::{Timeout, set_socket_timeout};
		let (channel, theirs) = Channel::pair().unwrap();
		set_socket_timeout(&theirs, Timeout::Recv, Some(Duration::from_secs(120))).unwrap();
		// It ends with this process, whatever becomes of the test.
		let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
		let held = Store::none().unwrap().note(Kind::Passing, Vec::new());
		let process = Process::started(child).unwrap();
		(Self { channel: Arc::new(channel), process, shape, primed: false, cgroup: None, held }, theirs)
	}
}

impl Drop for Shell {
	fn drop(&mut self) {
		self.put_down();
	}
}

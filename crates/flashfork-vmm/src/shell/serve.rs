//! The controller: requests, events and console of a machine, one thread for all of them.

use super::{
	ShellError,
	claim::{name, nanoseconds, times},
	console::Output,
	disk::Image,
};
use crate::{
	boot::Source,
	cpu::Exit,
	events::Event,
	machine::{Blank, Deltas, Machine, MachineError},
};
use flashfork_proto::{
	Generation,
	shell::{Channel, ClaimTimes, Ended, FromShell, MAX_MESSAGE, Renewal, ToShell},
	signal::{Signal, Status},
};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
	time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};
use std::{
	collections::VecDeque,
	io,
	os::fd::{AsFd, OwnedFd},
	sync::{
		Arc,
		atomic::{AtomicBool, Ordering},
		mpsc,
	},
	time::{Duration, Instant},
};

/// How long a guest may stay inside before it is asked out, so that the daemon hears of it; also how often input waits
/// for room in the guest's serial port.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Events acted on before requests are looked at again: a guest can make new ones all the time.
const TURN: usize = 64;

/// Bytes of input that wait for the guest; what comes beyond is lost, as on a line without flow control.
const INPUT: usize = 64 << 10;

/// What the controller gets.
pub(super) enum Handed {
	Running(Machine),
	/// A machine without memory; vCPU 0's thread is about to serve.
	ToBoot {
		machine: Machine,
		blank: Blank,
		source: Source,
		disk: Option<Image>,
		cid: u32,
	},
}

/// The way of a machine to its controller, which doesn't look until the timer says so: waking it costs as much as a
/// third of a claim.
#[derive(Clone)]
pub(super) struct Handover {
	machine: mpsc::Sender<Handed>,
	pub(super) start: Arc<Start>,
}

/// Whether the guest has run.
pub(super) struct Start {
	left: AtomicBool,
	/// Wakes the controller.
	timer: OwnedFd,
}

impl Handover {
	/// Gives the machine away. The controller takes it when the guest has left for the first time, or after some
	/// patience.
	pub(super) fn give(self, machine: Handed) {
		let wait = match machine {
			Handed::Running(_) => PATIENCE,
			Handed::ToBoot { .. } => NOW,
		};
		// The controller waits for it.
		let _ = self.machine.send(machine);
		self.start.wake(wait);
	}
}

/// The shortest time a timer takes.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 1 };

impl Start {
	fn wake(&self, after: Timespec) {
		let once = Itimerspec { it_interval: Timespec::default(), it_value: after };
		timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).expect("a timer of its own takes a time");
	}

	/// What to do at the first exit: tell the daemon, then free `rest` and let the controller have the machine.
	pub(super) fn first_exit<T: Send + 'static>(
		self: &Arc<Self>,
		channel: Arc<Channel>,
		times: ClaimTimes,
		rest: T,
	) -> impl FnOnce() + Send + 'static {
		let (start, started) = (self.clone(), Instant::now());
		self.left.store(false, Ordering::Release);
		move || {
			let times = ClaimTimes { first_exit: nanoseconds(started.elapsed()), ..times };
			// A daemon that has gone is for the controller to notice.
			let _ = channel.send(&FromShell::Claimed(times), &[]);
			// The daemon may wait awake for this processor, which the kernel gave to this thread when the daemon woke
			// it: else it would hear of the claim when the guest next waits for something.
			std::thread::yield_now();
			start.left.store(true, Ordering::Release);
			start.wake(NOW);
			drop(rest);
		}
	}
}

/// Starts the controller. It waits for a machine; its result comes when the machine is gone.
pub(super) fn spawn(
	channel: Arc<Channel>,
	console: Output,
) -> Result<(Handover, mpsc::Receiver<Result<(), ShellError>>), ShellError> {
	let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
		.map_err(|e| ShellError::System("make a timer", e.into()))?;
	let start = Arc::new(Start { left: AtomicBool::new(true), timer });
	let (machine, handed) = mpsc::channel();
	let handover = Handover { machine, start: start.clone() };
	let (result, controller) = mpsc::sync_channel(1);
	let (begun, wait) = mpsc::channel();
	let body = move || {
		drop(begun);
		if let Some(handed) = take(&start, &handed) {
			let ended = begin(handed, channel, console, start).and_then(Controller::run);
			// vCPU 0's thread may have failed on its own.
			let _ = result.send(ended);
		}
	};
	std::thread::Builder::new()
		.name("controller".into())
		.spawn(body)
		.map_err(|e| ShellError::System("start a thread", e))?;
	// What a thread does to begin with, a locked-in shell may not. Nothing is sent: the end of the channel says it.
	let _ = wait.recv() as Result<(), _>;
	Ok((handover, controller))
}

/// The machine, when it is time.
fn take(start: &Start, handed: &mpsc::Receiver<Handed>) -> Option<Handed> {
	wait_for(&mut [PollFd::new(&start.timer, PollFlags::IN)], None).ok()?;
	handed.recv().ok()
}

fn begin(handed: Handed, channel: Arc<Channel>, console: Output, start: Arc<Start>) -> Result<Controller, ShellError> {
	let machine = match handed {
		Handed::Running(machine) => machine,
		Handed::ToBoot { mut machine, blank, source, disk, cid } => {
			machine.devices().vsock().set_cid(cid);
			machine.boot_in(blank, &source, disk)?;
			machine.resume();
			channel.send(&FromShell::Done, &[])?;
			machine
		}
	};
	let input = VecDeque::new();
	Ok(Controller {
		channel,
		console,
		machine,
		start,
		alive: None,
		at_fork: false,
		copying: false,
		input,
		buffer: Vec::with_capacity(MAX_MESSAGE),
	})
}

struct Controller {
	channel: Arc<Channel>,
	console: Output,
	machine: Machine,
	start: Arc<Start>,
	/// What the guest has said of itself, for a daemon that wasn't there.
	alive: Option<Generation>,
	/// The guest waits for the answer to its fork signal.
	at_fork: bool,
	/// What it has written is being copied for a fork, and the daemon wants to know when nearly all is.
	copying: bool,
	/// For the guest's console, which takes a few bytes at a time.
	input: VecDeque<u8>,
	buffer: Vec<u8>,
}

impl Controller {
	/// Until the machine is no more.
	fn run(mut self) -> Result<(), ShellError> {
		loop {
			let started = self.start.left.load(Ordering::Acquire);
			let timeout = match started && self.input.is_empty() {
				_ if self.copying => Some(Timespec::default()),
				true => None,
				false => Some(PATIENCE),
			};
			let mut ready = [
				PollFd::new(&*self.channel, PollFlags::IN),
				PollFd::from_borrowed_fd(self.machine.event_fd(), PollFlags::IN),
				PollFd::from_borrowed_fd(self.console.as_fd(), PollFlags::IN),
			];
			let count = wait_for(&mut ready, timeout)?;
			let requested = !ready[0].revents().is_empty();
			if count == 0 && !started {
				self.machine.nudge();
			}
			let mut ended = self.events()?;
			if ended.is_none() && requested {
				let received = self.channel.receive_into(&mut self.buffer)?;
				ended = match self.request(received.message, received.descriptors) {
					Err(ShellError::Machine(e)) => {
						self.channel.send(&FromShell::Failed(e.to_string()), &[])?;
						None
					}
					other => other?,
				};
				// Pausing may have met some.
				if ended.is_none() {
					ended = self.events()?;
				}
			}
			if self.copying && ended.is_none() {
				self.copy()?;
			}
			self.type_input();
			self.print()?;
			if let Some(ended) = ended {
				return Ok(self.channel.send(&FromShell::Ended(ended), &[])?);
			}
		}
	}

	/// Acts on what has happened; gives the machine's end.
	fn events(&mut self) -> Result<Option<Ended>, ShellError> {
		self.machine.rearm();
		for _ in 0..TURN {
			let Some(event) = self.machine.event(Some(Duration::ZERO)) else { return Ok(None) };
			match event {
				Event::Alive(generation) => {
					self.alive = Some(generation);
					self.channel.send(&FromShell::Alive(generation), &[])?;
				}
				Event::Lap(lap) => self.channel.send(&FromShell::Lap(lap), &[])?,
				Event::Trouble(line) => self.channel.send(&FromShell::Trouble(line), &[])?,
				Event::Exit { exit: Ok(Exit::Stopped), .. } => {}
				Event::Exit { exit: Ok(Exit::Signal(Signal::Fork)), .. } => {
					self.at_fork = true;
					self.channel.send(&FromShell::Forked, &[])?;
				}
				Event::Exit { exit: Ok(Exit::Signal(Signal::Done(done))), .. } => return Ok(Some(Ended::Done(done))),
				// The ports answer these themselves.
				Event::Exit { exit: Ok(Exit::Signal(Signal::Reset | Signal::Alive(_))), .. } => self.machine.resume(),
				Event::Exit { exit: Ok(Exit::PowerOff), .. } => return Ok(Some(Ended::PowerOff)),
				Event::Exit { exit: Ok(Exit::Reset), .. } => return Ok(Some(Ended::Reset)),
				Event::Exit { vcpu, exit: Err(e) } => {
					return Ok(Some(Ended::Kvm(MachineError::Run(vcpu, e).to_string())));
				}
			}
		}
		self.machine.remind();
		Ok(None)
	}

	/// If the guest stands at one.
	fn refuse_fork(&mut self) {
		if std::mem::take(&mut self.at_fork) {
			self.machine.devices().answer(Status::Refused, &[]);
			self.machine.resume();
		}
	}

	fn abandon(&mut self) -> Result<(), ShellError> {
		if std::mem::take(&mut self.copying) {
			self.channel.send(&FromShell::Failed("the fork was given up".into()), &[])?;
		}
		self.machine.end_branch()?;
		self.refuse_fork();
		Ok(())
	}

	/// Does what the daemon asks for; gives the machine's end.
	fn request(&mut self, request: ToShell, descriptors: Vec<OwnedFd>) -> Result<Option<Ended>, ShellError> {
		let wanted = match request {
			ToShell::Connect { .. } => 1,
			ToShell::Copy => 1 + self.machine.devices().disks(),
			_ => 0,
		};
		let got = descriptors.len();
		if got != wanted {
			return Err(ShellError::Descriptors { got, wanted });
		}
		match request {
			ToShell::Connect { port } => {
				descriptors.into_iter().for_each(|stream| self.machine.devices().vsock().connect(stream, port));
			}
			ToShell::Pause => {
				self.machine.pause()?;
				self.done()?;
			}
			ToShell::Resume => {
				if self.at_fork {
					self.refuse_fork();
				} else {
					self.machine.resume();
				}
				self.done()?;
			}
			ToShell::Freeze => self.freeze()?,
			ToShell::Copy => self.begin_copy(descriptors)?,
			ToShell::Branch { at_signal } => self.branch(at_signal)?,
			ToShell::Abandon => self.abandon()?,
			ToShell::Adopt(number) => {
				self.abandon()?;
				// A machine that has stood still has given all answers before.
				self.machine.pause()?;
				self.machine.resume();
				if let Some(generation) = self.alive {
					self.channel.send(&FromShell::Alive(generation), &[])?;
				}
				self.channel.send(&FromShell::Adopted(number), &[])?;
			}
			ToShell::Refuse => self.refuse_fork(),
			ToShell::Rollback(renewal) => self.rollback(&renewal)?,
			ToShell::Input(bytes) => {
				let room = INPUT - self.input.len();
				self.input.extend(bytes.iter().take(room));
			}
			ToShell::Tell => {
				// Where it can't be found out nothing is known, and nothing depends on it but time.
				let written = self.machine.written().unwrap_or_default();
				self.channel.send(&FromShell::Written(written), &[])?;
			}
			ToShell::Stop => {
				self.machine.pause()?;
				return Ok(Some(Ended::Stopped));
			}
			other @ (ToShell::Prepare(_)
			| ToShell::Boot(_)
			| ToShell::Claim(_)
			| ToShell::Prime(_)
			| ToShell::Populate(_)
			| ToShell::Go(_)) => {
				return Err(ShellError::Order { got: name(&other), wanted: "something for a running machine" });
			}
		}
		Ok(None)
	}

	fn done(&self) -> Result<(), ShellError> {
		Ok(self.channel.send(&FromShell::Done, &[])?)
	}

	fn freeze(&mut self) -> Result<(), ShellError> {
		self.machine.pause()?;
		let frozen = self.machine.freeze(self.at_fork)?;
		let state = frozen.state.encode()?;
		let of_disk = frozen.disks.iter().flat_map(|disk| disk.overlay.files());
		let descriptors: Vec<_> = frozen.ram.files().iter().chain(of_disk).map(AsFd::as_fd).collect();
		Ok(self.channel.send(&FromShell::Frozen { state }, &descriptors)?)
	}

	fn begin_copy(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), ShellError> {
		let mut descriptors = descriptors.into_iter();
		let ram = descriptors.next().ok_or(ShellError::Descriptors { got: 0, wanted: 1 })?;
		self.machine.begin_branch(&Deltas { ram, disks: descriptors.collect() })?;
		self.copying = true;
		Ok(())
	}

	/// Copies part of what the guest has written, between two looks at requests and events.
	fn copy(&mut self) -> Result<(), ShellError> {
		match self.machine.step_branch() {
			Ok(false) => Ok(()),
			Ok(true) => {
				self.copying = false;
				Ok(self.channel.send(&FromShell::Copied, &[])?)
			}
			Err(e) => {
				self.copying = false;
				self.machine.end_branch()?;
				Ok(self.channel.send(&FromShell::Failed(e.to_string()), &[])?)
			}
		}
	}

	fn branch(&mut self, at_signal: bool) -> Result<(), ShellError> {
		if at_signal && !self.at_fork {
			// It was refused, and has gone on.
			self.machine.end_branch()?;
			return Ok(self.channel.send(&FromShell::Failed("its guest stands at no fork signal".into()), &[])?);
		}
		// Whatever comes of it, the guest has its answer.
		let (state, pause) = self.machine.branch(std::mem::take(&mut self.at_fork))?;
		Ok(self.channel.send(&FromShell::Branched { state: state.encode()?, pause }, &[])?)
	}

	fn rollback(&mut self, renewal: &Renewal) -> Result<(), ShellError> {
		(self.copying, self.at_fork) = (false, false);
		self.machine.pause()?;
		let steps = self.machine.rollback(renewal)?;
		let first_exit = self.start.first_exit(self.channel.clone(), times(Duration::ZERO, &steps), ());
		self.machine.resume_telling(first_exit);
		Ok(())
	}

	fn type_input(&mut self) {
		if !self.input.is_empty() {
			let taken = self.machine.devices().input(self.input.make_contiguous());
			self.input.drain(..taken);
		}
	}

	fn print(&mut self) -> Result<(), ShellError> {
		let bytes = self.console.take();
		if bytes.is_empty() { Ok(()) } else { Ok(self.channel.send(&FromShell::Console(bytes), &[])?) }
	}
}

/// Waits until one of `fds` is ready and gives their number; 0 after `timeout`.
fn wait_for(fds: &mut [PollFd<'_>], timeout: Option<Timespec>) -> Result<usize, ShellError> {
	loop {
		match poll(fds, timeout.as_ref()) {
			Err(Errno::INTR) => {}
			other => return other.map_err(|e| ShellError::System("poll", io::Error::from(e))),
		}
	}
}

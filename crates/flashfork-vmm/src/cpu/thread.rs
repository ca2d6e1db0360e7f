//! The thread of a vCPU: does what it is told, and can be stopped at any moment.

use super::{Exit, Vcpu};
use crate::{
	devices::Devices,
	events::{Event, Outbox},
};
use kvm_bindings::kvm_run;
use std::{
	cell::Cell,
	fmt, ptr,
	sync::{
		Arc, Once, OnceLock,
		atomic::{AtomicBool, Ordering},
		mpsc,
	},
	thread,
	time::{Duration, Instant},
};
use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

/// Kicks a vCPU. The kernel refuses real-time signals while too many of the user's wait.
const KICK: libc::c_int = libc::SIGUSR1;

thread_local! {
	/// `kvm_run` of the vCPU this thread has, for the signal handler.
	static RUN: Cell<*mut kvm_run> = const { Cell::new(ptr::null_mut()) };
}

enum Command {
	/// Tells when the guest has left for the first time.
	Run(Option<Box<dyn FnOnce() + Send>>),
	Call(Box<dyn FnOnce(&mut Vcpu) + Send>),
}

/// The side that tells.
pub struct VcpuHandle {
	commands: mpsc::Sender<Command>,
	stop: Arc<AtomicBool>,
	thread: Arc<OnceLock<libc::pthread_t>>,
}

/// The side that does: [`VcpuLoop::run`] is the body of a thread.
pub struct VcpuLoop {
	vcpu: Vcpu,
	devices: Arc<Devices>,
	commands: mpsc::Receiver<Command>,
	events: Outbox,
	stop: Arc<AtomicBool>,
	thread: Arc<OnceLock<libc::pthread_t>>,
}

/// Both sides for `vcpu`; what it stops for goes to `events`.
pub fn pair(vcpu: Vcpu, devices: Arc<Devices>, events: Outbox) -> (VcpuHandle, VcpuLoop) {
	static HANDLER: Once = Once::new();
	HANDLER.call_once(|| {
		register_signal_handler(KICK, on_kick).expect("the signal takes a handler");
	});
	let (sender, commands) = mpsc::channel();
	let (stop, thread) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
	let handle = VcpuHandle { commands: sender, stop: stop.clone(), thread: thread.clone() };
	(handle, VcpuLoop { vcpu, devices, commands, events, stop, thread })
}

/// Makes the `KVM_RUN` that is going on, or the next, return at once.
extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
	let run = RUN.get();
	if !run.is_null() {
		// SAFETY: set by the thread that this handler interrupts, to a page mapped while it is set.
		unsafe { ptr::write_volatile(&raw mut (*run).immediate_exit, 1) };
	}
}

impl VcpuHandle {
	/// The vCPU runs the guest until it exits for a reason or is stopped.
	pub fn run(&self) {
		self.start(None);
	}

	/// As [`Self::run`]; `first_exit` is called on the vCPU's thread when it has left the guest for the first time,
	/// whyever.
	pub fn run_telling(&self, first_exit: impl FnOnce() + Send + 'static) {
		self.start(Some(Box::new(first_exit)));
	}

	fn start(&self, first_exit: Option<Box<dyn FnOnce() + Send>>) {
		self.stop.store(false, Ordering::SeqCst);
		self.send(Command::Run(first_exit));
	}

	/// Makes a running vCPU leave the guest; it goes back by itself.
	pub fn nudge(&self) {
		if let Some(&thread) = self.thread.get() {
			// SAFETY: the thread lives as long as the commands' sender, which `self` owns.
			unsafe { libc::pthread_kill(thread, KICK) };
		}
	}

	/// Does `what` on the vCPU's thread, when it doesn't run the guest, and gives its result.
	pub fn call<T: Send + 'static>(&self, what: impl FnOnce(&mut Vcpu) -> T + Send + 'static) -> mpsc::Receiver<T> {
		let (sender, receiver) = mpsc::sync_channel(1);
		// The receiver may be gone: then nobody wants to know.
		self.send(Command::Call(Box::new(move |vcpu| drop(sender.send(what(vcpu))))));
		receiver
	}

	/// Asks a running vCPU to stop; it answers with [`Event::Exit`].
	pub fn stop(&self) {
		self.stop.store(true, Ordering::SeqCst);
		self.nudge();
		// Else the thread hasn't begun, and will see `stop`.
	}

	/// A thread that is gone has reported why, and what is waited for then never comes: the receiver says so.
	fn send(&self, command: Command) {
		let _ = self.commands.send(command);
	}
}

impl VcpuLoop {
	/// Number of the vCPU.
	pub fn id(&self) -> u8 {
		self.vcpu.id
	}

	/// The vCPU, before the loop runs.
	pub fn vcpu(&mut self) -> &mut Vcpu {
		&mut self.vcpu
	}

	/// The devices it runs with.
	pub fn devices(&self) -> &Devices {
		&self.devices
	}

	/// Serves until every [`VcpuHandle`] is gone.
	pub fn run(mut self) {
		RUN.set(&raw mut *self.vcpu.fd.get_kvm_run());
		// Whoever has started this may have blocked it.
		unblock_signal(KICK).expect("it is a signal");
		// SAFETY: asks for this thread's own id.
		let _ = self.thread.set(unsafe { libc::pthread_self() });
		let (mut stopped, mut called) = (false, false);
		// After a call another mostly follows, or the run.
		while let Ok(command) = if called { wait_awake(&self.commands) } else { self.commands.recv() } {
			called = matches!(command, Command::Call(_));
			match command {
				Command::Run(first_exit) => {
					let ready = if stopped { self.vcpu.note_stop() } else { Ok(()) };
					let exit = ready.and_then(|()| self.vcpu.run(&self.devices, &self.stop, first_exit));
					stopped = matches!(exit, Ok(Exit::Stopped));
					self.events.put(Event::Exit { vcpu: self.vcpu.id, exit });
				}
				Command::Call(what) => what(&mut self.vcpu),
			}
		}
		RUN.set(ptr::null_mut());
	}
}

/// How long an answer is waited for awake that takes less than it would to fall asleep and wake up.
const AWAKE: Duration = Duration::from_micros(200);

/// Receives what comes soon. Whoever else wants the processor gets it.
pub fn wait_awake<T>(from: &mpsc::Receiver<T>) -> Result<T, mpsc::RecvError> {
	let begun = Instant::now();
	while begun.elapsed() < AWAKE {
		match from.try_recv() {
			Ok(received) => return Ok(received),
			Err(mpsc::TryRecvError::Disconnected) => return Err(mpsc::RecvError),
			Err(mpsc::TryRecvError::Empty) => thread::yield_now(),
		}
	}
	from.recv()
}

impl fmt::Debug for VcpuHandle {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.debug_struct("VcpuHandle").field("stop", &self.stop).finish_non_exhaustive()
	}
}

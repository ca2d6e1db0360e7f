//! At the ready point: the process becomes a template, or says why not and ends.

use super::{
	message::send,
	process::{block_signals, threads},
	serve::{LISTENER, SIGNALS, watch},
	template::{CONNECTIONS, FREE, NONE, Order, Template},
};
use core::mem::MaybeUninit;
use flashfork_core::{Error, Pages, never_seal::Reason, survey};
use flashfork_warm::{Facts, ReadyAt, Step, Tell, WAITING};

/// How long a thread that was joined may take to leave the process, in milliseconds.
const JOINED: u32 = 200;

/// Descriptors kept for what is no clone: a request's own, questions, the epoll and the like. Clones have the rest.
const KEPT: u64 = 16;

/// Makes a template of this process in `place` and has `flashfork warm` name it. Doesn't return if that can't be.
pub fn prepare(place: &mut Option<Template>, order: Order, at: ReadyAt) {
	let control = order.control;
	if !alone() {
		refuse(control, Reason::Threads);
	}
	// Without /proc nobody can tell.
	if survey::has_private_huge_pages(&mut [0; 8192]) == Ok(true) {
		refuse(control, Reason::HugeTlb);
	}
	// SAFETY: flushes what the warm-up has printed, once: clones would each print it again.
	unsafe { libc::fflush(core::ptr::null_mut()) };
	// SAFETY: the process's one thread.
	unsafe {
		super::files::note_objects();
		super::follow::note_files(&order);
		if at == ReadyAt::Runtime {
			super::follow::note_environment_when_ready();
		}
	}
	let sealed = flashfork_core::seal_template(Pages::Auto);
	flashfork_core::stats::current().seal(&sealed);
	let (bytes, unsealed) = match sealed.outcome {
		Ok(outcome) => (outcome.sealed, None),
		// Whatever would share with its clones what the kernel writes to must have none.
		Err(Error::Refused(reason))
			if ![Reason::LocksFuture, Reason::FileSizeLimit, Reason::VmaLimit, Reason::LowMemory].contains(&reason) =>
		{
			refuse(control, reason)
		}
		Err(Error::Refused(reason)) => (0, Some(reason as u8)),
		Err(_) => (0, Some(Reason::CopyFailed as u8)),
	};
	drop(sealed);
	super::mapped::note();
	let (changed, unwatched) = super::files::counts();
	// From here on the policy has nothing to decide.
	flashfork_core::fork::stop();
	// SAFETY: plain calls on this process; every result that matters is checked.
	unsafe {
		let (pid, max) = (libc::getpid(), order.max);
		let facts = Facts { pid, at, sealed: bytes, unsealed, made: 0, running: 0, max, changed, unwatched };
		let (mask, on_child) = quiet_signals();
		// Behind that nothing of the program's runs here.
		if at == ReadyAt::Runtime {
			let queue = super::files::queue();
			super::shared::note(&[order.control, order.listener, order.directory, order.recipe, queue], &mask);
		}
		let signals = signal_descriptor();
		let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
		let slots = CONNECTIONS.get();
		slots.fill(FREE);
		let template = place.insert(Template {
			order,
			epoll,
			signals,
			inode: 0,
			facts,
			retired: false,
			forking: false,
			paused: false,
			most_descriptors: raise_descriptor_limit(),
			wanted: None,
			ahead: NONE,
			slots,
			mask,
			on_child,
		});
		let listener = template.order.listener;
		let watched = epoll >= 0 && watch(epoll, listener, LISTENER) && watch(epoll, signals, SIGNALS);
		// Again, by this process: it is whom callers find to be at the other end, and may ask the kernel about when it
		// is silent.
		let watched = watched && libc::listen(listener, WAITING) == 0;
		if !watched || !super::streams::let_go() {
			send(control, Tell::Failed { step: Step::Wait, errno: *libc::__errno_location() });
			libc::_exit(1);
		}
		// From here on the end of the command is seen below.
		libc::prctl(libc::PR_SET_PDEATHSIG, 0);
		// The command gives the socket its name, and tells its inode. If it is gone nobody could ever find us.
		let (inode, len) = ((&raw mut template.inode).cast(), size_of::<u64>());
		if !send(control, Tell::Facts(facts)) || libc::recv(control, inode, len, 0) != len as isize {
			libc::_exit(1);
		}
		libc::close(control);
	}
}

fn refuse(control: i32, reason: Reason) -> ! {
	send(control, Tell::Refused { reason: reason as u8 });
	// SAFETY: ends the process, whose handlers know nothing of this.
	unsafe { libc::_exit(1) }
}

/// Whether the process has one thread. Some libraries (OpenBLAS) stop their threads in a handler of `pthread_atfork`
/// and start them again when needed: so a fork that comes to nothing is tried first.
fn alone() -> bool {
	if threads() == 1 {
		return true;
	}
	// SAFETY: the child ends at once; the parent waits for it.
	unsafe {
		let pid = crate::forks::fork();
		if pid == 0 {
			libc::_exit(0);
		}
		if pid > 0 {
			libc::waitpid(pid, core::ptr::null_mut(), 0);
		}
		for _ in 0..JOINED {
			if threads() == 1 {
				return true;
			}
			libc::usleep(1000);
		}
	}
	false
}

/// Blocks all signals and has ended children wait to be asked for. What was before is for the clones.
unsafe fn quiet_signals() -> (libc::sigset_t, libc::sigaction) {
	// SAFETY: all structures are locals; all zeros are values of them.
	unsafe {
		let mask = block_signals();
		let plain = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
		let mut on_child = MaybeUninit::zeroed().assume_init();
		libc::sigaction(libc::SIGCHLD, &raw const plain, &raw mut on_child);
		(mask, on_child)
	}
}

/// Of ended clones, and of whoever wants the template to end.
unsafe fn signal_descriptor() -> i32 {
	// SAFETY: the set is a local.
	unsafe {
		let mut set = MaybeUninit::zeroed().assume_init();
		libc::sigemptyset(&raw mut set);
		for signal in [super::end::signal(), libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
			libc::sigaddset(&raw mut set, signal);
		}
		libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
	}
}

/// A descriptor for every caller, or as many as can be had: tells the first that no clone gets. Clones have their
/// callers' limits.
unsafe fn raise_descriptor_limit() -> i32 {
	// SAFETY: the structure is a local.
	unsafe {
		let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
		libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
		let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
		if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
			limit = raised;
		}
		i32::try_from(limit.rlim_cur.saturating_sub(KEPT)).unwrap_or(i32::MAX)
	}
}

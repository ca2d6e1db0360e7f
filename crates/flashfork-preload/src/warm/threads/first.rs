//! The thread that runs first in each clone, and does there what must be done before the program goes on. While the
//! program is warmed it sleeps. There is one where the program has asked for that ([`hooks`]), in Java ([`java`]) and
//! in Python ([`python`]).

use super::{IN_CLONE, java, no_signals, python};
use crate::warm::hooks;
use core::{
	ffi::c_void,
	mem::MaybeUninit,
	ptr::null_mut,
	sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
};
use flashfork_core::{
	Errno,
	forkall::{Fit, Frozen, Gate, Unfit, What, call},
};
use flashfork_warm::{PREPARE, PREPARED};
use syscalls::Sysno;

/// What the thread is to do, or has done. [`PREPARE`] is the keeper's: in the program, before it is stopped.
static TODO: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = 0;
/// In a clone, before any other thread runs; and when that is done.
const RUN_HOOKS: u32 = 3;
const HOOKS_RAN: u32 = 4;
/// In a clone, beside all others.
const GO_ON: u32 = 5;

/// Its number; 0 while there is none.
static NUMBER: AtomicI32 = AtomicI32::new(0);
/// Whether somebody has begun to start it.
static BEGUN: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);

/// Bytes of its stack: a Java virtual machine's functions run on it.
const STACK: usize = 1 << 20;

/// How long hooks may take: when it is tried whether they come to an end at all, and in a clone, on whatever machine.
const PATIENCE: u64 = 10_000_000_000;
const PATIENCE_IN_CLONE: u64 = 60_000_000_000;

/// The word by which the keeper has it prepare the program ([`flashfork_warm::ADDRESSES`]).
pub fn word() -> usize {
	TODO.as_ptr() as usize
}

/// Starts it, if nobody has, and returns when it is there.
pub fn start() -> Result<(), Errno> {
	if !BEGUN.swap(true, SeqCst) {
		begin().inspect_err(|_| BEGUN.store(false, SeqCst))?;
	}
	while NUMBER.load(SeqCst) == 0 {
		// SAFETY: takes no arguments.
		let _ = unsafe { call(Sysno::sched_yield, []) };
	}
	Ok(())
}

fn begin() -> Result<(), Errno> {
	let check = |failed: i32| if failed == 0 { Ok(()) } else { Err(Errno::new(failed)) };
	// SAFETY: the structures are locals; the function is one for threads. It blocks all signals, from its start on:
	// they are for the program's threads.
	unsafe {
		let (mut all, mut before) = (no_signals(), no_signals());
		libc::sigfillset(&raw mut all);
		let mut attributes = MaybeUninit::zeroed().assume_init();
		check(libc::pthread_attr_init(&raw mut attributes))?;
		libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
		libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
		libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
		let mut thread = 0;
		let made = libc::pthread_create(&raw mut thread, &raw const attributes, run, null_mut());
		libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
		libc::pthread_attr_destroy(&raw mut attributes);
		check(made)
	}
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
	const NAME: &[u8; 16] = b"flashfork-first\0";
	// SAFETY: a string with its NUL; no arguments.
	unsafe {
		let _ = call(Sysno::prctl, [libc::PR_SET_NAME as usize, NAME.as_ptr() as usize]);
		NUMBER.store(call(Sysno::gettid, []).map_or(0, |tid| tid as i32), SeqCst);
	}
	loop {
		match TODO.load(SeqCst) {
			PREPARE => {
				java::prepare();
				python::prepare();
				tell(PREPARED);
			}
			RUN_HOOKS => {
				FAILED.store(!hooks::run(), SeqCst);
				tell(HOOKS_RAN);
			}
			GO_ON => {
				python::let_go();
				java::renew();
				return null_mut();
			}
			other => wait(other),
		}
	}
}

fn tell(what: u32) {
	TODO.store(what, SeqCst);
	// SAFETY: the kernel uses the address only.
	let _ = unsafe { call(Sysno::futex, [TODO.as_ptr() as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize]) };
}

/// Until something else is to be done, or a tenth of a second.
fn wait(now: u32) {
	const SPAN: [u64; 2] = [0, 100_000_000];
	let word = TODO.as_ptr() as usize;
	let span = SPAN.as_ptr() as usize;
	// SAFETY: the kernel reads the word and a struct timespec.
	let _ = unsafe { call(Sysno::futex, [word, libc::FUTEX_WAIT as usize, now as usize, span]) };
}

/// In the maker, when the program stands still: whether hooks come to an end in clones, tried in one that runs nothing
/// else. The template doesn't change any more, so what this one shows holds for all. `apart`: see
/// [`Frozen::fork_probe`].
pub fn probe(frozen: &'static Frozen, apart: bool) -> Fit {
	/// Exit codes of the probe.
	const ENDLESS: usize = 254;
	const FAILED: usize = 255;
	if NUMBER.load(SeqCst) == 0 || !hooks::any() {
		return Ok(());
	}
	let Some(pid) = frozen.fork_probe(apart)? else {
		IN_CLONE.store(1, SeqCst);
		let code = match begin_probe(frozen).and_then(|gate| run_hooks(gate, PATIENCE)) {
			Ok(()) => 0,
			Err(Errno::ETIMEDOUT) => ENDLESS,
			Err(_) => FAILED,
		};
		super::maker::end(code)
	};
	let mut status = 0i32;
	let arguments = [pid as usize, (&raw mut status) as usize, libc::__WALL as usize, 0];
	loop {
		// SAFETY: the kernel writes a local.
		match unsafe { call(Sysno::wait4, arguments) } {
			Err(Errno::EINTR) => {}
			Err(e) => return Err(e.into()),
			Ok(_) => break,
		}
	}
	match status {
		0 => Ok(()),
		status if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) as usize == ENDLESS => {
			Err(Unfit::new(What::EndlessHook, 0))
		}
		status if libc::WIFSIGNALED(status) => {
			Err(Unfit::named(What::FailedHook, libc::WTERMSIG(status), b"ended by a signal"))
		}
		_ => Err(Unfit::new(What::FailedHook, 0)),
	}
}

/// With descriptors of its own: what its hooks write must not come to the template's.
fn begin_probe(frozen: &'static Frozen) -> Result<&'static Gate, Errno> {
	let mut kept = 0;
	frozen.renew(&mut kept)?;
	let gate = frozen.make_threads()?;
	frozen.become_main(gate)?;
	Ok(gate)
}

/// In a clone, whose threads wait: runs all hooks. `ETIMEDOUT`: they don't come to an end; `ECANCELED`: one has failed.
pub fn run_hooks_in_clone(gate: &Gate) -> Result<(), Errno> {
	if NUMBER.load(SeqCst) == 0 || !hooks::any() { Ok(()) } else { run_hooks(gate, PATIENCE_IN_CLONE) }
}

fn run_hooks(gate: &Gate, patience: u64) -> Result<(), Errno> {
	let begin = now();
	tell(RUN_HOOKS);
	gate.let_run_first(NUMBER.load(SeqCst));
	while TODO.load(SeqCst) == RUN_HOOKS {
		if now().saturating_sub(begin) > patience {
			return Err(Errno::ETIMEDOUT);
		}
		wait(RUN_HOOKS);
	}
	if FAILED.load(SeqCst) { Err(Errno::ECANCELED) } else { Ok(()) }
}

/// In a clone, just before all its threads run.
pub fn go_on() {
	if NUMBER.load(SeqCst) != 0 {
		TODO.store(GO_ON, SeqCst);
	}
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn now() -> u64 {
	let mut t = [0u64; 2];
	// SAFETY: the kernel writes one struct timespec to a local.
	let _ = unsafe { call(Sysno::clock_gettime, [libc::CLOCK_MONOTONIC as usize, (&raw mut t) as usize]) };
	t[0] * 1_000_000_000 + t[1]
}

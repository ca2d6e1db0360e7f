//! A clone ends before its memory is taken apart: that may last longer than much of what the program did. At the end of
//! `exit` it makes a process with the same memory, and nothing else of it, and that ends when the clone has.

use super::no_signals;
use crate::{sandbox, warm::mapped};
use core::{
	cell::UnsafeCell,
	ffi::c_void,
	ptr::null_mut,
	sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
};
use flashfork_core::{
	Errno,
	forkall::{CloneArguments, call, start},
};
use syscalls::Sysno;

/// The clone's process, in the clone.
static CLONE: AtomicI32 = AtomicI32::new(0);

/// Whether somebody has begun to make it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Where it is: [`COMES`], then another; 0 when it has ended.
static STATE: AtomicU32 = AtomicU32::new(0);
/// It has something of the clone's yet.
const COMES: u32 = 1;
const IS_THERE: u32 = 2;

const STACK: usize = 16 * 1024;

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: used by that process alone, of which there is one.
unsafe impl Sync for Stack {}

static STACK_OF_LAST: Stack = Stack(UnsafeCell::new([0; STACK]));

/// Has clones do so. Before the program's own code runs: what is registered first is called last.
pub fn register() {
	// SAFETY: the shim is never unloaded.
	unsafe { crate::warm::end::__cxa_atexit(at_exit as *mut c_void, null_mut(), null_mut()) };
}

/// Notes that this is a clone. Before its other threads run.
pub fn note() {
	// SAFETY: asks for a number.
	let pid = unsafe { call(Sysno::getpid, []) };
	CLONE.store(pid.map_or(0, |pid| pid as i32), SeqCst);
}

extern "C" fn at_exit(_: *mut c_void) {
	// SAFETY: asks for a number. A process that the clone has forked has another.
	let is_clone = unsafe { CLONE.load(SeqCst) == libc::getpid() };
	// Files that are mapped are in use while the memory is there; so are the template's in any case.
	if is_clone && !BEGUN.swap(true, SeqCst) && !sandbox::entered() && mapped::no_others() {
		let mut before = no_signals();
		// SAFETY: the sets are locals. Handlers would run in that process, too.
		unsafe {
			let mut all = no_signals();
			libc::sigfillset(&raw mut all);
			libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
		}
		make();
		// SAFETY: as above.
		unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
	}
}

/// Makes it, and waits until it has nothing but memory. Where that can't be had the clone ends as others do.
fn make() {
	const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID;
	STATE.store(COMES, SeqCst);
	let mut arguments: CloneArguments = [0; _];
	arguments[0] = FLAGS as u64;
	arguments[2] = STATE.as_ptr() as u64;
	arguments[5] = STACK_OF_LAST.0.get() as u64;
	arguments[6] = STACK as u64;
	let cpus = Cpus::here();
	// SAFETY: the stack is its own; it is told which process it waits for, and where it may run.
	let made = unsafe { start(&arguments, run, [libc::getpid() as usize, (&raw const cpus) as usize]) };
	while made.is_ok() && STATE.load(SeqCst) == COMES {
		wait();
	}
	cpus.set();
}

/// CPUs on which a thread may run, of at most 1024.
struct Cpus([u64; 16]);

impl Cpus {
	/// Those of this thread, which goes on where it is: so does what it makes, which begins as soon as this one waits,
	/// and doesn't wait for another CPU that has something to do.
	fn here() -> Cpus {
		let (mut all, mut here, mut cpu) = (Cpus([0; 16]), Cpus([0; 16]), 0u32);
		// SAFETY: the kernel writes locals of the sizes that are told.
		unsafe {
			let _ = call(Sysno::sched_getaffinity, [0, size_of::<Cpus>(), (&raw mut all) as usize]);
			let _ = call(Sysno::getcpu, [(&raw mut cpu) as usize, 0, 0]);
		}
		if let Some(word) = here.0.get_mut(cpu as usize / 64) {
			*word = 1 << (cpu % 64);
			here.set();
		}
		all
	}

	/// Of the calling thread. None at all are not taken.
	fn set(&self) {
		// SAFETY: the kernel reads a structure of the size that is told.
		let _ = unsafe { call(Sysno::sched_setaffinity, [0, size_of::<Cpus>(), (&raw const *self) as usize]) };
	}
}

fn wait() {
	// SAFETY: the kernel reads the word.
	let _ = unsafe { call(Sysno::futex, [STATE.as_ptr() as usize, libc::FUTEX_WAIT as usize, COMES as usize, 0]) };
}

/// That process. It has the thread pointer of the thread that has made it, and calls nothing of libc.
extern "C" fn run(clone: usize, cpus: usize) -> ! {
	// SAFETY: who has made this process has given it, and waits.
	unsafe { (*(cpus as *const Cpus)).set() };
	let _ = outlast(clone);
	loop {
		// SAFETY: takes a number.
		let _ = unsafe { call(Sysno::exit_group, [0]) };
	}
}

fn outlast(clone: usize) -> Result<(), Errno> {
	const NAME: &[u8; 16] = b"flashfork-last\0\0";
	// SAFETY: takes numbers, strings with their NUL, and a structure that is a local.
	unsafe {
		call(Sysno::prctl, [libc::PR_SET_NAME as usize, NAME.as_ptr() as usize])?;
		call(Sysno::close_range, [0, u32::MAX as usize, libc::CLOSE_RANGE_UNSHARE as usize])?;
		call(Sysno::chdir, [c"/".as_ptr() as usize])?;
		let process = call(Sysno::pidfd_open, [clone, 0])?;
		// It has ended, perhaps, and the number is another's.
		if call(Sysno::getppid, [])? != clone {
			return Ok(());
		}
		STATE.store(IS_THERE, SeqCst);
		let _ = call(Sysno::futex, [STATE.as_ptr() as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize]);
		// Who waits for the clone's end comes first; the call gives 20 less the nice value.
		let nice = 20 - call(Sysno::getpriority, [libc::PRIO_PROCESS as usize, 0])? as isize;
		let _ = call(Sysno::setpriority, [libc::PRIO_PROCESS as usize, 0, (nice + 10) as usize]);
		let mut ended = libc::pollfd { fd: process as i32, events: libc::POLLIN, revents: 0 };
		while call(Sysno::poll, [(&raw mut ended) as usize, 1, usize::MAX]) == Err(Errno::EINTR) {}
	}
	Ok(())
}

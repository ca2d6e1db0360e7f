//! Templates whose clones have all their threads: the program runs on. When it is ready its keeper has it make a maker,
//! a process in its memory, which stops it ([`maker`]). Where the program says itself that it is ready it waits in
//! [`ready`], and returns from there in each clone.

mod caller;
mod end;
mod first;
mod java;
mod listeners;
mod maker;
mod python;
pub mod runtime;
mod socket;
mod systemv;

use super::{
	hooks::{self, Hook},
	stacks,
	template::Single,
};
use core::{
	ffi::{CStr, c_int, c_void},
	mem::MaybeUninit,
	ptr::null_mut,
	sync::atomic::{AtomicU32, Ordering::SeqCst},
};
use flashfork_core::{Errno, forkall::call};
use flashfork_warm::{ADDRESSES, ReadyAt};
use syscalls::Sysno;

struct Told {
	/// The process that becomes the template: no child of its warm-up does.
	pid: c_int,
	/// Where the program rings when it is ready, and its device and inode.
	bell: c_int,
	identity: [u64; 2],
	/// Where it is ready, if that was said.
	at: Option<ReadyAt>,
}

impl Told {
	/// Whether it still is what the descriptor is: the program may have its own file there.
	fn has_bell(&self) -> bool {
		// SAFETY: asks about a number.
		self.identity[1] != 0 && unsafe { identity(self.bell) } == self.identity
	}
}

/// None in programs that are no such template.
static TOLD: Single<Option<Told>> = Single::new(None);

/// Whether a thread has said that the program is ready; there is one ready point.
static CALLED: AtomicU32 = AtomicU32::new(0);

/// 1 in clones.
pub static IN_CLONE: AtomicU32 = AtomicU32::new(0);

/// What stands before the value for such a template in [`flashfork_core::environment::WARM`].
pub const MARK: &str = "threads,";

/// Takes what was told, and tells where the maker can be made. False if it is about another kind of template.
///
/// # Safety
/// Before the program's own code runs, in its one thread.
pub unsafe fn begin(value: &CStr) -> bool {
	let Some(rest) = value.to_bytes().strip_prefix(MARK.as_bytes()) else { return false };
	let mut fields = rest.split(|b| *b == b',');
	let mut number = || -> Option<c_int> {
		let digits = fields.next()?;
		digits.iter().try_fold(0, |n: c_int, b| n.checked_mul(10)?.checked_add(c_int::from(b.checked_sub(b'0')?)))
	};
	let (Some(mut bell), Some(at)) = (number(), number()) else { return true };
	// Where this can't be told the keeper says that there is no maker.
	let Ok(trampoline) = flashfork_core::forkall::prepare(maker::run) else { return true };
	// SAFETY: one thread; the descriptor is the one that was told, and what is sent a local.
	unsafe {
		libc::fcntl(bell, libc::F_SETFD, libc::FD_CLOEXEC);
		super::follow::move_high(&mut bell);
		let at = ReadyAt::new(at as u64);
		let prepares = java::is_here() | python::is_here(at);
		let addresses = [trampoline, if prepares { first::word() } else { 0 }];
		libc::send(bell, addresses.as_ptr().cast(), ADDRESSES, libc::MSG_NOSIGNAL);
		if let Some(environment) = number() {
			super::recipe::note_environment(environment);
			super::follow::note_environment();
		}
		super::inherited::note();
		super::streams::note();
		end::register();
		*TOLD.get() = Some(Told { pid: libc::getpid(), bell, identity: identity(bell), at });
		// A failure is told when the program is ready: it is not prepared then.
		let _ = if prepares { first::start() } else { Ok(()) };
		super::node::prepare();
	}
	true
}

/// Device and inode of a descriptor; zeros for none.
unsafe fn identity(fd: c_int) -> [u64; 2] {
	// SAFETY: the structure is a local.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		if libc::fstat(fd, &raw mut stat) == 0 { [stat.st_dev, stat.st_ino] } else { [0; 2] }
	}
}

/// The program's line to its keeper, which clones have no use for.
fn bell() -> Option<(c_int, [u64; 2])> {
	// SAFETY: written once, before the program's own code ran.
	unsafe { TOLD.get() }.as_ref().map(|told| (told.bell, told.identity))
}

/// Has no program started from here get any.
fn bound_capabilities() {
	for capability in 0..64 {
		// SAFETY: takes numbers. There are fewer of them.
		let _ = unsafe { call(Sysno::prctl, [libc::PR_CAPBSET_DROP as usize, capability, 0, 0, 0]) };
	}
}

/// Whether this program becomes such a template, and is ready there, as far as was said: `None` leaves it open.
pub fn is_ready_at(at: Option<ReadyAt>) -> bool {
	// SAFETY: written once, before the program's own code ran.
	unsafe { TOLD.get() }.as_ref().is_some_and(|told| told.at == at)
}

/// Has `run` run in each clone, before anything else of the program does.
pub fn on_clone(run: Hook, with: *mut c_void) -> Result<(), Errno> {
	if !hooks::note(run, with) {
		return Err(Errno::ENOMEM);
	}
	// SAFETY: written once, before the program's own code ran.
	let told = unsafe { TOLD.get() }.is_some();
	// A clone has no clones of its own.
	if told && IN_CLONE.load(SeqCst) == 0 { first::start() } else { Ok(()) }
}

/// Whether it does, and this is the process.
pub fn is_template() -> bool {
	// SAFETY: as above; asks for a number.
	unsafe { IN_CLONE.load(SeqCst) == 1 || TOLD.get().as_ref().is_some_and(|told| told.pid == libc::getpid()) }
}

/// Of a program that is on its way to be such a template, and may become another one by `exec`: where it rings, and the
/// number of where it is ready.
pub fn on_the_way() -> Option<(c_int, u8)> {
	// SAFETY: as above; asks for a number.
	let told = unsafe { TOLD.get().as_ref().filter(|told| told.pid == libc::getpid()) }?;
	(IN_CLONE.load(SeqCst) == 0 && told.has_bell()).then_some((told.bell, told.at.map_or(0, |at| at as u8)))
}

/// Says that the program is ready, and returns in clones: true. False, at once, where that is not so.
pub fn ready() -> bool {
	let ready = wait();
	if ready {
		block();
	}
	ready
}

/// As [`ready`], in clones whose runtime blocks no signals that its caller does.
pub fn wait() -> bool {
	// SAFETY: as above.
	let Some(told) = (unsafe { TOLD.get() }) else { return false };
	// SAFETY: asks for a number.
	if told.pid != unsafe { libc::getpid() } || !told.has_bell() || CALLED.swap(1, SeqCst) != 0 {
		return false;
	}
	// The template's: from the ring on this may be stopped at any moment, and go on in a clone.
	let limit = stacks::limit();
	// SAFETY: plain calls; what is flushed was printed by the program. Its other streams may be in use by threads that
	// wait for something, and are flushed by nobody.
	unsafe {
		libc::fflush(stdout);
		libc::send(told.bell, [1u8].as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
	}
	while IN_CLONE.load(SeqCst) == 0 {
		// SAFETY: the kernel reads the word.
		let _ = unsafe { call(Sysno::futex, [IN_CLONE.as_ptr() as usize, 0, 0, 0]) };
	}
	stacks::follow(limit);
	true
}

/// In this thread, which says so, are blocked what its caller blocks.
fn block() {
	// SAFETY: written before any thread of the clone ran; the sets are locals of which all zeros are a value.
	unsafe {
		let Some(given) = super::template::CLONE.get() else { return };
		let mask = given.mask;
		libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, null_mut());
	}
}

fn no_signals() -> libc::sigset_t {
	// SAFETY: all zeros are the empty set.
	unsafe { MaybeUninit::zeroed().assume_init() }
}

unsafe extern "C" {
	static mut stdout: *mut libc::FILE;
}

//! The program's system calls, as far as they mean something else on sealed memory.
//!
//! A C library makes each of them at one or two places, and whoever calls it gets there: the program through its
//! symbols, a library with symbols of its own (`RTLD_DEEPBIND`), `dlsym`, an interpreter's foreign functions, the
//! library itself (`realloc`, the end of a thread). So these places are rewritten, in every C library that is loaded,
//! before the first memory is sealed: a jump takes the place of `mov $number,%eax`, and leads to the functions of
//! [`hooks::HOOKS`], which answer as the kernel would.
//!
//! What isn't recognised is left alone, and the process is refused ([`Reason::LibcCalls`]): [`site`] says what a place
//! looks like, [`write`] how it is written. At last every function is called once, to see that it leads here: a
//! translator of machine code may go on with what it read before.

pub(crate) mod enter;
pub(crate) mod found;
mod hooks;
pub(crate) mod object;
mod rewrite;
mod site;
pub(crate) mod stub;
mod write;

pub use found::know_libc;

use crate::{
	answers::exec,
	arena::Arena,
	code,
	code::remembered::CODE,
	never_seal::Reason,
	outcome::{Error, Step},
	proc::{
		lookup::{self, Wanted},
		vma::{self, Vma},
	},
	range::Range,
	state::STATE,
	sys::{self, Errno, PROT_EXEC, Result},
	threads::pauses::Pauses,
};
use core::sync::atomic::Ordering::SeqCst;
use enter::{ARRIVED, NO_TRIAL, NOTHING, SEEN, TRIAL, wanted};
use found::{Found, Library, Part};
use hooks::{Arguments, HOOKS};
use object::{Object, Reader};
use rewrite::{Places, rewrite};
use syscalls::Sysno;

/// Sees to it that all the program's calls that matter lead to [`hooks::HOOKS`], or refuses. Gives a number that stands
/// for all that is executable; 0 where that couldn't be told.
pub(crate) fn take(arena: &mut Arena, pauses: &mut Option<Pauses>) -> core::result::Result<u64, Error> {
	const ATTEMPTS: usize = 100;
	let look = |e| Error::System(Step::Look, e);
	if sum(&mut arena.text).map_err(look)? == SEEN.load(SeqCst) {
		return Ok(SEEN.load(SeqCst));
	}
	let Some(pauses) = pauses else {
		let stopped = arena.stopped.unwrap_or(&[]);
		let executes = |range: Range| stopped.iter().any(|at| (range.start..range.end).contains(at));
		let taken = take_stopped(&mut arena.text, executes).map_err(|_| Error::Refused(Reason::LibcCalls));
		return taken.map(|()| SEEN.load(SeqCst));
	};
	for _ in 0..ATTEMPTS {
		pauses.stop(arena).map_err(Error::Refused)?;
		let taken = take_stopped(&mut arena.text, |range| pauses.executes_in(range));
		pauses.resume();
		match taken {
			Ok(()) => return Ok(SEEN.load(SeqCst)),
			Err(Errno::EAGAIN) => sys::pause_briefly(),
			Err(_) => return Err(Error::Refused(Reason::LibcCalls)),
		}
	}
	Err(Error::Refused(Reason::ThreadUnstoppable))
}

/// What is executable, as one number.
fn sum(buf: &mut [u8]) -> Result<u64> {
	let mut sum = 1;
	let mut add = |v: &Vma| {
		let access = u64::from(v.prot) << 1 | u64::from(v.shared);
		for part in [v.range.start as u64, v.range.end as u64, v.offset, v.inode, u64::from(v.device[1]), access] {
			// FNV-1a, by words.
			sum = (sum ^ part).wrapping_mul(0x0100_0000_01b3);
		}
	};
	let mut told = |v: &Vma| {
		add(v);
		Some(v.range.end)
	};
	// The names don't matter, and with them it would take twice as long.
	if lookup::ask(Range::ALL, Wanted::Executable, &mut [], Some(&mut told), &mut |_, _| Ok(()))?.is_none() {
		vma::for_each(c"/proc/thread-self/maps", buf, |v| {
			if v.prot & PROT_EXEC != 0 {
				add(v);
			}
			Ok(())
		})?;
	}
	Ok(sum)
}

/// With other threads stopped, if any. `executes` tells whether one of them is about to execute in a range: it must not
/// be past a rewritten instruction with its call still to come. `EAGAIN` then.
fn take_stopped(buf: &mut [u8], executes: impl Fn(Range) -> bool) -> Result<()> {
	let mut found = Found::default();
	found.look(enter::address(), buf)?;
	enter::prepare();
	CODE.know_none();
	found.stubs().iter().for_each(|stubs| CODE.know_stubs(*stubs));
	let mut parents_are_seen = true;
	for library in found.libraries() {
		let places = match rewrite(library, &found, enter::ways(), buf, wanted, &executes) {
			// Whatever is in the way, its calls are found by crate::code then, and the process is refused for them.
			Err(e) if library.kind == Part::Runtime && e != Errno::EAGAIN => continue,
			places => places?,
		};
		match library.kind {
			Part::Runtime if !are_all(library, &places) => continue,
			Part::Runtime => {}
			_ => try_out(library, &places)?,
		}
		CODE.know(library.code)?;
		if matches!(library.kind, Part::Libc | Part::Static) {
			let has = |call: Sysno| places.all().iter().any(|jump| jump.number == Some(call as u32));
			parents_are_seen &= has(Sysno::vfork) && has(Sysno::clone);
		}
	}
	exec::know_parents(parents_are_seen);
	// With the pages mapped meanwhile. Where something could not be read a C library may be missing: another look next
	// time.
	let seen = if found.reader.failed() { NOTHING } else { sum(buf)? };
	SEEN.store(seen, SeqCst);
	STATE.followed.store(true, SeqCst);
	Ok(())
}

/// Whether these are all places of a library that make a call with a hook, or one that can't be told.
fn are_all(library: &Library, places: &Places) -> bool {
	let is_known = |call: usize| places.all().iter().any(|jump| jump.call == call);
	code::own::all_sites(library.base, library.code, is_known)
}

/// Calls every function of a library that should lead to a hook.
fn try_out(library: &Library, places: &Places) -> Result<()> {
	/// Bytes from a function's beginning within which it makes its call.
	const FUNCTION: usize = 256;
	// Or it would be called with a breakpoint in its way.
	let is_rewritten = |function: usize, number: Option<u32>| {
		let near = function..function + FUNCTION;
		let found = places.all().iter().any(|jump| near.contains(&jump.at) && jump.number == number);
		if found { Ok(function) } else { Err(Errno::EOPNOTSUPP) }
	};
	if library.kind == Part::Loader {
		return Ok(());
	}
	let reader = Reader::default();
	let syscall = library.by_number(&reader).ok_or(Errno::EOPNOTSUPP)?;
	let object = (library.kind == Part::Libc).then(|| Object::at(&reader, library.base)).flatten();
	for hook in HOOKS {
		let number = hook.number as usize;
		if let Some(function) = hook.function.zip(object.as_ref()).and_then(|(name, o)| o.function(name)) {
			// SAFETY: the trial takes the place of the system call, and without it all arguments are zeros, which every
			// call refuses or takes for nothing.
			unsafe { arrives(number, is_rewritten(function, Some(number as u32))?, [0; 6]) }?;
		}
		// SAFETY: as above.
		unsafe { arrives(number, is_rewritten(syscall, None)?, [number, 0, 0, 0, 0, 0]) }?;
	}
	Ok(())
}

/// # Safety
/// A function of the C library, to which the arguments do no harm.
unsafe fn arrives(number: usize, function: usize, arguments: Arguments) -> Result<()> {
	// SAFETY: as the caller says; C functions of fewer arguments don't look at the rest.
	let function: unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize =
		unsafe { core::mem::transmute(function) };
	let [a, b, c, d, e, f] = arguments;
	TRIAL.store(number, SeqCst);
	// SAFETY: see above.
	unsafe { function(a, b, c, d, e, f) };
	if TRIAL.swap(NO_TRIAL, SeqCst) == ARRIVED { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

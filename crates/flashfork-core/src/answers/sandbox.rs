//! A program that puts itself into a sandbox (seccomp(2)).
//!
//! Under its own filter a program is not sealed any more. What is sealed stays so if a child under that filter can do
//! all that the engine does for calls on sealed memory; else all memory becomes anonymous before the filter is set. So
//! it does under `auto`, which could neither seal anew from then on what is written, nor undo it: memory would come to
//! exist twice.

use super::{
	advise,
	anonymous::{for_good, give_files_back},
	exec, mremap,
};
use crate::{
	arena::Arena,
	calls::enter::{self as entry, let_go},
	code,
	filter::{FORBIDDEN, end_in_silence},
	kernel_writers,
	policy::{POLICY, own},
	proc::{
		lookup::{self, Wanted},
		vma::{Kind, Vma},
	},
	range::Range,
	scratch,
	seal::{properties::Properties, remap},
	stack::roomy,
	state::STATE,
	sys::{self, MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_READ, PROT_WRITE, Result},
	threads::{self, Threads},
};
use core::sync::atomic::Ordering::SeqCst;
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// `prctl(2)`.
///
/// # Safety
/// As `prctl`.
pub unsafe fn prctl(args: [usize; 6]) -> Result<usize> {
	// SAFETY: the program's own call.
	unsafe { prctl_by(args, || sys::call(Sysno::prctl, args)) }
}

/// The same, made by `real`: a function `prctl`, which may do more.
///
/// # Safety
/// As `prctl`.
pub unsafe fn prctl_by(args: [usize; 6], real: impl FnOnce() -> Result<usize>) -> Result<usize> {
	const PR_SET_SECCOMP: u32 = 22;
	const PR_SET_TSC: u32 = 26;
	const PR_TSC_ENABLE: usize = 1;
	const PR_SET_MEMORY_MERGE: u32 = 67;
	const PR_SET_VMA: u32 = 0x5356_4d41;
	const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;
	const SECCOMP_MODE_FILTER: usize = 2;
	// The kernel looks at the lower half of the option.
	match args[0] as u32 {
		// SAFETY: as above.
		PR_SET_SECCOMP => unsafe { enter(Sysno::prctl, args, args[1] == SECCOMP_MODE_FILTER, true, real) },
		PR_SET_SYSCALL_USER_DISPATCH if args[1] != 0 => {
			// System calls from other places than the program names are signals then.
			for_good()?;
			enter_sandbox();
			STATE.sandbox.store(FORBIDDEN, SeqCst);
			let_go();
			real()
		}
		// SAFETY: as above.
		PR_SET_VMA => unsafe { advise::name(args, real) },
		// All memory may be merged from then on, or none (`Treatment` of a snapshot).
		PR_SET_MEMORY_MERGE => real().inspect(|_| STATE.properties_change()),
		PR_SET_TSC => real().inspect(|_| STATE.set_clock(args[1] as u32 as usize == PR_TSC_ENABLE)),
		_ => real(),
	}
}

/// `seccomp(2)`.
///
/// # Safety
/// As `seccomp`.
pub unsafe fn seccomp(args: [usize; 6]) -> Result<usize> {
	const SET_MODE_STRICT: u32 = 0;
	const SET_MODE_FILTER: u32 = 1;
	const NEW_LISTENER: usize = 8;
	// SAFETY: the program's own call.
	let real = || unsafe { sys::call(Sysno::seccomp, args) };
	match args[0] as u32 {
		// Whoever is to listen knows nothing of a child.
		// SAFETY: the program's own call.
		SET_MODE_FILTER => unsafe { enter(Sysno::seccomp, args, true, args[1] & NEW_LISTENER == 0, real) },
		// SAFETY: as above.
		SET_MODE_STRICT => unsafe { enter(Sysno::seccomp, args, false, false, real) },
		// Questions.
		_ => real(),
	}
}

/// Has a program enter its own sandbox. `filter`: not the strict mode, in which the program can do nothing either that
/// would mean something on sealed memory. `may_try`: whether a child may try the filter. `real` makes the call.
///
/// # Safety
/// As the call.
unsafe fn enter(
	number: Sysno,
	args: [usize; 6],
	filter: bool,
	may_try: bool,
	real: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
	// What that takes is not tried, and it may have to be asked of the kernel at any time.
	let given_back = || give_files_back(Range::ALL, STATE.inside(), false).is_ok();
	let may_stay = may_try && !POLICY.weighs();
	let works = !filter || given_back() && (!STATE.sealed() || may_stay && roomy(|| lets_work(number, args)));
	if !works {
		for_good()?;
	}
	let result = real();
	if result.is_ok() {
		STATE.strict.store(!filter, SeqCst);
		enter_sandbox();
		if !works {
			STATE.sandbox.store(FORBIDDEN, SeqCst);
			STATE.keep_hands_off();
		}
	}
	result
}

/// Has later forks seal nothing: it might end the program for a system call that it doesn't make itself.
fn enter_sandbox() {
	STATE.enter_sandbox();
	POLICY.stop_sealing();
}

/// Whether a child under the same filter can do what the engine does for calls on sealed memory. What stops threads is
/// not tried, nor can a child be made where there is a filter already.
fn lets_work(number: Sysno, args: [usize; 6]) -> bool {
	const WCLONE: u32 = 0x8000_0000;
	if STATE.is_sandboxed() || threads::allowed() == Threads::Stop {
		return false;
	}
	// SAFETY: the child makes system calls and ends.
	match unsafe { sys::fork_in_silence() } {
		Ok(0) => {
			end_in_silence();
			STATE.nobody_inside();
			// SAFETY: the program's own call, made in the child only. If it fails it will fail in the program too.
			let worked = match unsafe { sys::call(number, args) } {
				Ok(_) => work(),
				Err(_) => Ok(true),
			};
			sys::exit(i32::from(worked != Ok(true)))
		}
		Ok(child) => matches!(sys::wait(child, WCLONE), Ok((_, 0))),
		Err(_) => false,
	}
}

/// In the child: one of everything. Whether it came to the right end.
fn work() -> Result<bool> {
	STATE.enter_sandbox();
	if !sys::knows_itself() {
		return Ok(false);
	}
	own::measure();
	exec::rehearse();
	kernel_writers::is_device_to_mind(0);
	let _ = code::guard::before_executable(Range::pages_of(entry::address(), 1));
	if let Ok(fd) = sys::open(c"/proc/thread-self/exe", sys::O_RDONLY) {
		let _ = code::guard::before_mapping(fd, Range::new(0, PAGE));
		sys::close(fd);
	}
	const READ_WRITE: u32 = PROT_READ | PROT_WRITE;
	const ENOUGH: usize = 8 * PAGE;
	let (from, len) = match largest_sealed()? {
		Some(v) if v.range.len() >= ENOUGH && v.prot == READ_WRITE => (v.range.start, v.range.len()),
		Some(_) => return Ok(false),
		None => (scratch::temporary(ENOUGH)?, ENOUGH),
	};
	let occupied = MAP_PRIVATE | MAP_ANONYMOUS | k::MAP_FIXED_NOREPLACE;
	// So that it must move to grow.
	// SAFETY: replaces nothing.
	let _ = unsafe { sys::mmap(from + len, PAGE, PROT_READ, occupied, -1, 0) };
	// SAFETY: here and below: memory of the child, which nobody uses.
	let at = unsafe { mremap::mremap(from, len, len + PAGE, k::MREMAP_MAYMOVE as usize, 0) }?;
	let page = |i: usize| Range::new(at + i * PAGE, at + (i + 1) * PAGE);
	let arena = Arena::map()?;
	let properties = Properties::at(at, &mut arena.text);
	arena.unmap();
	// SAFETY: as above.
	unsafe {
		let new = scratch::temporary(PAGE)?;
		properties?.apply(new, PAGE, READ_WRITE)?;
		sys::mremap_fixed(new, PAGE, page(0).start)?;
		remap::fresh(page(1), READ_WRITE)?;
		remap::close(page(1), PROT_READ);
		advise::madvise(page(2).start, PAGE, k::MADV_DONTFORK)?;
		advise::madvise(page(4).start, PAGE, k::MADV_DONTNEED)?;
		Ok(*(page(4).start as *const u64) == 0)
	}
}

fn largest_sealed() -> Result<Option<Vma>> {
	let mut largest = None::<Vma>;
	lookup::for_each(Range::ALL, Wanted::Files, |v| {
		if v.kind == Kind::Sealed && largest.is_none_or(|l| l.range.len() < v.range.len()) {
			largest = Some(*v);
		}
		Ok(())
	})?;
	Ok(largest)
}

//! A clone made ahead: forked when nobody waits for it, it comes as far as a clone does without a caller, and waits
//! there for one.
//!
//! What a fork costs, and what a clone's first steps cost, is paid then. There is one at a time; whoever comes when
//! there is none has a clone forked for him.

use super::{
	message::{PASSED, pass, take},
	process::threads,
	serve,
	take_over::take_over,
	template::{Ahead, CLONE, FREE, Slot, TEMPLATE, Template, Wanted},
};
use core::{ffi::c_int, mem::MaybeUninit};
use flashfork_warm::ReadyAt;

/// For how many milliseconds nothing must have happened before one is made: those who do something now come first. More
/// where a clone runs, whose end may come every moment, and is to be told at once.
const PAUSE: c_int = 1;
const PAUSE_BESIDE: c_int = 5;

/// How long to wait for an event, in milliseconds, before [`begin`]; -1 where none is to be made.
pub fn patience(template: &Template) -> c_int {
	let Ahead { pid, failed, ending, .. } = template.ahead;
	let last = template.facts.max != 0 && template.facts.made >= template.facts.max;
	if pid != 0 || failed || template.retired || last {
		return -1;
	}
	if template.facts.running > ending { PAUSE_BESIDE } else { PAUSE }
}

/// Prepares to fork one: the program must fork next. False where that can't be.
pub fn begin(template: &mut Template) -> bool {
	let mut ends = [-1; 2];
	// SAFETY: room for two descriptors.
	let made =
		unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
	if made != 0 {
		template.ahead.failed = true;
		return false;
	}
	[template.ahead.line, template.ahead.far] = ends;
	true
}

/// What a fork has come to for which nobody had asked.
pub fn after_fork(template: &mut Template, pid: c_int) {
	if template.ahead.far < 0 {
		return;
	}
	if pid != 0 {
		close(&mut template.ahead.far);
		if pid > 0 {
			template.ahead.pid = pid;
		} else {
			drop_line(template);
		}
		return;
	}
	// SAFETY: plain calls on this process.
	unsafe {
		libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
		if libc::getppid() != template.facts.pid {
			libc::_exit(0);
		}
	}
	let far = core::mem::replace(&mut template.ahead.far, -1);
	let_go(template);
	template.ahead.far = far;
	// These have more to do first.
	if ![ReadyAt::Python, ReadyAt::Runtime].contains(&template.facts.at) {
		wait_for_caller(true);
	}
}

/// Closes what is a template's.
pub fn let_go(template: &mut Template) {
	let order = &mut template.order;
	let own =
		[&mut order.listener, &mut order.directory, &mut order.recipe, &mut template.epoll, &mut template.signals];
	own.into_iter().chain([&mut template.ahead.line, &mut template.ahead.far]).for_each(close);
	super::files::let_go();
	template.slots.iter_mut().filter(|slot| slot.socket >= 0).for_each(|slot| close(&mut slot.socket));
}

/// Whether this process is one that waits for a caller, or will.
pub fn is_ahead() -> bool {
	// SAFETY: one thread; no reference is kept.
	unsafe { TEMPLATE.get() }.as_ref().is_some_and(|template| template.ahead.far >= 0)
}

/// Returns when this process has a caller, and has taken over what is his; ends it when there will be none. One that
/// could not be `rehearsed` waits for nobody.
pub fn wait_for_caller(rehearsed: bool) {
	// SAFETY: one thread, which keeps no other reference to these; the template's copy is of no use afterwards.
	unsafe {
		let Some(template) = TEMPLATE.get() else { return };
		// Threads that handlers of forks have started would not get what is a caller's: his nice value, CPUs and
		// signals. Whom it was given to already keeps it; nobody else gets it.
		if !rehearsed || threads() != 1 {
			libc::shutdown(template.ahead.far, libc::SHUT_RD);
		}
		let Some((job, [socket, descriptors @ ..])) = take::<PASSED>(template.ahead.far) else { libc::_exit(127) };
		forget_signals(template.facts.pid);
		close(&mut template.ahead.far);
		template.slots[0] = Slot { socket, job, caller: serve::own_user(socket).unwrap_or(0), ..FREE };
		*CLONE.get() = Some(take_over(template, &Wanted { slot: 0, descriptors }));
		let is_call = template.facts.at == ReadyAt::Runtime;
		*TEMPLATE.get() = None;
		if !is_call {
			super::hooks::run_or_end();
		}
	}
}

/// How many signals are kept for the caller's program.
const KEPT: usize = 32;

/// Signals that others have sent before there was a caller would come upon his program: they go. Those of the template
/// are the caller's already; those of this process and of the kernel (timers) are the program's.
fn forget_signals(template: c_int) {
	// SAFETY: all structures are locals of which all zeros are a value; every signal is blocked here.
	unsafe {
		let own = libc::getpid();
		let mut all = MaybeUninit::zeroed().assume_init();
		libc::sigfillset(&raw mut all);
		libc::sigdelset(&raw mut all, libc::SIGCHLD);
		let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
		let mut kept = [MaybeUninit::<libc::siginfo_t>::zeroed().assume_init(); KEPT];
		let mut count = 0;
		while count < KEPT {
			let info = &mut kept[count];
			let signal = libc::sigtimedwait(&raw const all, info, &raw const now);
			if signal < 0 {
				break;
			}
			let sent = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
			count += usize::from(!sent || [template, own].contains(&info.si_pid()));
		}
		for info in &kept[..count] {
			libc::syscall(libc::SYS_rt_sigqueueinfo, own, info.si_signo, core::ptr::from_ref(info));
		}
	}
}

/// Gives whoever wants a clone the one that waits. False if there is none: then one must be forked.
pub fn give(template: &mut Template) -> bool {
	template.ahead.failed = false;
	let Some(wanted) = template.wanted.take_if(|_| template.ahead.pid != 0) else { return false };
	let pid = template.ahead.pid;
	let [memory, directory, input, output, errors] = wanted.descriptors;
	let Slot { socket, job, .. } = template.slots[wanted.slot];
	if pass(template.ahead.line, job, [socket, memory, directory, input, output, errors]) {
		(template.ahead.pid, template.ahead.failed) = (0, false);
		close(&mut template.ahead.line);
		serve::forked(template, &wanted, pid);
		return true;
	}
	end(template);
	template.wanted = Some(wanted);
	false
}

/// Ends the one that waits, if any.
pub fn end(template: &mut Template) {
	if template.ahead.pid != 0 {
		// SAFETY: a child that has not been waited for. That is done when it has ended, which a debugger may put off.
		unsafe { libc::kill(template.ahead.pid, libc::SIGKILL) };
		drop_line(template);
	}
}

/// Whether what has happened to a child was about the one that waits. Nobody may end or stop it but this process.
pub fn noticed(template: &mut Template, pid: i32, status: c_int) -> bool {
	if pid != template.ahead.pid {
		return false;
	}
	if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
		drop_line(template)
	} else {
		end(template)
	}
	true
}

fn drop_line(template: &mut Template) {
	close(&mut template.ahead.line);
	(template.ahead.pid, template.ahead.failed) = (0, true);
}

fn close(fd: &mut c_int) {
	// SAFETY: nobody uses it any more; -1 is no descriptor.
	unsafe { libc::close(core::mem::replace(fd, -1)) };
}

//! A template waits for callers.

use super::{
	ahead,
	end::{self, told},
	message::{Received, close_all, hung_up, receive, send, send_with},
	take_over,
	template::{FREE, Slot, Template, Wanted},
};
use core::{
	ffi::c_int,
	mem::{MaybeUninit, size_of},
};
use flashfork_warm::{Ask, Facts, MOST_RUNNING, ReadyAt, Step, Tell, Why};

/// What an event is about, beside the numbers of connections.
pub const LISTENER: u64 = u64::MAX;
pub const SIGNALS: u64 = u64::MAX - 1;

/// How long nobody is accepted where descriptors or memory are short, in milliseconds.
const PAUSE: c_int = 50;

/// Has `epoll` tell when there is something to read.
pub fn watch(epoll: c_int, fd: c_int, about: u64) -> bool {
	let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: about };
	// SAFETY: the event is a local.
	unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) == 0 }
}

fn unwatch(epoll: c_int, fd: c_int) {
	// SAFETY: takes no memory. A clone that has not closed its copy yet would keep the watch alive otherwise.
	unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) };
}

/// Serves callers until a clone must be forked. Ends the process when it is retired and the last clone has ended.
pub fn next(template: &mut Template) {
	while template.wanted.is_none() || ahead::give(template) {
		if template.retired {
			ahead::end(template);
		}
		if template.retired && template.facts.running == 0 {
			turn_away(template);
			// SAFETY: ends the process; the program's own handlers are for programs that have run.
			unsafe { libc::_exit(0) };
		}
		let mut event = libc::epoll_event { events: 0, u64: 0 };
		let patience = if template.paused { PAUSE } else { ahead::patience(template) };
		// One at a time: what is left is told again.
		// SAFETY: room for one event.
		let come = unsafe { libc::epoll_wait(template.epoll, &raw mut event, 1, patience) };
		if template.paused {
			template.paused = !watch(template.epoll, template.order.listener, LISTENER);
			if come != 1 {
				continue;
			}
		}
		match come {
			1 => {}
			0 if ahead::begin(template) => return,
			_ => continue,
		}
		match event.u64 {
			LISTENER => accept(template),
			SIGNALS => {
				signals(template);
				reap(template);
			}
			slot => hear(template, slot as usize),
		}
	}
}

/// Whoever has come meanwhile is told that there is no clone, so that he may ask whom the name leads to by then.
fn turn_away(template: &Template) {
	// SAFETY: takes numbers. From here on nobody else comes.
	unsafe { libc::shutdown(template.order.listener, libc::SHUT_RDWR) };
	let refuse = |socket| {
		// Who has not asked yet can't any more. What is not read when this process ends would be in the way of the
		// answer.
		// SAFETY: takes numbers.
		unsafe { libc::shutdown(socket, libc::SHUT_RD) };
		if let Received::Ask(Ask::Clone { .. }, _) = receive(socket) {
			send(socket, Tell::Failed { step: Step::Retired, errno: 0 });
		}
	};
	template.slots.iter().filter(|slot| slot.socket >= 0 && slot.pid == 0).for_each(|slot| refuse(slot.socket));
	loop {
		// SAFETY: takes no memory.
		let socket = unsafe {
			let (none, flags) = (core::ptr::null_mut(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
			libc::accept4(template.order.listener, none, core::ptr::null_mut(), flags)
		};
		if socket < 0 {
			return;
		}
		refuse(socket);
		close_all(&[socket]);
	}
}

fn accept(template: &mut Template) {
	// SAFETY: takes no memory.
	let socket = unsafe {
		let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
		libc::accept4(template.order.listener, core::ptr::null_mut(), core::ptr::null_mut(), flags)
	};
	if socket < 0 {
		// SAFETY: errno of this thread.
		let errno = unsafe { *libc::__errno_location() };
		if [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].contains(&errno) {
			unwatch(template.epoll, template.order.listener);
			template.paused = true;
		}
		return;
	}
	let free = template.slots.iter().position(|slot| slot.socket < 0 && slot.pid == 0);
	// A function's calls are no callers of its template: these are outside of its process number space.
	let is_server = |caller: &i32| template.facts.at != ReadyAt::Runtime || *caller == 0;
	match (free, own_user(socket).filter(is_server)) {
		(Some(slot), Some(caller)) if watch(template.epoll, socket, slot as u64) => {
			template.slots[slot] = Slot { socket, caller, ..FREE };
		}
		_ => {
			if free.is_none() {
				send(socket, Tell::Failed { step: Step::TooMany, errno: 0 });
			}
			close_all(&[socket]);
		}
	}
}

/// The caller, if it is the user's whose process this is. The directory keeps others out already.
pub fn own_user(socket: c_int) -> Option<i32> {
	let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
	let mut len = size_of::<libc::ucred>() as u32;
	// SAFETY: the structure is a local, and as long as said.
	unsafe {
		let known =
			libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) == 0;
		(known && peer.uid == libc::geteuid()).then_some(peer.pid)
	}
}

fn hear(template: &mut Template, slot: usize) {
	let Some(connection) = template.slots.get(slot).copied() else { return };
	if connection.socket < 0 {
		return;
	}
	let fail = |step| send(connection.socket, Tell::Failed { step, errno: 0 });
	match receive(connection.socket) {
		Received::Nothing => {}
		Received::End => hang_up(template, slot),
		Received::Nonsense | Received::Ask(Ask::Clone { .. }, None) => drop(fail(Step::Request)),
		Received::Short => {
			fail(Step::Descriptors);
			super::ahead::end(template);
		}
		Received::Ask(Ask::Clone { job }, Some(descriptors)) => match refusal(template, &connection) {
			Some(step) => {
				fail(step);
				close_all(&descriptors);
				// The clone that waits has a descriptor here, which whoever comes next may need.
				if step == Step::Descriptors {
					super::ahead::end(template);
				}
			}
			// Who has gone while this process was stopped, or busy, wants no clone any more.
			None if hung_up(connection.socket) => close_all(&descriptors),
			None => match stale(template, descriptors[0]) {
				Some(stale) => {
					send(connection.socket, stale);
					close_all(&descriptors);
				}
				None => {
					template.slots[slot].job = job;
					template.wanted = Some(Wanted { slot, descriptors });
				}
			},
		},
		// The sockets of programs with one thread are nobody's affair.
		Received::Ask(Ask::Listen { .. }, _) => drop(fail(Step::Request)),
		Received::Ask(Ask::Status | Ask::Listeners | Ask::LetGo, _) => {
			send(connection.socket, Tell::Facts(facts(template)));
		}
		Received::Ask(Ask::Recipe, _) => send_with(connection.socket, Tell::Recipe, template.order.recipe),
		Received::Ask(Ask::Retire, _) => {
			retire(template);
			send(connection.socket, Tell::Facts(facts(template)));
		}
		Received::Ask(Ask::Signal { signal, group }, _) if connection.pid != 0 => {
			// SAFETY: the clone has not been waited for, so its number is nobody else's; it leads its group from the
			// start.
			unsafe { libc::kill(if group { -connection.pid } else { connection.pid }, signal) };
		}
		// The clone ended meanwhile.
		Received::Ask(Ask::Signal { .. }, _) => {}
	}
}

/// Why its program would be another one for this caller, whose request is in that file.
fn stale(template: &Template, request: c_int) -> Option<Tell> {
	let renews = template.order.renews;
	super::files::told(renews).or_else(|| {
		let (count, name) = renews.then(|| take_over::with_variables(request, super::variables::others))??;
		Some(Tell::stale(Why::Variable, true, count, name.to_bytes()))
	})
}

/// For others a clone that has told its end runs no more.
fn facts(template: &Template) -> Facts {
	let (changed, unwatched) = super::files::counts();
	Facts { running: template.facts.running - template.ahead.ending, changed, unwatched, ..template.facts }
}

fn refusal(template: &Template, connection: &Slot) -> Option<Step> {
	if template.retired {
		Some(Step::Retired)
	} else if connection.pid != 0 {
		Some(Step::Request)
	} else if template.facts.running >= MOST_RUNNING as u64 {
		Some(Step::TooMany)
	} else {
		(connection.socket >= template.most_descriptors).then_some(Step::Descriptors)
	}
}

/// The caller is gone: so is its clone, with what it has started in its group.
fn hang_up(template: &mut Template, slot: usize) {
	let connection = &mut template.slots[slot];
	unwatch(template.epoll, connection.socket);
	close_all(&[connection.socket]);
	connection.socket = -1;
	if connection.pid != 0 && !connection.told {
		// SAFETY: as above.
		unsafe {
			libc::kill(-connection.pid, libc::SIGKILL);
			libc::kill(connection.pid, libc::SIGKILL);
		}
	}
}

/// More than there are kinds of signals that end this process: these come before clones' own.
const SIGNALS_AT_ONCE: usize = 16;

/// Takes what has come, but for what it tells of children.
fn signals(template: &mut Template) {
	for _ in 0..SIGNALS_AT_ONCE {
		// SAFETY: all zeros are a value of this plain C structure; the read is no longer than it.
		let info = unsafe {
			let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed().assume_init();
			let len = size_of::<libc::signalfd_siginfo>();
			if libc::read(template.signals, (&raw mut info).cast(), len) != len as isize {
				return;
			}
			info
		};
		let is_from_clone = || template.slots.iter().any(|slot| slot.pid != 0 && slot.pid == info.ssi_pid as i32);
		if let Some((pid, status)) = told(&info) {
			ends(template, pid, status);
		} else if ![end::signal(), libc::SIGCHLD].contains(&(info.ssi_signo as c_int)) && !is_from_clone() {
			retire(template);
			// The clones end with it, by their death signal; their callers are told by the end of their connections.
			// SAFETY: ends the process.
			unsafe { libc::_exit(0) };
		}
	}
}

/// A clone says how it ends; its caller need not wait until it has.
fn ends(template: &mut Template, pid: i32, status: c_int) {
	if let Some(slot) = template.slots.iter_mut().find(|slot| slot.pid == pid && slot.socket >= 0 && !slot.told) {
		slot.told = send(slot.socket, Tell::Ended { status });
		template.ahead.ending += u64::from(slot.told);
	}
}

fn reap(template: &mut Template) {
	loop {
		let mut status = 0;
		// SAFETY: the status is a local. Children of the warm-up are reaped too: nobody else will.
		let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
		if pid <= 0 {
			return;
		}
		// Whatever it has sent has come before its end, and is known to be a clone's only now.
		signals(template);
		if ahead::noticed(template, pid, status) {
			continue;
		}
		let Some(slot) = template.slots.iter_mut().find(|slot| slot.pid == pid) else { continue };
		let goes_on = libc::WIFSTOPPED(status) || libc::WIFCONTINUED(status);
		if !slot.told {
			if !goes_on && slot.socket >= 0 {
				send(slot.socket, Tell::Ended { status });
			}
			stop_caller(slot, libc::WIFSTOPPED(status));
		}
		if !goes_on {
			template.ahead.ending -= u64::from(slot.told);
			(slot.pid, slot.told) = (0, false);
			template.facts.running -= 1;
			if slot.socket < 0 {
				*slot = FREE;
			}
		}
	}
}

/// A caller that is one job with its clone is stopped while that is, whoever stops and continues it. Done from here,
/// one by one, it can't be overtaken as messages could, which a stopped caller doesn't read.
fn stop_caller(slot: &mut Slot, stopped: bool) {
	let before = core::mem::replace(&mut slot.stopped, stopped);
	if (stopped || before) && slot.job && slot.socket >= 0 && slot.caller > 0 && !hung_up(slot.socket) {
		// SAFETY: takes numbers. Who has not hung up lives, and its number is its own.
		unsafe { libc::kill(slot.caller, if stopped { libc::SIGSTOP } else { libc::SIGCONT }) };
	}
}

/// Gives up the name, if it is still this template's.
fn retire(template: &mut Template) {
	template.retired = true;
	let name = template.order.name.as_ptr().cast();
	// SAFETY: the name ends with a NUL; the structure is a local of which all zeros are a value.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		let found = libc::fstatat(template.order.directory, name, &raw mut stat, libc::AT_SYMLINK_NOFOLLOW) == 0;
		if found && stat.st_ino == template.inode {
			libc::unlinkat(template.order.directory, name, 0);
		}
	}
}

/// In the template, after the fork for a caller.
pub fn forked(template: &mut Template, wanted: &Wanted, pid: c_int) {
	// SAFETY: errno of this thread, as fork has left it.
	let errno = unsafe { *libc::__errno_location() };
	close_all(&wanted.descriptors);
	let slot = &mut template.slots[wanted.slot];
	if pid < 0 {
		send(slot.socket, Tell::Failed { step: Step::Fork, errno });
		return;
	}
	(slot.pid, slot.stopped) = (pid, false);
	// The clone does the same: whoever comes first. A signal for the group must find it.
	// SAFETY: the child of this process.
	unsafe { libc::setpgid(pid, pid) };
	template.facts.made += 1;
	template.facts.running += 1;
	if template.facts.made == template.facts.max {
		retire(template);
	}
}

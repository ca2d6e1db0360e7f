//! Attends to a clone until it ends: its signals to it, its exit status from it.

use crate::{
	line::{Handed, Line},
	request::Asked,
	system::{self, call, into},
	template,
};
use flashfork_warm::{Ask, Job, Step, Tell};
use linux_raw_sys::{general as sys, net, prctl};
use syscalls::{Errno, Sysno};

/// After how long, in milliseconds, a template that has not made the clone yet is looked at: by the command proper.
const LOOK: usize = 250;

/// Until the clone ends, and this process with it; or until there is something that must be said in words.
pub fn attend(line: &Line, asked: Asked) -> ! {
	let (socket, signals) = (asked.template.socket, asked.signals);
	let mut clone = 0;
	loop {
		let mut ready = [socket, signals].map(|fd| sys::pollfd { fd, events: sys::POLLIN as i16, revents: 0 });
		let patience = if clone == 0 { LOOK } else { usize::MAX };
		let given = [ready.as_mut_ptr() as usize, ready.len(), patience, 0, 0, 0];
		// SAFETY: so many structures, locals.
		let come = unsafe { flashfork_core::system_call(Sysno::poll, given) };
		// Before the signals: one sent because of what the clone does finds that it has started.
		loop {
			match heard(socket, net::MSG_PEEK) {
				Err(Nothing) => break,
				Ok(Some(Tell::Started { pid })) => {
					clone = pid;
					let_go_of_streams();
				}
				Ok(Some(Tell::Ended { status })) => end_as(status),
				Ok(Some(Tell::Stale { .. })) => begin_anew(line, &asked),
				Ok(Some(Tell::Failed { step: Step::Retired, .. })) if is_replaced(line, &asked) => {
					begin_anew(line, &asked)
				}
				Ok(_) => line.hand_on(Some(Handed { socket, clone })),
			}
			// It was left there for the command proper.
			let _ = heard(socket, 0);
		}
		if !matches!(come, Ok(1..) | Err(Errno::EINTR)) {
			line.hand_on(Some(Handed { socket, clone }));
		}
		if ready[1].revents != 0 {
			pass_on(&asked, clone);
		}
	}
}

/// There is no clone, but there may be one of a template that comes in place of this one.
fn begin_anew(line: &Line, asked: &Asked) -> ! {
	system::block(sys::SIG_SETMASK, asked.blocked);
	line.hand_on(None)
}

/// Whether the name leads to another template now.
fn is_replaced(line: &Line, asked: &Asked) -> bool {
	let name = line.argument(2).and_then(|name| core::str::from_utf8(name).ok());
	let now = name.and_then(|name| template::connect(line, name));
	now.is_some_and(|now| now.pid != asked.template.pid)
}

struct Nothing;

/// What has come of the template; none for its end, and for what is no message.
fn heard(socket: i32, flags: u32) -> Result<Option<Tell>, Nothing> {
	let mut bytes = [0; Tell::LEN];
	let flags = (flags | net::MSG_DONTWAIT) as usize;
	// SAFETY: the buffer is as long as said.
	let count = unsafe {
		let given = [socket as usize, into(&mut bytes), bytes.len(), flags, 0, 0];
		flashfork_core::system_call(Sysno::recvfrom, given)
	};
	match count {
		Ok(count) => Ok(bytes.get(..count).and_then(Tell::decode)),
		Err(Errno::EAGAIN | Errno::EINTR) => Err(Nothing),
		Err(_) => Ok(None),
	}
}

/// The clone has them; who is at their other end should notice when it closes them.
fn let_go_of_streams() {
	if let Some(null) = system::open(c"/dev/null", sys::O_RDWR) {
		for stream in 0..2 {
			system::ask(Sysno::dup2, [null as usize, stream]);
		}
		system::close(null);
	}
}

fn pass_on(asked: &Asked, clone: i32) {
	// `struct signalfd_siginfo`: number, error, code, sender, and more.
	let mut info = [0u32; 32];
	let len = size_of_val(&info);
	// SAFETY: the structure is a local, as long as said.
	while unsafe { call(Sysno::read, [asked.signals as usize, into(&mut info), len]) } == Some(len) {
		let [signal, _, code, from, ..] = info;
		// Nobody has seen anything of the clone, and it does end by the signal.
		let ends = clone == 0 && !system::is_ignored(signal as i32);
		match flashfork_warm::job(signal as i32, code as i32, asked.template.pid == Some(from), ends) {
			Job::Ends => {
				system::end_by(signal as i32);
				system::exit(128 + signal as i32)
			}
			Job::Nothing => {}
			Job::Ask(ask) => tell(asked.template.socket, ask),
		}
	}
}

/// A template that is gone is told of by its connection.
fn tell(socket: i32, ask: Ask) {
	let bytes = ask.encode();
	let flags = (net::MSG_NOSIGNAL | net::MSG_DONTWAIT) as usize;
	// SAFETY: the bytes are as many as said.
	unsafe { call(Sysno::sendto, [socket as usize, bytes.as_ptr() as usize, bytes.len(), flags, 0, 0]) };
}

/// Ends this process as its clone has ended (`wait(2)`): by the signal that has ended it, or with its exit code. The
/// program's core is the one that was to be dumped.
fn end_as(status: i32) -> ! {
	let signal = status & 0x7f;
	if signal == 0 {
		system::exit(status >> 8 & 0xff);
	}
	system::ask(Sysno::prctl, [prctl::PR_SET_DUMPABLE as usize, 0, 0, 0, 0]);
	system::end_by(signal);
	system::exit(128 + signal)
}

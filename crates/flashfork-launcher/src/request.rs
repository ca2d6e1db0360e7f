//! Asks a template for a clone.

use crate::{
	caller,
	line::Line,
	system::{self, Fd, at, call},
	template::Template,
};
use core::mem::MaybeUninit;
use flashfork_warm::{Ask, DESCRIPTORS, PASSED_ON, Start};
use linux_raw_sys::{general as sys, net};
use syscalls::Sysno;

/// A clone asked for.
pub struct Asked {
	pub template: Template,
	/// Where this process's signals are read.
	pub signals: Fd,
	/// Those blocked before.
	pub blocked: u64,
}

/// Most arguments and variables; whoever has more can wait for the command proper.
const MOST: usize = 1024;

/// Asks for one whose arguments are those from `first` on. `None` if none has been asked for.
pub fn ask(line: &Line, first: usize, template: Template) -> Option<Asked> {
	let start = caller::describe()?;
	let file = written(start, line.strings(first))?;
	let directory = system::open(c".", sys::O_PATH | sys::O_DIRECTORY)?;
	let wanted = PASSED_ON.into_iter().fold(0, |set, signal| set | 1u64 << (signal - 1));
	let before = system::block(sys::SIG_BLOCK, wanted);
	let asked = signals(wanted).filter(|_| send(template.socket, [file, directory, 0, 1, 2]).is_some());
	if asked.is_none() {
		system::block(sys::SIG_SETMASK, before);
	}
	// The clone's own, now.
	system::close(file);
	asked.map(|signals| Asked { template, signals, blocked: before })
}

/// The memfd that comes with the request. The strings lie one behind the other where the kernel has put them, and are
/// written from there.
fn written(start: Start, [arguments, variables]: [&[*const core::ffi::c_char]; 2]) -> Option<Fd> {
	let count = arguments.len() + variables.len();
	let mut table = [const { MaybeUninit::<u64>::uninit() }; MOST + 2];
	let tables = count.checked_add(2).filter(|words| *words <= table.len())?;
	let strings_at = size_of::<Start>() + tables * size_of::<u64>();
	let mut all = arguments.iter().chain(variables).map(|text| *text as usize);
	let begin = all.next().unwrap_or_default();
	// SAFETY: the last of the strings.
	let last =
		arguments.iter().chain(variables).last().map_or(begin, |text| unsafe {
			*text as usize + core::ffi::CStr::from_ptr(*text).to_bytes_with_nul().len()
		});
	let len = last.checked_sub(begin)?;
	let mut rest = table.iter_mut();
	for part in [arguments, variables] {
		let mut before = begin;
		for text in part {
			let at = *text as usize;
			// Not where somebody else than the kernel has put them elsewhere.
			if at < before || at >= last {
				return None;
			}
			before = at;
			rest.next()?.write((strings_at + at - begin) as u64);
		}
		rest.next()?.write(0);
	}
	// The last byte must be a NUL, also without strings.
	let whole = strings_at + len + 1;
	let [soft, _] = start.limits[sys::RLIMIT_FSIZE as usize];
	if whole as u64 > soft {
		return None;
	}
	let counts = (arguments.len() as u64, variables.len() as u64);
	let start = Start { len: whole as u64, arguments: counts.0, variables: counts.1, ..start };
	let vector = [
		[at(&start), size_of::<Start>()],
		[table.as_ptr() as usize, tables * size_of::<u64>()],
		[begin, len],
		[at(&0u8), 1],
	];
	// SAFETY: the parts are as long as they say; the strings are one part of the stack.
	unsafe {
		let name = c"flashfork-start".as_ptr() as usize;
		let file = call(Sysno::memfd_create, [name, sys::MFD_CLOEXEC as usize])?;
		let written = call(Sysno::writev, [file, vector.as_ptr() as usize, vector.len()]);
		(written == Some(whole)).then_some(file as Fd)
	}
}

fn signals(set: u64) -> Option<Fd> {
	// They have the values of those of a file (`signalfd(2)`).
	let flags = sys::O_CLOEXEC | sys::O_NONBLOCK;
	// SAFETY: the set is a local, of the size said.
	let made = unsafe { call(Sysno::signalfd4, [usize::MAX, at(&set), size_of::<u64>(), flags as usize]) };
	made.map(|fd| fd as Fd)
}

/// Control data with descriptors (`cmsg(3)`).
#[repr(C, align(8))]
struct Control {
	len: usize,
	level: i32,
	kind: i32,
	descriptors: [Fd; DESCRIPTORS],
}

fn send(socket: Fd, descriptors: [Fd; DESCRIPTORS]) -> Option<()> {
	let bytes = Ask::Clone { job: true }.encode();
	let control = Control {
		len: core::mem::offset_of!(Control, descriptors) + size_of_val(&descriptors),
		level: net::SOL_SOCKET as i32,
		kind: net::SCM_RIGHTS as i32,
		descriptors,
	};
	let vector = [bytes.as_ptr() as usize, bytes.len()];
	// Name, vector, control data, each with its length, and flags.
	let message = [0, 0, at(&vector), 1, at(&control), size_of::<Control>(), 0];
	let flags = net::MSG_NOSIGNAL | net::MSG_DONTWAIT;
	// SAFETY: a `struct msghdr` of seven words, whose parts are as long as they say.
	let sent = unsafe { call(Sysno::sendmsg, [socket as usize, at(&message), flags as usize]) };
	(sent == Some(bytes.len())).then_some(())
}

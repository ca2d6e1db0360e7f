//! Calls that had transferred a part when their threads were stopped.
//!
//! A call that waits until all is through (a `write` to a pipe, a `recv` with `MSG_WAITALL`) returns with the part when
//! a thread is stopped in it, as it does for a signal. So its clones enter the call again for the rest, and return with
//! both. Errors of the rest are told by the next call, as the kernel has it.

use super::{
	descriptors::{FIFO, FILE, identity, is_source},
	frame::{self, register},
	frozen::{Entry, Files, Frozen, Kind, NONE, Rest, Thread},
	pairs::{is_at_end, waiting},
	raw::{behind_number, call, into},
	sockets,
	unfit::{Fit, Unfit, What},
};
use crate::{
	scratch,
	sys::{self, Errno, Result},
};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// Most bytes of one call (`MAX_RW_COUNT`, include/linux/fs.h).
const MOST: usize = 0x7fff_f000;
/// Most vectors, or messages, of one call (`UIO_MAXIOV`).
const VECTORS: usize = 1024;

/// Words of `struct msghdr`, and bytes of `struct mmsghdr`.
const MESSAGE: usize = 7;
const MESSAGES: usize = 64;

/// Where they are.
const NAME: usize = 0;
const NAME_LENGTH: usize = 1;
const VECTOR: usize = 2;
const COUNT: usize = 3;
const CONTROL: usize = 4;
const CONTROL_LENGTH: usize = 5;

/// `MSG_*`.
const PEEK: usize = 2;
const DONT_WAIT: usize = 0x40;
const WAIT_ALL: usize = 0x100;
const NO_SIGNAL: usize = 0x4000;
const WAIT_FOR_ONE: usize = 0x10000;

/// Where the arguments are in `struct user_regs_struct`.
const ARGUMENTS: [usize; 6] = [register::RDI, register::RSI, register::RDX, register::R10, register::R8, register::R9];

/// The rest of a call: its number and arguments.
type Again = (Sysno, [usize; 6]);

/// Has clones go on with them. When descriptors and pending signals are known.
pub fn look(frozen: &mut Frozen) -> Fit {
	let Frozen { threads, count, files, pending, .. } = frozen;
	for thread in &mut threads[..*count] {
		// A signal would have cut it short, too.
		let interrupts = |signal: i32| signal > 0 && thread.signals >> (signal - 1) & 1 == 0;
		let signalled = pending.all[..pending.count]
			.iter()
			.any(|sent| [0, thread.tid].contains(&sent.tid) && interrupts(sent.signal()));
		if signalled {
			continue;
		}
		let of_thread = |_| Unfit::named(What::Part, thread.tid, &thread.name);
		if let Some(again) = rest(thread, files).map_err(of_thread)? {
			enter_again(thread, again);
		}
	}
	Ok(())
}

fn enter_again(thread: &mut Thread, (number, arguments): Again) {
	let r = &thread.registers;
	thread.rest = Rest {
		part: r[register::RAX],
		arguments: ARGUMENTS.map(|register| r[register]),
		rbx: r[register::RBX],
		next: r[register::RIP],
	};
	let others = [
		(register::RAX, number as usize),
		(register::RBX, (&raw const thread.rest) as usize),
		(register::RIP, behind_number(trampoline as *const () as usize)),
	];
	for (register, value) in ARGUMENTS.into_iter().zip(arguments).chain(others) {
		// SAFETY: the thread's own frame, which was written (`look::threads`).
		unsafe { frame::set(thread.frame, register, value) };
	}
}

/// Does the rest of a call, with the stack of the thread and nothing of it changed: rbx is the address of a [`Rest`].
/// The kernel may begin it again, as it does with any other call. It begins [`behind_number`], with one of its own.
///
/// Whoever unwinds from here, as `pthread_cancel(3)` does, comes to where the thread stood: DWARF's `DW_CFA_expression`
/// says that rbx is at 56 from rbx, and where it goes on at 64 (`DW_OP_breg3`).
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
	core::arch::naked_asm!(
		".cfi_startproc",
		".cfi_def_cfa rsp, 0",
		".cfi_escape 0x10, 3, 2, 0x73, 56",
		".cfi_escape 0x10, 16, 3, 0x73, 0xc0, 0",
		"mov eax, 1",
		"syscall",
		"test rax, rax",
		"js 2f",
		"add rax, [rbx]",
		"jmp 3f",
		"2: mov rax, [rbx]",
		"3: mov rdi, [rbx + 8]",
		"mov rsi, [rbx + 16]",
		"mov rdx, [rbx + 24]",
		"mov r10, [rbx + 32]",
		"mov r8, [rbx + 40]",
		"mov r9, [rbx + 48]",
		// As the kernel leaves it.
		"mov rcx, [rbx + 64]",
		".cfi_register rip, rcx",
		"mov rbx, [rbx + 56]",
		".cfi_same_value rbx",
		"jmp rcx",
		".cfi_endproc",
	)
}

/// What is left to do of the call that a thread has just made; nothing if that is over. An error: something is, and it
/// can't be done.
fn rest(thread: &Thread, files: &Files) -> Result<Option<Again>> {
	let r = &thread.registers;
	let (number, done) = (r[register::ORIG_RAX], r[register::RAX]);
	let Some(number) = Sysno::new(number) else { return Ok(None) };
	let arguments = ARGUMENTS.map(|register| r[register]);
	let [a, b, c, d, e, f] = arguments;
	let part = Part { files, done };
	if number == Sysno::connect && frame::is_interrupted(done) && part.is_connection(a) {
		// It may be made by now, and is at its end in clones.
		return Err(Errno::EAGAIN);
	}
	if done as isize <= 0 {
		return Ok(None);
	}
	let is_less_than = |all: usize| done < all.min(MOST);
	match number {
		Sysno::write if is_less_than(c) => Ok(match part.sends(a, 0) {
			Some(To::Socket) => Some((Sysno::sendto, [a, b + done, c - done, NO_SIGNAL, 0, 0])),
			Some(To::File) => Some((number, [a, b + done, c - done, d, e, f])),
			None => None,
		}),
		Sysno::sendto if is_less_than(c) => {
			Ok(part.sends(a, d).map(|to| (number, [a, b + done, c - done, d | to.flags(), e, f])))
		}
		Sysno::read if part.reads(a, 0, c)? => Ok(Some((number, [a, b + done, c - done, d, e, f]))),
		Sysno::pread64 if part.reads(a, 0, c)? => Ok(Some((number, [a, b + done, c - done, d + done, e, f]))),
		Sysno::recvfrom if part.reads(a, d, c)? => Ok(Some((number, [a, b + done, c - done, d, 0, 0]))),
		Sysno::writev => part.writev(number, arguments),
		// At the position -1: as writev.
		Sysno::pwritev2 if d as isize == -1 && f as u32 & k::RWF_NOWAIT == 0 => part.writev(number, arguments),
		Sysno::readv => match Vectors::left(b, c, done)? {
			Some(left) if part.reads(a, 0, left.all)? => Ok(Some((number, [a, left.keep()?, left.count, d, e, f]))),
			_ => Ok(None),
		},
		Sysno::sendmsg => part.sendmsg(arguments),
		Sysno::recvmsg => part.recvmsg(arguments),
		Sysno::sendmmsg | Sysno::recvmmsg => part.messages(number, arguments),
		// To a pipe it gives what there is room for.
		Sysno::sendfile if is_less_than(d) && !is_pipe(a as i32) && (part.sends(a, 0).is_some() || part.is_file(a)) => {
			Ok(Some((number, [a, b, c, d - done, e, f])))
		}
		Sysno::splice if is_less_than(e) && part.splices(arguments)? => Ok(Some((number, [a, b, c, d, e - done, f]))),
		Sysno::copy_file_range if is_less_than(e) => Ok(Some((number, [a, b, c, d, e - done, f]))),
		Sysno::getrandom if is_less_than(b) => Ok(Some((number, [a + done, b - done, c, d, e, f]))),
		_ => Ok(None),
	}
}

/// What a call writes to that returns when all is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
	File,
	/// A socket, which sends no signal when a part was written and the other end is closed.
	Socket,
}

impl To {
	fn flags(self) -> usize {
		if self == To::Socket { NO_SIGNAL } else { 0 }
	}
}

/// A call that has transferred so many bytes, or messages.
struct Part<'a> {
	files: &'a Files,
	done: usize,
}

impl Part<'_> {
	/// A descriptor that is still there; the one that others are copies of.
	fn entry(&self, fd: usize) -> Option<&Entry> {
		let all = &self.files.all[..self.files.count];
		let entry = all.iter().find(|entry| entry.number == fd as i32)?;
		if entry.kind == Kind::Same { all.get(entry.other) } else { Some(entry) }
	}

	fn is_connection(&self, fd: usize) -> bool {
		self.entry(fd).is_some_and(|entry| entry.kind == Kind::Outside)
	}

	fn is_file(&self, fd: usize) -> bool {
		self.entry(fd).is_some_and(|entry| entry.kind == Kind::File)
	}

	/// What a call with these flags (`MSG_*`) writes to, if it waits until all is through, and clones have somebody who
	/// may take it.
	fn sends(&self, fd: usize, flags: usize) -> Option<To> {
		let entry = self.entry(fd)?;
		let fd = entry.number;
		if is_impatient(entry, flags) || is_broken(fd) {
			return None;
		}
		match entry.kind {
			Kind::Writes if entry.other != NONE => Some(To::File),
			Kind::Pair if is_stream(fd) => Some(To::Socket),
			// No signal cuts a write to a file short.
			Kind::Stream if !is_regular(fd) => Some(To::File),
			Kind::File | Kind::Shared if is_source(fd) => Some(To::File),
			_ => None,
		}
	}

	/// Whether a call with these flags that reads waits for so many bytes, and has fewer. An error: it waits for some,
	/// and it can't be said how many are missing.
	fn reads(&self, fd: usize, flags: usize, len: usize) -> Result<bool> {
		const SO_RCVLOWAT: usize = 18;
		let patient = |entry: &&Entry| !is_impatient(entry, flags) && self.done < len.min(MOST);
		let Some(entry) = self.entry(fd).filter(patient) else { return Ok(false) };
		let fd = entry.number;
		match entry.kind {
			Kind::Pair | Kind::Outside | Kind::Closed if is_stream(fd) => {
				let least = sockets::option(fd, SO_RCVLOWAT).unwrap_or(1) as usize;
				let all = flags & WAIT_ALL != 0;
				if !all && (self.done >= least || is_at_end(fd)) {
					return Ok(false);
				}
				// What it has only looked at is there again.
				if all && flags & PEEK == 0 { Ok(true) } else { Err(Errno::EAGAIN) }
			}
			Kind::File | Kind::Shared => Ok(is_source(fd)),
			_ => Ok(false),
		}
	}

	/// Of calls whose arguments are a descriptor and vectors.
	fn writev(&self, number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> Result<Option<Again>> {
		let (Some(to), Some(left)) = (self.sends(a, 0), Vectors::left(b, c, self.done)?) else { return Ok(None) };
		if to == To::Socket {
			let message = [0, 0, left.keep()?, left.count, 0, 0, 0];
			return Ok(Some((Sysno::sendmsg, [a, keep(&message)?, NO_SIGNAL, 0, 0, 0])));
		}
		Ok(Some((number, [a, left.keep()?, left.count, d, e, f])))
	}

	/// What comes beside bytes has gone with the first of them.
	fn sendmsg(&self, [a, b, c, ..]: [usize; 6]) -> Result<Option<Again>> {
		let Some(to) = self.sends(a, c) else { return Ok(None) };
		let mut message = words_at::<MESSAGE>(b)?;
		let Some(left) = Vectors::left(message[VECTOR], message[COUNT], self.done)? else { return Ok(None) };
		(message[VECTOR], message[COUNT]) = (left.keep()?, left.count);
		(message[CONTROL], message[CONTROL_LENGTH]) = (0, 0);
		Ok(Some((Sysno::sendmsg, [a, keep(&message)?, c | to.flags(), 0, 0, 0])))
	}

	/// What might come beside bytes is told of in the program's own structure, which has been written.
	fn recvmsg(&self, [a, b, c, ..]: [usize; 6]) -> Result<Option<Again>> {
		let mut message = words_at::<MESSAGE>(b)?;
		let Some(left) = Vectors::left(message[VECTOR], message[COUNT], self.done)? else { return Ok(None) };
		if !self.reads(a, c, left.all)? {
			return Ok(None);
		}
		if message[CONTROL] != 0 {
			return Err(Errno::EAGAIN);
		}
		(message[VECTOR], message[COUNT]) = (left.keep()?, left.count);
		(message[NAME], message[NAME_LENGTH]) = (0, 0);
		Ok(Some((Sysno::recvmsg, [a, keep(&message)?, c, 0, 0, 0])))
	}

	/// Of calls whose arguments are a descriptor and messages. Of a stream nobody knows how much of the last is
	/// through.
	fn messages(&self, number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> Result<Option<Again>> {
		let waits = |entry: &&Entry| {
			let lasts = [Kind::Pair, Kind::Fresh, Kind::Stream].contains(&entry.kind);
			lasts && !is_impatient(entry, d) && d & WAIT_FOR_ONE == 0
		};
		let left = c.min(VECTORS).saturating_sub(self.done);
		let Some(entry) = self.entry(a).filter(waits).filter(|_| left > 0) else { return Ok(None) };
		if number == Sysno::recvmmsg && e != 0 && words_at::<2>(e)? == [0, 0] {
			// Its time is over.
			return Ok(None);
		}
		if is_stream(entry.number) {
			return Err(Errno::EAGAIN);
		}
		Ok(Some((number, [a, b + self.done * MESSAGES, left, d, e, f])))
	}

	/// Whether `splice` goes on: it takes what is in a pipe, and waits for those who take that.
	fn splices(&self, [a, _, c, _, _, f]: [usize; 6]) -> Result<bool> {
		let from_pipe = |entry: &&Entry| entry.kind == Kind::Reads && !is_impatient(entry, 0);
		let Some(from) = self.entry(a).filter(from_pipe) else { return Ok(false) };
		let taken = !is_pipe(c as i32) && (self.sends(c, 0).is_some() || self.is_file(c));
		let goes_on = f as u32 & k::SPLICE_F_NONBLOCK == 0 && taken;
		Ok(goes_on && waiting(from.number)? > 0)
	}
}

/// What is left of the vectors of a call.
struct Vectors {
	vectors: [[usize; 2]; VECTORS],
	from: usize,
	count: usize,
	/// Bytes of all, those that are through among them.
	all: usize,
}

impl Vectors {
	/// Of these vectors of the program's; nothing if all bytes are through.
	fn left(at: usize, count: usize, done: usize) -> Result<Option<Vectors>> {
		let mut vectors = [[0; 2]; VECTORS];
		for (i, vector) in vectors.get_mut(..count).ok_or(Errno::EINVAL)?.iter_mut().enumerate() {
			*vector = words_at::<2>(at + i * size_of_val(vector))?;
		}
		let all = vectors.iter().fold(0, |all: usize, [_, len]| all.saturating_add(*len));
		let (mut from, mut through) = (0, done);
		while from < count && vectors[from][1] <= through {
			through -= vectors[from][1];
			from += 1;
		}
		if from == count || done >= MOST {
			return Ok(None);
		}
		let [address, len] = &mut vectors[from];
		(*address, *len) = (*address + through, *len - through);
		Ok(Some(Vectors { vectors, from, count: count - from, all }))
	}

	/// Their address for clones.
	fn keep(&self) -> Result<usize> {
		keep(&self.vectors[self.from..self.from + self.count])
	}
}

/// Whether calls at a descriptor return before all is through.
fn is_impatient(entry: &Entry, flags: usize) -> bool {
	entry.info.flags & k::O_NONBLOCK != 0 || flags & DONT_WAIT != 0
}

fn is_stream(fd: i32) -> bool {
	const STREAM: i32 = 1;
	sockets::option(fd, sockets::SO_TYPE) == Ok(STREAM)
}

fn is_regular(fd: i32) -> bool {
	identity(fd).is_ok_and(|(_, _, mode)| mode >> 12 == FILE)
}

fn is_pipe(fd: i32) -> bool {
	identity(fd).is_ok_and(|(_, _, mode)| mode >> 12 == FIFO)
}

/// Whether nobody reads what is written any more: the call is over.
fn is_broken(fd: i32) -> bool {
	const POLLERR: u64 = 8;
	const POLLHUP: u64 = 0x10;
	let mut poll = u64::from(fd as u32);
	// SAFETY: one struct pollfd, a local.
	let told = unsafe { call(Sysno::poll, [into(&mut poll), 1, 0]) };
	told == Ok(1) && poll >> 48 & (POLLERR | POLLHUP) != 0
}

fn words_at<const N: usize>(at: usize) -> Result<[usize; N]> {
	let mut words = [0; N];
	for (i, word) in words.iter_mut().enumerate() {
		let mut bytes = [0; 8];
		sys::read_own(at + 8 * i, &mut bytes)?;
		*word = usize::from_ne_bytes(bytes);
	}
	Ok(words)
}

/// Puts a copy where clones find it.
fn keep<T: Copy>(values: &[T]) -> Result<usize> {
	let len = size_of_val(values);
	let at = scratch::map(len)?;
	// SAFETY: a fresh mapping as long as the values, which have no destructor.
	unsafe { sys::copy_bytes(values.as_ptr() as usize, at, len) };
	Ok(at)
}

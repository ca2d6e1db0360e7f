//! The maker: waits for its keeper's orders, in the program's memory.

use super::{
	IN_CLONE, bound_capabilities,
	caller::Caller,
	end, first, is_ready_at, java, listeners, python,
	socket::{Heard, close_all, hear, is_answered, say},
	systemv,
};
use crate::{
	atfork, number,
	warm::{hooks, mapped, source, template::CLONE},
};
use core::sync::atomic::Ordering::SeqCst;
use flashfork_core::{
	Errno, Error, Pages,
	forkall::{Fit, Frozen, Place, Unfit, What, call, go_to},
	never_seal::Reason,
};
use flashfork_warm::{DESCRIPTORS, LISTENERS, MADE_FROM, PATH, ReadyAt, Step, Tell, Word};
use syscalls::Sysno;

/// Runs the maker, in its own process with all signals blocked: no libc, no allocation, no thread-local storage.
pub fn run(frozen: &'static mut Frozen) -> ! {
	let mut line = frozen.line();
	let begun = begin(&mut line);
	let frozen = loop {
		match hear(line) {
			Heard::Freeze { users } => match freeze(frozen, &mut line, users, begun) {
				Ok((frozen, word)) => {
					say(line, &word.encode(), None);
					break frozen;
				}
				Err(unfit) => {
					let Unfit { what, number, name } = unfit;
					say(line, &Word::Unfit { what: what as u8, number, name }.encode(), None);
					end(0)
				}
			},
			Heard::Make { descriptors, .. } => close_all(&descriptors),
			Heard::Listen { socket, .. } => close_all(&[socket]),
			Heard::Short | Heard::LetGo | Heard::Nonsense => {}
			Heard::End => end(0),
		}
	};
	let mut listeners = Listeners::NONE;
	loop {
		match hear(line) {
			Heard::Listen { number, socket } => listeners.add(number, socket),
			Heard::Make { pid, told, listeners: count, descriptors, path } => {
				let all = listeners.keep_last(count);
				let place = Place { processes: descriptors[0], pid };
				match all.and_then(|()| frozen.fork(&place)) {
					Ok(None) => in_clone(frozen, told, &descriptors, &path, &listeners),
					Ok(Some(made)) => {
						say(line, &Word::Made { pid: made.pid }.encode(), Some(made.descriptor));
						close_all(&[made.descriptor]);
					}
					Err(e) => say(line, &Word::Failed { errno: e.into_raw() }.encode(), None),
				}
				close_all(&descriptors);
				// The clone has them.
				let _ = listeners.keep_last(0);
			}
			Heard::Short => say(line, &Word::Failed { errno: Errno::EMFILE.into_raw() }.encode(), None),
			Heard::Freeze { users } => close_all(&[users]),
			Heard::LetGo => let_go(line),
			Heard::Nonsense => {}
			Heard::End => end(0),
		}
	}
}

/// It keeps nothing open but the line.
fn begin(line: &mut i32) -> Result<(), Errno> {
	const NAME: &[u8; 16] = b"flashfork-maker\0";
	// SAFETY: takes numbers, and strings with their NUL.
	unsafe {
		if *line <= 2 {
			// The program had closed a standard stream.
			*line = call(Sysno::fcntl, [*line as usize, libc::F_DUPFD_CLOEXEC as usize, 3])? as i32;
		}
		close_others(*line)?;
		// In the place of the standard streams: what comes with a request must not come there.
		for _ in 0..3 {
			open(c"/dev/null", libc::O_RDWR)?;
		}
		call(Sysno::chdir, [c"/".as_ptr() as usize])?;
		call(Sysno::prctl, [libc::PR_SET_NAME as usize, NAME.as_ptr() as usize])?;
		Ok(())
	}
}

/// Closes all but the line, which is none of the standard streams.
///
/// # Safety
/// Nobody uses another descriptor of this process any more.
unsafe fn close_others(line: i32) -> Result<(), Errno> {
	// SAFETY: takes numbers.
	unsafe {
		call(Sysno::close_range, [0, line as usize - 1, 0])?;
		call(Sysno::close_range, [line as usize + 1, u32::MAX as usize, 0])?;
	}
	Ok(())
}

/// Lets go of the program's descriptors, without which there are no clones. The maker stays, and the number of the
/// program with it, which is nobody else's while clones may know it.
fn let_go(line: i32) -> ! {
	// SAFETY: from here on the line alone is used.
	if unsafe { close_others(line) }.is_err() {
		end(0);
	}
	say(line, &Word::LetGo.encode(), None);
	loop {
		if let Heard::End = hear(line) {
			end(0);
		}
	}
}

pub unsafe fn open(path: &core::ffi::CStr, flags: i32) -> Result<i32, Errno> {
	// SAFETY: a string with its NUL.
	unsafe {
		let flags = flags | libc::O_CLOEXEC;
		call(Sysno::openat, [libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags as usize])
			.map(|fd| fd as i32)
	}
}

/// Ends the maker; the program ends with it if it stands still.
pub fn end(code: usize) -> ! {
	loop {
		// SAFETY: takes a number.
		let _ = unsafe { call(Sysno::exit_group, [code]) };
	}
}

/// Stops the program, which ends, and seals its memory. From then on the maker is where clones are made: in the
/// namespace of users in which are those of clones, if any.
fn freeze(
	frozen: &'static mut Frozen,
	line: &mut i32,
	users: i32,
	begun: Result<(), Errno>,
) -> Fit<(&'static Frozen, Word)> {
	// A sandbox, perhaps, did not let it begin.
	Frozen::before()?;
	begun?;
	java::outcome()?;
	python::outcome()?;
	systemv::check()?;
	if let Some((bell, identity)) = super::bell() {
		frozen.hide(bell, identity);
	}
	let mut users = users;
	let dumpable = (users >= 0).then(be_dumpable).transpose()?;
	if users >= 0 {
		frozen.freeze(&mut [line, &mut users], atfork::in_child(), hooks::any())?;
		// SAFETY: nothing of the maker counts on the one that it leaves.
		unsafe { go_to(users, libc::CLONE_NEWUSER as u32)? };
		bound_capabilities();
		close_all(&[users]);
	} else {
		frozen.freeze(&mut [line], atfork::in_child(), hooks::any())?;
	}
	if dumpable == Some(false) {
		set_dumpable(false)?;
	}
	if !java::is_prepared() && frozen.has_library(b"libjvm.so")? {
		return Err(Unfit::named(What::Java, 0, b"it was started otherwise than by the program `java`"));
	}
	if !python::is_known() && frozen.has_library(b"libpython")? {
		return Err(Unfit::named(What::Python, 0, b"it was loaded after the start of the program"));
	}
	let plain = flashfork_core::fork::is_plain();
	if java::is_prepared() && !plain {
		frozen.hold_archives()?;
	}
	let frozen = &*frozen;
	for number in frozen.listening() {
		say(*line, &Word::Listens { number }.encode(), Some(number));
	}
	let (bytes, unsealed) = if plain { (0, None) } else { seal(frozen) };
	// From here on the policy has nothing to decide.
	flashfork_core::fork::stop();
	mapped::note();
	first::probe(frozen, dumpable.is_some())?;
	let (free, threads, clocks) = (frozen.free_numbers(), frozen.threads() as u64, frozen.clocks());
	Ok((frozen, Word::Frozen { free, threads, sealed: bytes, unsealed, clocks }))
}

/// Has the maker be allowed to look at a program of its own user that has forbidden that (`PR_SET_DUMPABLE`), which is
/// a property of the memory of both. In the program's namespace of users nobody else could; and from outside it this
/// user may in any case (user_namespaces(7)). Gives what it was.
fn be_dumpable() -> Result<bool, Errno> {
	// SAFETY: asks for a number.
	let was = unsafe { call(Sysno::prctl, [libc::PR_GET_DUMPABLE as usize, 0, 0, 0, 0]) }? == 1;
	if !was {
		set_dumpable(true)?;
	}
	Ok(was)
}

fn set_dumpable(dumpable: bool) -> Result<(), Errno> {
	// SAFETY: takes numbers.
	unsafe { call(Sysno::prctl, [libc::PR_SET_DUMPABLE as usize, usize::from(dumpable), 0, 0, 0]) }.map(drop)
}

/// How many bytes are sealed, or why none are.
fn seal(frozen: &'static Frozen) -> (u64, Option<u8>) {
	let sealed = frozen.seal(Pages::Auto);
	flashfork_core::stats::current().seal(&sealed);
	match sealed.outcome {
		Ok(outcome) => (outcome.sealed, None),
		Err(Error::Refused(reason)) => (0, Some(reason as u8)),
		Err(_) => (0, Some(Reason::CopyFailed as u8)),
	}
}

/// The clone, from its first instruction to the gate.
fn in_clone(
	frozen: &'static Frozen,
	told: i32,
	descriptors: &[i32; MADE_FROM],
	path: &[u8; PATH],
	listeners: &Listeners,
) -> ! {
	let (mut report, errno) = (descriptors[3], ErrorNumber::keep());
	let failed = |report: i32, step: Step, e: Errno| -> ! {
		say(report, &Tell::Failed { step, errno: e.into_raw() }.encode(), None);
		end(127)
	};
	let [processes, mounts, time, _, rest @ ..] = *descriptors;
	close_all(&[processes]);
	let moments = [ReadyAt::Idle, ReadyAt::Listen, ReadyAt::Line];
	let kept = moments.iter().any(|at| is_ready_at(Some(*at))).then(|| frozen.settings());
	let called = is_ready_at(Some(ReadyAt::Runtime)).then(|| frozen.settings());
	let caller = match Caller::take(mounts, time, &rest, path, kept, called) {
		Ok(caller) => caller,
		Err((step, e)) => failed(report, step, e),
	};
	if let Err(e) = listeners.place(frozen) {
		failed(report, Step::Files, e);
	}
	if let Err(e) = frozen.renew(&mut report) {
		failed(report, Step::Files, e);
	}
	if let Some(Err(e)) = called.map(|_| source::take()) {
		failed(report, Step::Streams, e);
	}
	if let Err((step, e)) = caller.begin(kept) {
		failed(report, step, e);
	}
	let gate = match frozen.make_threads() {
		Ok(gate) => gate,
		Err(e) => failed(report, Step::Threads, e),
	};
	let (code, number) = if told == 0 { frozen.comparing() } else { (frozen.asking(), told) };
	number::give(code, number);
	// SAFETY: no other thread of the clone runs yet.
	unsafe { *CLONE.get() = Some(caller.given) };
	listeners::share(frozen);
	end::note();
	if let Err(e) = python::renew() {
		failed(report, Step::Threads, e);
	}
	IN_CLONE.store(1, SeqCst);
	errno.put_back();
	if let Err(e) = frozen.become_main(gate) {
		failed(report, Step::Threads, e);
	}
	Caller::limit(caller.start, kept);
	if let Err(e) = first::run_hooks_in_clone(gate) {
		failed(report, Step::Hooks, e);
	}
	say(report, &Tell::Started { pid: 2 }.encode(), None);
	// Whoever hears of what the clone does finds a caller that knows of it.
	if !is_answered(report) {
		end(127);
	}
	close_all(&[report]);
	first::go_on();
	frozen.run(gate)
}

/// Sockets that the next clone has in place of those on which the program listens.
struct Listeners {
	all: [[i32; 2]; LISTENERS],
	count: usize,
}

impl Listeners {
	const NONE: Listeners = Listeners { all: [[-1; 2]; LISTENERS], count: 0 };

	fn add(&mut self, number: i32, socket: i32) {
		match self.all.get_mut(self.count) {
			Some(place) => {
				*place = [number, socket];
				self.count += 1;
			}
			None => close_all(&[socket]),
		}
	}

	/// Others were for a clone that could not be asked for. `EMFILE`: there was no room for one of these.
	fn keep_last(&mut self, count: u64) -> Result<(), Errno> {
		let others = self.count.saturating_sub(count as usize);
		for [_, socket] in &self.all[..others] {
			close_all(&[*socket]);
		}
		self.all.copy_within(others..self.count, 0);
		self.count -= others;
		if self.count as u64 == count { Ok(()) } else { Err(Errno::EMFILE) }
	}

	/// In the clone. What is left of them is closed with all that is not the program's.
	fn place(&self, frozen: &Frozen) -> Result<(), Errno> {
		self.all[..self.count].iter().try_for_each(|[number, socket]| frozen.replace(*number, *socket))
	}
}

/// Descriptors of a request behind those of namespaces and of the report.
pub const OF_CALLER: usize = DESCRIPTORS;

/// The main thread's `errno`, which calls of libc's would write: a clone's first thread has its thread pointer.
struct ErrorNumber(i32);

impl ErrorNumber {
	fn keep() -> ErrorNumber {
		// SAFETY: the word is the main thread's, of which this is the copy.
		ErrorNumber(unsafe { *libc::__errno_location() })
	}

	fn put_back(&self) {
		// SAFETY: as above.
		unsafe { *libc::__errno_location() = self.0 };
	}
}

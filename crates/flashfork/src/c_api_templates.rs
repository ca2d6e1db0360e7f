//! The C API of templates.

use crate::c_api::{fail, strings};
use flashfork_templates::{
	Directory, Error, Facts, Name, Ready, ReadyAt, Removed, Renewal, State, Step, Template, Warm, Warming,
};
use libc::{c_char, c_int, c_void};
use rustix::{
	event::{PollFd, PollFlags, Timespec, poll},
	io::Errno,
};
use std::{
	ffi::{CStr, CString, OsStr},
	num::NonZeroU64,
	os::{fd::BorrowedFd, unix::ffi::OsStrExt},
	path::Path,
	time::{Duration, Instant},
};

/// Ready where an interpreter has run what it was given, before main in other programs.
pub const FLASHFORK_READY_AUTO: u32 = 0;
/// Ready before main.
pub const FLASHFORK_READY_MAIN: u32 = 1;
/// Ready where the program calls `flashfork_ready`.
pub const FLASHFORK_READY_CALL: u32 = 2;
/// Of a template: CPython that waits for what a clone shall run.
pub const FLASHFORK_READY_PYTHON: u32 = 3;
/// Of a template: Perl.
pub const FLASHFORK_READY_PERL: u32 = 4;
/// Of a template: Ruby.
pub const FLASHFORK_READY_RUBY: u32 = 5;
/// With all threads, when it had been idle for a while.
pub const FLASHFORK_READY_IDLE: u32 = 6;
/// With all threads, when it listened on a socket.
pub const FLASHFORK_READY_LISTEN: u32 = 7;
/// With all threads, when it had printed a line.
pub const FLASHFORK_READY_LINE: u32 = 8;
/// Node with all threads, when what its command line names had run.
pub const FLASHFORK_READY_NODE: u32 = 10;

/// The template waits for callers.
pub const FLASHFORK_TEMPLATE_WAITING: u32 = 0;
/// It is stopped, by a signal or a debugger.
pub const FLASHFORK_TEMPLATE_STOPPED: u32 = 1;
/// It has not answered for ten seconds.
pub const FLASHFORK_TEMPLATE_SILENT: u32 = 2;
/// It is of another version of flashfork.
pub const FLASHFORK_TEMPLATE_STRANGE: u32 = 3;

/// How to warm a program. All zeros are the defaults, but `shim` must be given.
#[repr(C)]
pub struct CWarmOptions {
	/// Path of libflashfork_preload.so, of this library's version; `pkg-config --variable=shim flashfork` has it.
	pub shim: *const c_char,
	/// Strings NAME=VALUE, the environment of the program while it is warmed; ends with NULL. PATH is where the program
	/// is looked for; the shim comes before what LD_PRELOAD names. NULL: none.
	pub envp: *const *const c_char,
	/// FLASHFORK_READY_AUTO, FLASHFORK_READY_MAIN or FLASHFORK_READY_CALL.
	pub ready: u64,
	/// The template goes after so many clones; 0: it stays until it is removed.
	pub max_clones: u64,
	/// Two descriptors, for standard output and standard error while it is warmed. NULL: /dev/null.
	pub output: *const c_int,
	/// A descriptor; when it can be read, the warm-up is given up. NULL: none.
	pub cancel: *const c_int,
	/// The warm-up is given up after so many milliseconds; 0: it may take all the time it needs.
	pub timeout_ms: u64,
	/// If not 0, whoever asks for a clone finds the template made anew when its program has changed
	/// (`flashfork_template_renew`), or has other values of variables that are read at a program's start.
	pub watch: u64,
	/// Must be 0.
	pub reserved: [u64; 1],
}

/// What a template knows about itself. What only a template knows is 0 for one that doesn't answer.
#[repr(C)]
pub struct CTemplateFacts {
	/// Its process; 0 where it can't be seen from here.
	pub pid: u64,
	/// FLASHFORK_TEMPLATE_WAITING, or why it doesn't answer.
	pub state: u32,
	/// One of FLASHFORK_READY_MAIN and those behind it: where it waits.
	pub ready: u32,
	/// Bytes of its memory that are sealed; with 0 its clones are plain forks.
	pub sealed_bytes: u64,
	/// Clones made so far.
	pub clones_made: u64,
	/// Clones that run now.
	pub clones_running: u64,
	/// Most clones it makes; 0: any number.
	pub max_clones: u64,
	/// What the program was made of and has changed since: if it is not 0 there are no clones (ESTALE).
	pub changed_files: u64,
	/// Such files of which a change would not be noticed.
	pub unwatched_files: u64,
	/// 0.
	pub reserved: [u64; 2],
}

fn facts_of(facts: Option<&Facts>, state: State, pid: Option<i32>) -> CTemplateFacts {
	let state = match state {
		State::Waiting(_) => FLASHFORK_TEMPLATE_WAITING,
		State::Stopped => FLASHFORK_TEMPLATE_STOPPED,
		State::Silent => FLASHFORK_TEMPLATE_SILENT,
		State::Strange => FLASHFORK_TEMPLATE_STRANGE,
	};
	let number = |of: fn(&Facts) -> u64| facts.map_or(0, of);
	CTemplateFacts {
		pid: pid.and_then(|pid| u64::try_from(pid).ok()).unwrap_or_default(),
		state,
		ready: facts.map_or(0, |facts| ready_of(facts.at)),
		sealed_bytes: number(|facts| facts.sealed),
		clones_made: number(|facts| facts.made),
		clones_running: number(|facts| facts.running),
		max_clones: number(|facts| facts.max),
		changed_files: number(|facts| facts.changed),
		unwatched_files: number(|facts| facts.unwatched),
		reserved: [0; 2],
	}
}

fn ready_of(at: ReadyAt) -> u32 {
	match at {
		ReadyAt::Main => FLASHFORK_READY_MAIN,
		ReadyAt::Call | ReadyAt::Runtime => FLASHFORK_READY_CALL,
		ReadyAt::Python => FLASHFORK_READY_PYTHON,
		ReadyAt::Perl => FLASHFORK_READY_PERL,
		ReadyAt::Ruby => FLASHFORK_READY_RUBY,
		ReadyAt::Idle => FLASHFORK_READY_IDLE,
		ReadyAt::Listen => FLASHFORK_READY_LISTEN,
		ReadyAt::Line => FLASHFORK_READY_LINE,
		ReadyAt::Node => FLASHFORK_READY_NODE,
	}
}

fn waiting(facts: &Facts) -> CTemplateFacts {
	facts_of(Some(facts), State::Waiting(*facts), Some(facts.pid))
}

/// What `fail` is given.
pub(crate) struct Failure(pub String, pub c_int);

impl From<Error> for Failure {
	fn from(e: Error) -> Failure {
		Failure(e.to_string(), errno_of(&e))
	}
}

fn errno_of(e: &Error) -> c_int {
	match e {
		Error::Stale(_) => libc::ESTALE,
		Error::Anew { source, .. } => errno_of(source),
		Error::Nobody(_)
		| Error::NoClone { step: Step::Retired, .. }
		| Error::Run { .. }
		| Error::Shim { .. }
		| Error::Missing { .. } => libc::ENOENT,
		Error::Gone(_) => libc::ESRCH,
		Error::Taken(_) | Error::NoSocket(_) => libc::EEXIST,
		Error::Place { .. } | Error::OtherUser { .. } => libc::EACCES,
		Error::Stopped { .. } | Error::NoClone { step: Step::TooMany, .. } => libc::EAGAIN,
		Error::NoClone { step: Step::Descriptors, .. } => libc::EMFILE,
		Error::Silent { .. } | Error::Full { .. } | Error::Locked { .. } => libc::ETIMEDOUT,
		Error::Misunderstood { .. } => libc::EPROTO,
		Error::Nul(_) => libc::EINVAL,
		Error::Unfit { .. } => libc::ENOEXEC,
		Error::Ended { .. } => libc::ECHILD,
		other => other.os_error().unwrap_or(libc::EIO),
	}
}

pub(crate) fn invalid(text: &str) -> Failure {
	Failure(text.to_owned(), libc::EINVAL)
}

pub(crate) fn end(done: Result<(), Failure>) -> c_int {
	done.map_or_else(|Failure(text, errno)| fail(&text, errno), |()| 0)
}

/// # Safety
/// NULL or a string.
pub(crate) unsafe fn text<'a>(string: *const c_char) -> Option<&'a OsStr> {
	// SAFETY: a string, the caller says.
	(!string.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(string) }.to_bytes()))
}

/// The directory of the names, and one of them.
///
/// # Safety
/// NULL or strings.
pub(crate) unsafe fn place(runtime: *const c_char, name: *const c_char) -> Result<(Directory, Name), Failure> {
	// SAFETY: NULL or strings, the caller says.
	let (name, names) = unsafe { (text(name), directory(runtime)) };
	let name = name.and_then(OsStr::to_str).ok_or_else(|| invalid("name is NULL or no text"))?;
	let name = name.parse().map_err(|e: flashfork_templates::NameError| invalid(&e.to_string()))?;
	Ok((names?, name))
}

/// # Safety
/// NULL or a string.
unsafe fn directory(runtime: *const c_char) -> Result<Directory, Failure> {
	// SAFETY: NULL or a string, the caller says.
	let runtime = unsafe { text(runtime) };
	Ok(Directory::open(Directory::place(runtime.map(Path::new)))?)
}

/// Starts a program in the background and keeps it, warm, as a template: what `flashfork warm` does. Waits until it is
/// ready.
///
/// `runtime` is the value of XDG_RUNTIME_DIR, in which the names of templates are kept; NULL or "": they are in
/// /tmp/flashfork-UID. `name` is what the template is called, `argv` the program and its arguments, which end with
/// NULL. `facts` may be NULL. The template outlives this process, of which it is a child: once it has ended it is
/// waited for by the next call that warms or removes one.
///
/// Returns 0, or -1 with `errno`, and then nothing is left running: EEXIST (the name is taken), ENOENT (no such
/// program, or no shim), ENOEXEC (it can't be a template: statically linked, with threads …), ECHILD (it ended before
/// it was ready), ETIMEDOUT, ECANCELED, EACCES (the directory is not the user's alone), EINVAL (a wrong name or
/// option), or what a system call gave.
///
/// # Safety
/// The pointers are NULL or valid, lists end with NULL; the descriptors are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_warm(
	runtime: *const c_char,
	name: *const c_char,
	argv: *const *const c_char,
	options: *const CWarmOptions,
	facts: *mut CTemplateFacts,
) -> c_int {
	// SAFETY: the caller answers for all of it.
	let warmed = unsafe { warm(runtime, name, argv, options) };
	end(warmed.map(|warmed| {
		// SAFETY: NULL or valid, the caller says.
		if let Some(facts) = unsafe { facts.as_mut() } {
			*facts = waiting(&warmed);
		}
	}))
}

/// # Safety
/// As of its caller.
unsafe fn warm(
	runtime: *const c_char,
	name: *const c_char,
	argv: *const *const c_char,
	options: *const CWarmOptions,
) -> Result<Facts, Failure> {
	// SAFETY: as the caller says.
	let (place, argv, options) = unsafe { (place(runtime, name), strings(argv), options.as_ref()) };
	let (names, name) = place?;
	let options = options.ok_or_else(|| invalid("options is NULL; the shim must be given"))?;
	let (program, arguments) = argv.split_first().ok_or_else(|| invalid("argv names no program"))?;
	// SAFETY: as the caller says.
	let (shim, environment) = unsafe { (text(options.shim), strings(options.envp)) };
	let shim = shim.ok_or_else(|| invalid("shim is NULL; `pkg-config --variable=shim flashfork` has its path"))?;
	if options.reserved != [0] {
		return Err(invalid("reserved fields of struct flashfork_warm_options are not 0; begin with {0}"));
	}
	let mut warm =
		Template::warm(&names, name, program, shim).args(arguments).ready(match u32::try_from(options.ready) {
			Ok(FLASHFORK_READY_AUTO) => Ready::Auto,
			Ok(FLASHFORK_READY_MAIN) => Ready::Main,
			Ok(FLASHFORK_READY_CALL) => Ready::Call,
			_ => return Err(invalid("ready is not one of FLASHFORK_READY_AUTO, _MAIN and _CALL")),
		});
	warm = warm.renews(options.watch != 0);
	warm = environment.into_iter().fold(warm, Warm::variable);
	if let Some(clones) = NonZeroU64::new(options.max_clones) {
		warm = warm.max_clones(clones);
	}
	// SAFETY: as the caller says.
	let warm = unsafe { with_output(warm, options.output) }?;
	// SAFETY: NULL or a descriptor, the caller says.
	let cancel = unsafe { options.cancel.as_ref().map(|fd| borrowed(*fd)) }.transpose()?;
	let limit = Some(options.timeout_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
	until_ready(warm.start()?, cancel, limit)
}

/// # Safety
/// NULL or two open descriptors.
unsafe fn with_output(warm: Warm<'_>, output: *const c_int) -> Result<Warm<'_>, Failure> {
	if output.is_null() {
		return Ok(warm);
	}
	// SAFETY: two descriptors, the caller says.
	let [output, errors] = unsafe { (*output.cast::<[c_int; 2]>()).map(|fd| borrowed(fd)) };
	let failed =
		|e: std::io::Error| Failure(format!("can't pass on output: {e}"), e.raw_os_error().unwrap_or(libc::EIO));
	let owned = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(failed);
	Ok(warm.output(owned(output?)?, owned(errors?)?))
}

/// # Safety
/// Negative, or a descriptor that is open as long as it is used.
unsafe fn borrowed<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Failure> {
	if fd < 0 {
		return Err(Failure(format!("{fd} is no descriptor"), libc::EBADF));
	}
	// SAFETY: as above.
	Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn until_ready(
	mut warming: Warming<'_>,
	cancel: Option<BorrowedFd<'_>>,
	limit: Option<Duration>,
) -> Result<Facts, Failure> {
	let begin = Instant::now();
	loop {
		if let Some(facts) = warming.advance()? {
			return Ok(facts);
		}
		let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
		if left.is_some_and(|left| left.is_zero()) {
			return Err(late());
		}
		let all = warming.descriptors().into_iter().chain(cancel);
		let mut all: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
		match poll(&mut all, left.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
			Ok(_) | Err(Errno::INTR) => {}
			Err(e) => return Err(Failure(format!("can't wait for the program: {e}"), e.raw_os_error())),
		}
		if all.get(2).is_some_and(|cancel| !cancel.revents().is_empty()) {
			return Err(given_up());
		}
	}
}

/// What a template knows about itself, `runtime` and `name` as of `flashfork_template_warm`.
///
/// Returns 0, or -1 with `errno`: ENOENT (there is none), ESRCH (it has just ended), EAGAIN (it is stopped), ETIMEDOUT
/// (it doesn't answer), EPROTO (it is of another version), EACCES, EINVAL, or what a system call gave.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_info(
	runtime: *const c_char,
	name: *const c_char,
	facts: *mut CTemplateFacts,
) -> c_int {
	// SAFETY: NULL or valid, the caller says.
	let (place, facts) = unsafe { (place(runtime, name), facts.as_mut()) };
	end(place.and_then(|(names, name)| {
		let facts = facts.ok_or_else(|| invalid("facts is NULL"))?;
		*facts = waiting(&Template::named(&names, name).facts()?);
		Ok(())
	}))
}

/// Warms a template anew if its program has changed: by the command line, directory, environment and options that it
/// was warmed by. If nothing has changed nothing is done. Of several callers one warms it. The new one comes in its
/// place; clones of the old one run on. Of `options`, which may be NULL, `output`, `cancel` and `timeout_ms` count,
/// and the others must be 0. `runtime` and `name` as of `flashfork_template_warm`.
///
/// Returns 0, or -1 with `errno` as `flashfork_template_warm` and `flashfork_template_info`; then the old one is as it
/// was, but for one with threads that listens on ports of TCP: it has let go of them, and makes no clones any more.
///
/// # Safety
/// The pointers are NULL or valid, and descriptors are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_renew(
	runtime: *const c_char,
	name: *const c_char,
	options: *const CWarmOptions,
) -> c_int {
	// SAFETY: as the caller says.
	end(unsafe { renew(runtime, name, options) })
}

/// # Safety
/// As of its caller.
unsafe fn renew(runtime: *const c_char, name: *const c_char, options: *const CWarmOptions) -> Result<(), Failure> {
	// SAFETY: NULL or valid, the caller says.
	let (place, options) = unsafe { (place(runtime, name), options.as_ref()) };
	let (names, name) = place?;
	let template = Template::named(&names, name);
	let (mut errors, mut cancel, mut limit) = (None, None, None);
	if let Some(options) = options {
		let given = (options.shim.is_null(), options.envp.is_null(), options.ready, options.max_clones, options.watch);
		if given != (true, true, 0, 0, 0) || options.reserved != [0] {
			return Err(invalid("of a template that is warmed anew only output, cancel and timeout_ms can be given"));
		}
		// SAFETY: NULL, two descriptors, or one, the caller says.
		unsafe {
			errors = options.output.cast::<[c_int; 2]>().as_ref().map(|[_, errors]| borrowed(*errors)).transpose()?;
			cancel = options.cancel.as_ref().map(|fd| borrowed(*fd)).transpose()?;
		}
		limit = Some(options.timeout_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
	}
	let begin = Instant::now();
	loop {
		let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
		match template.renew(errors)? {
			Renewal::Done => return Ok(()),
			Renewal::Warming(warming) => return until_ready(warming, cancel, left).map(drop),
			Renewal::Others if left.is_some_and(|left| left.is_zero()) => return Err(late()),
			Renewal::Others => {
				let mut all: Vec<_> = cancel.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
				let turn = Timespec::try_from(Template::TURN).ok();
				// What it fails with is a signal.
				if poll(&mut all, turn.as_ref()).is_ok_and(|ready| ready > 0) {
					return Err(given_up());
				}
			}
		}
	}
}

fn late() -> Failure {
	Failure("the program was not ready in time, and was ended".into(), libc::ETIMEDOUT)
}

fn given_up() -> Failure {
	Failure("the warm-up was given up, and the program ended".into(), libc::ECANCELED)
}

/// Calls `each` for every template, in order of their names, those included that don't answer. The texts and facts are
/// valid during the call only. `runtime` as of `flashfork_template_warm`.
///
/// Returns 0, or -1 with `errno`: EACCES, EINVAL, or what a system call gave.
///
/// # Safety
/// `runtime` is NULL or valid; `each` may be called with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_list(
	runtime: *const c_char,
	each: Option<unsafe extern "C" fn(name: *const c_char, facts: *const CTemplateFacts, data: *mut c_void)>,
	data: *mut c_void,
) -> c_int {
	// SAFETY: NULL or a string, the caller says.
	let names = unsafe { directory(runtime) };
	end(names.and_then(|names| {
		let each = each.ok_or_else(|| invalid("each is NULL"))?;
		for template in names.templates()? {
			let facts = if let State::Waiting(facts) = &template.state { Some(facts) } else { None };
			let facts = facts_of(facts, template.state, template.pid);
			let name = CString::new(template.name.as_str()).unwrap_or_default();
			// SAFETY: the caller's function, called as declared.
			unsafe { each(name.as_ptr(), &raw const facts, data) };
		}
		Ok(())
	}))
}

/// Removes a template: its name is free afterwards, clones that run go on, and the template ends with the last;
/// `running` receives how many those are, and may be NULL. That there is none is no failure. `runtime` and `name` as of
/// `flashfork_template_warm`.
///
/// Returns 0, or -1 with `errno` as `flashfork_template_info`.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashfork_template_remove(
	runtime: *const c_char,
	name: *const c_char,
	running: *mut u64,
) -> c_int {
	// SAFETY: NULL or valid, the caller says.
	let (place, running) = unsafe { (place(runtime, name), running.as_mut()) };
	end(place.and_then(|(names, name)| {
		let removed = Template::named(&names, name).remove()?;
		if let Some(running) = running {
			*running = if let Removed::ClonesRun(count) = removed { count } else { 0 };
		}
		Ok(())
	}))
}

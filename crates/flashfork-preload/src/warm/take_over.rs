//! A clone takes over what is its caller's, before any of the program's code runs in it.

use super::{
	end, inherited,
	message::send,
	parent, stacks,
	template::{Given, Slot, Template, Wanted},
	variables,
};
use core::{
	ffi::{c_char, c_int, c_void},
	mem::{MaybeUninit, size_of},
	ptr::null_mut,
};
use flashfork_warm::{LIMITS, ReadyAt, Start, Step, Tell, UNSEEN};

unsafe extern "C" {
	pub static mut environ: *mut *mut c_char;
}

/// Takes everything over, tells the caller that the clone has started, and which process it is; or, where that fails,
/// why, and ends. All before the program's own code runs: whoever hears of that finds a caller that knows of its clone.
pub fn take_over(template: &Template, wanted: &Wanted) -> Given {
	let Slot { socket, caller, job, .. } = template.slots[wanted.slot];
	// SAFETY: this is the clone, with one thread, and nothing of the program runs before this is over.
	unsafe {
		match try_take_over(template, wanted) {
			Ok(given) => {
				// That of a function has no number that its caller could use.
				let runtime = template.facts.at == ReadyAt::Runtime;
				send(socket, Tell::Started { pid: if runtime { UNSEEN } else { libc::getpid() } });
				libc::close(socket);
				if !runtime {
					parent::note(caller, job);
					end::note(template.facts.pid);
				}
				given
			}
			Err(step) => {
				send(socket, Tell::Failed { step, errno: *libc::__errno_location() });
				libc::_exit(127)
			}
		}
	}
}

unsafe fn try_take_over(template: &Template, wanted: &Wanted) -> Result<Given, Step> {
	let [memory, directory, input, output, errors] = wanted.descriptors;
	// SAFETY: plain calls on this process, with descriptors that came with the request.
	unsafe {
		// Nobody would know the status of a clone whose template is gone.
		libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
		if !super::runtime::is_locked_in() && libc::getppid() != template.facts.pid {
			libc::_exit(127);
		}
		libc::setpgid(0, 0);
		let streams = [input, output, errors];
		if !(0..3).all(|to| libc::dup2(streams[to as usize], to) == to) {
			return Err(Step::Streams);
		}
		super::streams::take_over();
		if libc::fchdir(directory) != 0 {
			return Err(Step::Directory);
		}
		let (start, arguments, variables) = map(memory)?;
		let variables = super::follow::environment(variables);
		let processes = start.limits[libc::RLIMIT_NPROC as usize];
		let mut given = Given { arguments, variables, mask: template.mask, ignored: start.ignored, processes };
		// Perl takes apart what it finds here as its own; it sets %ENV itself.
		if template.facts.at != ReadyAt::Perl {
			environ = given.variables.as_ptr().cast_mut().cast();
		}
		// What its program has set is a function's own.
		let is_call = template.facts.at == ReadyAt::Runtime;
		if !is_call {
			libc::umask(start.umask);
		}
		close(template, wanted);
		for stream in (0..3).filter(|stream| start.closed >> stream & 1 == 1) {
			libc::close(stream);
		}
		if template.facts.at == ReadyAt::Ruby {
			fill(start.closed);
		}
		if !is_call {
			schedule(start);
		}
		inherited::take_all(start).map_err(|(step, e)| {
			*libc::__errno_location() = e.into_raw();
			step
		})?;
		let stacks = stacks::limit();
		let mut now = start.limits;
		if is_call {
			// Before it is in its own namespace of users it would count with all others of the function.
			now[libc::RLIMIT_NPROC as usize] = limit(libc::RLIMIT_NPROC);
		}
		limits(&now);
		stacks::follow(stacks);
		signals(template, start, &mut given.mask);
		if start.closed >> 2 & 1 == 0 {
			variables::tell(given.variables);
		}
		Ok(given)
	}
}

/// In a template: what is to be known of a caller's variables. None where they can be read but once.
pub fn with_variables<T>(request: c_int, with: impl Fn(&[*mut c_char]) -> Option<T>) -> Option<T> {
	// SAFETY: what is mapped is looked at here only. A request that makes no sense is the clone's affair.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		if libc::fstat(request, &raw mut stat) != 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
			return None;
		}
		let (start, _, variables) = map(request).ok()?;
		let found = with(variables);
		libc::munmap(core::ptr::from_ref(start).cast_mut().cast(), start.len as usize);
		found
	}
}

/// The head of a request, and its tables of arguments and variables.
type Request = (&'static Start, &'static [*mut c_char], &'static [*mut c_char]);

/// The memfd of the request, private, or what is in the pipe: its strings and tables become the program's own.
///
/// # Safety
/// In a clone.
pub unsafe fn map(memory: c_int) -> Result<Request, Step> {
	// SAFETY: the mapping is never unmapped; its length and every offset in it is checked before use.
	unsafe {
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		if libc::fstat(memory, &raw mut stat) != 0 {
			return Err(Step::Map);
		}
		let mut waiting: c_int = 0;
		let piped = stat.st_mode & libc::S_IFMT == libc::S_IFIFO;
		if piped && libc::ioctl(memory, libc::FIONREAD, &raw mut waiting) != 0 {
			return Err(Step::Map);
		}
		let len = if piped { waiting as usize } else { stat.st_size as usize };
		if len <= size_of::<Start>() {
			return Err(Step::Request);
		}
		let (flags, file) = if piped { (libc::MAP_ANONYMOUS, -1) } else { (0, memory) };
		let access = libc::PROT_READ | libc::PROT_WRITE;
		let at = libc::mmap(null_mut(), len, access, libc::MAP_PRIVATE | flags, file, 0);
		if at == libc::MAP_FAILED {
			return Err(Step::Map);
		}
		let read = read(memory, at, len, piped);
		if read.is_err() {
			libc::munmap(at, len);
		}
		read
	}
}

/// What is mapped there, or comes there from a pipe.
unsafe fn read(memory: c_int, at: *mut c_void, len: usize, piped: bool) -> Result<Request, Step> {
	// SAFETY: so long a mapping, of which every offset is checked before use.
	unsafe {
		let base = at.cast::<u8>();
		// All of it is there: no read waits.
		let mut read = 0;
		while piped && read < len {
			let count = libc::read(memory, base.add(read).cast(), len - read);
			if count <= 0 {
				return Err(Step::Map);
			}
			read += count as usize;
		}
		let start = &*at.cast::<Start>();
		if !start.fits(len as u64) || *base.add(len - 1) != 0 {
			return Err(Step::Request);
		}
		let tables = base.add(size_of::<Start>()).cast::<usize>();
		let arguments = pointers(tables, start.arguments as usize, base, len).ok_or(Step::Request)?;
		let behind = tables.add(start.arguments as usize + 1);
		let variables = pointers(behind, start.variables as usize, base, len).ok_or(Step::Request)?;
		Ok((start, arguments, variables))
	}
}

/// Makes pointers of `count` offsets, which a zero ends.
unsafe fn pointers(table: *mut usize, count: usize, base: *mut u8, len: usize) -> Option<&'static [*mut c_char]> {
	// SAFETY: `fits` has found the table inside the mapping, whose start is aligned to a page.
	unsafe {
		let words = core::slice::from_raw_parts_mut(table, count + 1);
		if words.iter().any(|offset| *offset >= len) || words[count] != 0 {
			return None;
		}
		for word in &mut words[..count] {
			*word += base as usize;
		}
		Some(core::slice::from_raw_parts(table.cast(), count))
	}
}

/// The template's own descriptors, and those of the request; the caller's connection stays until all is done.
unsafe fn close(template: &Template, wanted: &Wanted) {
	super::files::let_go();
	// SAFETY: one thread.
	let text = unsafe { *super::interpreters::TEXT.get() };
	let order = &template.order;
	let own = [order.listener, order.directory, order.recipe, template.epoll, template.signals, text];
	let others = template.slots.iter().enumerate().filter(|(i, slot)| slot.socket >= 0 && *i != wanted.slot);
	for fd in own.into_iter().chain(wanted.descriptors).chain(others.map(|(_, slot)| slot.socket)) {
		// SAFETY: the clone uses none of them.
		unsafe { libc::close(fd) };
	}
}

/// As Ruby does when it starts with closed streams, each is the end of a pipe whose other end is closed. Descriptors of
/// its own would come there otherwise, and be written to.
unsafe fn fill(closed: u64) {
	for stream in (0..3).filter(|stream| closed >> stream & 1 == 1) {
		let mut pipe = [-1; 2];
		// SAFETY: the array is a local; the stream is closed, so that its number is free or taken by this pipe.
		unsafe {
			if libc::pipe2(pipe.as_mut_ptr(), 0) != 0 {
				return;
			}
			let (kept, other) = if stream == 0 { (pipe[0], pipe[1]) } else { (pipe[1], pipe[0]) };
			libc::close(other);
			if kept != stream {
				libc::dup2(kept, stream);
				libc::close(kept);
			}
		}
	}
}

/// As far as it is allowed: nobody may make himself more important than he was.
///
/// # Safety
/// In a clone.
pub unsafe fn schedule(start: &Start) {
	// SAFETY: the set of CPUs is as long as said.
	unsafe {
		if libc::getpriority(libc::PRIO_PROCESS, 0) != start.nice {
			libc::setpriority(libc::PRIO_PROCESS, 0, start.nice);
		}
		let len = size_of_val(&start.cpus);
		let mut now = [0u64; 16];
		libc::sched_getaffinity(0, len, (&raw mut now).cast());
		if now != start.cpus {
			libc::sched_setaffinity(0, len, (&raw const start.cpus).cast());
		}
	}
}

/// What is in force, soft and hard.
fn limit(which: libc::__rlimit_resource_t) -> [u64; 2] {
	let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
	// SAFETY: the structure is a local; the call can't fail for a resource that there is.
	unsafe { libc::getrlimit(which, &raw mut now) };
	[now.rlim_cur, now.rlim_max]
}

/// Soft and hard; a hard limit above the template's can't be had, then as much as there is.
///
/// # Safety
/// In a clone.
pub unsafe fn limits(all: &[[u64; 2]; LIMITS]) {
	for (which, wish) in all.iter().enumerate() {
		// SAFETY: as the caller says.
		unsafe { set_limit(which as libc::__rlimit_resource_t, *wish) };
	}
}

/// One of them.
///
/// # Safety
/// In a clone.
pub unsafe fn set_limit(which: libc::__rlimit_resource_t, [soft, hard]: [u64; 2]) {
	let now = limit(which);
	if now == [soft, hard] {
		return;
	}
	let wish = libc::rlimit { rlim_cur: soft, rlim_max: hard };
	// SAFETY: the structures are locals.
	unsafe {
		if libc::setrlimit(which, &raw const wish) != 0 {
			let most = libc::rlimit { rlim_cur: soft.min(now[1]), rlim_max: hard.min(now[1]) };
			libc::setrlimit(which, &raw const most);
		}
	}
}

/// Ignored and blocked ones as the caller has them, beside what the program has set up while it was warmed: its own
/// handler is what it would have set up here, too. Python and Ruby have handlers from their start on: Python is told
/// what is ignored, Ruby asks.
unsafe fn signals(template: &Template, start: &Start, mask: &mut libc::sigset_t) {
	let has = |set: u64, signal: c_int| set >> (signal - 1) & 1 == 1;
	// SAFETY: the structures are valid; libc refuses the signals that are its own.
	unsafe {
		libc::sigaction(libc::SIGCHLD, &raw const template.on_child, null_mut());
		for signal in 1..=64 {
			if has(start.ignored, signal) && (template.facts.at == ReadyAt::Python || is_default(signal)) {
				libc::signal(signal, libc::SIG_IGN);
			}
			if has(start.blocked, signal) {
				libc::sigaddset(mask, signal);
			}
		}
		libc::sigprocmask(libc::SIG_SETMASK, mask, null_mut());
	}
}

/// Whether a signal has its default action.
///
/// # Safety
/// None.
pub unsafe fn is_default(signal: c_int) -> bool {
	// SAFETY: the structure is a local of which all zeros are a value; nothing is set.
	unsafe {
		let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
		libc::sigaction(signal, core::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_DFL
	}
}

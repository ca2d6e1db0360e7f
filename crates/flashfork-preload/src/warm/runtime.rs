//! A function of `flashfork serve`: it is ready where its runtime client connects, and each of its clones serves one
//! call, with connections of its own in that one's place ([`source`]).
//!
//! A clone is locked in (ARCHITECTURE.md, Functions), with /tmp and /proc of its own.

use super::{
	ahead,
	api::api,
	hooks, init, shared, source,
	take_over::set_limit,
	template::{CLONE, ORDER, Single},
	threads,
	wait::wait,
};
use crate::atfork;
use core::{
	ffi::{CStr, c_char, c_int, c_ulong, c_void},
	mem::MaybeUninit,
	ptr::{null, null_mut},
	sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use flashfork_warm::ReadyAt;

const CODE: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("runtime.py"), "\0").as_bytes()) {
	Ok(text) => text,
	Err(_) => panic!("the text holds a NUL byte"),
};

/// `Py_file_input`: the start symbol of modules.
const MODULE: c_int = 257;

/// An object, owned or borrowed as the C API says.
type Object = *mut c_void;

api! {
	Py_CompileString: fn(*const c_char, *const c_char, c_int) -> Object;
	PyBytes_FromString: fn(*const c_char) -> Object;
	PyDict_GetItemString: fn(Object, *const c_char) -> Object;
	PyDict_New: fn() -> Object;
	PyDict_SetItemString: fn(Object, *const c_char, Object) -> c_int;
	PyErr_Print: fn();
	PyEval_EvalCode: fn(Object, Object, Object) -> Object;
	PyEval_GetBuiltins: fn() -> Object;
	PyGILState_Ensure: fn() -> c_int;
	PyGILState_Release: fn(c_int);
	PyList_Append: fn(Object, Object) -> c_int;
	PyList_New: fn(isize) -> Object;
	PyObject_CallObject: fn(Object, Object) -> Object;
	PyOS_AfterFork_Child: fn();
	PyOS_BeforeFork: fn();
}

const OTHERS: &str =
	"flashfork: the function's program itself must ask for calls, not one that it starts (in a script: exec)\n";

/// Whether this process is in a clone.
static IS_CLONE: AtomicBool = AtomicBool::new(false);
/// Whether it is in namespaces of its own.
static LOCKED_IN: AtomicBool = AtomicBool::new(false);
/// The directory in which it was warmed: its caller's is outside of what it may see.
static HOME: Single<c_int> = Single::new(-1);

/// Whether the parent of this clone is one that it can't see.
pub fn is_locked_in() -> bool {
	LOCKED_IN.load(Relaxed)
}

/// The runtime client connects. In a template that was asked for this is the ready point, and it returns in clones,
/// with a connection; `None` in any other process.
pub fn connect(fd: c_int) -> Option<c_int> {
	if threads::is_ready_at(Some(ReadyAt::Runtime)) {
		return threads::runtime::connect(fd);
	}
	// SAFETY: in a program that may become a template there is one thread at its ready point, or it is refused.
	unsafe {
		if !IS_CLONE.load(Relaxed) {
			let here = ORDER.get().as_ref().is_some_and(|order| order.at == Some(ReadyAt::Runtime));
			if !here {
				// A child of the function's program: nobody would answer.
				if !libc::getenv(c"AWS_LAMBDA_RUNTIME_API".as_ptr()).is_null() {
					libc::write(2, OTHERS.as_ptr().cast(), OTHERS.len());
				}
				return None;
			}
			become_template()?;
		}
		Some(source::connect(fd))
	}
}

/// Makes one descriptor, with its flags, one of what another is. What `connect` returns.
///
/// # Safety
/// The first must be nobody else's yet.
pub unsafe fn put_in_place(connection: c_int, fd: c_int) -> c_int {
	// SAFETY: takes numbers.
	unsafe {
		let (flags, state) = (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL));
		libc::fcntl(connection, libc::F_SETFL, state);
		let closes = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
		if libc::dup3(connection, fd, closes) == fd { 0 } else { -1 }
	}
}

/// Returns in clones, and where this process is a child of the warm-up's, with `None`.
unsafe fn become_template() -> Option<()> {
	let python = Api::find();
	// SAFETY: the C API, which says that any thread may take the lock; plain calls on this process.
	unsafe {
		let python = python.map(|api| Python { lock: (api.PyGILState_Ensure)(), names: api.names(), api });
		*HOME.get() = libc::open(c".".as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
		let mut is_clone = false;
		while !is_clone && wait(ReadyAt::Runtime) {
			let fork = if atfork::are_noted() { crate::forks::_Fork } else { crate::forks::fork };
			is_clone = fork() == 0;
		}
		if is_clone {
			lock_in();
			if ahead::is_ahead() {
				ahead::wait_for_caller(true);
			}
			begin();
			// The function's own code for forks would run without a call's limits before this, and in the template.
			let with = |function: fn(&Api)| python.iter().for_each(|python| function(&python.api));
			with(|api| (api.PyOS_BeforeFork)());
			atfork::run();
			hooks::run_or_end();
			with(|api| (api.PyOS_AfterFork_Child)());
		}
		if let Some(python) = python {
			if is_clone {
				python.renew();
			}
			(python.api.PyGILState_Release)(python.lock);
		}
		is_clone.then_some(())
	}
}

/// In a clone that has its caller.
unsafe fn begin() {
	// SAFETY: plain calls on this process.
	unsafe {
		libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if let Some(given) = CLONE.get() {
			set_limit(libc::RLIMIT_NPROC, given.processes);
		}
		let home = core::mem::replace(HOME.get(), -1);
		check(libc::fchdir(home), c"flashfork: can't go to the function's directory");
		libc::close(home);
		if let Err(error) = source::take() {
			*libc::__errno_location() = error.into_raw();
			check(-1, c"flashfork: can't take what a call is connected by");
		}
		shared::cut();
		IS_CLONE.store(true, Relaxed);
	}
}

struct Python {
	lock: c_int,
	/// Those of `runtime.py`.
	names: Object,
	api: Api,
}

impl Python {
	unsafe fn renew(&self) {
		let Api { PyList_New, PyList_Append, PyBytes_FromString, .. } = self.api;
		// SAFETY: the C API; strings with their NUL.
		unsafe {
			let list = PyList_New(0);
			for variable in CLONE.get().iter().flat_map(|given| given.variables) {
				PyList_Append(list, PyBytes_FromString(*variable));
			}
			(self.api.PyDict_SetItemString)(self.names, c"variables".as_ptr(), list);
			let renew = (self.api.PyDict_GetItemString)(self.names, c"renew".as_ptr());
			if renew.is_null() || (self.api.PyObject_CallObject)(renew, null_mut()).is_null() {
				(self.api.PyErr_Print)();
				libc::_exit(1);
			}
		}
	}
}

impl Api {
	/// With the interpreter's lock.
	unsafe fn names(&self) -> Object {
		// SAFETY: the C API; the names are kept for good.
		unsafe {
			let names = (self.PyDict_New)();
			(self.PyDict_SetItemString)(names, c"__builtins__".as_ptr(), (self.PyEval_GetBuiltins)());
			let code = (self.Py_CompileString)(CODE.as_ptr(), c"<flashfork>".as_ptr(), MODULE);
			if code.is_null() || (self.PyEval_EvalCode)(code, names, names).is_null() {
				(self.PyErr_Print)();
				libc::_exit(1);
			}
			names
		}
	}
}

/// Ends this process with a line where a call has failed.
unsafe fn check(result: c_int, what: &CStr) {
	if result == 0 {
		return;
	}
	// SAFETY: plain calls; a string with its NUL.
	unsafe {
		libc::perror(what.as_ptr());
		libc::_exit(126)
	}
}

/// Goes to namespaces of its own, and returns in a process inside, which has an init there.
unsafe fn lock_in() {
	// SAFETY: plain calls on this process, which has one thread.
	unsafe {
		let (user, group, parent) = (libc::geteuid(), libc::getegid(), libc::getppid());
		let all = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
		check(libc::unshare(all), c"flashfork: can't make namespaces for a call");
		write(c"/proc/self/setgroups", c"deny", 0);
		write(c"/proc/self/uid_map", c"%u %u 1", user);
		write(c"/proc/self/gid_map", c"%u %u 1", group);
		// Other credentials may have made the kernel forget it.
		libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
		if libc::getppid() != parent {
			libc::_exit(0);
		}
		let dumpable = libc::prctl(libc::PR_GET_DUMPABLE);
		// A program that ignores the ends of its children has them leave nothing to wait for.
		let (plain, mut on_child) = (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init());
		libc::sigaction(libc::SIGCHLD, &raw const plain, &raw mut on_child);
		let init = init::make(parent);
		check(-c_int::from(init.is_none()), c"flashfork: can't make the init of a call");
		let inside = crate::forks::bare();
		check(c_int::from(inside < 0), c"flashfork: can't fork for a call");
		if inside > 0 {
			stand_for(inside, init.unwrap_or_default());
		}
		libc::sigaction(libc::SIGCHLD, &raw const on_child, null_mut());
		// The group outside has no number here, and a signal to it would end who stands for this one.
		libc::setpgid(0, 0);
		// It has memory of its own now.
		libc::prctl(libc::PR_SET_DUMPABLE, dumpable);
		for place in [c"/tmp", c"/dev/shm"] {
			mount(c"tmpfs", place, c"size=512m,mode=1777");
		}
		mount(c"proc", c"/proc", c"");
		give_up_rights();
	}
	LOCKED_IN.store(true, Relaxed);
}

/// The process outside: ends as the clone does, when all has ended that this has started.
unsafe fn stand_for(inside: c_int, init: c_int) -> ! {
	// SAFETY: plain calls on this process.
	unsafe {
		libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
		let mut status = 0;
		while libc::waitpid(inside, &raw mut status, 0) < 0 {}
		libc::kill(init, libc::SIGKILL);
		while libc::waitpid(init, null_mut(), 0) < 0 {}
		if libc::WIFSIGNALED(status) {
			let signal = libc::WTERMSIG(status);
			let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
			libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
			libc::signal(signal, libc::SIG_DFL);
			let mut set = core::mem::MaybeUninit::zeroed().assume_init();
			libc::sigemptyset(&raw mut set);
			libc::sigaddset(&raw mut set, signal);
			libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
			libc::kill(libc::getpid(), signal);
		}
		libc::_exit(libc::WEXITSTATUS(status))
	}
}

/// Writes a text, in which the number is twice, at once.
unsafe fn write(file: &CStr, text: &CStr, number: u32) {
	let mut line = [0; 32];
	// SAFETY: strings with their NUL, the second a format of two numbers or none; a buffer as long as said.
	unsafe {
		let len = libc::snprintf(line.as_mut_ptr(), line.len(), text.as_ptr(), number, number);
		let fd = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
		let written = libc::write(fd, line.as_ptr().cast(), len as usize);
		check(c_int::from(written != len as isize), c"flashfork: can't map the user of a call");
		libc::close(fd);
	}
}

/// Where there is no such place none is needed.
unsafe fn mount(kind: &CStr, place: &CStr, options: &CStr) {
	let flags: c_ulong = libc::MS_NOSUID | libc::MS_NODEV;
	// SAFETY: strings with their NUL.
	unsafe {
		let done = libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast());
		if done != 0 && *libc::__errno_location() != libc::ENOENT {
			check(done, c"flashfork: can't mount what is a call's own");
		}
	}
}

unsafe fn give_up_rights() {
	/// Of `capset(2)`, the third version: which, and whose.
	const HEAD: [u32; 2] = [0x2008_0522, 0];
	let none = [0u32; 6];
	// SAFETY: arrays as the kernel wants them.
	unsafe {
		let done = libc::syscall(libc::SYS_capset, HEAD.as_ptr(), none.as_ptr(), null::<c_void>());
		check(done as c_int, c"flashfork: can't give up the rights of a call");
	}
}

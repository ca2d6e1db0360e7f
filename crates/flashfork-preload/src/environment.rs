//! What the environment asks for, read once when the shim is loaded: the variables of [`flashfork_core::environment`].

use crate::warm::environ;
use core::{cell::UnsafeCell, ffi::CStr};
use flashfork_core::{
	environment::{ENGINE, STATS, THREADS, TRUST},
	fork::{Engine, configure},
	odf::Unavailable,
	stats::{self, Stats},
	system_call,
	threads::{self, Threads},
};
use syscalls::Sysno;

/// The descriptors on which an AFL fork server talks (AFL++ config.h, `FORKSRV_FD`).
const FORK_SERVER: [i32; 2] = [198, 199];

/// Run by the loader before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
	threads::begin();
	// SAFETY: a lookup by name; libc isn't unloaded.
	unsafe {
		threads::know_single_threaded(libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()).cast())
	};
	flashfork_core::proc::dump::take_back();
	let engine = match variable(ENGINE.name).map(CStr::to_bytes) {
		None | Some(b"auto" | b"") => Engine::Auto,
		Some(b"seal") => Engine::Seal,
		Some(b"fork") => Engine::Fork,
		Some(b"odf") => Engine::Odf,
		Some(_) => {
			complain(b"flashfork: FLASHFORK_ENGINE is auto, fork, seal or odf; forks stay plain\n");
			set_for_children(ENGINE.name, &PLAIN);
			Engine::Fork
		}
	};
	match variable(THREADS.name).map(CStr::to_bytes) {
		None | Some(b"refuse" | b"") => {}
		Some(b"stop") => threads::allow(Threads::Stop),
		Some(_) => {
			complain(b"flashfork: FLASHFORK_THREADS is refuse or stop; a process with threads is not sealed\n");
			set_for_children(THREADS.name, &REFUSE);
		}
	}
	if let Some(files) = variable(TRUST.name) {
		trust(files.to_bytes());
	}
	// Under a fork server the program is warm when it first forks, and nothing else will happen in the parent.
	let is_open = |fd: &i32| {
		let mut stat = [0u64; 18];
		let (path, at) = (c"".as_ptr() as usize, stat.as_mut_ptr() as usize);
		let arguments = [*fd as usize, path, at, libc::AT_EMPTY_PATH as usize, 0, 0];
		// A call that the loader makes, too, so that no filter ends the program for it. Not by libc: errno is 0 when a
		// program starts (C11, 7.5).
		// SAFETY: an empty path, and a struct stat to write to.
		unsafe { system_call(Sysno::newfstatat, arguments) }.is_ok()
	};
	let at_once = FORK_SERVER.iter().all(is_open);
	// What a process asks of the kernel ends with exec: each program asks anew.
	if let Err(why) = configure(engine, at_once) {
		complain(match why {
			Unavailable::NoKernel => {
				b"flashfork: engine odf needs a kernel with on-demand fork (kernel/README.md), this one has none; forks stay plain\n"
			}
			Unavailable::SwitchedOff => {
				b"flashfork: on-demand fork is switched off, sysctl vm.on_demand_fork=1 switches it on; forks stay plain\n"
			}
			Unavailable::Failed(_) => b"flashfork: prctl(PR_SET_ODF) fails (a sandbox?); forks stay plain\n",
		});
		set_for_children(ENGINE.name, &PLAIN);
	}
	if let Some(path) = variable(STATS.name) {
		match map_stats(path) {
			// SAFETY: the mapping is never unmapped, holds the right magic, and every clone inherits it.
			Found::Stats(stats) => unsafe { stats::share(stats) },
			// The command has ended, or this program runs as another user: nothing to be told by every program of a
			// tree.
			Found::Nothing => {}
			Found::Other => {
				complain(b"flashfork: FLASHFORK_STATS names no statistics file of this version; not counted\n");
				set_for_children(STATS.name, &UNCOUNTED);
			}
		}
	}
}

/// A variable with its value, in memory that the program may change, as it may its environment.
struct Variable<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: the shim never looks at the bytes; what the program does with its environment is its own affair.
unsafe impl<const N: usize> Sync for Variable<N> {}

static PLAIN: Variable<22> = Variable(UnsafeCell::new(*b"FLASHFORK_ENGINE=fork\0"));
static REFUSE: Variable<25> = Variable(UnsafeCell::new(*b"FLASHFORK_THREADS=refuse\0"));
static UNCOUNTED: Variable<17> = Variable(UnsafeCell::new(*b"FLASHFORK_STATS=\0"));

/// Puts in a variable's place what it was taken for: programs that this one starts do the same, and don't say again
/// what is wrong. Not by `setenv`, which may be the program's own (bash has one) and not be ready yet.
fn set_for_children<const N: usize>(name: &CStr, instead: &'static Variable<N>) {
	let name = name.to_bytes();
	// SAFETY: the environment is not changed while the loader runs; a null ends it, and each of its strings.
	unsafe {
		let mut place = environ;
		while !place.is_null() && !(*place).is_null() {
			let rest = CStr::from_ptr(*place).to_bytes().strip_prefix(name);
			if rest.is_some_and(|rest| rest.first() == Some(&b'=')) {
				*place = instead.0.get().cast();
			}
			place = place.add(1);
		}
	}
}

/// Trusts the files of a list, one a line.
fn trust(files: &[u8]) {
	for file in files.split(|b| *b == b'\n').filter(|file| !file.is_empty()) {
		let mut path = [0; libc::PATH_MAX as usize];
		if let Some(place) = path.get_mut(..file.len()) {
			place.copy_from_slice(file);
		}
		let path = CStr::from_bytes_until_nul(&path);
		let known = path.is_ok_and(|path| flashfork_core::code::process::trust(path).is_ok());
		if !known {
			complain(
				b"flashfork: FLASHFORK_TRUST names a file that is not there, or more than 16; it is not trusted\n",
			);
		}
	}
}

/// The value of a variable, to be copied or used at once. Not by `getenv`, which may be the program's own (bash has
/// one) and not be ready yet.
pub fn variable(name: &CStr) -> Option<&'static CStr> {
	// SAFETY: nobody changes the environment meanwhile, while the loader runs or in a process of one thread; a null
	// ends it, and a NUL each of its strings.
	unsafe {
		let mut at = environ;
		while !at.is_null() && !(*at).is_null() {
			let rest = CStr::from_ptr(*at).to_bytes_with_nul().strip_prefix(name.to_bytes());
			if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
				return CStr::from_bytes_with_nul(value).ok();
			}
			at = at.add(1);
		}
	}
	None
}

/// What a path leads to.
enum Found {
	/// A statistics file, mapped shared.
	Stats(*mut Stats),
	/// Nothing that this process may open.
	Nothing,
	/// Something else.
	Other,
}

/// Maps the statistics file shared, if it is one.
fn map_stats(path: &CStr) -> Found {
	// SAFETY: plain calls with valid arguments; the result is checked; the file's length is checked before it is
	// mapped.
	unsafe {
		let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
		if fd < 0 {
			return Found::Nothing;
		}
		let mut stat: libc::stat = core::mem::zeroed();
		let long_enough = libc::fstat(fd, &raw mut stat) == 0 && stat.st_size as usize >= size_of::<Stats>();
		let at = if long_enough {
			let prot = libc::PROT_READ | libc::PROT_WRITE;
			libc::mmap(core::ptr::null_mut(), size_of::<Stats>(), prot, libc::MAP_SHARED, fd, 0)
		} else {
			libc::MAP_FAILED
		};
		libc::close(fd);
		if at == libc::MAP_FAILED {
			return Found::Other;
		}
		let stats = at.cast::<Stats>();
		let right = (*stats).magic.load(core::sync::atomic::Ordering::Relaxed) == Stats::MAGIC;
		if !right {
			return Found::Other;
		}
		(*stats).programs.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
		Found::Stats(stats)
	}
}

fn complain(text: &[u8]) {
	// SAFETY: writes a constant to standard error; nobody could be told of a failure.
	let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

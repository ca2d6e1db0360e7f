//! What a template and its clones know of themselves, and of one another.

use core::{
	cell::UnsafeCell,
	ffi::{c_char, c_int},
};
use flashfork_warm::{Facts, LONGEST_NAME, MOST_RUNNING, ReadyAt};

/// Something that only the process's one thread looks at.
pub struct Single<T>(UnsafeCell<T>);

// SAFETY: used by the loader, then by the only thread at the ready point (`prepare` counts them), then by `main`'s
// thread alone: nothing of it is reached from another thread, nor from a signal handler.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
	pub const fn new(value: T) -> Self {
		Single(UnsafeCell::new(value))
	}

	/// # Safety
	/// No other reference to it may be in use.
	#[allow(clippy::mut_from_ref)]
	pub unsafe fn get(&self) -> &mut T {
		// SAFETY: the caller answers for it.
		unsafe { &mut *self.0.get() }
	}
}

/// What `flashfork warm` has told, until the program is ready.
pub static ORDER: Single<Option<Order>> = Single::new(None);

/// The template that this process is; none before, and in clones.
pub static TEMPLATE: Single<Option<Template>> = Single::new(None);

/// The program's own `main`, where something comes before it.
pub static MAIN: Single<Option<Main>> = Single::new(None);

/// What this clone has of its caller.
pub static CLONE: Single<Option<Given>> = Single::new(None);

/// A program's `main`.
pub type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// To become a template.
pub struct Order {
	/// The process that becomes the template: no child of its warm-up does.
	pub pid: c_int,
	/// The socket to the command, until the template is ready.
	pub control: c_int,
	/// Where callers come.
	pub listener: c_int,
	/// The directory of the names.
	pub directory: c_int,
	/// What it was made by, for callers who make it anew.
	pub recipe: c_int,
	/// Where the program is ready, if that was said.
	pub at: Option<ReadyAt>,
	/// Most clones to make; 0 for any number.
	pub max: u64,
	/// Whether its callers make it anew when it is stale.
	pub renews: bool,
	/// The template's name, with its NUL.
	pub name: [u8; LONGEST_NAME + 1],
	/// Whether this program is a wrapper: it becomes another one, and is not ready itself.
	pub follows: bool,
	/// Which process has started it.
	pub starter: c_int,
	/// The wrappers that have led here, each with a newline before it; zeros behind them.
	pub wrappers: [u8; LONGEST_WAY],
}

/// Longest list of wrappers.
pub const LONGEST_WAY: usize = 4096;

impl Order {
	pub fn name(&self) -> &[u8] {
		self.name.split(|b| *b == 0).next().unwrap_or_default()
	}

	/// Whether wrappers have led here.
	pub fn is_wrapped(&self) -> bool {
		self.wrappers[0] != 0
	}

	pub fn wrappers(&self) -> &[u8] {
		self.wrappers.split(|b| *b == 0).next().unwrap_or_default()
	}

	/// Descriptors passed with it.
	pub fn passed(&self) -> [c_int; 4] {
		[self.control, self.listener, self.directory, self.recipe]
	}
}

/// The caller's arguments and environment, in memory of the clone's own.
pub struct Given {
	/// Arguments, without the program's name.
	pub arguments: &'static [*mut c_char],
	/// Strings of the environment.
	pub variables: &'static [*mut c_char],
	/// Signals that are blocked.
	pub mask: libc::sigset_t,
	/// Signals that the caller ignores: bit N-1 for signal N.
	pub ignored: u64,
	/// The limit of processes, soft and hard.
	pub processes: [u64; 2],
}

/// The clone that waits for a caller.
pub struct Ahead {
	/// Its process; 0 for none.
	pub pid: i32,
	/// The template's end of the socket between them, and the clone's; -1 for none.
	pub line: c_int,
	pub far: c_int,
	/// The last one came to nothing: no other is made before somebody wants a clone.
	pub failed: bool,
	/// Clones that have told their end and are not gone yet.
	pub ending: u64,
}

/// No clone waits.
pub const NONE: Ahead = Ahead { pid: 0, line: -1, far: -1, failed: false, ending: 0 };

/// One connection, and the clone made for it.
#[derive(Clone, Copy)]
pub struct Slot {
	/// -1: the caller has gone.
	pub socket: c_int,
	/// The caller; 0 for one that can't be seen from here.
	pub caller: i32,
	/// Whether the caller is stopped and continued with its clone.
	pub job: bool,
	/// 0: no clone.
	pub pid: i32,
	/// Whether the clone is stopped, and so is its caller.
	pub stopped: bool,
	/// Whether the clone has told how it ends.
	pub told: bool,
}

pub const FREE: Slot = Slot { socket: -1, caller: 0, job: false, pid: 0, stopped: false, told: false };

/// Connections: those of clones, and some for questions.
pub const SLOTS: usize = MOST_RUNNING + 64;

/// Where they are: too many for a small stack.
pub static CONNECTIONS: Single<[Slot; SLOTS]> = Single::new([Slot { socket: 0, ..FREE }; SLOTS]);

/// A request for a clone, until the fork.
pub struct Wanted {
	pub slot: usize,
	pub descriptors: [c_int; flashfork_warm::DESCRIPTORS],
}

/// A process that waits for callers.
pub struct Template {
	pub order: Order,
	pub epoll: c_int,
	pub signals: c_int,
	/// Of the socket, by which its name is known to be its own still.
	pub inode: u64,
	pub facts: Facts,
	pub retired: bool,
	/// In a fork, or its handlers: whatever is forked now is theirs.
	pub forking: bool,
	/// Out of descriptors or memory: nobody is accepted for a moment.
	pub paused: bool,
	/// No clone has a connection of this number or a higher one: some descriptors are kept for questions.
	pub most_descriptors: c_int,
	pub wanted: Option<Wanted>,
	pub ahead: Ahead,
	/// [`CONNECTIONS`].
	pub slots: &'static mut [Slot; SLOTS],
	/// As the program had them.
	pub mask: libc::sigset_t,
	pub on_child: libc::sigaction,
}

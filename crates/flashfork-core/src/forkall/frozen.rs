//! What is known of a program whose threads stand still. Plain data: who finds it out and who makes clones of it are
//! other files.

use super::{
	fdinfo::{Info, Item},
	trampoline::Trampoline,
};
use crate::{proc::vma::Flags, range::Range};

/// Bytes of the maker's stack.
pub const STACK: usize = 512 * 1024;

/// Words for the answers of injected calls.
pub const ANSWERS: usize = 16;

/// Most threads.
pub const THREADS: usize = 4096;

/// Everything known of a program whose threads stand still: what its clones are made from. In the memory of the
/// program, because clones find it there; never sealed, because it is written.
#[repr(C, align(4096))]
pub struct Frozen {
	pub(super) stack: [u8; STACK],
	/// For text files, and lists of directories read at the same time.
	pub(super) text: [u8; 64 * 1024],
	pub(super) list: [u8; 32 * 1024],
	pub(super) small: [u8; 8 * 1024],
	/// Where injected calls write to.
	pub(super) answers: [u64; ANSWERS],
	pub(super) trampoline: Trampoline,
	/// The program.
	pub(super) pid: i32,
	/// What it was started with.
	pub(super) streams: Streams,
	/// Whether standard output and standard error were one open file then: nobody knows of which a third is a copy.
	pub(super) one_output: bool,
	/// Number, device and inode of a descriptor of the engine's; zeros for none.
	pub(super) hidden: [u64; 3],
	pub(super) threads: [Thread; THREADS],
	pub(super) count: usize,
	/// Their next instructions, for the seal.
	pub(super) next: [usize; THREADS],
	/// Where their frames begin, and how many bytes each has.
	pub(super) frames: usize,
	pub(super) files: Files,
	pub(super) timers: Timers,
	pub(super) pending: Pending,
	pub(super) shared: Shared,
	pub(super) left_out: LeftOut,
	pub(super) settings: Settings,
	pub(super) handlers: Handlers,
	pub(super) asking: Code,
	pub(super) comparing: Code,
	/// Whether it has no capabilities, and so its clones have none.
	pub(super) drops: bool,
	/// `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` when it was looked at, in nanoseconds.
	pub(super) monotonic: u64,
	pub(super) boottime: u64,
	pub(super) run: Option<fn(&'static mut Frozen) -> !>,
}

/// Handlers to be called in each clone.
pub struct Handlers {
	pub all: [usize; Handlers::MOST],
	pub count: usize,
}

impl Handlers {
	/// Most of them.
	pub const MOST: usize = 32;
}

/// Where the code of some libraries is.
pub struct Code {
	pub(super) all: [Range; Code::MOST],
	pub(super) count: usize,
}

impl Code {
	/// Most of them.
	pub const MOST: usize = 8;

	/// Each of them.
	pub fn ranges(&self) -> &[Range] {
		&self.all[..self.count]
	}
}

/// Bytes of a set of CPUs, for as many as there may be (`CONFIG_NR_CPUS` of distributions).
pub const CPUS: usize = 1024;

/// A thread that stands still.
#[derive(Clone, Copy)]
pub struct Thread {
	pub tid: i32,
	/// Whether it has stopped.
	pub stopped: bool,
	/// Address of its next instruction when it did.
	pub next: usize,
	/// `struct user_regs_struct`.
	pub registers: [usize; 27],
	pub signals: u64,
	/// `stack_t` of its alternate stack.
	pub alternate: [usize; 3],
	/// Where the kernel writes 0 when it ends; glibc keeps its number there.
	pub clear_tid: usize,
	/// Head and length of its list of robust mutexes.
	pub robust: [usize; 2],
	/// Address, length and signature of its area for restartable sequences; 0 for none.
	pub rseq: [usize; 3],
	/// Its name, with its NUL.
	pub name: [u8; 16],
	/// What each kind of speculation may do, as `PR_GET_SPECULATION_CTRL` has it.
	pub speculation: [usize; 3],
	pub nice: i32,
	pub policy: i32,
	pub cpus: [u64; CPUS / 64],
	/// Address of the `ucontext` from which it goes on.
	pub frame: usize,
	/// What its clones do of a call that was cut short.
	pub rest: Rest,
}

/// A call that had transferred a part when its thread was stopped: what the thread has when the rest is done, which
/// takes other arguments. A trampoline reads it by offsets.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Rest {
	/// The result so far.
	pub part: usize,
	/// rdi, rsi, rdx, r10, r8 and r9 of the call, which leaves them as they are.
	pub arguments: [usize; 6],
	/// The trampoline has the address of this in that register.
	pub rbx: usize,
	/// Where the thread goes on.
	pub next: usize,
}

/// Device and inode of the standard streams; zeros for one that is closed.
pub type Streams = [[u64; 2]; 3];

/// Most descriptors, and files in epoll sets.
pub const DESCRIPTORS: usize = 4096;
const ITEMS: usize = 16 * 1024;

/// What becomes of a descriptor in a clone.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
	/// The file that the template has: devices, directories by name only, sockets that listen.
	#[default]
	Shared,
	/// Another descriptor of the same open file: of entry `other`.
	Same,
	/// A standard stream, which is the caller's.
	Stream,
	/// Opened again, at the same position.
	File,
	/// A file without a name, which is copied; `other` is one more open file of it, and has the copy.
	Deleted,
	Event,
	Epoll,
	Timer,
	Signal,
	Inotify,
	/// The end of a pipe that is read, and the end that is written; `other` is the other end, or none is here.
	Reads,
	Writes,
	/// The end of a pair of sockets; `other` is the other end.
	Pair,
	/// The end of a pair whose other end is closed, with what is left to read.
	Closed,
	/// A socket connected to something outside, until the program has ended: then there is nobody at the other end,
	/// which is closed.
	Outside,
	/// A socket that is neither bound nor connected.
	Fresh,
}

/// No entry.
pub const NONE: usize = usize::MAX;

/// A descriptor.
#[derive(Clone, Copy)]
pub struct Entry {
	pub number: i32,
	pub kind: Kind,
	pub inode: u64,
	pub device: u64,
	pub info: Info,
	pub other: usize,
	/// The first of the files of an epoll set, and how many they are; a descriptor for the directory of a deleted
	/// file's copy; for sockets family, type and protocol; for a pipe
	/// its capacity.
	pub first: usize,
	pub count: usize,
	pub socket: [i32; 3],
	/// Whether a socket of `unix(7)` listens.
	pub listens: bool,
	/// Whether an eventfd counts down by ones.
	pub semaphore: bool,
}

/// All of them, in order of their numbers.
pub struct Files {
	pub all: [Entry; DESCRIPTORS],
	pub count: usize,
	pub items: [Item; ITEMS],
	pub item_count: usize,
}

/// A timer of `timer_create(2)`.
#[derive(Clone, Copy, Default)]
pub struct Timer {
	pub id: i32,
	pub clock: i32,
	pub signal: i32,
	pub value: u64,
	pub how: i32,
	pub tid: i32,
	/// `struct itimerspec`.
	pub left: [u64; 4],
}

/// All of them.
pub struct Timers {
	pub all: [Timer; TIMERS],
	pub count: usize,
	/// `struct itimerval` of each that `setitimer(2)` has.
	pub intervals: [[u64; 4]; 3],
}

/// Most mappings of shared anonymous memory.
const MAPPINGS: usize = 256;
const SIGNALS: usize = 256;
/// Bytes of `siginfo_t`.
pub const INFO: usize = 128;
/// Most timers.
pub const TIMERS: usize = 1024;

/// A signal, for a thread; 0 for the whole process.
#[derive(Clone, Copy)]
pub struct Sent {
	pub tid: i32,
	pub info: [u8; INFO],
}

/// All of them.
pub struct Pending {
	pub all: [Sent; SIGNALS],
	pub count: usize,
}

/// A mapping of shared anonymous memory.
#[derive(Clone, Copy)]
pub struct Mapping {
	pub range: Range,
	pub prot: u32,
	pub inode: u64,
	pub offset: u64,
	/// From its beginning to the end of the object, of which it may be a part.
	pub bytes: usize,
	pub flags: Flags,
}

/// Shared anonymous memory, which is the program's alone: it has no children.
pub struct Shared {
	pub all: [Mapping; MAPPINGS],
	pub count: usize,
}

/// Memory that forks leave out (`MADV_DONTFORK`), but not those by which clones are made.
pub struct LeftOut {
	pub all: [Range; LeftOut::MOST],
	pub count: usize,
}

impl LeftOut {
	const MOST: usize = 16 * 1024;
}

/// Longest name of a directory, with its NUL.
pub const PATH: usize = 4096;

/// As they were when it stood still.
pub struct Settings {
	/// A descriptor of the maker's for its directory.
	pub directory: i32,
	/// The directory's name; nothing if it is too long.
	pub path: [u8; PATH],
	/// Its mask for new files.
	pub umask: u32,
	/// Soft and hard limits by number (`getrlimit(2)`).
	pub limits: [[u64; 2]; 16],
	/// Nice value of its main thread.
	pub nice: i32,
	/// CPUs of that.
	pub cpus: [u64; CPUS / 64],
}

//! What a caller, such as the command `flashfork`, and a template say to each other. `flashfork-templates` is the
//! library for callers; it is another crate, because the shim, which can't have std, is built together with it.
//!
//! They talk over a Unix socket of type `SOCK_SEQPACKET`, so a message is never cut or joined. Both ends run on one
//! machine and come from one build directory or package; numbers are in the machine's byte order. A template is a
//! process in which neither an allocator nor a panic is welcome: everything here has a fixed size, and bytes that make
//! no sense give `None`.
//!
//! - [`Ask`]: caller to template. [`Ask::Clone`] carries the descriptors listed in [`DESCRIPTORS`].
//! - [`Tell`]: template to caller.
//! - [`Start`]: what a clone takes over from its caller, in a memfd that the clone maps.
//! - [`Order`] and [`Word`]: between the keeper of a template with threads and the maker of its clones.
#![cfg_attr(not(test), no_std)]

mod ask;
mod facts;
mod job;
mod keep;
mod name;
mod program;
mod start;
mod tell;
pub mod variables;

pub use ask::Ask;
pub use facts::{Facts, ReadyAt};
pub use job::{FROM_KERNEL, Job, PASSED_ON, job};
pub use keep::{MADE_FROM, NAME_OF_UNFIT, Order, PATH, Word};
pub use name::{LONGEST_NAME, NAME_RULE, is_name};
pub use program::{is_dynamic, is_shell, is_wrapper, runs_scripts, starts_another};
pub use start::{LIMITS, START_MAGIC, Start};
pub use tell::{Step, Tell, Why};

/// First word of the command line by which the launcher has the command go on with a clone that it has asked for.
/// Behind it come its descriptor of the connection and the clone's process, or 0, as `SOCKET,CLONE`, and the command
/// line as it was. The signals of [`PASSED_ON`] are blocked.
pub const ATTEND: &core::ffi::CStr = c"attend";

/// Descriptors that come with [`Ask::Clone`], in this order: the memfd with [`Start`], the working directory, and the
/// three standard streams.
pub const DESCRIPTORS: usize = 5;

/// Most ports in [`Tell::Ports`].
pub const PORTS: usize = 32;

/// Most sockets that a clone has in place of those on which its template listens.
pub const LISTENERS: usize = 16;

/// Clones of one template that may run at a time.
pub const MOST_RUNNING: usize = 4096;

/// In place of the number of a clone that its caller can't see: no process has it.
pub const UNSEEN: i32 = i32::MAX;

/// Callers that may wait to be heard (`listen(2)`).
pub const WAITING: i32 = 4095;

/// Number of the system call that the shim answers in place of the kernel, for programs in languages whose only way to
/// C is `syscall`. Its first argument is one of the `CALL_` constants; outside a template and its clones it fails with
/// `ENOSYS`, as it does without the shim.
pub const CALL: i32 = 0x666f_726b;
/// The program is ready: returns 0 when the caller has to fork, once for each clone.
pub const CALL_READY: usize = 0;
/// In a clone: copies argument number `a` of the caller to the buffer at `b` of `c` bytes. Returns its length, or -1
/// with `ENOENT` behind the last one; copies nothing when the buffer is too small.
pub const CALL_ARGUMENT: usize = 1;
/// The same for the strings of the environment.
pub const CALL_VARIABLE: usize = 2;
/// In a clone: signals are blocked as its caller has them. For runtimes whose fork puts back what was blocked before
/// it.
pub const CALL_UNBLOCK: usize = 3;

/// Before it is ready: a file that the program was made of, by its name from the root, at `a`. There are no clones any
/// more when it has changed.
pub const CALL_FILE: usize = 4;

/// In a clone: 1 if its caller ignores signal number `a`, else 0. For runtimes that have handlers from their start on.
pub const CALL_IGNORES: usize = 5;

/// In a clone of Perl, while it compiles its main program: the program is called by the string at `a`. First come the
/// lines at `b`, of `c` bytes, then those of the file that perl reads, without the first `d`, or, for `-`, those of
/// standard input.
pub const CALL_PROGRAM: usize = 6;
/// Has perl name its program (`$0`) by a string, without what an assignment does besides: to the command line that `ps`
/// shows, and to perl's arguments.
pub const CALL_NAME: usize = 7;

/// As [`CALL_FILE`], of a name that was looked up in vain.
pub const CALL_MISSING: usize = 8;

/// Of a program with threads: how many bytes the shim rings with first, two addresses of the program's memory. By what
/// lies at the first its maker is made. At the second lies a word by which a program is told to prepare itself before
/// it is stopped; 0 if it has nothing to prepare.
pub const ADDRESSES: usize = 16;
/// What the keeper writes to that word.
pub const PREPARE: u32 = 1;
/// What the program writes there when it has prepared itself.
pub const PREPARED: u32 = 2;

/// Bytes of the name of what has changed: the end of a longer one.
pub const NAME_OF_CHANGED: usize = 232;

/// What is said of a program that starts another one and waits for it.
pub const WAITS: &str = "can't be a template: it starts the program as a child and waits for that, and only one that becomes the program (`exec`) is followed; warm the program itself (of a Python, `-c 'import sys; print(sys.executable)'` tells which)";

/// Bytes of the words why a program can't become a template.
pub const WORDS_OF_UNFIT: usize = 504;

/// Appends numbers to a message.
struct Writer<const N: usize>([u8; N], usize);

impl<const N: usize> Writer<N> {
	fn new() -> Self {
		Self([0; N], 0)
	}

	fn put(mut self, number: u64) -> Self {
		self.0[self.1..self.1 + 8].copy_from_slice(&number.to_ne_bytes());
		self.1 += 8;
		self
	}

	fn bytes(mut self, bytes: &[u8]) -> Self {
		self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
		self.1 += bytes.len();
		self
	}

	fn signed(self, number: i32) -> Self {
		self.put(i64::from(number) as u64)
	}
}

/// Takes numbers from a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
	fn get(&mut self) -> Option<u64> {
		let (number, rest) = self.0.split_first_chunk::<8>()?;
		self.0 = rest;
		Some(u64::from_ne_bytes(*number))
	}

	fn signed(&mut self) -> Option<i32> {
		i32::try_from(self.get()? as i64).ok()
	}
}

//! Why a process can't be cloned with its threads.

use crate::sys::Errno;

/// Bytes of the name of what is in the way; a longer one is cut.
pub const NAME: usize = 96;

/// Defines [`What`] and [`WORDS`], in the same order.
macro_rules! reasons {
	($($(#[$note:meta])* $what:ident: $has:literal, $cure:literal;)*) => {
		/// What stands against it. The numbers are told by one version to itself only.
		#[derive(Clone, Copy, Debug, PartialEq, Eq)]
		#[repr(u8)]
		#[allow(missing_docs)] // each has its words below
		pub enum What {
			$($(#[$note])* $what,)*
		}

		/// By the number of [`What`]: what the program has, and what to do.
		pub const WORDS: &[(&str, &str)] = &[$(($has, $cure),)*];
	};
}

reasons! {
	/// It has a processor, and doesn't stop.
	Unstoppable:
		"a thread that doesn't stop",
		"it waits for a device, a file server or a child of vfork; make it ready later";
	Traced:
		"a thread in the hands of a debugger",
		"end the debugger";
	MainEnded:
		"no main thread any more",
		"have its main thread wait for the others, without pthread_exit";
	ManyThreads:
		"more than 4096 threads",
		"have it start fewer";
	Child:
		"a child process, which its clones would not have",
		"have it end its children before it is ready";
	SharedMemory:
		"another process in its memory",
		"have that end before it is ready";
	Replaced:
		"become another program (exec)",
		"warm the program that it starts itself";
	/// Other than those of the maker or the main thread.
	Credentials:
		"credentials or capabilities that its clones would not have",
		"make it ready before it changes them";
	Filter:
		"a system call filter (seccomp)",
		"make it ready before it sets the filter";
	Landlock:
		"a Landlock sandbox",
		"make it ready before it restricts itself";
	/// The maker has it otherwise.
	Attribute:
		"an attribute that its clones would not have",
		"make it ready before it sets that";
	Namespace:
		"a namespace or root directory of its own",
		"make it ready before it goes there";
	Apart:
		"a thread with files or a directory of its own (unshare)",
		"make it ready earlier";
	ShadowStack:
		"a shadow stack",
		"start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off";
	RealTime:
		"a thread with a real-time policy",
		"have it set that later";
	Registers:
		"registers that clones can't be given (AMX)",
		"make it ready before it uses them";
	/// The word in which the C library keeps the main thread's number holds another.
	Library:
		"a C library that keeps its threads in another way than glibc",
		"only programs with glibc are cloned with threads";
	Inside:
		"a thread in the middle of a call of flashfork's own",
		"try again";
	Part:
		"a thread in the middle of a call that its clones could not go on with",
		"make it ready when that is over, or before it";
	/// The number is that of the [`crate::never_seal::Reason`].
	Writer:
		"an object through which the kernel writes its memory",
		"make it ready earlier, or without it";
	ManyDescriptors:
		"more than 4096 descriptors",
		"have it open fewer";
	Lock:
		"a lock on a file, which its clones would not have",
		"have it lock the file later";
	Descriptor:
		"a descriptor that clones can't have",
		"have it close that, or open it later";
	Deleted:
		"a deleted file that clones can't have a copy of (more than 64 MB, not to be read, or nowhere to put it)",
		"have it close that, or make it later";
	Terminal:
		"a terminal opened by its name",
		"have it use its standard streams, or open the terminal later";
	Socket:
		"a socket that clones can't have",
		"have it close that, or open it later";
	Options:
		"a socket with options that clones can't be given",
		"have it set those later";
	Unread:
		"a socket pair or pipe with more in it than can be copied (datagrams, descriptors, credentials, many bytes)",
		"have it read that before it is ready";
	Epoll:
		"an epoll set with a standard stream, or a file whose descriptor is closed",
		"have it remove that from the set first";
	Stream:
		"something else in the place of a standard stream, or a standard stream opened again",
		"have it leave its standard streams as they are until it is ready";
	OneOutput:
		"a copy of its standard output and errors, which are one file or socket: those of clones may be two",
		"warm it with two, or on a terminal or pipe (2>&1 | cat)";
	Process:
		"a file of /proc that tells of its process, which its clones are not",
		"have it close that";
	Signalled:
		"a descriptor that sends it signals (F_SETOWN, F_SETSIG, O_ASYNC, F_NOTIFY, a lease)",
		"have it ask for them later";
	Watches:
		"watches of inotify, or unread events",
		"have it watch files later, or without watching";
	Mapping:
		"shared memory that is sealed or guarded, more than 64 MB of it, or from a file of memory",
		"have it make that later; of Java choose another collector than ZGC, of .NET set DOTNET_EnableWriteXorExecute=0";
	HugePages:
		"private huge pages (MAP_HUGETLB), of which the host's pool may have none left for a clone that writes",
		"have it take them later, or use transparent ones (of Java -XX:+UseTransparentHugePages)";
	/// The number is the identifier.
	SystemV:
		"a semaphore, a message queue or memory of System V, which its clones would have together (IPC_PRIVATE, SEM_UNDO)",
		"have it make or take that later";
	Timer:
		"a timer on a thread's clock, or on another process's",
		"have it start that later";
	Signals:
		"more than 256 pending signals",
		"have it take them first";
	EndlessHook:
		"a function for its clones (flashfork_on_clone) that does not come to an end in them",
		"it waits for what another thread holds, or for one to go on: try again, or have no thread hold that";
	/// The number is what it gave, or the signal.
	FailedHook:
		"a function for its clones (flashfork_on_clone) that fails in them",
		"it must return 0, and not end the process";
	/// The name says which generators, and why.
	Java:
		"a Java virtual machine whose random numbers would be the same in all clones",
		"these generators can't be renewed; make it ready without them, or later";
	/// The name says why.
	Python:
		"a Python whose random numbers would be the same in all clones",
		"these generators can't be renewed; make it ready before it imports them";
	Generator:
		"a library whose random numbers, keys among them, would be the same in all clones",
		"make it ready before it loads that, or have it renew them (flashfork_on_clone)";
	Crate:
		"a crate of Rust's whose random numbers, keys among them, would be the same in all clones",
		"have it draw them from the system (OsRng, SysRng), or have every thread reseed its generator in clones (flashfork_on_clone; docs/THREADED_CLONES.md shows how)";
	Mutex:
		"a mutex that its main thread holds or waits for and that clones could not unlock (recursive, error-checking, robust or with priority inheritance), or a rwlock that it has locked to write",
		"make it ready while its main thread waits for something, or try again";
	SharedLock:
		"a lock in a file that it maps shared which one of its threads holds, and so would all clones together",
		"make it ready while none of its threads holds that";
	/// The name says which call is refused.
	Forbidden:
		"a guard against being looked at",
		"a container's or another filter, or sysctl kernel.yama.ptrace_scope above 1, refuses that call; templates of programs with one thread (without --threads) don't need it";
	/// The number is its error.
	System:
		"something that can't be looked at",
		"the kernel refuses it";
}

/// Why a process can't be cloned with its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit {
	/// What stands against it.
	pub what: What,
	/// The thread, process, descriptor, error or reason that it is about; 0 for none.
	pub number: i32,
	/// What the kernel calls it; zeros behind it.
	pub name: [u8; NAME],
}

/// Whether it can be.
pub type Fit<T = ()> = core::result::Result<T, Unfit>;

impl Unfit {
	/// With a number.
	pub fn new(what: What, number: i32) -> Unfit {
		Unfit { what, number, name: [0; NAME] }
	}

	/// With a name.
	pub fn named(what: What, number: i32, name: &[u8]) -> Unfit {
		let mut unfit = Unfit::new(what, number);
		let len = name.len().min(NAME);
		unfit.name[..len].copy_from_slice(&name[..len]);
		unfit
	}

	/// Of a call by which it is looked at, and that has failed.
	pub fn forbidden(call: &[u8], e: Errno) -> Unfit {
		match e {
			Errno::EPERM | Errno::EACCES | Errno::ENOSYS => Unfit::named(What::Forbidden, 0, call),
			e => Unfit::from(e),
		}
	}
}

impl From<Errno> for Unfit {
	fn from(e: Errno) -> Unfit {
		Unfit::new(What::System, e.into_raw())
	}
}

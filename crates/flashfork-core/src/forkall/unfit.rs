//! Why a process can't be cloned with its threads.

use crate::sys::Errno;

/// Bytes of the name of what is in the way; a longer one is cut.
pub const NAME: usize = 96;

/// What stands against it. The numbers are told by one version to itself only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A thread that doesn't stop, though it has a processor.
    Unstoppable,
    /// A thread that something else traces.
    Traced,
    /// The main thread has ended by `pthread_exit(3)`.
    MainEnded,
    /// More threads than there is room for.
    ManyThreads,
    /// A child process.
    Child,
    /// Another process in the same memory.
    SharedMemory,
    /// The program has become another by `exec(2)`.
    Replaced,
    /// Other credentials or capabilities than the maker or the main thread.
    Credentials,
    /// A system call filter.
    Filter,
    /// A Landlock domain.
    Landlock,
    /// An attribute that the maker has otherwise.
    Attribute,
    /// A namespace or root directory of its own.
    Namespace,
    /// A thread with files or a directory of its own.
    Apart,
    /// A thread with a shadow stack.
    ShadowStack,
    /// A thread with a real-time policy.
    RealTime,
    /// Registers that no frame can hold.
    Registers,
    /// The word in which the C library keeps the main thread's number holds another.
    Library,
    /// A thread in the middle of a call of the engine.
    Inside,
    /// A call of which clones could not do the rest.
    Part,
    /// An object through which the kernel writes memory; the number is that of the [`crate::never_seal::Reason`].
    Writer,
    /// More descriptors than there is room for.
    ManyDescriptors,
    /// A lock on an open file.
    Lock,
    /// A descriptor of a kind that can't be made anew.
    Descriptor,
    /// A file without a name that can't be copied.
    Deleted,
    /// A terminal that is no standard stream.
    Terminal,
    /// A socket that can't be made anew.
    Socket,
    /// A socket with options that can't be set anew.
    Options,
    /// A socket pair with more in it than can be copied.
    Unread,
    /// A set of `epoll(7)` with a file whose descriptor has been closed.
    Epoll,
    /// A standard stream that isn't the one it was started with, or one more open file of it.
    Stream,
    /// A copy of standard output and standard error, which are one open file.
    OneOutput,
    /// A file of /proc that tells of its process.
    Process,
    /// A descriptor whose events send a signal.
    Signalled,
    /// Watches or events of `inotify(7)`.
    Watches,
    /// Shared memory of which clones can't have a copy, or that is a file.
    Mapping,
    /// Private huge pages of the host's pool.
    HugePages,
    /// Memory, semaphores or a message queue of System V; the number is the identifier.
    SystemV,
    /// A timer that can't be made anew.
    Timer,
    /// More pending signals than there is room for.
    Signals,
    /// A function for its clones that doesn't end in them.
    EndlessHook,
    /// A function for its clones that has failed or ended one; the number is what it gave, or the signal.
    FailedHook,
    /// A Java virtual machine whose generators can't be renewed; the name says which, and why.
    Java,
    /// A Python whose generators can't be renewed; the name says why.
    Python,
    /// A library whose generator of random numbers would go on alike in all clones.
    Generator,
    /// The same of a crate of Rust's that is linked into the program.
    Crate,
    /// A lock that its main thread holds or waits for, and only this could unlock.
    Mutex,
    /// A lock in a shared file that one of its threads holds.
    SharedLock,
    /// A call by which it is looked at is refused; the name says which.
    Forbidden,
    /// A system call failed; the number is its error.
    System,
}

/// In the order of [`What`]: what the program has, and what to do.
pub const WORDS: [(&str, &str); 49] = [
    ("a thread that doesn't stop", "it waits for a device, a file server or a child of vfork; make it ready later"),
    ("a thread in the hands of a debugger", "end the debugger"),
    ("no main thread any more", "have its main thread wait for the others, without pthread_exit"),
    ("more than 4096 threads", "have it start fewer"),
    ("a child process, which its clones would not have", "have it end its children before it is ready"),
    ("another process in its memory", "have that end before it is ready"),
    ("become another program (exec)", "warm the program that it starts itself"),
    ("credentials or capabilities that its clones would not have", "make it ready before it changes them"),
    ("a system call filter (seccomp)", "make it ready before it sets the filter"),
    ("a Landlock sandbox", "make it ready before it restricts itself"),
    ("an attribute that its clones would not have", "make it ready before it sets that"),
    ("a namespace or root directory of its own", "make it ready before it goes there"),
    ("a thread with files or a directory of its own (unshare)", "make it ready earlier"),
    ("a shadow stack", "start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off"),
    ("a thread with a real-time policy", "have it set that later"),
    ("registers that clones can't be given (AMX)", "make it ready before it uses them"),
    (
        "a C library that keeps its threads in another way than glibc",
        "only programs with glibc are cloned with threads",
    ),
    ("a thread in the middle of a call of flashfork's own", "try again"),
    (
        "a thread in the middle of a call that its clones could not go on with",
        "make it ready when that is over, or before it",
    ),
    ("an object through which the kernel writes its memory", "make it ready earlier, or without it"),
    ("more than 4096 descriptors", "have it open fewer"),
    ("a lock on a file, which its clones would not have", "have it lock the file later"),
    ("a descriptor that clones can't have", "have it close that, or open it later"),
    (
        "a deleted file that clones can't have a copy of (more than 64 MB, not to be read, or nowhere to put it)",
        "have it close that, or make it later",
    ),
    ("a terminal opened by its name", "have it use its standard streams, or open the terminal later"),
    ("a socket that clones can't have", "have it close that, or open it later"),
    ("a socket with options that clones can't be given", "have it set those later"),
    (
        "a socket pair or pipe with more in it than can be copied (datagrams, descriptors, credentials, many bytes)",
        "have it read that before it is ready",
    ),
    (
        "an epoll set with a standard stream, or a file whose descriptor is closed",
        "have it remove that from the set first",
    ),
    (
        "something else in the place of a standard stream, or a standard stream opened again",
        "have it leave its standard streams as they are until it is ready",
    ),
    (
        "a copy of its standard output and errors, which are one file or socket: those of clones may be two",
        "warm it with two, or on a terminal or pipe (2>&1 | cat)",
    ),
    ("a file of /proc that tells of its process, which its clones are not", "have it close that"),
    (
        "a descriptor that sends it signals (F_SETOWN, F_SETSIG, O_ASYNC, F_NOTIFY, a lease)",
        "have it ask for them later",
    ),
    ("watches of inotify, or unread events", "have it watch files later, or without watching"),
    (
        "shared memory that is sealed or guarded, more than 64 MB of it, or from a file of memory",
        "have it make that later; of Java choose another collector than ZGC, of .NET set DOTNET_EnableWriteXorExecute=0",
    ),
    (
        "private huge pages (MAP_HUGETLB), of which the host's pool may have none left for a clone that writes",
        "have it take them later, or use transparent ones (of Java -XX:+UseTransparentHugePages)",
    ),
    (
        "a semaphore, a message queue or memory of System V, which its clones would have together (IPC_PRIVATE, SEM_UNDO)",
        "have it make or take that later",
    ),
    ("a timer on a thread's clock, or on another process's", "have it start that later"),
    ("more than 256 pending signals", "have it take them first"),
    (
        "a function for its clones (flashfork_on_clone) that does not come to an end in them",
        "it waits for what another thread holds, or for one to go on: try again, or have no thread hold that",
    ),
    ("a function for its clones (flashfork_on_clone) that fails in them", "it must return 0, and not end the process"),
    (
        "a Java virtual machine whose random numbers would be the same in all clones",
        "these generators can't be renewed; make it ready without them, or later",
    ),
    (
        "a Python whose random numbers would be the same in all clones",
        "these generators can't be renewed; make it ready before it imports them",
    ),
    (
        "a library whose random numbers, keys among them, would be the same in all clones",
        "make it ready before it loads that, or have it renew them (flashfork_on_clone)",
    ),
    (
        "a crate of Rust's whose random numbers, keys among them, would be the same in all clones",
        "have it draw them from the system (OsRng, SysRng), or have every thread reseed its generator in clones (flashfork_on_clone; docs/THREADED_CLONES.md shows how)",
    ),
    (
        "a mutex that its main thread holds or waits for and that clones could not unlock (recursive, error-checking, robust or with priority inheritance), or a rwlock that it has locked to write",
        "make it ready while its main thread waits for something, or try again",
    ),
    (
        "a lock in a file that it maps shared which one of its threads holds, and so would all clones together",
        "make it ready while none of its threads holds that",
    ),
    (
        "a guard against being looked at",
        "a container's or another filter, or sysctl kernel.yama.ptrace_scope above 1, refuses that call; templates of programs with one thread (without --threads) don't need it",
    ),
    ("something that can't be looked at", "the kernel refuses it"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_words() {
        assert_eq!(What::System as usize + 1, WORDS.len());
        assert!(WORDS[What::Child as usize].0.contains("child"));
        assert!(WORDS[What::Watches as usize].0.contains("inotify"));
        assert!(WORDS[What::Timer as usize].0.contains("timer"));
        assert!(WORDS[What::SystemV as usize].0.contains("System V"));
        assert!(WORDS[What::Python as usize].0.contains("Python"));
        assert!(WORDS[What::Generator as usize].0.contains("random numbers"));
        assert!(WORDS[What::Crate as usize].0.contains("crate"));
        assert!(WORDS[What::Forbidden as usize].0.contains("guard"));
        assert!(WORDS[What::Lock as usize].0.contains("lock"));
        assert!(WORDS[What::Landlock as usize].0.contains("Landlock"));
        assert!(WORDS[What::Inside as usize].0.contains("flashfork"));
    }
}

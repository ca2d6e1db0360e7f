//! A template for `flashfork clone`: the program comes to its ready point, then waits and forks a clone for each
//! caller.
//!
//! [`entry`] finds the ready point, [`prepare`] makes a template of the process there, [`serve`] waits for callers, and
//! [`take_over`] gives a clone what is its caller's. The fork in between is the program's own, or its runtime's, so
//! that handlers of `pthread_atfork`, or an interpreter's, run as in any other fork: [`after_fork`] is called from the
//! shim's `fork`.
//!
//! A template has one thread and, once it waits, every signal blocked: what is here needs no locks.

mod ahead;
mod end;
mod entry;
mod environment;
mod files;
mod interpreters;
mod mapped;
mod message;
mod prepare;
mod python;
mod script;
mod serve;
mod take_over;

use core::cell::UnsafeCell;
use core::ffi::c_int;
use flashfork_warm::{Facts, MOST_RUNNING, ReadyAt};

pub use entry::ready_call;
pub use script::call;
pub use take_over::environ;

/// Something that only the process's one thread looks at.
struct Single<T>(UnsafeCell<T>);

// SAFETY: used by the loader, then by the only thread at the ready point (`prepare` counts them), then by `main`'s
// thread alone: nothing of it is reached from another thread, nor from a signal handler.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
    const fn new(value: T) -> Self {
        Single(UnsafeCell::new(value))
    }

    /// # Safety
    /// No other reference to it may be in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller answers for it.
        unsafe { &mut *self.0.get() }
    }
}

/// What `flashfork warm` has told, until the program is ready.
static ORDER: Single<Option<environment::Order>> = Single::new(None);

/// The template that this process is; none before, and in clones.
static TEMPLATE: Single<Option<Template>> = Single::new(None);

/// The program's own `main`, where something comes before it.
static MAIN: Single<Option<entry::Main>> = Single::new(None);

/// What this clone has of its caller.
static CLONE: Single<Option<take_over::Given>> = Single::new(None);

/// One connection, and the clone made for it.
#[derive(Clone, Copy)]
struct Slot {
    /// -1: the caller has gone.
    socket: c_int,
    /// The caller; 0 for one that can't be seen from here.
    caller: i32,
    /// 0: no clone.
    pid: i32,
    /// Whether the clone is stopped, and so is its caller.
    stopped: bool,
    /// Whether the clone has told how it ends.
    told: bool,
}

const FREE: Slot = Slot { socket: -1, caller: 0, pid: 0, stopped: false, told: false };

/// Connections: those of clones, and some for questions.
const SLOTS: usize = MOST_RUNNING + 64;

/// A request for a clone, until the fork.
struct Wanted {
    slot: usize,
    descriptors: [c_int; flashfork_warm::DESCRIPTORS],
}

/// A process that waits for callers.
struct Template {
    order: environment::Order,
    epoll: c_int,
    signals: c_int,
    /// Of the socket, by which its name is known to be its own still.
    inode: u64,
    facts: Facts,
    retired: bool,
    /// In a fork, or its handlers: whatever is forked now is theirs.
    forking: bool,
    /// Out of descriptors or memory: nobody is accepted for a moment.
    paused: bool,
    /// No clone has a connection of this number or a higher one: some descriptors are kept for questions.
    most_descriptors: c_int,
    wanted: Option<Wanted>,
    ahead: ahead::Ahead,
    slots: [Slot; SLOTS],
    /// As the program had them.
    mask: libc::sigset_t,
    on_child: libc::sigaction,
}

/// Waits until a clone has to be forked, for somebody or ahead: the caller must fork next. Becomes a template first, if
/// it isn't one. False, at once, in a process that `flashfork warm` didn't start, and in a clone.
pub fn wait(at: ReadyAt) -> bool {
    // SAFETY: one thread, and no reference is kept from one call to the next.
    unsafe {
        if let Some(order) = ORDER.get().take() {
            // A child that was made by no fork of the C library's.
            if order.pid != libc::getpid() {
                return false;
            }
            prepare::prepare(TEMPLATE.get(), order, at);
        }
        match TEMPLATE.get() {
            Some(template) if template.facts.pid == libc::getpid() => serve::next(template),
            // A handler of forks has forked, and its child comes here: nobody has called that.
            Some(_) => libc::_exit(0),
            None => return false,
        }
    }
    true
}

/// Whether what is forked next is a template's clone, and no child of a handler of forks.
pub fn before_fork() -> bool {
    // SAFETY: as above; in a process that is no template this is a look at a static.
    let Some(template) = (unsafe { TEMPLATE.get() }) else { return false };
    // SAFETY: asks for a number.
    let own = template.facts.pid == unsafe { libc::getpid() };
    own && !core::mem::replace(&mut template.forking, true)
}

/// Runs an interpreter's own handlers of forks, which may fork.
fn in_handlers(handlers: impl FnOnce()) {
    let set = |forking| {
        // SAFETY: as above.
        if let Some(template) = unsafe { TEMPLATE.get() } {
            template.forking = forking;
        }
    };
    set(true);
    handlers();
    set(false);
}

/// What the shim's `fork` has come to: when it was for a caller, the clone takes over, and the template takes it down.
/// `ours`: what [`before_fork`] said.
pub fn after_fork(pid: c_int, ours: bool) {
    // SAFETY: as above.
    if let Some(template) = unsafe { TEMPLATE.get() } {
        after_fork_of(template, pid, ours);
    }
}

/// Apart, because it takes much of the stack, and programs may fork from small ones.
#[inline(never)]
fn after_fork_of(template: &mut Template, pid: c_int, ours: bool) {
    if !ours {
        if pid == 0 {
            ahead::let_go(template);
        }
        return;
    }
    template.forking = false;
    // SAFETY: as above.
    unsafe {
        let Some(wanted) = template.wanted.take() else { return ahead::after_fork(template, pid) };
        if pid == 0 {
            *CLONE.get() = Some(take_over::take_over(template, &wanted));
            *TEMPLATE.get() = None;
        } else {
            serve::forked(template, &wanted, pid);
        }
    }
}

//! The helper: a process of its own in the same memory, which works while threads are stopped.
//!
//! It shares nothing but memory with the program: its descriptors are its own, so that none of them shows in the program or is
//! inherited by a clone that another thread makes meanwhile. It is a child that only `__WALL` and `__WCLONE` wait for, blocks
//! all signals, and dies with the thread that made it. When it dies the kernel lets all threads go.

use crate::arena::Arena;
use crate::live::Live;
use crate::never_seal::Reason;
use crate::objects;
use crate::range::Range;
use crate::seal::{Error, Outcome, Step};
use crate::state::STATE;
use crate::stop::{self, Others};
use crate::sys::{self, Errno, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, Result};
use crate::threads::{self, Threads};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;

const STACK: usize = 256 * 1024;

/// The helper's own memory.
#[repr(C, align(4096))]
struct Memory {
    stack: [u8; STACK],
    others: Others,
    go: AtomicU32,
    /// Not 0 as long as the helper uses memory.
    alive: AtomicU32,
    /// Addresses through which it writes to a memfd: given back for it when it was killed.
    window: Range,
}

impl Memory {
    fn map() -> Result<&'static mut Memory> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a fresh mapping of the right size; all-zero bytes are a valid Memory (integers, empty ranges).
        unsafe {
            let at = sys::mmap(0, size_of::<Memory>(), PROT_READ | PROT_WRITE, flags, -1, 0)?;
            // Clones that other threads make have no use for it.
            sys::madvise(at, size_of::<Memory>(), k::MADV_DONTFORK).inspect_err(|_| {
                let _ = sys::munmap(at, size_of::<Memory>());
            })?;
            Ok(&mut *(at as *mut Memory))
        }
    }

    fn range(&self) -> Range {
        let at = &raw const *self as usize;
        Range::new(at, at + size_of::<Memory>())
    }
}

struct Job<F> {
    arena: *mut Arena,
    memory: *mut Memory,
    f: Option<F>,
    pid: i32,
    thread: i32,
    outcome: core::result::Result<Outcome, Error>,
}

/// Runs `f` when nobody else uses this process's memory; with other threads, and where they may be stopped, in a helper that
/// can stop them. What else forbids a seal is refused.
pub fn run<F>(arena: &mut Arena, f: F) -> core::result::Result<Outcome, Error>
where
    F: FnOnce(&mut Arena, Option<Live>) -> core::result::Result<Outcome, Error>,
{
    let look = |e| Error::System(Step::Look, e);
    if objects::alone(&mut arena.text).map_err(look)? {
        return match objects::descriptors(&mut arena.text).map_err(look)? {
            Some(reason) => Err(Error::Refused(reason)),
            None => f(arena, None),
        };
    }
    if threads::allowed() == Threads::Refuse {
        return Err(Error::Refused(Reason::Threads));
    }
    let memory = Memory::map().map_err(|e| Error::System(Step::Begin, e))?;
    let outcome = with_memory(arena, memory, f);
    let range = memory.range();
    // SAFETY: the helper has ended. A failure would leak the mapping, no more.
    let _ = unsafe { sys::munmap(range.start, range.len()) };
    outcome
}

fn with_memory<F>(arena: &mut Arena, memory: &mut Memory, f: F) -> core::result::Result<Outcome, Error>
where
    F: FnOnce(&mut Arena, Option<Live>) -> core::result::Result<Outcome, Error>,
{
    const FLAGS: usize = (k::CLONE_VM | k::CLONE_FILES | k::CLONE_FS | k::CLONE_UNTRACED) as usize;
    const WCLONE: u32 = 0x8000_0000;
    let begin = |e| Error::System(Step::Begin, e);
    arena.push_hole(memory.range()).map_err(begin)?;
    // SAFETY: the arena is the engine's own.
    unsafe { sys::madvise(arena.range().start, arena.range().len(), k::MADV_DONTFORK) }.map_err(begin)?;
    let killed = Err(Error::System(Step::Helper, Errno::ESRCH));
    let mut job = Job { arena, memory, f: Some(f), pid: sys::getpid(), thread: sys::gettid(), outcome: killed };
    let top = &raw const memory.stack as usize + STACK;
    let place = &raw mut job;
    // SAFETY: the stack is the helper's own; the job outlives it, because it is waited for below.
    let helper = unsafe { crate::stack::clone_on(top, FLAGS, &memory.alive, start::<F>, place.cast()) };
    let helper = helper.map_err(|e| Error::System(Step::Helper, e))?;
    STATE.set_helper(helper);
    // SAFETY: the helper waits for `go` before it touches the job.
    let arena = unsafe { &mut *(*place).arena };
    // Where that fails ptrace is refused, and that is what will be said.
    let allowed = stop::allow_tracer(helper, &mut arena.small).unwrap_or(false);
    memory.go.store(1, SeqCst);
    sys::futex_wake(&memory.go);
    while memory.alive.load(SeqCst) != 0 {
        sys::futex_wait(&memory.alive, 1);
    }
    // Somebody else may have waited for it (`__WALL`).
    let _ = sys::wait(helper, WCLONE);
    STATE.set_helper(0);
    if allowed {
        // As it was before, as far as anybody can know.
        let _ = sys::set_ptracer(0);
    }
    if !memory.window.is_empty() {
        // SAFETY: the window was the helper's, which was killed.
        let _ = unsafe { sys::munmap(memory.window.start, memory.window.len()) };
    }
    // SAFETY: the helper, the only other user, has ended.
    unsafe { core::ptr::read(&raw const (*place).outcome) }
}

extern "C" fn start<F>(job: *mut u8) -> !
where
    F: FnOnce(&mut Arena, Option<Live>) -> core::result::Result<Outcome, Error>,
{
    // SAFETY: the thread that made the helper passes its own Job<F> and leaves it alone until the helper has ended.
    let job = unsafe { &mut *job.cast::<Job<F>>() };
    // SAFETY: as above; the helper's memory is mapped as long as it lives.
    let (arena, memory) = unsafe { (&mut *job.arena, &mut *job.memory) };
    while memory.go.load(SeqCst) == 0 {
        sys::futex_wait(&memory.go, 0);
    }
    job.outcome = prepare(job.pid).map_err(|e| Error::System(Step::Helper, e)).and_then(|pidfd| {
        memory.others.set(job.pid, job.thread);
        let mut live = Live::new(&mut memory.others, &mut memory.window, job.pid, pidfd);
        live.first_look(arena).map_err(Error::Refused)?;
        job.f.take().map_or(Err(Error::Busy), |f| f(arena, Some(live)))
    });
    sys::exit(0)
}

/// Makes the helper a process of its own. Gives a pidfd of the program.
fn prepare(pid: i32) -> Result<i32> {
    sys::die_with_parent()?;
    if sys::getppid() != pid {
        // Orphaned before that took hold, or /proc would show somebody else's ids.
        return Err(Errno::ESRCH);
    }
    sys::expect_children()?;
    sys::leave_descriptors()?;
    sys::pidfd_open(pid)
}

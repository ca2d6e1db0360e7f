//! What a thread has that only it can ask, and clones have from the maker: it must have the same. And a sandbox, which
//! the maker is not in.

use super::frozen::Frozen;
use super::inject::inject;
use super::raw::{at, call};
use super::thread::{STACK, drop_capabilities};
use super::unfit::{Unfit, What};
use crate::proc::text::{ProcPath, read_file};
use crate::scratch;
use crate::sys::{self, Result};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as k;
use syscalls::Sysno;

/// What is asked, and how. The kernel answers by what it returns, or where the question says so.
const QUESTIONS: [(&[u8], What, Sysno, [usize; 3]); 11] = [
    (b"secure bits", What::Credentials, Sysno::prctl, [27, 0, 0]),
    (b"session keyring", What::Credentials, Sysno::keyctl, [0, -3isize as usize, 0]),
    (b"process keyring", What::Credentials, Sysno::keyctl, [0, -2isize as usize, 0]),
    (b"thread keyring", What::Credentials, Sysno::keyctl, [0, -1isize as usize, 0]),
    (b"timer slack", What::Attribute, Sysno::prctl, [30, 0, 0]),
    (b"PR_MCE_KILL", What::Attribute, Sysno::prctl, [34, 0, 0]),
    (b"PR_SET_CHILD_SUBREAPER", What::Attribute, Sysno::prctl, [37, ANSWER, 0]),
    (b"PR_SET_TSC", What::Attribute, Sysno::prctl, [25, ANSWER, 0]),
    (b"ARCH_SET_CPUID", What::Attribute, Sysno::arch_prctl, [0x1011, 0, 0]),
    (b"personality", What::Attribute, Sysno::personality, [0xffff_ffff, 0, 0]),
    (b"ioprio", What::Attribute, Sysno::ioprio_get, [1, 0, 0]),
];

/// In place of the address of an `int` for the answer.
const ANSWER: usize = usize::MAX;

/// With all threads stopped, whose registers are known.
pub fn check(frozen: &mut Frozen) -> core::result::Result<(), Unfit> {
    let Frozen { threads, count, answers, small, list, pid, .. } = frozen;
    let cgroups = read_file(c"/proc/thread-self/cgroup", list)?;
    let answer = answers.as_mut_ptr();
    let outsider = Outsider::start()?;
    // SAFETY: takes numbers.
    let nice = 20 - unsafe { call(Sysno::getpriority, [0, 0])? } as i32;
    for thread in &threads[..*count] {
        for (name, what, number, arguments) in QUESTIONS {
            // Some kernels make it of the nice value.
            if number == Sysno::ioprio_get && thread.nice != nice {
                continue;
            }
            let [first, second, third] =
                arguments.map(|argument| if argument == ANSWER { answer as usize } else { argument });
            // SAFETY: the questions change nothing; the kernel writes to memory of the maker's at most.
            let (own, its) = unsafe {
                answer.write_volatile(0);
                let own = (call(number, [first, second, third, 0]), answer.read_volatile());
                answer.write_volatile(0);
                let its = inject(thread.tid, &thread.registers, number, [first, second, third, 0]);
                (own, (its, answer.read_volatile()))
            };
            if own != its {
                return Err(Unfit::named(what, thread.tid, name));
            }
        }
        let place = ProcPath::of(*pid).push(b"/task/").number(thread.tid).push(b"/cgroup");
        if read_file(place.as_c(), small)? != cgroups {
            return Err(Unfit::named(What::Attribute, thread.tid, b"cgroup"));
        }
        // A Landlock domain keeps who is in it from looking at who is not, whatever else it forbids.
        let [own, other] = [thread.tid, outsider.pid].map(|pid| pid as usize);
        if inject(thread.tid, &thread.registers, Sysno::kcmp, [own, other, KCMP_VM, 0]) != Ok(0) {
            return Err(Unfit::new(What::Landlock, thread.tid));
        }
    }
    Ok(())
}

const KCMP_VM: usize = 1;

/// A process in the maker's memory that has no capabilities: nothing but a sandbox keeps the program from looking at
/// it. Ends when it is dropped.
struct Outsider {
    pid: i32,
    stack: usize,
}

/// The kernel writes here that it has ended; nobody asks.
static ALIVE: AtomicU32 = AtomicU32::new(0);

impl Outsider {
    fn start() -> Result<Outsider> {
        const FLAGS: u32 = k::CLONE_VM | k::CLONE_UNTRACED;
        let (ready, stack) = (AtomicU32::new(0), scratch::map(STACK)?);
        let arg = at(&ready) as *mut u8;
        // SAFETY: the stack is this process's alone until it has ended, and this frame is there until it is ready.
        let pid = unsafe { crate::stack::clone_on(stack + STACK, FLAGS as usize, &ALIVE, be_outside, arg)? };
        let outsider = Outsider { pid, stack };
        while ready.load(SeqCst) == 0 {
            sys::futex_wait(&ready, 0);
        }
        Ok(outsider)
    }
}

extern "C" fn be_outside(ready: *mut u8) -> ! {
    // SAFETY: `start` passes its word, and waits until it is written.
    let ready = unsafe { &*ready.cast::<AtomicU32>() };
    // SAFETY: this process does nothing more. Where it kept its capabilities the program would be refused.
    let _ = unsafe { drop_capabilities() };
    ready.store(1, SeqCst);
    sys::futex_wake(ready);
    loop {
        // SAFETY: takes nothing.
        let _ = unsafe { call(Sysno::pause, []) };
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        const WALL: u32 = 0x4000_0000;
        const SIGKILL: usize = 9;
        // SAFETY: the process is this one's child, which nobody else waits for; then nobody uses its stack.
        unsafe {
            let _ = call(Sysno::kill, [self.pid as usize, SIGKILL]);
            let _ = sys::wait(self.pid, WALL);
            let _ = sys::munmap(self.stack, STACK);
        }
    }
}

//! Objects through which somebody else writes this process's memory: other threads, and descriptors that make the kernel or a
//! device write later. A process that holds one is refused, with the reason.
//!
//! What of this is harmless is listed, not what does harm: a device or kind of object that nobody has judged yet counts as harmful.
//! Files, pipes, sockets but for a few, and the objects below only write memory while a thread of the process waits in a call.

use crate::name::DEVICE;
use crate::never_seal::Reason;
use crate::outcome::Purpose;
use crate::proc::directory::for_each_entry;
use crate::proc::text::{ProcPath, decimal, field, read_file, words};
use crate::proc::vma::{Kind, Vma};
use crate::state::STATE;
use crate::stop;
use crate::sys::{self, Errno, Result};

const AF_XDP: i32 = 44;
/// Its peers write registered memory (`RDS_GET_MR`).
const AF_RDS: i32 = 21;

/// Beginnings of what `/proc/self/fd/N` points to.
const DESCRIPTORS: &[(&[u8], Reason)] = &[
    (b"anon_inode:[io_uring]", Reason::IoUring),
    (b"anon_inode:kvm-", Reason::Kvm),
    (b"/dev/kvm", Reason::Kvm),
    (b"/dev/mshv", Reason::Kvm),
    (b"/dev/vhost-", Reason::Vhost),
    (b"/dev/vfio/", Reason::Vfio),
    (b"anon_inode:[vfio", Reason::Vfio),
    (b"/dev/iommu", Reason::Vfio),
    (b"/dev/infiniband/", Reason::Rdma),
    (b"anon_inode:[userfaultfd]", Reason::Userfaultfd),
    (b"/dev/userfaultfd", Reason::Userfaultfd),
    (b"/dev/dri/", Reason::Gpu),
    (b"/dev/nvidia", Reason::Gpu),
    (b"/dev/kfd", Reason::Gpu),
    (b"/dev/accel/", Reason::Gpu),
    (b"/dev/video", Reason::Gpu),
    (b"/dmabuf:", Reason::Gpu),
    (b"/drm mm object", Reason::Gpu),
];

const ANONYMOUS: &[u8] = b"anon_inode:";

/// Objects without a file that are harmless, as `/proc/self/fd` and maps name them behind `anon_inode:`. What perf and BPF write is
/// memory of their own; a BPF program writes the program's only while one of its threads is in the kernel.
const HARMLESS_OBJECTS: &[&[u8]] = &[
    b"[eventfd]",
    b"[eventpoll]",
    b"[timerfd]",
    b"[signalfd]",
    b"[pidfd]",
    b"inotify",
    b"[fanotify]",
    b"[perf_event]",
    b"bpf-map",
    b"bpf-prog",
    b"bpf_link",
    b"bpf_iter",
    b"bpf-link",
    b"btf",
    b"[fscontext]",
    b"[landlock-ruleset]",
    b"seccomp notify",
];

/// Character devices that are harmless, by number (Documentation/admin-guide/devices.txt): major, first and last minor.
const HARMLESS_DEVICES: &[(u64, u64, u64)] = &[
    // null, zero, full, random, urandom, kmsg
    (1, 3, 3),
    (1, 5, 5),
    (1, 7, 9),
    (1, 11, 11),
    // Terminals: virtual, serial, tty, console, ptmx, pts.
    (4, 0, 255),
    (5, 0, 2),
    (136, 0, u64::MAX),
    (137, 0, u64::MAX),
    (138, 0, u64::MAX),
    (139, 0, u64::MAX),
    (140, 0, u64::MAX),
    (141, 0, u64::MAX),
    (142, 0, u64::MAX),
    (143, 0, u64::MAX),
    // fuse, net/tun
    (10, 229, 229),
    (10, 200, 200),
];

/// Beginnings of paths under /dev that are no devices, or harmless ones, where they are mapped.
const HARMLESS_MAPPINGS: &[&[u8]] = &[b"/dev/zero", b"/dev/null", b"/dev/shm/", b"/dev/mqueue/", b"/dev/hugepages/"];

/// Whose descriptors are looked at.
pub enum Process {
    /// The calling process's own.
    Own,
    /// Those of another process, which the caller may trace, as its thread `tid` has them: a thread that has ended has none.
    Other { pid: i32, tid: i32, pidfd: i32 },
}

impl Process {
    /// `/proc/…` of a thread that has memory: one that has ended, the main thread perhaps, tells of none.
    fn place(&self) -> ProcPath {
        match self {
            Process::Own => ProcPath::of_this_thread(),
            Process::Other { pid, tid, .. } => ProcPath::of(*pid).push(b"/task/").number(*tid),
        }
    }

    /// Its id.
    pub fn pid(&self) -> i32 {
        match self {
            Process::Own => sys::getpid(),
            Process::Other { pid, .. } => *pid,
        }
    }

    /// A thread of it that has memory.
    pub fn thread(&self) -> i32 {
        match self {
            Process::Own => sys::gettid(),
            Process::Other { tid, .. } => *tid,
        }
    }

    /// `/proc/…/fd`.
    fn descriptors(&self) -> ProcPath {
        self.place().push(b"/fd")
    }

    /// Protocol family of a socket.
    fn socket_domain(&self, fd: i32) -> Result<i32> {
        match self {
            Process::Own => sys::socket_domain(fd),
            Process::Other { pidfd, .. } => {
                let copy = sys::pidfd_getfd(*pidfd, fd)?;
                let domain = sys::socket_domain(copy);
                sys::close(copy);
                domain
            }
        }
    }
}

/// Whether nobody but the calling thread uses this process's memory. `buf` is scratch.
pub fn alone(buf: &mut [u8]) -> Result<bool> {
    // `pthread_join` returns a moment before the kernel has taken the thread off the list (mm_release, release_task).
    const PATIENCE: usize = 5;
    for _ in 0..PATIENCE {
        if alone_now(buf)? {
            return Ok(true);
        }
        sys::pause_briefly();
    }
    Ok(false)
}

/// The same without waiting for threads that are just ending.
pub fn alone_now(buf: &mut [u8]) -> Result<bool> {
    // The kernel lets a process unshare its memory only when nobody else uses it, in whatever way they came to share it.
    match sys::unshare_memory() {
        Ok(()) => Ok(true),
        // It counts a main thread that has ended, of which only the name is left: then everybody is asked.
        Err(Errno::EINVAL) => {
            let me = sys::gettid();
            Ok(stop::main_has_ended() && tasks(buf)? == 2 && sys::same_memory(me, me) && !is_shared(buf, |_| true))
        }
        // Not allowed (a seccomp filter, as in containers): look around.
        Err(_) => Ok(tasks(buf)? == 1 && !shared_with_a_process(buf)),
    }
}

/// Where the devices are.
const DEVICES: &[u8] = b"/dev/";

/// Whether a descriptor is a character device that isn't known to be harmless. Before such a device is asked for anything (`ioctl(2)`)
/// all memory becomes anonymous: it may be told of memory that it is to write to.
pub fn is_device_to_mind(fd: i32) -> bool {
    matches!(sys::device_of(fd), Ok(Some(number)) if of_device(number).is_some())
}

/// Whether sockets of a family are such that memory is registered with them. Before there is one all memory becomes anonymous.
pub fn is_family_to_mind(family: i32) -> bool {
    of_family(family).is_some()
}

fn of_family(family: i32) -> Option<Reason> {
    match family {
        AF_XDP => Some(Reason::Xdp),
        AF_RDS => Some(Reason::Rdma),
        _ => None,
    }
}

/// The first reason among the calling process's descriptors not to touch its memory, if there is one.
pub fn descriptors(purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
    descriptors_of(&Process::Own, purpose, buf)
}

/// The first reason not to touch the calling process's memory, other threads among them. `buf` is scratch.
pub fn refusal(buf: &mut [u8]) -> Result<Option<Reason>> {
    if alone(buf)? { descriptors(Purpose::Seal, buf) } else { Ok(Some(Reason::Threads)) }
}

/// As [`descriptors`], for any process.
pub fn descriptors_of(process: &Process, purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
    if let Some(reason) = unseen(process, purpose, buf)? {
        return Ok(Some(reason));
    }
    let mut any = false;
    let found = for_each_entry(process.descriptors().as_c(), buf, |name| {
        any = true;
        descriptor(process, purpose, name)
    });
    let found = match found {
        // Not even its owner may list them after setuid(2). What matters has come since the seal, and then all memory was made
        // anonymous first; nothing stands against that now.
        Err(Errno::EACCES) if purpose == Purpose::Unseal => return Ok(None),
        found => found?,
    };
    match process {
        // Not even the one it is read through: the list is not ours.
        Process::Own if !any => Err(Errno::ESRCH),
        _ => Ok(found),
    }
}

/// What a mapping says of objects that need no descriptor: AIO's never has one, others may have been closed.
pub fn of_mapping(v: &Vma) -> Option<Reason> {
    match v.kind {
        Kind::AioRing => Some(Reason::AsyncIo),
        Kind::File if v.name().starts_with(b"/dev/") => {
            let harmless = HARMLESS_MAPPINGS.iter().any(|start| v.name().starts_with(start));
            if harmless { None } else { named(of_target(v.name()).or(Some(Reason::Driver)), v.name()) }
        }
        Kind::File => named(of_target(v.name()), v.name()),
        _ => None,
    }
}

/// Keeps the name of what is refused as [`Reason::Driver`], which says little by itself.
fn named(reason: Option<Reason>, name: &[u8]) -> Option<Reason> {
    if reason == Some(Reason::Driver) {
        DEVICE.set(name);
    }
    reason
}

/// Memory that a device or the kernel holds for good, by whatever object (`VmPin` in proc_pid_status(5)); and what nothing else
/// shows: an io_uring, pages in pipes.
fn unseen(process: &Process, purpose: Purpose, buf: &mut [u8]) -> Result<Option<Reason>> {
    if STATE.hidden_ring() {
        return Ok(Some(Reason::IoUring));
    }
    if purpose == Purpose::Seal && STATE.spliced() {
        return Ok(Some(Reason::PagesInPipes));
    }
    let pinned = field(read_file(process.place().push(b"/status").as_c(), buf)?, b"VmPin");
    Ok(named(pinned.filter(|kilobytes| *kilobytes > 0).map(|_| Reason::Driver), b"VmPin in /proc/PID/status"))
}

fn tasks(buf: &mut [u8]) -> Result<usize> {
    let mut count = 0;
    for_each_entry(c"/proc/self/task", buf, |_| {
        count += 1;
        None::<()>
    })?;
    Ok(count)
}

/// Whether another process runs in this address space (`clone(2)` with `CLONE_VM`, `vfork(2)`): parent and children are asked.
/// Where the kernel has no `kcmp(2)` or list of children we can't know, and such processes are rare.
fn shared_with_a_process(buf: &mut [u8]) -> bool {
    let children = read_file(c"/proc/thread-self/children", buf).unwrap_or(b"");
    let shares = |pid| sys::same_memory(sys::gettid(), pid);
    shares(sys::getppid()) || words(children).filter_map(decimal).any(|pid| shares(pid as i32))
}

/// Whether another process, of those that `counts` says matter, runs in the memory of the calling thread. Where `kcmp(2)` doesn't know
/// that a thread shares its memory with itself, this tells nothing.
pub fn is_shared(buf: &mut [u8], counts: impl Fn(i32) -> bool) -> bool {
    let (pid, me) = (sys::getpid(), sys::gettid());
    let found = for_each_entry(c"/proc", buf, |name| {
        let other = decimal(name).map(|other| other as i32).filter(|other| *other != pid && counts(*other))?;
        sys::same_memory(me, other).then_some(Reason::Threads)
    });
    found != Ok(None)
}

/// What stands in the way of sealing while descriptor `name` is open.
fn descriptor(process: &Process, purpose: Purpose, name: &[u8]) -> Option<Reason> {
    let path = process.descriptors().push(b"/").push(name);
    let mut target = [0u8; 128];
    let n = sys::readlink(path.as_c(), &mut target).ok()?;
    let target = &target[..n];
    if target.starts_with(b"socket:") {
        let fd = decimal(name)? as i32;
        return match process.socket_domain(fd) {
            // We may not ask: then nothing may be done.
            Err(_) if matches!(process, Process::Other { .. }) => Some(Reason::ThreadTraced),
            Err(_) => None,
            Ok(family) => of_family(family),
        };
    }
    if purpose == Purpose::Unseal && target.starts_with(DEVICES) {
        return None;
    }
    let reason = of_target(target);
    if reason.is_some() || !target.starts_with(b"/") {
        return named(reason, target);
    }
    let reason = match sys::character_device(path.as_c()) {
        Ok(Some(number)) => of_device(number),
        Ok(None) | Err(Errno::ENOENT) => None,
        // What it is can't be told.
        Err(_) => Some(Reason::Driver),
    };
    named(reason, target)
}

/// What stands in the way of sealing while a descriptor points to `target`, as far as its name tells.
pub(crate) fn of_target(target: &[u8]) -> Option<Reason> {
    let named = DESCRIPTORS.iter().find(|(start, _)| target.starts_with(start)).map(|(_, reason)| *reason);
    let unknown =
        || target.strip_prefix(ANONYMOUS).is_some_and(|name| !HARMLESS_OBJECTS.iter().any(|o| name.starts_with(o)));
    named.or_else(|| unknown().then_some(Reason::Driver))
}

/// What stands in the way of sealing while a character device of this number (`st_rdev`) is open.
pub(crate) fn of_device(number: u64) -> Option<Reason> {
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff_ff00);
    let harmless = HARMLESS_DEVICES.iter().any(|(m, first, last)| *m == major && (*first..=*last).contains(&minor));
    if harmless { None } else { Some(Reason::Driver) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_harness_has_threads() {
        let done = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || done.1.recv());
        assert_eq!(alone(&mut [0; 4096]), Ok(false));
        drop(done.0);
        other.join().unwrap().unwrap_err();
    }

    #[test]
    fn devices_and_objects_that_nobody_has_judged_are_harmful() {
        for harmless in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"]
        {
            let path = std::ffi::CString::new(harmless).unwrap();
            let number = sys::character_device(&path).unwrap().unwrap();
            assert_eq!(of_device(number), None, "{harmless}");
        }
        assert_eq!(sys::character_device(c"/proc/self/exe"), Ok(None));
        assert_eq!(of_device(0x10_882c), None, "pts/300");
        assert_eq!(of_device(1 << 8 | 1), Some(Reason::Driver), "mem");
        assert_eq!(of_device(10 << 8 | 125), Some(Reason::Driver), "udmabuf, as any misc device");
        assert_eq!(of_device(511 << 8), Some(Reason::Driver));
        for harmless in ["anon_inode:[eventfd]", "anon_inode:inotify", "pipe:[1]", "/tmp/a", "anon_inode:bpf-map"] {
            assert_eq!(of_target(harmless.as_bytes()), None, "{harmless}");
        }
        assert_eq!(of_target(b"anon_inode:[made-up]"), Some(Reason::Driver));
        assert_eq!(of_target(b"/dmabuf:"), Some(Reason::Gpu));
    }
}

//! Objects through which somebody else writes this process's memory: other threads, and descriptors that make the kernel or a
//! device write later. A process that holds one is refused, with the reason.

use crate::never_seal::Reason;
use crate::sys::{self, Errno, Result};
use crate::text::{self, ProcPath, decimal, read_file, words};
use crate::vma::{Kind, Vma};
use core::ffi::CStr;

const AF_XDP: i32 = 44;

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
    (DOOR, Reason::Userfaultfd),
    (b"/dev/dri/", Reason::Gpu),
    (b"/dev/nvidia", Reason::Gpu),
    (b"/dev/kfd", Reason::Gpu),
    (b"/dev/accel/", Reason::Gpu),
    (b"/dev/video", Reason::Gpu),
];

/// Whose descriptors are looked at.
pub enum Process {
    /// The calling process's own.
    Own,
    /// Those of another process, which the caller may trace, as its thread `tid` has them: a thread that has ended has none.
    Other { pid: i32, tid: i32, pidfd: i32 },
}

impl Process {
    /// Its id.
    pub fn pid(&self) -> i32 {
        match self {
            Process::Own => sys::getpid(),
            Process::Other { pid, .. } => *pid,
        }
    }

    /// `/proc/…/fd`.
    fn descriptors(&self) -> ProcPath {
        match self {
            Process::Own => ProcPath::of_this_thread().push(b"/fd"),
            Process::Other { pid, tid, .. } => ProcPath::of(*pid).push(b"/task/").number(*tid).push(b"/fd"),
        }
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
        Err(Errno::EINVAL) => Ok(false),
        // Not allowed (a seccomp filter, as in containers): look around.
        Err(_) => Ok(tasks(buf)? == 1 && !shared_with_a_process(buf)),
    }
}

/// What memory is touched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Seal,
    /// Through a door behind which somebody may come to own memory later, everything may still be made anonymous: it should be.
    Unseal,
}

/// A userfaultfd is a single ioctl away.
const DOOR: &[u8] = b"/dev/userfaultfd";

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
    let mut any = false;
    let found = for_each_entry(process.descriptors().as_c(), buf, |name| {
        any = true;
        descriptor(process, purpose, name)
    })?;
    match process {
        // Not even the one it is read through: the list is not ours.
        Process::Own if !any => Err(Errno::ESRCH),
        _ => Ok(found),
    }
}

/// What a mapping says of rings that need no descriptor: AIO's never has one, io_uring's may be registered and closed.
pub fn ring(v: &Vma) -> Option<Reason> {
    match v.kind {
        Kind::AioRing => Some(Reason::AsyncIo),
        _ if v.name().starts_with(b"anon_inode:[io_uring]") => Some(Reason::IoUring),
        _ => None,
    }
}

fn tasks(buf: &mut [u8]) -> Result<usize> {
    let mut count = 0;
    for_each_entry(c"/proc/self/task", buf, |_| {
        count += 1;
        None
    })?;
    Ok(count)
}

/// Calls `each` with every open descriptor but the one it looks through. `buf` is scratch.
pub fn for_each_descriptor(buf: &mut [u8], mut each: impl FnMut(i32)) -> Result<()> {
    let fd = text::open(c"/proc/thread-self/fd", sys::O_RDONLY | sys::O_DIRECTORY)?;
    let result = walk(fd, buf, &mut |name| {
        if let Some(found) = decimal(name).map(|n| n as i32).filter(|found| *found != fd) {
            each(found);
        }
        None
    });
    sys::close(fd);
    result.map(drop)
}

/// Whether another process runs in this address space (`clone(2)` with `CLONE_VM`, `vfork(2)`): parent and children are asked.
/// Where the kernel has no `kcmp(2)` or list of children we can't know, and such processes are rare.
fn shared_with_a_process(buf: &mut [u8]) -> bool {
    let children = read_file(c"/proc/thread-self/children", buf).unwrap_or(b"");
    let shares = |pid| sys::same_memory(sys::getpid(), pid);
    shares(sys::getppid()) || words(children).filter_map(decimal).any(|pid| shares(pid as i32))
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
            Ok(AF_XDP) => Some(Reason::Xdp),
            // We may not ask: then nothing may be done.
            Err(_) if matches!(process, Process::Other { .. }) => Some(Reason::ThreadTraced),
            _ => None,
        };
    }
    if purpose == Purpose::Unseal && target.starts_with(DOOR) {
        return None;
    }
    of_target(target)
}

/// What stands in the way of sealing while a descriptor points to `target`.
pub(crate) fn of_target(target: &[u8]) -> Option<Reason> {
    DESCRIPTORS.iter().find(|(start, _)| target.starts_with(start)).map(|(_, reason)| *reason)
}

/// Calls `each` with the names in a directory, `.` and `..` left out, until it gives a reason.
pub fn for_each_entry(
    path: &CStr,
    buf: &mut [u8],
    mut each: impl FnMut(&[u8]) -> Option<Reason>,
) -> Result<Option<Reason>> {
    let fd = text::open(path, sys::O_RDONLY | sys::O_DIRECTORY)?;
    let result = walk(fd, buf, &mut each);
    sys::close(fd);
    result
}

fn walk(fd: i32, buf: &mut [u8], each: &mut impl FnMut(&[u8]) -> Option<Reason>) -> Result<Option<Reason>> {
    loop {
        let n = match sys::getdents(fd, buf)? {
            0 => return Ok(None),
            n => n,
        };
        if let Some(reason) = entries(&buf[..n], each)? {
            return Ok(Some(reason));
        }
    }
}

/// Walks `struct linux_dirent64`: inode 8 bytes, offset 8, length 2, type 1, name.
fn entries(mut list: &[u8], each: &mut impl FnMut(&[u8]) -> Option<Reason>) -> Result<Option<Reason>> {
    while !list.is_empty() {
        let header = list.get(..19).ok_or(Errno::EIO)?;
        let len = usize::from(u16::from_ne_bytes([header[16], header[17]]));
        let name = list.get(19..len).ok_or(Errno::EIO)?;
        let name = name.split(|b| *b == 0).next().unwrap_or(name);
        if name != b"."
            && name != b".."
            && let Some(reason) = each(name)
        {
            return Ok(Some(reason));
        }
        list = &list[len..];
    }
    Ok(None)
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
    fn entries_are_walked_whole() {
        let mut seen = Vec::new();
        for_each_entry(c"/proc/thread-self/fd", &mut [0; 96], |n| {
            seen.push(String::from_utf8(n.to_vec()).unwrap());
            None
        })
        .unwrap();
        for fd in ["0", "1", "2"] {
            assert!(seen.contains(&fd.to_string()), "{seen:?}");
        }
    }
}

//! What is never sealed, and why: the table is code here, documentation in `docs/NEVER_SEAL.md` (made from it) and one
//! test a row.

use crate::proc::pagemap::LARGEST_WITHOUT_SCAN;
use crate::proc::vma::{Kind, Vma};
use crate::sys::{self, PROT_READ};

/// Why a VMA, or a whole process, is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each has its words in TABLE
pub enum Reason {
    // VMAs
    Shared,
    File,
    Stack,
    KernelArea,
    NotReadable,
    DontFork,
    WipeOnFork,
    Droppable,
    DontDump,
    Locked,
    HugeTlb,
    Device,
    GrowsDown,
    UserfaultRange,
    GuardRegion,
    Mergeable,
    ProtectionKey,
    NumaPolicy,
    ShadowStack,
    Immutable,
    UnknownFlag,
    Excluded,
    Sparse,
    Small,
    TooLarge,
    LowMemory,
    CopyFailed,
    // whole processes
    Threads,
    IoUring,
    AsyncIo,
    Kvm,
    Vhost,
    Vfio,
    Rdma,
    Xdp,
    Userfaultfd,
    Gpu,
    Driver,
    SeccompFilter,
    LocksFuture,
    FileSizeLimit,
    VmaLimit,
    ThreadUnstoppable,
    ThreadTraced,
    LibcCalls,
    SystemCalls,
    PagesInPipes,
    RestartableSequence,
    SharedDescriptors,
}

impl Reason {
    /// Whether it stands for what memory or threads happened to be like at that moment.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Reason::LowMemory | Reason::Threads | Reason::ThreadUnstoppable | Reason::ThreadTraced)
    }
}

/// What a row of the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One VMA stays anonymous; the others are sealed.
    Vma,
    /// The whole process is refused.
    Process,
}

/// One row: the reason in words.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The reason.
    pub reason: Reason,
    /// A short stable name for records and reports.
    pub name: &'static str,
    /// VMA or process.
    pub scope: Scope,
    /// What is left alone.
    pub what: &'static str,
    /// Why.
    pub why: &'static str,
    /// How it is recognised.
    pub found_by: &'static str,
}

const fn vma(reason: Reason, name: &'static str, what: &'static str, why: &'static str, found_by: &'static str) -> Row {
    Row { reason, name, scope: Scope::Vma, what, why, found_by }
}

const fn process(
    reason: Reason,
    name: &'static str,
    what: &'static str,
    why: &'static str,
    found_by: &'static str,
) -> Row {
    Row { reason, name, scope: Scope::Process, what, why, found_by }
}

/// Every reason, in the order of [`Reason`].
pub const TABLE: &[Row] = &[
    vma(
        Reason::Shared,
        "shared",
        "shared mappings",
        "writes must reach the other processes; fork already skips their page tables",
        "`s` in maps",
    ),
    vma(
        Reason::File,
        "file",
        "file mappings. Of libraries a seal that is asked for takes .data and relocated pages, where forks get faster by it: 32 mappings or more of which every page was written",
        "fork copies only the few pages written; symbolisers need the file's name in maps; pages that were not written show what the file holds. A program's own data, and that of libc, the loader and sanitizers, is written all the time",
        "a path in maps; libraries by their program headers, written pages in smaps",
    ),
    vma(
        Reason::Stack,
        "stack",
        "the main stack, and the pages around the caller's stack pointer and thread pointer",
        "they are written all the time, by the kernel too (rseq, robust list, clear_child_tid)",
        "`[stack]`; the rest by address, because a kernel may merge them with a heap",
    ),
    vma(
        Reason::KernelArea,
        "kernel_area",
        "vdso, vvar, vsyscall, uprobes",
        "the kernel made them and knows their addresses",
        "other names in brackets",
    ),
    vma(
        Reason::NotReadable,
        "not_readable",
        "memory without PROT_READ",
        "it can't be copied without changing its protection for a moment",
        "no `r` in maps",
    ),
    vma(
        Reason::DontFork,
        "dont_fork",
        "MADV_DONTFORK",
        "children must not have it; sealing would not make fork cheaper",
        "VmFlags dc",
    ),
    vma(
        Reason::WipeOnFork,
        "wipe_on_fork",
        "MADV_WIPEONFORK",
        "children must read zeros: it protects the state of random number generators",
        "VmFlags wf",
    ),
    vma(
        Reason::Droppable,
        "droppable",
        "MAP_DROPPABLE",
        "the kernel may drop its pages at any moment and wipes it on fork",
        "VmFlags dp",
    ),
    vma(
        Reason::DontDump,
        "dont_dump",
        "MADV_DONTDUMP",
        "used for keys: a sealed copy would outlive the program's wiping of its page",
        "VmFlags dd",
    ),
    vma(
        Reason::Locked,
        "locked",
        "mlock and MCL_FUTURE memory",
        "a new mapping is not locked, and locking a sealed one copies every page",
        "VmFlags lo",
    ),
    vma(
        Reason::HugeTlb,
        "hugetlb",
        "hugetlbfs pages",
        "they come from a reserved pool and already have cheap page tables",
        "VmFlags ht",
    ),
    vma(
        Reason::Device,
        "device",
        "device memory (VM_IO, VM_PFNMAP, VM_MIXEDMAP)",
        "it is not memory that can be copied",
        "VmFlags io, pf, mm",
    ),
    vma(Reason::GrowsDown, "grows_down", "MAP_GROWSDOWN", "a file mapping does not grow by faults", "VmFlags gd"),
    vma(
        Reason::UserfaultRange,
        "userfault_range",
        "ranges registered with userfaultfd",
        "their faults belong to another program",
        "VmFlags um, uw, ui",
    ),
    vma(
        Reason::GuardRegion,
        "guard_region",
        "VMAs with MADV_GUARD_INSTALL pages",
        "remapping would remove the guards",
        "VmFlags gu; before Linux 6.18 the copy fails on a guard (EFAULT)",
    ),
    vma(
        Reason::Mergeable,
        "mergeable",
        "MADV_MERGEABLE",
        "KSM does not merge memfd pages, and merging was asked for",
        "VmFlags mg",
    ),
    vma(
        Reason::ProtectionKey,
        "protection_key",
        "memory with a protection key",
        "the key's owner decides who may read it",
        "ProtectionKey in smaps",
    ),
    vma(
        Reason::NumaPolicy,
        "numa_policy",
        "memory with a NUMA policy (mbind)",
        "a new mapping does not have it",
        "get_mempolicy",
    ),
    vma(Reason::ShadowStack, "shadow_stack", "shadow stacks", "the CPU writes them", "VmFlags ss"),
    vma(Reason::Immutable, "immutable", "mseal memory", "it was asked to be unchangeable", "VmFlags sl"),
    vma(
        Reason::UnknownFlag,
        "unknown_flag",
        "VMAs with a flag this version does not know",
        "a later kernel may give memory a meaning we don't know",
        "VmFlags outside the list of known ones",
    ),
    vma(
        Reason::Excluded,
        "excluded",
        "ranges the program excluded, and the engine's own data",
        "asked for, or written during the seal",
        "by address",
    ),
    vma(
        Reason::Sparse,
        "sparse",
        "2 MB blocks less than 3/4 populated",
        "filling their holes would cost more memory than their page table; children that write holes of a sealed range would leave pages in the memfd",
        "pagemap",
    ),
    vma(
        Reason::Small,
        "small",
        "populated runs under 2 MB",
        "another VMA costs as much as the page table it saves",
        "pagemap",
    ),
    vma(
        Reason::TooLarge,
        "too_large",
        "VMAs over 256 GB on kernels without PAGEMAP_SCAN (before 6.7)",
        "finding their populated pages would take seconds",
        "size",
    ),
    vma(
        Reason::LowMemory,
        "low_memory",
        "what is left when memory runs short",
        "the memory cgroup would kill the process instead of failing the copy",
        "MemAvailable and every ancestor's limit, before each chunk",
    ),
    vma(
        Reason::CopyFailed,
        "copy_failed",
        "ranges whose copy or remap failed",
        "they were left, or put back, as they were",
        "an error of pwrite or mmap",
    ),
    process(
        Reason::Threads,
        "threads",
        "a process with other threads, or whose memory another process uses too (CLONE_VM)",
        "their writes between the copy and the remap would be lost",
        "unshare(CLONE_VM); where that is not allowed, /proc/self/task and kcmp with parent and children. Threads can be allowed: docs/THREADS.md",
    ),
    process(
        Reason::IoUring,
        "io_uring",
        "a process with an io_uring",
        "the kernel would complete into the old pages",
        "anon_inode:[io_uring] among descriptors and in maps",
    ),
    process(
        Reason::AsyncIo,
        "aio",
        "a process with an AIO context",
        "the kernel would complete into the old pages",
        "/[aio] in maps",
    ),
    process(
        Reason::Kvm,
        "kvm",
        "a process with a virtual machine",
        "the guest would go on in the old pages",
        "/dev/kvm, anon_inode:kvm-vm, /dev/mshv",
    ),
    process(
        Reason::Vhost,
        "vhost",
        "a process with a vhost device",
        "the kernel thread writes guest memory",
        "/dev/vhost-*",
    ),
    process(
        Reason::Vfio,
        "vfio",
        "a process with VFIO or IOMMU objects",
        "the device writes pinned pages",
        "/dev/vfio/*, /dev/iommu, anon_inode:[vfio*",
    ),
    process(
        Reason::Rdma,
        "rdma",
        "a process with RDMA objects",
        "the device writes registered pages",
        "/dev/infiniband/*",
    ),
    process(
        Reason::Xdp,
        "af_xdp",
        "a process with an AF_XDP socket",
        "the kernel writes the registered UMEM",
        "SO_DOMAIN",
    ),
    process(
        Reason::Userfaultfd,
        "userfaultfd",
        "a process with a userfaultfd",
        "its faults belong to another program",
        "anon_inode:[userfaultfd], /dev/userfaultfd",
    ),
    process(
        Reason::Gpu,
        "gpu",
        "a process with a GPU, accelerator or video device",
        "drivers pin and write user pages",
        "/dev/dri/*, /dev/nvidia*, /dev/kfd, /dev/accel/*, /dev/video*",
    ),
    process(
        Reason::Driver,
        "driver",
        "a process with a device or kernel object that isn't known to be harmless, or with pinned memory",
        "its driver may write user pages at any time",
        "a character device (by number) or anon_inode outside the list of harmless ones, among descriptors and in maps; VmPin",
    ),
    process(
        Reason::SeccompFilter,
        "seccomp_filter",
        "a process under a seccomp filter that ends it for a call that a seal makes",
        "the seal would kill the program",
        "Seccomp in /proc/thread-self/status; then a seal that is tried in a child",
    ),
    process(
        Reason::LocksFuture,
        "locks_future",
        "mlockall(MCL_FUTURE)",
        "every new mapping would be locked, and every page copied at once",
        "VmFlags lo on a fresh mapping",
    ),
    process(
        Reason::FileSizeLimit,
        "file_size_limit",
        "a hard RLIMIT_FSIZE below the size of a memfd",
        "writing the memfd would fail and raise SIGXFSZ; the limit can't be raised",
        "prlimit",
    ),
    process(
        Reason::VmaLimit,
        "vma_limit",
        "a process close to vm.max_map_count",
        "splitting VMAs could fail half way",
        "/proc/sys/vm/max_map_count",
    ),
    process(
        Reason::ThreadUnstoppable,
        "thread_unstoppable",
        "with threads allowed: a process with a thread that doesn't stop within a second, or one of the kernel's own",
        "it might write between the copy and the remap (it waits for a vfork child, a device, a dead file server)",
        "ptrace(PTRACE_INTERRUPT) and wait4",
    ),
    process(
        Reason::ThreadTraced,
        "thread_traced",
        "with threads allowed: a process whose threads we may not stop",
        "a debugger has them, or ptrace is refused (Yama, a sandbox, other credentials) and the signal that takes its place too",
        "ptrace(PTRACE_SEIZE), tgkill",
    ),
    process(
        Reason::LibcCalls,
        "libc_calls",
        "a process whose C library's system calls can't be followed",
        "discards and growth of sealed memory that the engine doesn't see would bring old bytes back",
        "the machine code of libc isn't as known (a debugger's breakpoint, another tool's hook), can't be rewritten (a sandbox), or isn't what is executed (valgrind): each function is called once to see",
    ),
    process(
        Reason::SystemCalls,
        "system_calls",
        "a process with code that makes system calls of its own",
        "where it discards, moves or grows sealed memory the engine doesn't see it, and old bytes would come back",
        "system call instructions in executable mappings outside libc ([SYSTEM_CALLS.md](SYSTEM_CALLS.md))",
    ),
    process(
        Reason::PagesInPipes,
        "pages_in_pipes",
        "a process that has put pages of its memory into a pipe",
        "a page in a pipe shows what is written to it as long as it is there; new memory in its place would not",
        "vmsplice(2), which goes through the shim, and through the engine from the first seal on",
    ),
    process(
        Reason::RestartableSequence,
        "restartable_sequence",
        "a process whose sealing thread has an area for restartable sequences at an address that isn't known",
        "the kernel writes there whenever it lets the thread run, and ends the process where nothing is mapped at that moment",
        "the kernel's answer to a second rseq(2); known are glibc's area, and those that are registered through libc",
    ),
    process(
        Reason::SharedDescriptors,
        "shared_descriptors",
        "a process that shares its table of descriptors with another (CLONE_FILES), or once did",
        "the other could make a descriptor of the engine's another file in the middle of its work",
        "before the first seal kcmp(KCMP_FILES) with every process, from then on the program's own calls of clone(2) and clone3(2). A clone with a table of its own is sealed",
    ),
];

impl Reason {
    /// How many reasons there are.
    pub const COUNT: usize = TABLE.len();

    /// The reason's row.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let row = self.row();
        write!(f, "{}: {}", row.what, row.why)
    }
}

/// Flags that don't stand in the way of a seal.
const HARMLESS: &[&[u8; 2]] =
    &[b"rd", b"wr", b"ex", b"mr", b"mw", b"me", b"ac", b"nr", b"sr", b"rr", b"hg", b"nh", b"sd"];

/// Flags with their own reason.
const FLAGS: &[(&[u8; 2], Reason)] = &[
    // Before `wf` and `dd`, which the kernel sets on such memory too.
    (b"dp", Reason::Droppable),
    (b"dc", Reason::DontFork),
    (b"wf", Reason::WipeOnFork),
    (b"dd", Reason::DontDump),
    (b"lo", Reason::Locked),
    (b"lf", Reason::Locked),
    (b"ht", Reason::HugeTlb),
    (b"io", Reason::Device),
    (b"pf", Reason::Device),
    (b"mm", Reason::Device),
    (b"gd", Reason::GrowsDown),
    (b"um", Reason::UserfaultRange),
    (b"uw", Reason::UserfaultRange),
    (b"ui", Reason::UserfaultRange),
    (b"gu", Reason::GuardRegion),
    (b"mg", Reason::Mergeable),
    (b"ss", Reason::ShadowStack),
    (b"sl", Reason::Immutable),
    (b"sh", Reason::Shared),
    (b"ms", Reason::Shared),
];

/// Whether a VMA of this process may be sealed, wholly or in parts.
pub fn judge(v: &Vma, can_scan: bool) -> Result<(), Reason> {
    judge_described(v, can_scan)?;
    if sys::has_numa_policy(v.range.start) {
        return Err(Reason::NumaPolicy);
    }
    Ok(())
}

/// The same as far as the description goes: what a process can only be asked about itself is left out.
pub(crate) fn judge_described(v: &Vma, can_scan: bool) -> Result<(), Reason> {
    if v.shared {
        return Err(if v.flags.has(b"ht") { Reason::HugeTlb } else { Reason::Shared });
    }
    match v.kind {
        Kind::Anonymous | Kind::Sealed => {}
        Kind::Stack => return Err(Reason::Stack),
        Kind::Kernel => return Err(Reason::KernelArea),
        Kind::File if v.flags.has(b"ht") => return Err(Reason::HugeTlb),
        Kind::File | Kind::AioRing => return Err(Reason::File),
    }
    for (letters, reason) in FLAGS {
        if v.flags.has(letters) {
            return Err(*reason);
        }
    }
    if v.flags.iter().any(|l| !HARMLESS.contains(&&l)) {
        return Err(Reason::UnknownFlag);
    }
    if v.prot & PROT_READ == 0 {
        return Err(Reason::NotReadable);
    }
    if v.pkey != 0 {
        return Err(Reason::ProtectionKey);
    }
    if !can_scan && v.range.len() > LARGEST_WITHOUT_SCAN {
        return Err(Reason::TooLarge);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

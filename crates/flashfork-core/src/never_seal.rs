//! What is never sealed, and why: the table is code here, documentation in `docs/NEVER_SEAL.md`, which also says how
//! each is recognised, and one test a row.

use crate::{
	proc::{
		pagemap::LARGEST_WITHOUT_SCAN,
		vma::{Kind, Vma},
	},
	sys::{self, PROT_READ},
};

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
	/// What a program's author or user can do so that the reason doesn't arise. Nothing where the memory is better left
	/// alone: nothing is gained by changing the program.
	pub cure: &'static str,
}

/// Defines [`Reason`] and [`TABLE`], whose rows stand in its order.
macro_rules! reasons {
	($($scope:ident { $($reason:ident $name:literal: $what:literal, $why:literal $(, $cure:literal)?;)* })*) => {
		/// Why a VMA, or a whole process, is left as it is.
		#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
		#[repr(u8)]
		#[allow(missing_docs)] // each has its words in TABLE
		pub enum Reason {
			$($($reason,)*)*
		}

		/// Every reason, in the order of [`Reason`].
		pub const TABLE: &[Row] = &[
			$($(Row {
				reason: Reason::$reason,
				name: $name,
				scope: Scope::$scope,
				what: $what,
				why: $why,
				cure: concat!($($cure)?),
			},)*)*
		];
	};
}

// The name, what is left alone, why, and what to do, if anything. The document says how each is recognised.
reasons! {
	Vma {
		Shared "shared":
			"shared mappings",
			"writes must reach the other processes; fork already skips their page tables";
		File "file":
			"file mappings. Of libraries a seal that is asked for takes .data and relocated pages, where forks get faster by it: 32 mappings or more of which every page was written",
			"fork copies only the few pages written; symbolisers need the file's name in maps; pages that were not written show what the file holds. A program's own data, and that of libc, the loader and sanitizers, is written all the time";
		Stack "stack":
			"the main stack, and the pages around the caller's stack pointer and thread pointer",
			"they are written all the time, by the kernel too (rseq, robust list, clear_child_tid)";
		KernelArea "kernel_area":
			"vdso, vvar, vsyscall, uprobes",
			"the kernel made them and knows their addresses";
		NotReadable "not_readable":
			"memory without PROT_READ",
			"it can't be copied without changing its protection for a moment",
			"make the memory readable while it is sealed";
		DontFork "dont_fork":
			"MADV_DONTFORK",
			"children must not have it; sealing would not make fork cheaper";
		WipeOnFork "wipe_on_fork":
			"MADV_WIPEONFORK",
			"children must read zeros: it protects the state of random number generators";
		Droppable "droppable":
			"MAP_DROPPABLE",
			"the kernel may drop its pages at any moment and wipes it on fork";
		DontDump "dont_dump":
			"MADV_DONTDUMP",
			"used for keys: a sealed copy would outlive the program's wiping of its page",
			"use MADV_DODUMP if the memory holds no secrets";
		Locked "locked":
			"mlock and MCL_FUTURE memory",
			"a new mapping is not locked, and locking a sealed one copies every page",
			"munlock the memory before sealing";
		HugeTlb "hugetlb":
			"hugetlbfs pages",
			"they come from a reserved pool and already have cheap page tables";
		Device "device":
			"device memory (VM_IO, VM_PFNMAP, VM_MIXEDMAP)",
			"it is not memory that can be copied";
		GrowsDown "grows_down":
			"MAP_GROWSDOWN",
			"a file mapping does not grow by faults";
		UserfaultRange "userfault_range":
			"ranges registered with userfaultfd",
			"their faults belong to another program";
		GuardRegion "guard_region":
			"VMAs with MADV_GUARD_INSTALL pages",
			"remapping would remove the guards";
		Mergeable "mergeable":
			"MADV_MERGEABLE",
			"KSM does not merge memfd pages, and merging was asked for";
		ProtectionKey "protection_key":
			"memory with a protection key",
			"the key's owner decides who may read it",
			"give the memory protection key 0 while it is sealed";
		NumaPolicy "numa_policy":
			"memory with a NUMA policy (mbind)",
			"a new mapping does not have it";
		ShadowStack "shadow_stack":
			"shadow stacks",
			"the CPU writes them";
		Immutable "immutable":
			"mseal memory",
			"it was asked to be unchangeable";
		UnknownFlag "unknown_flag":
			"VMAs with a flag this version does not know",
			"a later kernel may give memory a meaning we don't know";
		Excluded "excluded":
			"ranges the program excluded, and the engine's own data",
			"asked for, or written during the seal";
		Sparse "sparse":
			"2 MB blocks less than 3/4 populated",
			"filling their holes would cost more memory than their page table; children that write holes of a sealed range would leave pages in the memfd";
		Small "small":
			"populated runs under 2 MB",
			"another VMA costs as much as the page table it saves";
		TooLarge "too_large":
			"VMAs over 256 GB on kernels without PAGEMAP_SCAN (before 6.7)",
			"finding their populated pages would take seconds",
			"use Linux 6.7 or later";
		LowMemory "low_memory":
			"what is left when memory runs short",
			"the memory cgroup would kill the process instead of failing the copy",
			"free memory, or raise the limit of the memory cgroup";
		CopyFailed "copy_failed":
			"ranges whose copy or remap failed",
			"they were left, or put back, as they were";
	}
	Process {
		Threads "threads":
			"a process with other threads, or whose memory another process uses too (CLONE_VM)",
			"their writes between the copy and the remap would be lost",
			"seal before other threads start, or after they have ended, or allow them to be stopped (flashfork run --threads; the option threads of a seal); processes made with CLONE_VM must have ended";
		IoUring "io_uring":
			"a process with an io_uring",
			"the kernel would complete into the old pages",
			"seal before the ring is made, or close it first";
		AsyncIo "aio":
			"a process with an AIO context",
			"the kernel would complete into the old pages",
			"seal before io_setup, or call io_destroy first";
		Kvm "kvm":
			"a process with a virtual machine",
			"the guest would go on in the old pages",
			"seal before /dev/kvm is opened, or close it first";
		Vhost "vhost":
			"a process with a vhost device",
			"the kernel thread writes guest memory",
			"close the vhost device first";
		Vfio "vfio":
			"a process with VFIO or IOMMU objects",
			"the device writes pinned pages",
			"release the device first";
		Rdma "rdma":
			"a process with RDMA objects",
			"the device writes registered pages",
			"deregister the memory and close the device first";
		Xdp "af_xdp":
			"a process with an AF_XDP socket",
			"the kernel writes the registered UMEM",
			"close the AF_XDP socket first";
		Userfaultfd "userfaultfd":
			"a process with a userfaultfd",
			"its faults belong to another program",
			"close the userfaultfd first";
		Gpu "gpu":
			"a process with a GPU, accelerator or video device",
			"drivers pin and write user pages",
			"seal before the GPU is opened, or close it first";
		Driver "driver":
			"a process with a device or kernel object that isn't known to be harmless, or with pinned memory",
			"its driver may write user pages at any time",
			"seal before the device is opened, or close it and unlock its memory first";
		SeccompFilter "seccomp_filter":
			"a process under a seccomp filter that ends it for a call that a seal makes",
			"the seal would kill the program",
			"let the filter allow what a seal does, or seal before it is set";
		LocksFuture "locks_future":
			"mlockall(MCL_FUTURE)",
			"every new mapping would be locked, and every page copied at once",
			"call munlockall before sealing";
		FileSizeLimit "file_size_limit":
			"a hard RLIMIT_FSIZE below the size of a memfd",
			"writing the memfd would fail and raise SIGXFSZ; the limit can't be raised",
			"start the program with an unlimited hard limit (ulimit -f unlimited)";
		VmaLimit "vma_limit":
			"a process close to vm.max_map_count",
			"splitting VMAs could fail half way",
			"raise vm.max_map_count (sysctl vm.max_map_count=1048576)";
		ThreadUnstoppable "thread_unstoppable":
			"with threads allowed: a process with a thread that doesn't stop within a second, or one of the kernel's own",
			"it might write between the copy and the remap (it waits for a vfork child, a device, a dead file server)",
			"seal when no thread waits for a vfork child, a device or a file server";
		ThreadTraced "thread_traced":
			"with threads allowed: a process whose threads we may not stop",
			"a debugger has them, or ptrace is refused (Yama, a sandbox, other credentials) and the signal that takes its place too",
			"let go of the threads in debuggers; allow ptrace among the user's processes (sysctl kernel.yama.ptrace_scope=1 or 0)";
		LibcCalls "libc_calls":
			"a process whose C library's system calls can't be followed",
			"discards and growth of sealed memory that the engine doesn't see would bring old bytes back",
			"run the program without valgrind, without breakpoints in libc's memory functions, without tools that hook them, and with the right to write its own code";
		SystemCalls "system_calls":
			"a process with code that makes system calls of its own",
			"where it discards, moves or grows sealed memory the engine doesn't see it, and old bytes would come back",
			"leave the file out, load it in a program that is not sealed, or trust it if it never does so (flashfork run --trust FILE; the option trust of a seal)";
		PagesInPipes "pages_in_pipes":
			"a process that has put pages of its memory into a pipe",
			"a page in a pipe shows what is written to it as long as it is there; new memory in its place would not",
			"seal before vmsplice, or write to the pipe instead";
		RestartableSequence "restartable_sequence":
			"a process whose sealing thread has an area for restartable sequences at an address that isn't known",
			"the kernel writes there whenever it lets the thread run, and ends the process where nothing is mapped at that moment",
			"register it through the C library's syscall(), or leave it to the C library (glibc.pthread.rseq)";
		SharedDescriptors "shared_descriptors":
			"a process that shares its table of descriptors with another (CLONE_FILES), or once did",
			"the other could make a descriptor of the engine's another file in the middle of its work",
			"seal before the other process is made (clone without CLONE_FILES gives it a table of its own), or in a clone of this one";
	}
}

impl Reason {
	/// How many reasons there are.
	pub const COUNT: usize = TABLE.len();

	/// The reason's row.
	pub fn row(self) -> &'static Row {
		&TABLE[self as usize]
	}

	/// What to do about it, if anything.
	pub fn cure(self) -> Option<&'static str> {
		Some(self.row().cure).filter(|cure| !cure.is_empty())
	}
}

impl core::fmt::Display for Reason {
	fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
		let row = self.row();
		write!(f, "{}: {}", row.what, row.why)
	}
}

const HARMLESS: &[&[u8; 2]] =
	&[b"rd", b"wr", b"ex", b"mr", b"mw", b"me", b"ac", b"nr", b"sr", b"rr", b"hg", b"nh", b"sd"];

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

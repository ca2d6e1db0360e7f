//! The capabilities in words.

use serde::Serialize;

/// One thing a host may be able to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
	/// A short stable name.
	pub name: &'static str,
	/// Whether it is there.
	pub available: bool,
	/// Whether nothing can be sealed without it.
	pub needed: bool,
	/// What was found, or the error.
	pub detail: String,
	/// What it makes possible.
	pub enables: &'static str,
	/// What is lost when it is missing, and what still works.
	pub without: &'static str,
	/// What to do when it is missing.
	pub cure: &'static str,
}

/// A capability not yet looked at.
pub(super) struct Row {
	name: &'static str,
	needed: bool,
	enables: &'static str,
	without: &'static str,
	cure: &'static str,
}

impl Row {
	pub(super) fn judged(&self, available: bool, detail: String) -> Capability {
		let Row { name, needed, enables, without, cure } = *self;
		Capability { name, available, needed, detail, enables, without, cure }
	}

	pub(super) fn available(&self, detail: String) -> Capability {
		self.judged(true, detail)
	}

	pub(super) fn missing(&self, detail: String) -> Capability {
		self.judged(false, detail)
	}
}

const NOTHING: &str = "nothing can be sealed; forks are plain and correct";

pub(super) const SEALED_MEMFD: Row = Row {
	name: "sealed_memfd",
	needed: true,
	enables: "a place for sealed memory that nobody can write to (memfd_create(2), F_ADD_SEALS)",
	without: NOTHING,
	cure: "allow memfd_create and fcntl in the container's seccomp filter; set vm.memfd_noexec below 2 where it refuses",
};
pub(super) const PRIVATE_MAPPING: Row = Row {
	name: "private_mapping",
	needed: true,
	enables: "copy-on-write of sealed memory: a writable private mapping of a memfd sealed against writes",
	without: NOTHING,
	cure: "needs Linux 3.17 or later, and a security module that lets a memfd be mapped",
};
pub(super) const FORK_SKIPS: Row = Row {
	name: "fork_skips",
	needed: true,
	enables: "clones at a cost that doesn't grow with memory: fork leaves out the page tables of sealed memory",
	without: "sealing gains nothing: forks cost as before",
	cure: "use a stock Linux kernel (the rule is vma_needs_copy in mm/memory.c, there since 2.6.14)",
};
pub(super) const VM_FLAGS: Row = Row {
	name: "vm_flags",
	needed: true,
	enables: "telling memory that must not be sealed (MADV_DONTFORK, MADV_WIPEONFORK, locked …)",
	without: NOTHING,
	cure: "mount /proc, with a kernel built with CONFIG_PROC_PAGE_MONITOR",
};
pub(super) const FILE_SIZE: Row = Row {
	name: "file_size",
	needed: true,
	enables: "writing a memfd: RLIMIT_FSIZE counts for it as for any file",
	without: NOTHING,
	cure: "start the program with an unlimited hard limit (ulimit -f unlimited, as root where it was lowered)",
};
pub(super) const VMA_ROOM: Row = Row {
	name: "vma_room",
	needed: true,
	enables: "sealing memory piece by piece: each piece may be a mapping of its own",
	without: "a process this close to the limit is refused; its forks are plain",
	cure: "sysctl vm.max_map_count=1048576",
};
pub(super) const MEMORY: Row = Row {
	name: "memory",
	needed: true,
	enables: "the 128 MB a seal may take at its peak, checked again before each chunk",
	without: "a seal stops where memory runs short; the rest stays as it was",
	cure: "end other programs, or raise the limit named here",
};
pub(super) const HUGE_PAGES: Row = Row {
	name: "huge_pages",
	needed: false,
	enables: "sealed memory on 2 MB pages: clones read it fast, and one write of the parent's costs the next fork little",
	without: "sealed memory is on 4 KB pages: the clone is as fast, its first reads are about three times slower",
	cure: "Linux 6.1 or later with transparent huge pages, and another value than deny in \
		   /sys/kernel/mm/transparent_hugepage/shmem_enabled",
};
pub(super) const OWN_MOUNT: Row = Row {
	name: "own_mount",
	needed: false,
	enables: "faster seals of 16 MB and more: into a tmpfs with huge=always, which is mounted for that and attached nowhere",
	without: "such seals take longer: 2 MB pages of a memfd are filled with zeros before they are written",
	cure: "Linux 6.12 or later, the right to mount (CAP_SYS_ADMIN), and no filter of system calls",
};
pub(super) const POPULATE: Row = Row {
	name: "populate",
	needed: false,
	enables: "preparing memory without a page fault for each page (MADV_POPULATE_WRITE)",
	without: "no 2 MB pages are prepared: see huge_pages",
	cure: "Linux 5.14 or later",
};
pub(super) const THP_ALLOWED: Row = Row {
	name: "thp_allowed",
	needed: false,
	enables: "2 MB pages in a process that switched transparent huge pages off for itself",
	without: "see huge_pages",
	cure: "don't set PR_SET_THP_DISABLE in the program or what starts it, or allow prctl in the seccomp filter",
};
pub(super) const PAGEMAP_SCAN: Row = Row {
	name: "pagemap_scan",
	needed: false,
	enables: "finding populated pages quickly, in mappings of terabytes too (ioctl PAGEMAP_SCAN)",
	without: "the page map is read page by page (2 MB of it for each GB), and mappings over 256 GB are left out",
	cure: "Linux 6.7 or later",
};
pub(super) const CORE_DUMPS: Row = Row {
	name: "core_dumps",
	needed: false,
	enables: "core dumps that hold sealed memory",
	without: "core dumps of clones lack the memory that was sealed and not written since",
	cure: "make /proc/self/coredump_filter writable (a container may mount /proc read-only)",
};
pub(super) const OVERCOMMIT: Row = Row {
	name: "overcommit",
	needed: false,
	enables: "private mappings of sealed memory that aren't charged in advance",
	without: "sealed memory is charged twice against CommitLimit (the memfd and what might be written), clones again each; \
			  a seal stops before the limit",
	cure: "sysctl vm.overcommit_memory=0, or raise vm.overcommit_ratio",
};
pub(super) const THP: Row = Row {
	name: "thp",
	needed: false,
	enables: "huge pages for memory that isn't sealed: plain forks of it cost a tenth to a fortieth, the baseline to compare with",
	without: "plain forks copy page tables for 4 KB pages, and sealing gains the more",
	cure: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
};

pub(super) const ON_DEMAND_FORK: Row = Row {
	name: "on_demand_fork",
	needed: false,
	enables: "engine odf: the kernel shares page tables with the clone; nothing is sealed, and threads are no obstacle",
	without: "nothing of the other engines: they need no special kernel",
	cure: "boot a kernel with the patches of kernel/README.md",
};
/// The same where the kernel has it.
pub(super) const SWITCHED_OFF: Row = Row { cure: "sysctl vm.on_demand_fork=1, as root", ..ON_DEMAND_FORK };

/// The rows that the trial in a child decides, in the order of its report.
pub(super) const TRIED: [Row; 11] = [
	SEALED_MEMFD,
	PRIVATE_MAPPING,
	FORK_SKIPS,
	VM_FLAGS,
	HUGE_PAGES,
	OWN_MOUNT,
	POPULATE,
	THP_ALLOWED,
	PAGEMAP_SCAN,
	CORE_DUMPS,
	ON_DEMAND_FORK,
];

//! Which pages a program's heap is made of: 4 KB ones or transparent huge ones.
//!
//! For programs that allocate with malloc, unlike the memory `bench fork` maps itself. The choice has two halves: an
//! environment variable that glibc reads before `main`, and a flag of the process that the kernel keeps across `exec`.

use crate::prelude::*;
use procfs::process::Process;

/// The variable to start the program with. `glibc.malloc.hugetlb=1` (glibc 2.35 and later) makes malloc ask for huge
/// pages with `MADV_HUGEPAGE` where the machine's mode is `madvise`; 0 is glibc's default. Other C libraries don't know
/// it, which shows in [`HeapPages`].
pub fn tunable(method: Method) -> (&'static str, String) {
	let huge = u8::from(method == Method::ForkThp);
	("GLIBC_TUNABLES", format!("glibc.malloc.hugetlb={huge}"))
}

/// Forbids this process, and what it forks or starts, transparent huge pages when `method` wants 4 KB pages, and allows
/// them otherwise. `PR_SET_THP_DISABLE`. Safe to call between fork and exec.
pub fn choose(method: Method) -> std::io::Result<()> {
	Ok(rustix::thread::disable_transparent_huge_pages(method.small_pages())?)
}

/// What a process's memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapPages {
	/// Anonymous memory in bytes.
	pub anonymous: u64,
	/// How much of it is on huge pages, in bytes.
	pub huge: u64,
}

const READ: &str = "read what pages a heap is made of";

impl HeapPages {
	/// Of this process: `/proc/self/smaps_rollup`.
	pub fn of_this_process() -> Result<Self> {
		Process::myself().and_then(|process| Self::read(&process)).or_cant(READ)
	}

	/// Of another process of this user.
	pub fn of(pid: i32) -> Result<Self> {
		Process::new(pid).and_then(|process| Self::read(&process)).or_cant(READ)
	}

	/// The share on huge pages, 0 to 1.
	pub fn huge_fraction(self) -> f64 {
		if self.anonymous == 0 { 0.0 } else { self.huge as f64 / self.anonymous as f64 }
	}

	/// Why what is measured with them would not be what `method` means, if so. A heap begins and ends between huge
	/// pages, so a small one never is all huge.
	pub fn flaw(self, method: Method) -> Option<String> {
		const MOSTLY_HUGE: f64 = 0.5;
		let share = self.huge_fraction();
		(method == Method::ForkThp && share < MOSTLY_HUGE)
			.then(|| format!("the heap got huge pages for only {:.0} % of its memory", share * 100.0))
	}

	fn read(process: &Process) -> procfs::ProcResult<Self> {
		let rollup = process.smaps_rollup()?;
		let sum = |key| rollup.memory_map_rollup.iter().filter_map(|map| map.extension.map.get(key)).sum();
		Ok(Self { anonymous: sum("Anonymous"), huge: sum("AnonHugePages") })
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn only_one_method_asks_for_huge_pages() {
		for method in Method::all() {
			let (_, value) = tunable(method);
			assert_eq!(value.ends_with("=1"), method == Method::ForkThp, "{value}");
		}
	}

	#[test]
	fn this_process_has_anonymous_memory_and_not_more_huge_than_that() {
		let pages = HeapPages::of_this_process().unwrap();
		assert!(pages.anonymous > 0 && pages.huge <= pages.anonymous, "{pages:?}");
		assert!((0.0..=1.0).contains(&pages.huge_fraction()));
		assert_eq!(HeapPages { anonymous: 0, huge: 0 }.huge_fraction(), 0.0);
	}
}

//! What a figure measured on a host depends on.

use procfs::{CpuInfo, Current};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Tells hosts apart whose forks cost differently. Text as the kernel gives it; empty where it gives none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostId {
	/// Kernel release (`uname(2)`).
	pub kernel: String,
	/// CPU model (`/proc/cpuinfo`).
	pub cpu: String,
	/// Mode of transparent huge pages for anonymous memory: `always`, `madvise` or `never`.
	pub thp: String,
	/// The same for memfds and other shared memory: also `within_size`, `advise`, `deny` or `force`.
	pub shmem_thp: String,
}

impl HostId {
	/// Of this host, now.
	pub fn read() -> HostId {
		HostId {
			kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
			cpu: CpuInfo::current().ok().and_then(|c| c.model_name(0).map(str::to_owned)).unwrap_or_default(),
			thp: chosen("enabled"),
			shmem_thp: chosen("shmem_enabled"),
		}
	}
}

impl fmt::Display for HostId {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		write!(f, "Linux {}, {}, THP {}/{}", self.kernel, self.cpu, self.thp, self.shmem_thp)
	}
}

/// The chosen word of a file in `/sys/kernel/mm/transparent_hugepage`.
fn chosen(file: &str) -> String {
	let path = format!("/sys/kernel/mm/transparent_hugepage/{file}");
	std::fs::read_to_string(path).ok().as_deref().and_then(in_brackets).unwrap_or_default().to_owned()
}

/// `always [madvise] never` → `madvise`.
fn in_brackets(choices: &str) -> Option<&str> {
	choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_host_has_a_kernel_and_stays_itself() {
		let id = HostId::read();
		assert!(id.kernel.starts_with(|c: char| c.is_ascii_digit()), "{id}");
		assert_eq!(id, HostId::read());
	}

	#[test]
	fn the_chosen_word_stands_in_brackets() {
		assert_eq!(in_brackets("always [madvise] never"), Some("madvise"));
		assert_eq!(in_brackets("always never"), None);
	}
}

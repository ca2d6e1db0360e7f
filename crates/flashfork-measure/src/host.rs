//! The host card: what a reader must know about the machine before believing a figure.

use std::{
	collections::BTreeMap,
	fs,
	path::Path,
	time::{SystemTime, UNIX_EPOCH},
};

use procfs::Current;
use serde::{Deserialize, Serialize};

use crate::{OrCant, Result, pin};

/// The machine an experiment ran on, as it was when the experiment began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCard {
	/// Version of this program.
	pub flashfork: String,
	/// When the card was written, in seconds since 1970 (UTC).
	pub unix_time: u64,
	/// CPU model as the kernel names it.
	pub cpu: String,
	/// CPUs the machine has online.
	pub cpus: usize,
	/// CPUs this process may use.
	pub cpus_allowed: usize,
	/// Machine architecture, for example `x86_64`.
	pub architecture: String,
	/// Kernel release.
	pub kernel: String,
	/// Whether the machine is virtual, as far as the CPU's hypervisor flag or the firmware tells. Page-table work and
	/// page faults may cost more there.
	pub virtualised: bool,
	/// What the firmware says about the maker and model, where readable.
	pub product: Option<String>,
	/// Transparent huge pages for anonymous memory: `always`, `madvise` or `never`.
	pub thp_enabled: Option<String>,
	/// Transparent huge pages for shared memory.
	pub thp_shmem_enabled: Option<String>,
	/// How hard a page fault tries to get a huge page.
	pub thp_defrag: Option<String>,
	/// Page size in bytes.
	pub page_size: u64,
	/// Memory in bytes.
	pub memory_total: u64,
	/// Memory available without swapping, in bytes.
	pub memory_available: u64,
	/// Swap in bytes.
	pub swap_total: u64,
	/// `vm.overcommit_memory`.
	pub overcommit_memory: Option<u8>,
	/// Load averages over 1, 5 and 15 minutes.
	pub load: [f32; 3],
	/// CPU frequency governor of the CPU experiments use, where there is one.
	pub governor: Option<String>,
	/// CPU vulnerabilities and what the kernel does about them, but for those that the CPU hasn't.
	pub mitigations: BTreeMap<String, String>,
}

impl HostCard {
	/// Reads the card of this machine. Fails only without `/proc`.
	pub fn read() -> Result<Self> {
		let doing = "read the host card from /proc";
		let cpu = procfs::CpuInfo::current().or_cant(doing)?;
		let memory = procfs::Meminfo::current().or_cant(doing)?;
		let load = procfs::LoadAverage::current().or_cant(doing)?;
		let uname = rustix::system::uname();
		let product = product(Path::new("/sys/class/dmi/id"));
		let hypervisor_flag = cpu.flags(0).is_some_and(|flags| flags.contains(&"hypervisor"));
		let thp = Path::new("/sys/kernel/mm/transparent_hugepage");
		let cpus_allowed = pin::allowed_cpus()?;
		Ok(Self {
			flashfork: env!("CARGO_PKG_VERSION").to_owned(),
			unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
			cpu: cpu.model_name(0).unwrap_or("unknown").to_owned(),
			cpus: cpu.num_cores(),
			governor: cpus_allowed
				.last()
				.and_then(|cpu| line(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")))),
			cpus_allowed: cpus_allowed.len(),
			architecture: uname.machine().to_string_lossy().into_owned(),
			kernel: uname.release().to_string_lossy().into_owned(),
			virtualised: hypervisor_flag || product.as_deref().is_some_and(names_a_hypervisor),
			product,
			thp_enabled: line(&thp.join("enabled")).as_deref().and_then(chosen),
			thp_shmem_enabled: line(&thp.join("shmem_enabled")).as_deref().and_then(chosen),
			thp_defrag: line(&thp.join("defrag")).as_deref().and_then(chosen),
			page_size: rustix::param::page_size() as u64,
			memory_total: memory.mem_total,
			memory_available: memory.mem_available.unwrap_or(memory.mem_free),
			swap_total: memory.swap_total,
			overcommit_memory: line(Path::new("/proc/sys/vm/overcommit_memory")).and_then(|mode| mode.parse().ok()),
			load: [load.one, load.five, load.fifteen],
			mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
		})
	}

	/// The card in one line for the head of a table.
	pub fn line(&self) -> String {
		format!(
			"{} × {}{}, Linux {}, {} memory, THP {}, load {:.1}",
			self.cpus,
			self.cpu,
			if self.virtualised { " (virtual machine)" } else { "" },
			self.kernel,
			flashfork_terminal::size::show(self.memory_total),
			self.thp_enabled.as_deref().unwrap_or("unavailable"),
			self.load[0],
		)
	}

	/// What to beware of, if the machine was busy when the experiment began.
	pub fn warning(&self) -> Option<String> {
		let busy = f64::from(self.load[0]) > 0.5 * self.cpus as f64;
		busy.then(|| {
			format!(
				"The machine was busy (load {:.1} on {} CPUs): the ratios hold better than the times.",
				self.load[0], self.cpus
			)
		})
	}
}

/// The first line of a small file, if it can be read.
fn line(path: &Path) -> Option<String> {
	fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

/// The word in brackets of a kernel choice file: `always [madvise] never`.
fn chosen(choices: &str) -> Option<String> {
	choices.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).map(str::to_owned)
}

fn product(dmi: &Path) -> Option<String> {
	let words: Vec<String> = ["sys_vendor", "product_name"].iter().filter_map(|name| line(&dmi.join(name))).collect();
	(!words.is_empty()).then(|| words.join(" "))
}

fn names_a_hypervisor(product: &str) -> bool {
	const NAMES: [&str; 8] =
		["QEMU", "KVM", "VMware", "VirtualBox", "Virtual Machine", "Xen", "Google Compute Engine", "Firecracker"];
	NAMES.iter().any(|name| product.contains(name))
}

fn mitigations(dir: &Path) -> BTreeMap<String, String> {
	let entries = fs::read_dir(dir).into_iter().flatten().flatten();
	let all = entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, line(&entry.path())?)));
	all.filter(|(_, state)| state != "Not affected").collect()
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_card_of_this_machine_is_plausible() {
		let card = HostCard::read().unwrap();
		assert!(card.cpus >= 1 && (1..=card.cpus).contains(&card.cpus_allowed));
		assert!(card.memory_total > 64 << 20 && card.memory_available <= card.memory_total);
		assert!(card.page_size.is_power_of_two() && card.page_size >= 4096);
		assert!(card.kernel.starts_with(|first: char| first.is_ascii_digit()));
		assert!(!card.line().contains('\n'));
	}

	#[test]
	fn a_busy_machine_is_warned_of() {
		let card = HostCard { cpus: 4, load: [1.9, 9.0, 9.0], ..HostCard::read().unwrap() };
		assert_eq!(card.warning(), None);
		assert!(HostCard { load: [2.1, 0.0, 0.0], ..card }.warning().unwrap().contains("2.1 on 4"));
	}

	#[test]
	fn the_chosen_word_is_the_one_in_brackets() {
		assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
		assert_eq!(chosen("[never]").as_deref(), Some("never"));
		assert_eq!(chosen("always never"), None);
	}

	#[test]
	fn firmware_names_are_recognised() {
		assert!(names_a_hypervisor("QEMU Standard PC (Q35 + ICH9, 2009)"));
		assert!(names_a_hypervisor("Microsoft Corporation Virtual Machine"));
		assert!(!names_a_hypervisor("Dell Inc. PowerEdge R640"));
	}

	#[test]
	fn missing_files_are_no_failure() {
		assert_eq!(product(Path::new("/nonexistent")), None);
		assert!(mitigations(Path::new("/nonexistent")).is_empty());
	}
}

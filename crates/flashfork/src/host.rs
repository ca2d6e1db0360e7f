//! What this host can do for flashfork: every capability tried for real, not concluded from a kernel version.

mod capability;
mod id;
mod memory;
mod trial;

pub use capability::Capability;
use capability::Row;
pub use id::HostId;
pub use memory::Headroom;
use rustix::io::Errno;
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;

/// A host and its capabilities.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
	/// Which host this is.
	pub id: HostId,
	/// Every capability, those a seal can't do without first.
	pub capabilities: Vec<Capability>,
}

impl Host {
	/// Tries everything, in some tens of milliseconds and 17 MB of memory.
	///
	/// Limits are those of the calling process. What could disturb it happens in a child that it doesn't notice: no
	/// signal, nothing to wait for, no fork handler. Processes with threads may call it. What can't be tried is
	/// reported as missing, with the error.
	pub fn probe() -> Host {
		let id = HostId::read();
		let mut capabilities = tried();
		capabilities.extend([file_size(), vma_room(), memory_headroom(), overcommit(), thp(&id)]);
		capabilities.sort_by_key(|c| !c.needed);
		Host { id, capabilities }
	}

	/// Whether a process can be sealed here at all.
	pub fn can_seal(&self) -> bool {
		self.capabilities.iter().all(|c| c.available || !c.needed)
	}

	/// The capability of that name.
	pub fn capability(&self, name: &str) -> Option<&Capability> {
		self.capabilities.iter().find(|c| c.name == name)
	}
}

fn tried() -> Vec<Capability> {
	// SAFETY: the trial neither allocates nor panics.
	let trial = match unsafe { crate::fresh::run(10, trial::run) } {
		Ok(trial) => trial,
		Err(e) => return capability::TRIED.iter().map(|row| row.missing(format!("not tried: {e}"))).collect(),
	};
	let [nothing, plain, sealed] = trial.tables.each_ref().map(|n| n.load(Relaxed) / 1024);
	let copied = |with: u64| with.saturating_sub(nothing);
	let skips = format!(
		"the clone of a process with {} MB has {} KB of page tables for it when sealed, {} KB when not",
		trial::REGION >> 20,
		copied(sealed),
		copied(plain)
	);
	let thp_state = match trial.thp_was_disabled.load(Relaxed) {
		0 => "PR_SET_THP_DISABLE is not set",
		_ => "PR_SET_THP_DISABLE is set; a seal lifts it for its own duration",
	};
	let judge = |row: &Row, attempt: &trial::Attempt, detail: &str| match attempt.outcome() {
		Ok(()) => row.available(detail.to_owned()),
		Err(why) => row.missing(why),
	};
	use capability as c;
	vec![
		judge(&c::SEALED_MEMFD, &trial.sealed_memfd, "memfd_create, F_ADD_SEALS"),
		judge(&c::PRIVATE_MAPPING, &trial.private_mapping, "a write to the mapping stays out of the memfd"),
		judge(&c::FORK_SKIPS, &trial.fork_skips, &skips),
		judge(&c::VM_FLAGS, &trial.vm_flags, "/proc/self/smaps has VmFlags"),
		judge(&c::HUGE_PAGES, &trial.huge_pages, "MADV_COLLAPSE made one"),
		judge(&c::OWN_MOUNT, &trial.own_mount, "mounted, and attached nowhere"),
		judge(&c::POPULATE, &trial.populate, "MADV_POPULATE_WRITE"),
		judge(&c::THP_ALLOWED, &trial.thp_allowed, thp_state),
		judge(&c::PAGEMAP_SCAN, &trial.pagemap_scan, "the ioctl of /proc/self/pagemap"),
		judge(&c::CORE_DUMPS, &trial.core_dumps, "/proc/self/coredump_filter takes private file memory"),
		on_demand_fork(&trial.on_demand_fork),
	]
}

fn on_demand_fork(attempt: &trial::Attempt) -> Capability {
	match attempt.outcome() {
		Ok(()) => capability::ON_DEMAND_FORK.available("prctl(PR_SET_ODF) is granted".into()),
		Err(_) if attempt.failed_with(Errno::INVAL) => {
			capability::ON_DEMAND_FORK.missing("this kernel is not patched for it".into())
		}
		Err(_) if attempt.failed_with(Errno::PERM) => {
			capability::SWITCHED_OFF.missing("this kernel has it, switched off (vm.on_demand_fork is 0)".into())
		}
		Err(why) => capability::ON_DEMAND_FORK.missing(format!("prctl(PR_SET_ODF): {why}")),
	}
}

fn file_size() -> Capability {
	let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
	// The length of every memfd a seal makes (flashfork-core, offset.rs).
	match limit.maximum {
		Some(hard) if hard < 1 << 62 => {
			capability::FILE_SIZE.missing(format!("the hard limit is {hard} bytes (ulimit -H -f)"))
		}
		_ => capability::FILE_SIZE.available("no hard limit".into()),
	}
}

fn vma_room() -> Capability {
	let most = number("/proc/sys/vm/max_map_count");
	let used = std::fs::read_to_string("/proc/self/maps").map(|maps| maps.lines().count() as u64);
	match (most, used) {
		(Ok(most), Ok(used)) => {
			let detail = format!("vm.max_map_count is {most}, this process has {used} mappings");
			// A seal keeps 256 in reserve and may need two for each run (flashfork-core, limits.rs).
			let enough = most.saturating_sub(used) >= 1024;
			capability::VMA_ROOM.judged(enough, detail)
		}
		(Err(e), _) | (_, Err(e)) => capability::VMA_ROOM.missing(format!("can't be read: {e}")),
	}
}

fn memory_headroom() -> Capability {
	match Headroom::now() {
		Ok(h) => {
			let detail = format!("{} MB can be taken before {} is reached", h.available >> 20, h.limit);
			// The most a seal takes beside the memory it seals.
			capability::MEMORY.judged(h.available >= 128 << 20, detail)
		}
		Err(e) => capability::MEMORY.missing(format!("can't be read: {e}")),
	}
}

fn overcommit() -> Capability {
	match number("/proc/sys/vm/overcommit_memory") {
		Ok(mode) => capability::OVERCOMMIT.judged(mode != 2, format!("vm.overcommit_memory is {mode}")),
		Err(e) => capability::OVERCOMMIT.missing(format!("can't be read: {e}")),
	}
}

fn thp(id: &HostId) -> Capability {
	let shown = |mode: &str| if mode.is_empty() { "not in this kernel".to_owned() } else { mode.to_owned() };
	let detail = format!("enabled: {}; shmem_enabled: {}", shown(&id.thp), shown(&id.shmem_thp));
	capability::THP.judged(["always", "madvise"].contains(&id.thp.as_str()), detail)
}

fn number(path: &str) -> std::io::Result<u64> {
	let text = std::fs::read_to_string(path)?;
	text.trim().parse().map_err(|_| std::io::Error::other(format!("{path} holds no number: {}", text.trim())))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_capability_is_reported_once_and_explained() {
		let host = Host::probe();
		let mut names: Vec<_> = host.capabilities.iter().map(|c| c.name).collect();
		for c in &host.capabilities {
			for text in [&c.detail[..], c.enables, c.without, c.cure] {
				assert!(!text.is_empty() && !text.contains('\n'), "{c:?}");
			}
		}
		let count = names.len();
		names.sort_unstable();
		names.dedup();
		assert_eq!((names.len(), count), (16, 16));
		assert!(host.capability("fork_skips").is_some() && host.capability("nonsense").is_none());
	}

	#[test]
	fn a_child_that_can_not_be_made_leaves_nothing_unsaid() {
		let failed: Vec<_> = capability::TRIED.iter().map(|row| row.missing("not tried".into())).collect();
		let tried: Vec<_> = tried().into_iter().map(|c| c.name).collect();
		assert_eq!(failed.iter().map(|c| c.name).collect::<Vec<_>>(), tried);
		let host = Host { id: HostId::read(), capabilities: failed };
		assert!(!host.can_seal());
	}
}

//! What a shell, waiting or a clone, adds to its host's memory.

use crate::{
	kvm,
	pool::{Cgroup, Footprint},
};
use flashfork_proto::shape::Shape;
use std::{fs, sync::Weak};

/// Lines of /proc/PID/status (proc_pid_status(5)): private pages, which for a clone are those that it wrote, of its
/// memory and of its disk, and those of the monitor; the same, swapped out; page tables; and pages of 2 MB, of which
/// the kernel doesn't say whether they are the template's, so that a clone in 2 MB pages counts all that it has
/// touched.
///
/// KVM's own memory isn't in it: only a cgroup is charged for that.
const ADDED: [&str; 4] = ["RssAnon:", "VmSwap:", "VmPTE:", "HugetlbPages:"];

/// Bytes that KVM holds for a VM and for each vCPU, estimated from what machines without guests take of the kernel's
/// memory (`flashfork bench vm-clone` measures it too).
const VM: u64 = 256 << 10;
const VCPU: u64 = 64 << 10;

/// Where KVM has shadow page tables, bytes of its record of a guest's page of 4 KB (`struct kvm_rmap_head`), and of
/// tracking.
const RECORD: u64 = 10;

/// Bytes that a shell adds to what its template takes; none for one that has ended.
pub(super) fn added(of: &Footprint) -> Option<u64> {
	let counted = of.cgroup.as_ref().and_then(Weak::upgrade).and_then(|cgroup| Cgroup::memory(&cgroup));
	counted.or_else(|| Some(of_process(of.pid)? + of_kvm(&of.shape)))
}

/// Of a process, without KVM's share.
fn of_process(pid: u32) -> Option<u64> {
	sum(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// KVM's share, without its page tables, which are few: a clone's are as many as it has touched of its memory.
fn of_kvm(shape: &Shape) -> u64 {
	let pages = if kvm::two_dimensional() == Some(false) { shape.memory_bytes() / 4096 } else { 0 };
	VM + u64::from(shape.vcpus) * VCPU + pages * RECORD
}

fn sum(status: &str) -> Option<u64> {
	let field = |name: &&str| {
		let line = status.lines().find_map(|line| line.strip_prefix(name))?;
		line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
	};
	// A kernel without hugetlb has no line for it; a process without memory has none of the others.
	let found: Vec<u64> = ADDED.iter().filter_map(field).collect();
	(found.len() >= ADDED.len() - 1).then(|| found.iter().sum())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn private_memory_and_page_tables_count_and_shared_does_not() {
		let status = "Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t      40 kB\nRssFile:\t 4000 kB\nRssShmem:\t 500 kB\n\
					  VmPTE:\t  8 kB\nVmSwap:\t  2 kB\nHugetlbPages:\t  2048 kB\n";
		assert_eq!(sum(status), Some((40 + 8 + 2 + 2048) << 10));
		assert_eq!(sum("Name:\tzombie\nState:\tZ\n"), None);
	}

	/// Of its own process: in this one other tests take and give back memory.
	#[test]
	fn memory_that_a_process_keeps_is_added() {
		use std::io::{Read, Write};
		const KEPT: u64 = 32 << 20;
		let mut tail = std::process::Command::new("tail");
		tail.arg("-c").arg(KEPT.to_string()).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
		let mut tail = tail.spawn().unwrap();
		tail.stdin.take().unwrap().write_all(&vec![1; KEPT as usize]).unwrap();
		// Once it writes it has all, and keeps it: nobody reads the rest.
		tail.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
		let added = of_process(tail.id()).unwrap();
		assert!((KEPT..KEPT + (8 << 20)).contains(&added), "{added}");
		tail.kill().unwrap();
		tail.wait().unwrap();
		assert_eq!(of_process(tail.id()), None);
	}
}

//! A daemon that runs for long: clones that come and go, and many at once, leave nothing, in the kernel neither. 300
//! cycles; 10,000 with `FLASHFORK_TEST_ALL=1`.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, eventually};
use flashfork_proto::api::{CloneState, Stats};
use std::{fs, sync::Mutex, time::Duration};

/// The tests count what the whole host holds: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What the kernel holds for processes and VMs, by the names in /proc/meminfo. Caches, which it gives back when asked,
/// aren't among them.
const KERNEL: [&str; 6] = ["SUnreclaim:", "PageTables:", "SecPageTables:", "KernelStack:", "Percpu:", "VmallocUsed:"];

/// KiB by which all of [`KERNEL`] may grow: other processes come and go too. A VM that was never torn down has 900 and
/// more, of which a third of 300 cycles would leave 90,000; after 10,000 cycles it is less than two pages for each.
const NOISE: u64 = 48 << 10;

/// KiB by which the daemon itself may grow in two thirds of all cycles.
const OWN_NOISE: u64 = 2 << 10;

fn cycles() -> usize {
	if std::env::var_os("FLASHFORK_TEST_ALL").is_some_and(|all| all == "1") { 10_000 } else { 300 }
}

fn kib(text: &str, name: &str) -> Option<u64> {
	let line = text.lines().find_map(|line| line.strip_prefix(name))?;
	line.trim().trim_end_matches(" kB").parse().ok()
}

/// KiB that the kernel holds. What is being torn down, here or elsewhere, passes: the least of some seconds.
fn kernel() -> u64 {
	let now = || {
		let text = fs::read_to_string("/proc/meminfo").unwrap();
		// Kernels before 6.0 don't count what KVM's page tables take.
		KERNEL.iter().filter_map(|name| kib(&text, name)).sum()
	};
	let least = (0..30).map(|_| {
		std::thread::sleep(Duration::from_millis(100));
		now()
	});
	least.min().unwrap()
}

/// KiB of the daemon's own memory.
fn own(daemon: &Daemon) -> u64 {
	let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
	kib(&status, "RssAnon:").unwrap()
}

#[test]
fn clones_that_come_and_go_leave_no_descriptor_no_process_and_no_memory() {
	let _alone = ALONE.lock().unwrap();
	let Some(daemon) = Daemon::with_idler() else { return };
	let third = || {
		for _ in 0..cycles() / 30 {
			for clone in daemon.clones_of("t", 10) {
				daemon.remove_clone(&clone.name);
			}
		}
		daemon.settle();
	};
	// Caches of allocators fill in the first third.
	third();
	let descriptors = daemon.descriptors();
	let before = (kernel(), own(&daemon));
	third();
	third();
	let after = (kernel(), own(&daemon));
	assert!(after.0 <= before.0 + NOISE, "the kernel's memory: {} KiB became {}", before.0, after.0);
	assert!(after.1 <= before.1 + OWN_NOISE, "the daemon's memory: {} KiB became {}", before.1, after.1);
	eventually(|| daemon.descriptors() <= descriptors);
}

#[test]
fn a_hundred_clones_live_at_the_same_time_and_leave_nothing() {
	let _alone = ALONE.lock().unwrap();
	let Some(daemon) = Daemon::with_idler() else { return };
	// From the first on there is a shell that is primed.
	daemon.clone_of("t");
	daemon.remove_clone("t-1");
	daemon.settle();
	let before = (daemon.descriptors(), kernel());
	let clones = daemon.clones_of("t", 100);
	assert_eq!(clones.len(), 100);
	let stats: Stats = daemon.get("/v1/stats");
	assert_eq!(stats.clones, 100);
	assert!(stats.clone_bytes < 100 * (8 << 20), "{stats:?}");
	let alive = daemon.all_clones();
	assert!(alive.iter().all(|clone| clone.state == CloneState::Starting), "{alive:?}");
	for clone in clones {
		daemon.remove_clone(&clone.name);
	}
	daemon.settle();
	eventually(|| daemon.descriptors() <= before.0);
	let after = kernel();
	assert!(after <= before.1 + NOISE, "the kernel's memory: {} KiB became {after}", before.1);
}

//! `Host::probe` under conditions that take capabilities away, and its manners.

#[macro_use]
mod common;
use common::Child;
use flashfork::Host;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

fn available(host: &Host, name: &str) -> bool {
	host.capability(name).unwrap_or_else(|| panic!("no capability {name}")).available
}

/// Where the tests run a seal works: so every needed capability must be found.
#[test]
fn what_a_seal_needs_is_found_where_a_seal_works() {
	let host = Host::probe();
	assert!(host.can_seal(), "{host:#?}");
	assert!(host.capability("fork_skips").unwrap().detail.contains("has 0 KB"), "{host:#?}");
}

#[test]
fn a_lowered_file_size_limit_is_reported() {
	in_child!();
	let lowered = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
	// SAFETY: the struct is valid.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const lowered) }, 0);
	let host = Host::probe();
	assert!(!host.can_seal());
	let c = host.capability("file_size").unwrap();
	assert!(!c.available && c.detail.contains("1073741824"), "{c:?}");
}

#[test]
fn a_soft_file_size_limit_is_no_obstacle() {
	in_child!();
	let lowered = libc::rlimit { rlim_cur: 4096, rlim_max: libc::RLIM_INFINITY };
	// SAFETY: the struct is valid.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const lowered) }, 0);
	let host = Host::probe();
	assert!(host.can_seal(), "{host:#?}");
}

#[test]
fn switched_off_huge_pages_are_seen_and_stay_off_for_the_caller() {
	in_child!();
	// SAFETY: no memory is passed.
	let get = || unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
	let before = available(&Host::probe(), "huge_pages");
	// SAFETY: no memory is passed.
	assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
	let host = Host::probe();
	assert!(host.capability("thp_allowed").unwrap().detail.contains("is set"));
	assert_eq!(available(&host, "huge_pages"), before);
	assert_eq!(get(), 1);
}

#[test]
fn without_descriptors_the_probe_fails_in_words() {
	in_child!();
	let none = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
	// SAFETY: the struct is valid.
	assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
	let host = Host::probe();
	assert!(!host.can_seal());
	for c in ["sealed_memfd", "vm_flags", "vma_room", "memory"].map(|name| host.capability(name).unwrap()) {
		assert!(!c.available && c.detail.contains("Too many open files"), "{c:?}");
	}
	assert!(!available(&host, "fork_skips"));
}

static CHILD_SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_child_signals(_: libc::c_int) {
	CHILD_SIGNALS.fetch_add(1, Relaxed);
}

#[test]
fn the_caller_notices_nothing() {
	in_child!();
	// SAFETY: the handler only adds to a counter.
	unsafe { libc::signal(libc::SIGCHLD, count_child_signals as *const () as libc::sighandler_t) };
	let filter = || std::fs::read_to_string("/proc/self/coredump_filter").unwrap();
	let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
	let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
	Host::probe();
	let before = (filter(), maps(), fds());
	let host = Host::probe();
	assert_eq!((filter(), maps(), fds()), before);
	assert_eq!(CHILD_SIGNALS.load(Relaxed), 0);
	// SAFETY: no status is asked for.
	let left = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
	assert_eq!(left, -1, "a child was left to wait for");
	assert_eq!(flashfork::stats(), flashfork::Stats::default(), "a fork was counted");
	drop(host);
}

/// Threads that hold the allocator's lock most of the time: a child that allocated would hang.
#[test]
fn it_is_safe_in_a_process_with_busy_threads() {
	let stop = AtomicBool::new(false);
	std::thread::scope(|s| {
		for _ in 0..3 {
			s.spawn(|| {
				while !stop.load(Relaxed) {
					std::hint::black_box(vec![1u8; 200_000]);
					std::hint::black_box(vec![1u8; 300]);
				}
			});
		}
		for _ in 0..6 {
			assert!(Host::probe().can_seal());
		}
		stop.store(true, Relaxed);
	});
}

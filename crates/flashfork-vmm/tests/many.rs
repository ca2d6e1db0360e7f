//! Many clones: alive at once, and one by one. 300 cycles; 10,000 with `FLASHFORK_TEST_ALL=1`.

mod common;
#[path = "common/shell.rs"]
mod shell_client;

use common::{FORK, clone, exit, guest, guest_code, kvm, result, shape, template};
use flashfork_proto::shell::{Ended, ToShell};
use shell_client::Shell;
use std::{fs, sync::Mutex};

/// The tests count what this process holds: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn cycles() -> usize {
	if std::env::var_os("FLASHFORK_TEST_ALL").is_some_and(|all| all == "1") { 10_000 } else { 300 }
}

fn count(directory: &str) -> usize {
	fs::read_dir(directory).unwrap().count()
}

/// Descriptors, threads, mappings, and KiB of memory of this process.
fn held() -> [usize; 4] {
	let maps = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
	let status = fs::read_to_string("/proc/self/status").unwrap();
	let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
	let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
	[count("/proc/self/fd"), count("/proc/self/task"), maps, resident]
}

fn children() -> usize {
	let tasks = fs::read_dir("/proc/self/task").unwrap();
	let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap());
	lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn machines_that_come_and_go_leave_nothing_in_their_process() {
	let Some(kvm) = kvm() else { return };
	let _alone = ALONE.lock().unwrap();
	let (parent, frozen) = template(&kvm, shape(4, 2), &guest());
	drop(parent);
	let cycle = |index: usize| {
		let mut clone = clone(&kvm, &frozen, index as u64);
		clone.resume();
		assert_eq!(exit(&mut clone), result(common::NONCE, index as u32));
	};
	// The allocator and the thread library keep some for the next time.
	(0..20).for_each(cycle);
	let before = held();
	(0..cycles()).for_each(cycle);
	let after = held();
	assert_eq!(after[..2], before[..2], "descriptors, threads");
	assert!(after[2] <= before[2] + 4, "{} mappings became {}", before[2], after[2]);
	assert!(after[3] <= before[3] + 2048, "{} KiB became {}", before[3], after[3]);
}

#[test]
fn shells_that_come_and_go_leave_no_process_and_no_descriptor() {
	let Some(_) = kvm() else { return };
	let _alone = ALONE.lock().unwrap();
	let template = shell_client::template(shape(4, 1), &guest_code());
	let cycle = |index: usize| {
		let mut shells = Shell::prepare_many(shape(4, 1), 10);
		for shell in &mut shells {
			shell.claim(&template, index as u64);
			assert!(matches!(shell.ended().0, Ended::Done(_)));
		}
	};
	cycle(0);
	let before = (count("/proc/self/fd"), children());
	(0..cycles() / 100).for_each(cycle);
	assert_eq!((count("/proc/self/fd"), children()), before);
}

#[test]
fn a_hundred_clones_of_one_template_live_at_the_same_time() {
	let Some(_) = kvm() else { return };
	let _alone = ALONE.lock().unwrap();
	// FORK; then count at 0x2000 for ever.
	let counter = [FORK, &[0xff, 0x06, 0x00, 0x20, 0xf4, 0xeb, 0xf9]].concat();
	let template = shell_client::template(shape(16, 1), &counter);
	let before = children();
	let mut clones = Vec::new();
	for batch in 0..10 {
		for (index, mut shell) in (0..).zip(Shell::prepare_many(shape(16, 1), 10)) {
			shell.claim(&template, batch * 10 + index);
			clones.push(shell);
		}
	}
	assert_eq!(children(), before + 100);
	for clone in &mut clones {
		clone.does(ToShell::Pause);
	}
	for clone in &mut clones {
		clone.stops();
	}
	drop(clones);
	assert_eq!(children(), before);
}

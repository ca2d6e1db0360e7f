//! Clones of machines that run: what they hold is what the machine held at one moment, and the machine goes on.

mod common;

use common::{
	counting::{counting, finish},
	*,
};
use flashfork_proto::signal::Signal;
use flashfork_vmm::{
	boot::Source,
	cpu::Exit,
	machine::{Deltas, Frozen, Machine},
	memory::{Watch, delta},
};
use kvm_ioctls::Kvm;

const MEMORY_MIB: u32 = 4;

fn running(kvm: &Kvm, frozen: &Frozen, index: u64) -> Machine {
	let mut clone = clone(kvm, frozen, index);
	clone.watch_with(Watch::find().unwrap());
	clone.resume();
	clone
}

/// A template of a guest that counts, and a clone of it that runs.
fn counts() -> Option<(Kvm, Frozen, Machine)> {
	let kvm = kvm()?;
	let (_boot, template) = template(&kvm, shape(MEMORY_MIB, 1), &Source::Tiny(counting()));
	let clone = running(&kvm, &template, 0);
	Some((kvm, template, clone))
}

fn deltas() -> Deltas {
	Deltas { ram: delta::create("flashfork:test", u64::from(MEMORY_MIB) << 20).unwrap(), disks: Vec::new() }
}

/// Forks a clone of `origin` that runs; `signalled`: it stands at its own fork signal.
fn fork(machine: &mut Machine, origin: &Frozen, signalled: bool) -> Frozen {
	let deltas = deltas();
	machine.begin_branch(&deltas).unwrap();
	while !machine.step_branch().unwrap() {}
	let (state, pause) = machine.branch(signalled).unwrap();
	assert!(pause.total() > 0 && !machine.is_branching());
	Frozen { ram: origin.ram.with(deltas.ram, u64::MAX).unwrap(), disks: Vec::new(), state }
}

/// Until the guest has written all its pages: a clone is asked that counts no further, for it has its character before
/// it runs.
fn wait_until_it_counts(kvm: &Kvm, machine: &mut Machine, origin: &Frozen) -> Frozen {
	loop {
		let frozen = fork(machine, origin, false);
		let mut clone = clone(kvm, &frozen, 99);
		assert_eq!(clone.devices().input(b"?"), 1);
		clone.resume();
		let Exit::Signal(Signal::Done(done)) = exit(&mut clone) else { panic!("no result") };
		let (words, _) = done.result.as_chunks();
		// It may have counted once more.
		if u32::from_le_bytes(words[0]) > 128 {
			return frozen;
		}
	}
}

#[test]
fn a_fork_is_of_one_moment_and_its_machine_goes_on() {
	let Some((kvm, template, mut parent)) = counts() else { return };
	wait_until_it_counts(&kvm, &mut parent, &template);
	let mut last = 0;
	for index in 1..=100 {
		let frozen = fork(&mut parent, &template, false);
		// The last of each kind of number: siblings count each for itself.
		let mut child = running(&kvm, &frozen, index);
		let mut sibling = running(&kvm, &frozen, index + 100);
		let counts = [finish(&mut child, b'c'), finish(&mut sibling, b's')];
		assert!(counts.iter().all(|count| *count > last), "{counts:?} after {last}");
		last = *counts.iter().min().unwrap() - 1;
		drop((child, sibling));
		// It is where its parent was, and no further than that is by now.
		let frozen = fork(&mut parent, &template, false);
		let mut later = running(&kvm, &frozen, index);
		assert!(finish(&mut later, b'l') > 128);
	}
	assert!(finish(&mut parent, b'p') > last);
}

#[test]
fn a_guest_that_signals_is_told_which_one_it_is() {
	let Some((kvm, template, mut parent)) = counts() else { return };
	wait_until_it_counts(&kvm, &mut parent, &template);
	assert_eq!(parent.devices().input(b"f"), 1);
	assert_eq!(exit(&mut parent), Exit::Signal(Signal::Fork));
	let frozen = fork(&mut parent, &template, true);
	assert!(frozen.state.forked);
	let mut child = running(&kvm, &frozen, 1);
	let counts = [finish(&mut parent, b'p'), finish(&mut child, b'c')];
	assert!(counts.iter().all(|count| *count >= 128), "{counts:?}");
}

#[test]
fn a_clone_of_a_clone_of_a_clone_and_so_on_counts_on_whoever_is_gone() {
	let Some((kvm, template, mut parent)) = counts() else { return };
	let mut frozen = wait_until_it_counts(&kvm, &mut parent, &template);
	let mut last = 0;
	for depth in 1..=20 {
		let mut child = running(&kvm, &frozen, depth);
		drop(std::mem::replace(&mut parent, child));
		// Until it has written all its pages, as those before have: what only they had is of no use then.
		frozen = loop {
			let forked = fork(&mut parent, &frozen, false);
			if forked.ram.files().len() <= 3 {
				break forked;
			}
		};
		child = running(&kvm, &frozen, depth);
		let count = finish(&mut child, b'c');
		assert!(count > last);
		last = count.min(last + 1);
	}
}

#[test]
fn a_rollback_forgets_a_fork_that_was_begun() {
	let Some((kvm, template, mut machine)) = counts() else { return };
	let frozen = wait_until_it_counts(&kvm, &mut machine, &template);
	drop(machine);
	let mut child = running(&kvm, &frozen, 1);
	child.begin_branch(&deltas()).unwrap();
	child.step_branch().unwrap();
	child.pause().unwrap();
	child.rollback(&renewal(2)).unwrap();
	assert!(!child.is_branching());
	child.branch(false).unwrap_err();
	child.resume();
	let frozen = fork(&mut child, &frozen, false);
	assert!(finish(&mut running(&kvm, &frozen, 3), b'c') > 128);
	assert!(finish(&mut child, b'p') > 128);
}

#[test]
fn what_was_never_cloned_is_not_forked() {
	let Some(kvm) = kvm() else { return };
	let (mut boot, _template) = template(&kvm, shape(MEMORY_MIB, 1), &Source::Tiny(counting()));
	let why = boot.begin_branch(&deltas()).unwrap_err().to_string();
	assert!(why.contains("can't see what its guest writes"), "{why}");
}

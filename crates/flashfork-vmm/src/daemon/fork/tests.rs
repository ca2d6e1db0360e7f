//! Forks of clones whose shells these tests play.

use super::{
	super::{
		agent::tests as agent,
		clone::tests::{PATIENCE, order, running, says},
	},
	*,
};
use crate::{boot::Source, devices::virtio::blk::Image, machine::Machine, template::Quota};
use flashfork_proto::{
	agent::Request,
	shape::{Pages, Shape},
	shell::{BootDisk, Channel, FromShell, ToShell},
};
use kvm_ioctls::Kvm;
use std::{
	io::Read,
	os::{fd::OwnedFd, unix::net::UnixStream},
	sync::Weak,
};

pub(in super::super) const SHAPE: Shape =
	Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: true, disk_slots: 0 };

/// As a template's disk is asked for.
pub(in super::super) fn asked() -> BootDisk {
	BootDisk { limit: 1 << 20, serial: "it".into(), read_only: false }
}

/// What isn't that, each in another way.
pub(in super::super) fn others() -> [BootDisk; 3] {
	[
		BootDisk { limit: 1 << 40, ..asked() },
		BootDisk { serial: "other".into(), ..asked() },
		BootDisk { read_only: true, ..asked() },
	]
}

/// A machine with such a disk, and its image.
pub(in super::super) fn frozen(disk: BootDisk, length: u64) -> Option<(Frozen, std::fs::File)> {
	let kvm = Kvm::new().ok()?;
	let file = tempfile::tempfile().unwrap();
	file.set_len(length).unwrap();
	let again = file.try_clone().unwrap();
	let image = Image { file, read_only: disk.read_only, serial: disk.serial, limit: disk.limit };
	let (mut machine, vcpu0) = Machine::prepare(&kvm, SHAPE, Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	machine.boot(&Source::Tiny(vec![0xf4]), Some(image)).unwrap();
	Some((machine.freeze(false).unwrap(), again))
}

fn entry(origin: Frozen) -> Arc<Entry> {
	let template = Template { frozen: origin, quota: Arc::new(Quota::new(0, None)), created_s: 0 };
	Arc::new(Entry::forked(template, "t-0").unwrap())
}

/// Plays a shell until it is asked for its guest's state; gives where it copies to.
fn copied(shell: &Channel) -> Vec<OwnedFd> {
	let (message, deltas) = shell.receive::<ToShell>().unwrap();
	assert_eq!(message, ToShell::Copy);
	says(shell, &FromShell::Copied);
	assert_eq!(order(shell), ToShell::Branch { at_signal: false });
	deltas
}

#[test]
fn a_shell_that_says_that_its_guest_s_disk_is_another_makes_no_template() {
	let Some((origin, _)) = frozen(asked(), 1 << 20) else { return eprintln!("skipped: no /dev/kvm") };
	let same = origin.state.encode().unwrap();
	let entry = entry(origin);
	let others = others().map(|disk| frozen(disk, 1 << 20).unwrap().0.state.encode().unwrap());
	for (state, taken) in others.into_iter().map(|state| (state, false)).chain([(same, true)]) {
		let (clone, shell) = running(Arc::downgrade(&entry));
		let made = thread::scope(|scope| {
			scope.spawn(|| {
				copied(&shell);
				says(&shell, &FromShell::Branched { state, pause: Pause::default() });
			});
			branch(&clone, &entry, How::Now)
		});
		assert_eq!(made.is_ok(), taken, "{:?}", made.err());
		clone.stop();
	}
}

#[test]
fn a_fork_of_a_large_disk_has_room_for_what_its_guest_may_write() {
	assert_eq!(room(1 << 20, 1 << 30), delta::length(1 << 20));
	assert!(room(1 << 40, 1 << 30) < 2 << 30, "{}", room(1 << 40, 1 << 30));
	assert_eq!(room(1 << 40, u64::MAX), delta::length(1 << 40));
}

/// Its clones were "starting" for ever, with its names.
#[test]
fn a_guest_whose_agent_answers_is_not_forked_now() {
	let (clone, shell) = running(Weak::new());
	assert!(!has_agent(&clone));
	says(&shell, &FromShell::Alive([0; 16]));
	clone.wait_ready().unwrap();
	thread::scope(|scope| {
		scope.spawn(|| agent::greet(&mut shell.receive::<ToShell>().unwrap().1.remove(0).into()));
		assert!(has_agent(&clone));
	});
	clone.stop();
}

/// Threads and connections stayed while the clone did.
#[test]
fn whoever_waits_for_an_agent_ends_with_the_fork() {
	let (clone, shell) = running(Weak::new());
	thread::scope(|scope| {
		scope.spawn(|| {
			let (message, mut descriptors) = shell.receive::<ToShell>().unwrap();
			assert_eq!(message, ToShell::Connect { port: PORT });
			let mut stream = UnixStream::from(descriptors.remove(0));
			agent::greet(&mut stream);
			assert!(matches!(agent::request(&mut stream), Some(Request::Exec(_))));
			says(&shell, &FromShell::Forked);
			assert_eq!(order(&shell), ToShell::Branch { at_signal: true });
			says(&shell, &FromShell::Failed("it could not".into()));
			// The agent says nothing, and its end of the line ends.
			assert_eq!(stream.read(&mut [0]).unwrap(), 0);
		});
		let error = by_agent(&clone, &clone.begin_fork(false).unwrap(), &[], PATIENCE).unwrap_err();
		assert!(error.to_string().contains("it could not"), "{error}");
	});
	clone.stop();
}

/// With a sparse image of 64 GB the daemon took 700 MB and minutes for pages that were only said to be copied, and what
/// a shell copied after it had said that it was done was not looked at.
#[test]
fn a_shell_that_says_or_does_that_it_copies_more_than_its_guest_may_write_ends() {
	let Some((origin, _)) = frozen(asked(), 64 << 30) else { return eprintln!("skipped: no /dev/kvm") };
	let same = origin.state.encode().unwrap();
	let entry = entry(origin);
	let bytes = entry.template.frozen.disks[0].overlay.length();
	for only_says in [true, false] {
		let (clone, shell) = running(Arc::downgrade(&entry));
		let made = thread::scope(|scope| {
			let (shell, clone, same) = (&shell, &clone, same.clone());
			scope.spawn(move || {
				let deltas = copied(shell);
				if only_says {
					// Every second page, by its bits.
					rustix::io::pwrite(&deltas[1], &vec![0x55; 1 << 20], bytes).unwrap();
					drop(deltas);
					says(shell, &FromShell::Branched { state: same, pause: Pause::default() });
				} else {
					(0..16).for_each(|n| {
						rustix::io::pwrite(&deltas[1], &vec![1; 1 << 20], n << 20).unwrap();
					});
					// It answers nothing, and is not waited for.
					while !clone.has_ended() {
						thread::yield_now();
					}
				}
			});
			branch(clone, &entry, How::Now).map(drop)
		});
		assert!(made.is_err() && clone.has_ended(), "{made:?}");
		clone.stop();
	}
}

#[test]
fn nobody_waits_for_more_than_disks_and_host_hold() {
	const MB: u64 = 1 << 20;
	assert_eq!(patience(MB, 0, 0), COPY + COPY_MB);
	assert_eq!(patience(MB, u64::MAX, 2 * MB), COPY + 3 * COPY_MB);
	assert!(patience(u64::MAX, 0, 0) < COPY + COPY_MB * u32::MAX);
	assert_eq!(patience(MB, u64::MAX - MB, u64::MAX - MB), patience(u64::MAX, 0, 0));
}

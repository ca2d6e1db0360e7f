//! Guest memory of every kind that a shape has, under a tiny guest.

mod common;

use common::*;
use flashfork_proto::shape::{Pages, Shape};
use std::{fs, os::fd::AsRawFd};

/// Template and clones of `shape` are what they are with little memory.
fn clones_are_copies(shape: Shape) {
	let Some(kvm) = kvm() else { return };
	let (mut parent, frozen) = template(&kvm, shape, &guest());
	parent.devices().answer(flashfork_proto::signal::Status::Ok, &[0; 12]);
	parent.resume();
	assert_eq!(exit(&mut parent), result(NONCE, 0));
	let mut clones = [1, 2].map(|index| clone(&kvm, &frozen, index));
	for (index, clone) in (1..).zip(&mut clones) {
		clone.resume();
		assert_eq!(exit(clone), result(NONCE, index));
	}
	clones[0].pause().unwrap();
	clones[0].rollback(&renewal(3)).unwrap();
	clones[0].resume();
	assert_eq!(exit(&mut clones[0]), result(NONCE, 3));
	let file = fs::metadata(format!("/proc/self/fd/{}", frozen.ram.files()[0].as_raw_fd())).unwrap();
	assert_eq!(std::os::unix::fs::MetadataExt::size(&file), shape.memory_bytes());
}

#[test]
fn memory_in_two_parts_around_the_devices() {
	clones_are_copies(shape(4096, 1));
}

#[test]
fn two_vcpus() {
	clones_are_copies(shape(64, 2));
}

#[test]
fn memory_of_two_mb_pages() {
	let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
	// A page per VM that writes, and what the kernel sets aside for the file.
	if free.trim().parse::<u64>().unwrap_or(0) < 16 {
		return eprintln!("skipped: fewer than 16 free 2 MB pages; reserve some in /proc/sys/vm/nr_hugepages");
	}
	clones_are_copies(Shape { pages: Pages::Huge, ..shape(8, 1) });
}

#[test]
fn too_few_two_mb_pages_are_an_error_that_says_what_to_do() {
	let Some(kvm) = kvm() else { return };
	let shape = Shape { pages: Pages::Huge, ..shape(1 << 16, 1) };
	let (mut machine, vcpu0) =
		flashfork_vmm::machine::Machine::prepare(&kvm, shape, Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	let refused = machine.boot(&guest(), None).unwrap_err().to_string();
	assert!(refused.contains("nr_hugepages") && !refused.contains('\n'), "{refused}");
}

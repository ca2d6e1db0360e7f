//! Whoever writes, and however: afterwards every byte is the file's.

use super::*;
use crate::memory::{self, Ram, delta};
use flashfork_proto::shape::{Pages, Shape};
use proptest::prelude::*;
use std::{fs::File, os::unix::fs::FileExt};
use vm_memory::{Bytes, GuestAddress};

const SHAPE: Shape = Shape { memory_mib: 8, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 };
const BYTES: usize = 8 << 20;

/// Who writes, and how the write gets into memory.
#[derive(Debug, Clone, Copy)]
enum Writer {
	Store,
	/// The kernel, at this process's addresses.
	Kernel,
	/// The kernel, at the page itself.
	Page,
}

#[derive(Debug, Clone)]
enum Step {
	Write {
		writer: Writer,
		at: usize,
		bytes: Vec<u8>,
	},
	/// Only looks.
	Look {
		at: usize,
	},
	/// Memory runs short: pages go where there is swap, or are about to.
	PageOut {
		at: usize,
	},
	GiveUp {
		at: usize,
	},
	/// A live fork begins, which protects pages, and ends or is given up.
	Fork {
		steps: usize,
	},
}

fn step() -> impl Strategy<Value = Step> {
	let writer = prop_oneof![Just(Writer::Store), Just(Writer::Kernel), Just(Writer::Page)];
	// Few pages more often than chance has them, and pages' ends.
	let at = prop_oneof![0..BYTES - PAGE * 2, (0usize..64).prop_map(|page| page * 16 * PAGE + PAGE - 3)];
	let bytes = prop_oneof![prop::collection::vec(any::<u8>(), 1..64), Just(vec![7; 3 * PAGE / 2])];
	prop_oneof![
		8 => (writer, at.clone(), bytes).prop_map(|(writer, at, bytes)| Step::Write { writer, at, bytes }),
		2 => at.clone().prop_map(|at| Step::Look { at }),
		1 => at.clone().prop_map(|at| Step::PageOut { at }),
		1 => at.prop_map(|at| Step::GiveUp { at }),
		1 => (0usize..3).prop_map(|steps| Step::Fork { steps }),
	]
}

fn write(ram: &Ram, writer: Writer, at: usize, bytes: &[u8]) {
	let (guest, place) = (ram.guest().clone(), GuestAddress(at as u64));
	let address = ram.slots().next().unwrap().2 + at as u64;
	match writer {
		Writer::Store => guest.write_slice(bytes, place).unwrap(),
		Writer::Kernel => {
			let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
			let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
			let own = std::process::id() as i32;
			// SAFETY: reads `bytes`, and writes guest memory, to which there are no references.
			let written = unsafe { libc::process_vm_writev(own, &local, 1, &remote, 1, 0) };
			assert_eq!(written, bytes.len() as isize);
		}
		Writer::Page => {
			let memory = File::options().write(true).open("/proc/self/mem").unwrap();
			memory.write_all_at(bytes, address).unwrap();
		}
	}
}

fn run(ram: &Ram, watch: &Watch, step: &Step) {
	let advise = |at: &usize, advice| {
		let start = ram.slots().next().unwrap().2 as usize + at / PAGE * PAGE;
		let length = (BYTES - at / PAGE * PAGE).min(32 * PAGE);
		// SAFETY: pages of the memory, to which there are no references.
		assert_eq!(unsafe { libc::madvise(start as *mut _, length, advice) }, 0);
	};
	match step {
		Step::Write { writer, at, bytes } => write(ram, *writer, *at, bytes),
		Step::Look { at } => ram.guest().read_slice(&mut [0; 2 * PAGE], GuestAddress(*at as u64)).unwrap(),
		Step::PageOut { at } => advise(at, libc::MADV_PAGEOUT),
		Step::GiveUp { at } => advise(at, libc::MADV_DONTNEED),
		Step::Fork { steps } => {
			let file = delta::create("flashfork:test", BYTES as u64).unwrap();
			let mut copying = ram.copy_writes(watch, &file).unwrap();
			for _ in 0..*steps {
				copying.step(watch).unwrap();
			}
			copying.end(watch).unwrap();
		}
	}
}

/// Memory of every kind of page, holes, small ones, and 2 MB ones where the host has them, with a live fork's over it;
/// and what it holds.
fn template(watch: &Watch) -> (Layered, Vec<u8>) {
	let file = memory::create("flashfork:test", BYTES as u64, Pages::Small).unwrap();
	for page in 0..BYTES / PAGE {
		let wanted = match (page * PAGE) >> 21 {
			0 => page % 3 == 0,
			1 => false,
			_ => true,
		};
		if wanted {
			rustix::io::pwrite(&file, &[(page % 251) as u8 + 1; PAGE], (page * PAGE) as u64).unwrap();
		}
	}
	memory::collapse(&file, BYTES as u64);
	memory::seal(&file).unwrap();
	let base = Layered::single(file, BYTES as u64);
	let forked = clone(&base);
	(0..BYTES / PAGE).step_by(97).for_each(|page| write(&forked, Writer::Store, page * PAGE + 9, &[99]));
	let file = delta::create("flashfork:test", BYTES as u64).unwrap();
	let mut copying = forked.copy_writes(watch, &file).unwrap();
	copying.finish(watch).unwrap();
	copying.end(watch).unwrap();
	let content = content(&forked);
	(base.with(file, (BYTES / PAGE) as u64).unwrap(), content)
}

fn clone(template: &Layered) -> Ram {
	let mut ram = Ram::reserve(&SHAPE).unwrap();
	ram.map_layers(template).unwrap();
	ram
}

/// What can tell which pages are copies.
fn watch() -> Option<Watch> {
	let watch = Watch::find().unwrap();
	if !watch.scans() {
		eprintln!("skipped: no PAGEMAP_SCAN");
	}
	Some(watch).filter(Watch::scans)
}

fn content(ram: &Ram) -> Vec<u8> {
	let mut content = vec![0; BYTES];
	ram.guest().read_slice(&mut content, GuestAddress(0)).unwrap();
	content
}

/// Writes a byte that isn't there to so many pages from `first` on.
fn touch(ram: &Ram, first: usize, pages: usize, byte: u8) {
	(first..first + pages).for_each(|page| write(ram, Writer::Store, page * PAGE, &[byte]));
}

proptest! {
	#![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

	#[test]
	fn every_write_is_undone_by_copying_and_by_dropping(
		rounds in prop::collection::vec((prop::collection::vec(step(), 1..24), 0..8u8), 1..8),
	) {
		let Some(watch) = watch() else { return Ok(()) };
		let (template, before) = template(&watch);
		let (mut copied, mut dropped, mut undo) = (clone(&template), clone(&template), Undo::default());
		for (steps, look) in rounds {
			for step in &steps {
				run(&copied, &watch, step);
				run(&dropped, &watch, step);
			}
			copied.undo_writes(&mut undo, &watch, &template).unwrap();
			dropped.discard_writes().unwrap();
			// Not each time: to look maps every page.
			if look < 3 {
				prop_assert!(content(&copied) == before);
			}
		}
		prop_assert!(content(&copied) == before && content(&dropped) == before);
	}
}

#[test]
fn pages_that_were_copied_back_stay_and_are_written_without_a_fault() {
	let Some(watch) = watch() else { return };
	let (template, before) = template(&watch);
	let (mut ram, mut undo) = (clone(&template), Undo::default());
	let faults = || {
		// SAFETY: writes to its own structure.
		unsafe {
			let mut usage = std::mem::zeroed();
			libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
			usage.ru_minflt
		}
	};
	for round in 0..4 {
		touch(&ram, 0, 500, round + 100);
		let kept = ram.undo_writes(&mut undo, &watch, &template).unwrap();
		assert_eq!(kept, round > 0, "who goes back once pays for nothing more");
	}
	let first = faults();
	touch(&ram, 0, 500, 99);
	assert!(ram.undo_writes(&mut undo, &watch, &template).unwrap());
	let kept = faults() - first;
	assert!(kept < 100, "{kept} faults");
	assert!(content(&ram) == before);
}

#[test]
fn what_is_written_no_more_or_is_too_much_is_dropped() {
	let Some(watch) = watch() else { return };
	let shape = Shape { memory_mib: 96, ..SHAPE };
	let file = memory::create("flashfork:test", shape.memory_bytes(), shape.pages).unwrap();
	memory::seal(&file).unwrap();
	let template = Layered::single(file, shape.memory_bytes());
	let mut ram = Ram::reserve(&shape).unwrap();
	ram.map_layers(&template).unwrap();
	let mut undo = Undo::default();
	ram.undo_writes(&mut undo, &watch, &template).unwrap();
	let last = [(400, true), (20, true), (20, true), (20, true), (20, false), (20, true)];
	for (pages, kept) in [(MOST, true), (MOST + 1, false)].into_iter().chain(last) {
		touch(&ram, 0, pages, 1);
		assert_eq!(ram.undo_writes(&mut undo, &watch, &template).unwrap(), kept, "{pages} pages");
	}
}

#[test]
fn looking_that_takes_longer_than_faults_is_no_gain() {
	let copying = Duration::from_micros(100);
	assert!(pays(200, 200, copying * 8, copying) && !pays(200, 200, copying * 9, copying));
	assert!(pays(200, 0, copying, copying) && !pays(2000, 0, copying, copying));
}

#[test]
fn where_it_cannot_be_done_all_is_dropped_and_what_is_no_copy_is_refused() {
	let Some(watch) = watch() else { return };
	let (template, before) = template(&watch);
	let (mut ram, mut undo) = (Ram::reserve(&SHAPE).unwrap(), Undo::default());
	assert!(matches!(ram.undo_writes(&mut undo, &watch, &template), Err(memory::RamError::NotPrivate)));
	ram.map_layers(&template).unwrap();
	// Of this nothing can be mapped to be read.
	let unreadable = rustix::fs::open("/dev/null", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty()).unwrap();
	let unreadable = Layered::single(unreadable, BYTES as u64);
	for byte in 200..203 {
		touch(&ram, 0, 300, byte);
		assert!(!ram.undo_writes(&mut undo, &watch, &unreadable).unwrap());
	}
	assert!(content(&ram) == before);
}

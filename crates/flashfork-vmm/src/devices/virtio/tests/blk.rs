//! Disks: what is written where, who sees it, and what becomes of requests around a freeze.

use crate::{
	devices::virtio::{
		blk::{
			Blk, DEFAULT_LIMIT, Disk, DiskError, DiskSlot, DiskState, FrozenDisk, Image, empty_overlay, overlay_bytes,
		},
		driver::{BUFFERS, Driver},
		state::VirtioState,
	},
	events::{self, Event},
	memory::{Layered, Watch, delta},
};
use flashfork_proto::shell::BootDisk;
use std::{
	fs::File,
	io::Write,
	sync::{Arc, Mutex},
	time::Duration,
};

const IN: u32 = 0;
const OUT: u32 = 1;
const OK: u8 = 0;
const IOERR: u8 = 1;

/// An image whose every sector begins with its number.
pub(super) fn image(sectors: u64) -> File {
	let mut file = tempfile::tempfile().unwrap();
	for sector in 0..sectors {
		let mut bytes = [0xee; 512];
		bytes[..8].copy_from_slice(&sector.to_le_bytes());
		file.write_all(&bytes).unwrap();
	}
	file
}

fn source(sectors: u64) -> Image {
	Image { file: image(sectors), read_only: false, serial: "disk-1".into(), limit: DEFAULT_LIMIT }
}

fn new(sectors: u64) -> DiskSlot {
	slot(Disk::new(source(sectors)).unwrap())
}

/// A driver of the disk in that place.
fn driver_of(slot: &DiskSlot) -> Driver {
	Driver::start(Box::new(Blk(slot.clone())), true)
}

/// The same of a clone.
fn clone_with(slot: &DiskSlot, parent: &Driver, state: &VirtioState) -> Driver {
	parent.restored(Box::new(Blk(slot.clone())), state)
}

fn discard_writes(slot: &DiskSlot) {
	slot.lock().unwrap().as_mut().unwrap().discard_writes().unwrap();
}

fn written(slot: &DiskSlot) -> u64 {
	slot.lock().unwrap().as_ref().unwrap().written()
}

pub(super) fn slot(disk: Disk) -> DiskSlot {
	Arc::new(Mutex::new(Some(disk)))
}

fn freeze(slot: &DiskSlot) -> FrozenDisk {
	slot.lock().unwrap().as_mut().unwrap().freeze().unwrap()
}

/// Puts a request in: header, data, status, each in its own place by `n`.
fn submit(driver: &mut Driver, n: u64, kind: u32, sector: u64, data: &[u8], length: u32) {
	let at = BUFFERS + n * 0x10000;
	let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
	driver.write(at, &header);
	driver.write(at + 0x1000, data);
	driver.write(at + 0x20, &[0xff]);
	driver.submit(0, &[(at, 16, false), (at + 0x1000, length, ![OUT, 11, 13].contains(&kind)), (at + 0x20, 1, true)]);
}

fn status(driver: &Driver, n: u64) -> u8 {
	driver.read(BUFFERS + n * 0x10000 + 0x20, 1)[0]
}

fn request(driver: &mut Driver, kind: u32, sector: u64, data: &[u8], length: u32) -> (u8, Vec<u8>) {
	submit(driver, 0, kind, sector, data, length);
	let (_, written) = driver.used(0).expect("an answer");
	let status = status(driver, 0);
	let data = driver.read(BUFFERS + 0x1000, length as usize);
	assert_eq!(written, if kind != OUT && status == OK { length + 1 } else { 1 });
	(status, data)
}

fn read(driver: &mut Driver, sector: u64) -> Vec<u8> {
	let (status, data) = request(driver, IN, sector, &[], 512);
	assert_eq!(status, OK);
	data
}

fn write(driver: &mut Driver, sector: u64, byte: u8) {
	assert_eq!(request(driver, OUT, sector, &[byte; 512], 512).0, OK);
}

#[test]
fn what_is_written_is_read_and_the_rest_is_the_image() {
	let slot = new(101);
	let mut driver = driver_of(&slot);
	write(&mut driver, 9, 7);
	assert_eq!(read(&mut driver, 9), [7; 512]);
	for sector in [0, 8, 10, 15, 16, 100] {
		assert_eq!(read(&mut driver, sector)[..8], sector.to_le_bytes(), "{sector}");
	}
	// The last, partial block; and a read across a written block and unwritten ones.
	write(&mut driver, 100, 8);
	assert_eq!(read(&mut driver, 100), [8; 512]);
	assert_eq!(read(&mut driver, 99)[..8], 99u64.to_le_bytes());
	let (status, data) = request(&mut driver, IN, 0, &[], 64 * 512);
	assert_eq!(status, OK);
	for sector in 0..64u64 {
		let expected = if sector == 9 { [7; 8] } else { sector.to_le_bytes() };
		assert_eq!(data[sector as usize * 512..][..8], expected, "{sector}");
	}
	assert_eq!(written(&slot), 2 * 4096);
	assert!(driver.transport().interrupts() > 0);
}

#[test]
fn capacity_serial_number_and_flush_are_answered() {
	let driver = &mut driver_of(&new(64));
	let mut capacity = [0; 8];
	driver.transport().read(0x100, &mut capacity);
	assert_eq!(u64::from_le_bytes(capacity), 64);
	let (status, serial) = request(driver, 8, 0, &[], 20);
	assert_eq!((status, &serial[..7]), (OK, &b"disk-1\0"[..]));
	assert_eq!(request(driver, 77, 0, &[], 512).0, 2, "unknown kinds are unsupported");
	submit(driver, 0, 4, 0, &[], 0);
	assert!(driver.used(0).is_some());
	assert_eq!(self::status(driver, 0), OK);
}

#[test]
fn sectors_outside_the_disk_are_errors_however_they_are_said() {
	let driver = &mut driver_of(&new(64));
	for (sector, length) in
		[(64, 512), (63, 1024), (u64::MAX, 512), (u64::MAX / 512, 512), (1 << 55, 512), (0, 100), (0, 1 << 16)]
	{
		assert_eq!(request(driver, IN, sector, &[], length).0, IOERR, "read {sector} {length}");
		assert_eq!(request(driver, OUT, sector, &[], length).0, IOERR, "write {sector} {length}");
	}
	assert_eq!(read(driver, 63)[..8], 63u64.to_le_bytes());
}

#[test]
fn a_read_only_disk_refuses_writes() {
	let disk = Disk::new(Image { read_only: true, ..source(64) }).unwrap();
	let driver = &mut driver_of(&slot(disk));
	assert_eq!(request(driver, OUT, 0, &[1; 512], 512).0, IOERR);
	assert_eq!(read(driver, 0)[..8], 0u64.to_le_bytes());
	assert_ne!(driver.register(0x10) & 1 << 5, 0, "VIRTIO_BLK_F_RO");
}

#[test]
fn a_guest_that_writes_more_than_it_may_gets_errors_and_keeps_what_it_has() {
	let mut disk = Disk::new(Image { limit: 2 * 4096, ..source(64) }).unwrap();
	let (events, heard) = events::queue().unwrap();
	disk.report_to(events);
	let driver = &mut driver_of(&slot(disk));
	write(driver, 0, 1);
	write(driver, 8, 2);
	for _ in 0..3 {
		assert_eq!(request(driver, OUT, 16, &[3; 512], 512).0, IOERR);
	}
	write(driver, 9, 4);
	let Some(Event::Trouble(line)) = heard.take(Some(Duration::ZERO)) else { panic!("nobody was told") };
	assert!(line.contains("the disk is full") && line.contains("--disk-limit"), "{line}");
	assert!(heard.take(Some(Duration::ZERO)).is_none(), "told once");
	assert_eq!((read(driver, 0), read(driver, 8)[0], read(driver, 16)[0]), (vec![1; 512], 2, 16));
}

#[test]
fn disk_writes_of_template_and_clones_are_isolated_and_a_rollback_drops_them() {
	let parent_slot = new(64);
	let mut parent = driver_of(&parent_slot);
	write(&mut parent, 1, 0xaa);
	parent.transport().pause();
	let state = parent.transport().save();
	let frozen = freeze(&parent_slot);
	parent.transport().resume();

	let slots = [(); 2].map(|()| slot(Disk::copy(&frozen).unwrap()));
	let mut clones = slots.clone().map(|slot| clone_with(&slot, &parent, &state));
	for (n, clone) in (1..).zip(&mut clones) {
		clone.transport().resume();
		assert_eq!(read(clone, 1), [0xaa; 512], "from the template");
		assert_eq!(read(clone, 2)[0], 2, "from the image");
		write(clone, 1, n);
		write(clone, 40, n);
	}
	write(&mut parent, 1, 0xbb);
	for (n, clone) in (1..).zip(&mut clones) {
		assert_eq!((read(clone, 1)[0], read(clone, 40)[0], read(clone, 41)[0]), (n, n, 41));
	}
	assert_eq!((read(&mut parent, 1)[0], read(&mut parent, 40)[0]), (0xbb, 40));
	assert_eq!(written(&slots[0]), 2 * 4096);

	clones[0].transport().pause();
	discard_writes(&slots[0]);
	clones[0].transport().resume();
	assert_eq!((read(&mut clones[0], 1)[0], read(&mut clones[0], 40)[0]), (0xaa, 40));
	assert_eq!(read(&mut clones[1], 1)[0], 2, "the sibling keeps its own");
}

#[test]
fn requests_in_flight_at_a_freeze_are_completed_exactly_once_in_template_and_clone() {
	for event_idx in [false, true] {
		let parent_slot = new(64);
		let mut parent = Driver::start(Box::new(Blk(parent_slot.clone())), event_idx);
		write(&mut parent, 0, 1);
		parent.transport().pause();
		for n in 0..10 {
			submit(&mut parent, n, OUT, n, &[n as u8; 512], 512);
		}
		parent.settle();
		let state = parent.transport().save();
		let frozen = freeze(&parent_slot);
		let clone_slot = slot(Disk::copy(&frozen).unwrap());
		let mut clone = clone_with(&clone_slot, &parent, &state);
		for driver in [&mut clone, &mut parent] {
			assert_eq!(driver.used_within(0, Duration::ZERO), None, "nothing is served while paused");
			driver.transport().resume();
			let mut heads: Vec<u16> = (0..10).map(|_| driver.used(0).expect("every request is answered").0).collect();
			heads.sort_unstable();
			heads.dedup();
			assert_eq!(heads.len(), 10, "each once: {heads:?}");
			driver.settle();
			assert_eq!(driver.used_within(0, Duration::ZERO), None, "and none again");
			assert!((0..10).all(|n| status(driver, n) == OK));
		}
		for driver in [&mut clone, &mut parent] {
			assert_eq!(read(driver, 7)[0], 7);
		}
	}
}

#[test]
fn a_template_of_another_disk_is_refused() {
	let parent_slot = new(64);
	let parent = driver_of(&parent_slot);
	parent.transport().pause();
	let state = parent.transport().save();
	let frozen = freeze(&parent_slot);
	let other = FrozenDisk { image: image(72).into(), overlay: frozen.overlay, attached: None, seen: None };
	assert!(matches!(Disk::copy(&other), Err(DiskError::Layers(_))), "the overlay has another length");
	let open = Disk::new(source(64)).unwrap();
	let overlay = Layered::single(tempfile::tempfile().unwrap().into(), overlay_bytes(32768));
	let unsealed = FrozenDisk { image: image(64).into(), overlay, attached: None, seen: None };
	assert!(Disk::copy(&unsealed).is_err());
	// The right length of overlay, but another number of sectors.
	let odd = new(63);
	let refused = Driver::raw(Box::new(Blk(odd)), parent.memory.clone()).transport().restore(&state).unwrap_err();
	assert!(refused.to_string().contains("32768 bytes"), "{refused}");
	let missing = Driver::raw(Box::new(Blk(DiskSlot::default())), parent.memory.clone());
	assert!(missing.transport().restore(&state).unwrap_err().to_string().contains("missing"));
	drop(open);
}

/// A clone's disk is forked while it is written to, again and again: each fork has what was there then, and what the
/// others write later is their own.
#[test]
fn what_a_clone_has_written_is_forked_with_it() {
	let watch = Watch::find().unwrap();
	let frozen = freeze(&slot(Disk::new(source(64)).unwrap()));
	let mut parent = Disk::copy(&frozen).unwrap();
	let bytes = parent.bytes();
	parent.set_state(writable(&parent)).unwrap();
	let mut below = frozen;
	for round in 1..=20_u8 {
		parent.clear(4096 * 6..4096 * 8, true).unwrap();
		let delta = delta::create("flashfork:test", overlay_bytes(bytes)).unwrap();
		let mut copying = parent.copy_writes(&watch, &delta).unwrap();
		parent.write(0, &[round; 512]).unwrap();
		copying.step(&watch).unwrap();
		parent.write(4096 * u64::from(round % 7 + 1), &[round; 4096]).unwrap();
		copying.finish(&watch).unwrap();
		copying.end(&watch).unwrap();
		let overlay = below.overlay.with(delta, u64::MAX).unwrap();
		let now = FrozenDisk { image: below.image.try_clone().unwrap(), overlay, attached: None, seen: None };
		let whole = |disk: &Disk| {
			let mut all = vec![0; bytes as usize];
			disk.read(0, &mut all).unwrap();
			all
		};
		let mut child = Disk::copy(&now).unwrap();
		let then = whole(&parent);
		assert!(whole(&child) == then && then[0] == round);
		child.set_state(writable(&child)).unwrap();
		child.write(512, &[0xee; 512]).unwrap();
		parent.write(1024, &[0xdd; 512]).unwrap();
		assert!(whole(&Disk::copy(&now).unwrap()) == then);
		assert_eq!((whole(&child)[512], whole(&child)[1024] == then[1024]), (0xee, true));
		// Every other round goes on with the child.
		if round % 2 == 0 {
			(parent, below) = (child, now);
		}
	}
}

/// As a template of this disk has it.
fn writable(disk: &Disk) -> DiskState {
	Disk::new(source(disk.bytes() / 512)).unwrap().state().clone()
}

/// A template has a device without a disk: a clone that is given one is told of its capacity, by an interrupt and
/// another generation of its config space, each time it starts.
#[test]
fn a_disk_is_attached_to_a_clone_whose_template_has_an_empty_place() {
	let capacity = |driver: &Driver| {
		let mut bytes = [0; 8];
		driver.transport().read(0x100, &mut bytes);
		// CONFIG_GENERATION, and InterruptStatus's bit for it.
		(u64::from_le_bytes(bytes), driver.register(0xfc), driver.register(0x60) & 2)
	};
	let mut parent = driver_of(&DiskSlot::default());
	assert_eq!(request(&mut parent, IN, 0, &[], 512).0, IOERR);
	parent.transport().pause();
	let state = parent.transport().save();
	assert_eq!((capacity(&parent), state.disk()), ((0, 0, 0), None));
	for read_only in [false, true] {
		let attached = BootDisk { limit: 1 << 20, serial: "it".into(), read_only };
		let overlay = empty_overlay(64 * 512).unwrap();
		let fresh = FrozenDisk { image: image(64).into(), overlay, attached: Some(attached), seen: None };
		let place = slot(Disk::copy(&fresh).unwrap());
		let mut clone = clone_with(&place, &parent, &state);
		for generation in 0..2 {
			assert_eq!(capacity(&clone), (64, 1, 2), "{generation}");
			assert!(clone.transport().interrupts() > 0);
			clone.set(0x64, 2);
			clone.transport().resume();
			assert_eq!(read(&mut clone, 9)[..8], 9u64.to_le_bytes());
			if read_only {
				assert_eq!(request(&mut clone, OUT, 9, &[1; 512], 512).0, IOERR);
			} else {
				write(&mut clone, 9, 7);
			}
			clone.transport().pause();
			if generation == 0 {
				// A rollback: back to the claim.
				discard_writes(&place);
				clone = clone_with(&place, &parent, &state);
			}
		}
		// Of what is made of it, it is a disk like any other: nothing has changed for its driver.
		let below = clone.transport().save();
		let template = FrozenDisk { attached: None, ..fresh };
		let mut child = clone_with(&slot(Disk::copy(&template).unwrap()), &clone, &below);
		assert_eq!(capacity(&child), (64, 1, 0));
		child.transport().resume();
		assert_eq!(request(&mut child, OUT, 1, &[1; 512], 512).0, if read_only { IOERR } else { OK });
	}
	let mut other = clone_with(&DiskSlot::default(), &parent, &state);
	assert_eq!(capacity(&other), (0, 0, 0));
	other.transport().resume();
	assert_eq!(request(&mut other, IN, 0, &[], 512).0, IOERR);
}

/// What is discarded is zeros and takes no memory, in the VM that did it, its rollbacks and its forks, over an image, a
/// template's writes and its own; requests that make no sense change nothing.
#[test]
fn what_is_discarded_is_zeros_everywhere_and_its_memory_free() {
	const SECTORS: u64 = 101;
	let piece = |sector: u64, sectors: u32, flags: u32| {
		[&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
	};
	let whole = |disk: &Disk| {
		let mut all = vec![0; (SECTORS * 512) as usize];
		disk.read(0, &mut all).unwrap();
		all
	};
	let mut place = new(SECTORS);
	let mut driver = driver_of(&place);
	let mut expected = whole(place.lock().unwrap().as_ref().unwrap());
	let mut seed = 1u64;
	let mut next = |below: u64| {
		seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
		(seed >> 33) % below
	};
	for round in 0..600u32 {
		let sector = next(SECTORS);
		let sectors = 1 + next((SECTORS - sector).min(40));
		let bytes = (sector * 512) as usize..((sector + sectors) * 512) as usize;
		match next(3) {
			0 => {
				let data = vec![round as u8 | 1; bytes.len()];
				assert_eq!(request(&mut driver, OUT, sector, &data, data.len() as u32).0, OK);
				expected[bytes].copy_from_slice(&data);
			}
			kind => {
				let data = piece(sector, sectors as u32, kind as u32 - 1);
				submit(&mut driver, 0, 9 + 2 * kind as u32, 0, &data, 16);
				assert_eq!((driver.used(0).unwrap().1, status(&driver, 0)), (1, OK));
				// Of blocks that are in it in part, a discard changes nothing.
				let end = if bytes.end == expected.len() { bytes.end } else { bytes.end / 4096 * 4096 };
				let zeros = if kind == 1 { bytes.start.next_multiple_of(4096)..end } else { bytes };
				expected.get_mut(zeros).into_iter().for_each(|zeros| zeros.fill(0));
			}
		}
		let now = whole(place.lock().unwrap().as_ref().unwrap());
		assert!(now == expected, "round {round}");
		if round == 200 {
			// On as a clone.
			driver.transport().pause();
			let (frozen, state) = (freeze(&place), driver.transport().save());
			place = slot(Disk::copy(&frozen).unwrap());
			driver = clone_with(&place, &driver, &state);
			driver.transport().resume();
		}
	}
	for (bad, answer) in [
		(piece(0, 8, 1), 2),
		(piece(SECTORS, 1, 0), IOERR),
		(piece(u64::MAX, u32::MAX, 0), IOERR),
		(vec![0; 15], IOERR),
		(vec![0; 16 * 17], IOERR),
	] {
		submit(&mut driver, 0, 11, 0, &bad, bad.len() as u32);
		driver.used(0).unwrap();
		assert_eq!(status(&driver, 0), answer, "{bad:?}");
	}
	submit(&mut driver, 0, 11, 0, &piece(0, SECTORS as u32, 0), 16);
	driver.used(0).unwrap();
	let mut disk = place.lock().unwrap();
	assert_eq!((disk.as_ref().unwrap().written(), whole(disk.as_ref().unwrap())), (0, vec![0; expected.len()]));
	disk.as_mut().unwrap().discard_writes().unwrap();
	assert!(whole(disk.as_ref().unwrap()) != vec![0; expected.len()], "the template's again");
}

#[test]
fn images_that_are_no_disk_are_refused_with_the_reason() {
	for bytes in [0, 511, 513] {
		let file = tempfile::tempfile().unwrap();
		file.set_len(bytes).unwrap();
		let refused = Disk::new(Image { file, ..source(1) }).unwrap_err();
		assert!(matches!(refused, DiskError::Size(found) if found == bytes));
	}
}

#[test]
fn an_image_that_shrinks_gives_errors_not_signals() {
	let file = image(64);
	let disk = Disk::new(Image { file: file.try_clone().unwrap(), ..source(1) }).unwrap();
	let driver = &mut driver_of(&slot(disk));
	file.set_len(512).unwrap();
	assert_eq!(request(driver, IN, 32, &[], 512).0, IOERR);
	assert_eq!(request(driver, OUT, 32, &[1; 512], 512).0, IOERR, "the rest of the block can't be read");
	assert_eq!(request(driver, OUT, 32, &[1; 4096], 4096).0, OK, "nothing of it is needed");
}

//! Templates in directories: saved, loaded, damaged, refused.

mod common;

use common::*;
use flashfork_vmm::{
	devices::virtio::blk::{DEFAULT_LIMIT, Image},
	machine::Machine,
	template::{DirectoryError, Quota, Template, load, save},
};
use kvm_ioctls::Kvm;
use proptest::{
	prelude::*,
	test_runner::{Config, TestRunner},
};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use std::{
	fs::{self, File},
	io::Write,
	os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown, symlink},
	path::Path,
	sync::Arc,
};

const FILES: [&str; 4] = ["disk", "manifest", "overlay", "ram"];

/// Of the tiny guest, which has a disk that it doesn't use.
fn template(kvm: &Kvm) -> Template {
	let mut image = tempfile::tempfile().unwrap();
	image.write_all(&vec![0x5a; 70_000 / 512 * 512]).unwrap();
	let shape = flashfork_proto::shape::Shape { disk: true, ..shape(4, 1) };
	let (mut machine, vcpu0) = Machine::prepare(kvm, shape, Box::new(std::io::sink())).unwrap();
	machine.spawn(vcpu0).unwrap();
	let disk = Image { file: image, read_only: false, serial: "s".into(), limit: DEFAULT_LIMIT };
	machine.boot(&guest(), Some(disk)).unwrap();
	machine.resume();
	exit(&mut machine);
	machine.pause().unwrap();
	let frozen = machine.freeze(true).unwrap();
	let quota = Arc::new(Quota::new(1000, Some(500)));
	let mut numbers = quota.take(1000, 3).unwrap();
	(0..3).for_each(|_| numbers.use_first());
	Template { frozen, quota, created_s: 1_700_000_000 }
}

fn runs(kvm: &Kvm, template: &Template) {
	let mut clone = clone(kvm, &template.frozen, 9);
	clone.resume();
	assert_eq!(exit(&mut clone), result(NONCE, 9));
}

fn names(directory: &Path) -> Vec<String> {
	let mut names: Vec<_> =
		fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
	names.sort();
	names
}

#[test]
fn a_hundred_save_and_load_cycles() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	let mut template = template(&kvm);
	let first = template.frozen.state.encode().unwrap();
	for cycle in 0..100 {
		let directory = place.path().join(format!("t{cycle}"));
		save(&template, &directory, &kvm).unwrap();
		template = load(&directory, &kvm).unwrap();
		if cycle > 0 {
			let before = place.path().join(format!("t{}", cycle - 1));
			for name in FILES {
				assert_eq!(fs::read(before.join(name)).unwrap(), fs::read(directory.join(name)).unwrap(), "{name}");
			}
			fs::remove_dir_all(before).unwrap();
		}
	}
	assert_eq!(template.frozen.state.encode().unwrap(), first);
	assert_eq!((template.quota.made(), template.quota.max(), template.quota.tenant()), (3, Some(500), 1000));
	assert_eq!(template.created_s, 1_700_000_000);
	runs(&kvm, &template);
	assert_eq!(names(place.path()), ["t99"], "nothing is left behind");
}

#[test]
fn memory_that_is_empty_takes_no_room_and_only_the_owner_may_read() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	let directory = place.path().join("t");
	save(&template(&kvm), &directory, &kvm).unwrap();
	let ram = fs::metadata(directory.join("ram")).unwrap();
	assert_eq!(ram.len(), 4 << 20);
	assert!(ram.blocks() * 512 < 200_000, "{} bytes for a few pages", ram.blocks() * 512);
	assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
	assert_eq!(ram.permissions().mode() & 0o777, 0o600);
	let loaded = load(&directory, &kvm).unwrap();
	let resident = File::from(loaded.frozen.ram.files()[0].try_clone().unwrap()).metadata().unwrap().blocks() * 512;
	assert!(resident < 200_000, "{resident} bytes after loading");
}

#[test]
fn damaged_and_truncated_files_are_errors_and_never_a_template() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	let directory = place.path().join("t");
	save(&template(&kvm), &directory, &kvm).unwrap();
	for name in FILES {
		let path = directory.join(name);
		let good = fs::read(&path).unwrap();
		let change = |what: &str, bytes: &[u8]| {
			fs::write(&path, bytes).unwrap();
			let refused = load(&directory, &kvm).err().unwrap_or_else(|| panic!("{name}: {what} was accepted"));
			let text = refused.to_string();
			assert!(text.contains(name) && !text.contains('\n'), "{name}: {what}: {text}");
		};
		change("an empty file", &[]);
		change("half of it", &good[..good.len() / 2]);
		change("a byte more", &[&good[..], &[0]].concat());
		let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
		runner
			.run(&(0..good.len(), 0u8..8), |(at, bit)| {
				let mut bad = good.clone();
				bad[at] ^= 1 << bit;
				change(&format!("bit {bit} of byte {at}"), &bad);
				Ok(())
			})
			.unwrap();
		fs::remove_file(&path).unwrap();
		assert!(load(&directory, &kvm).unwrap_err().to_string().contains(name));
		fs::write(&path, &good).unwrap();
	}
	load(&directory, &kvm).unwrap();
}

#[test]
fn a_full_disk_is_one_line_and_nothing_is_left_behind() {
	let Some(kvm) = kvm() else { return };
	if !rustix::process::geteuid().is_root() {
		return eprintln!("skipped: mounting a small file system needs root");
	}
	let template = template(&kvm);
	let place = tempfile::tempdir().unwrap();
	// A mount namespace of this thread's own.
	std::thread::scope(|scope| {
		scope.spawn(|| {
			// SAFETY: only this thread's view of mounts changes.
			unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
			mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
			mount("none", place.path(), "tmpfs", MountFlags::empty(), Some(c"size=32k")).unwrap();
			let refused = save(&template, &place.path().join("t"), &kvm).unwrap_err().to_string();
			assert!(refused.contains("No space left on device") && !refused.contains('\n'), "{refused}");
			assert!(names(place.path()).is_empty());
		});
	});
}

#[test]
fn what_a_killed_save_leaves_goes_with_the_next_and_two_at_once_are_refused() {
	let Some(kvm) = kvm() else { return };
	let template = template(&kvm);
	let place = tempfile::tempdir().unwrap();
	let directory = place.path().join("t");
	let left = place.path().join(".t.saving");
	fs::DirBuilder::new().mode(0o700).create(&left).unwrap();
	fs::write(left.join("ram"), [1; 100]).unwrap();
	{
		let other = File::open(&left).unwrap();
		rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
		assert!(matches!(save(&template, &directory, &kvm), Err(DirectoryError::Busy(_))));
	}
	save(&template, &directory, &kvm).unwrap();
	assert_eq!(names(place.path()), ["t"]);
	assert_eq!(names(&directory), FILES);
	assert!(matches!(save(&template, &directory, &kvm), Err(DirectoryError::Exists(_))));
	load(&directory, &kvm).unwrap();
	let empty = place.path().join("empty");
	fs::create_dir(&empty).unwrap();
	save(&template, &empty, &kvm).unwrap();
	runs(&kvm, &load(&empty, &kvm).unwrap());
}

#[test]
fn nothing_is_written_to_a_place_that_somebody_else_prepared() {
	let Some(kvm) = kvm() else { return };
	let template = template(&kvm);
	let place = tempfile::tempdir().unwrap();
	let (directory, draft) = (place.path().join("t"), place.path().join(".t.saving"));
	let refused = |what: &str| {
		let refused = save(&template, &directory, &kvm).expect_err(what);
		assert!(
			matches!(refused, DirectoryError::Foreign(_)) && !refused.to_string().contains('\n'),
			"{what}: {refused}"
		);
		assert!(!directory.exists());
	};
	let elsewhere = place.path().join("elsewhere");
	fs::DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
	fs::write(elsewhere.join("precious"), "").unwrap();
	symlink(&elsewhere, &draft).unwrap();
	refused("a link");
	fs::remove_file(&draft).unwrap();
	fs::write(&draft, "").unwrap();
	refused("a file");
	fs::remove_file(&draft).unwrap();
	fs::DirBuilder::new().mode(0o700).create(&draft).unwrap();
	fs::set_permissions(&draft, fs::Permissions::from_mode(0o750)).unwrap();
	refused("a directory that others may read");
	if rustix::process::geteuid().is_root() {
		fs::set_permissions(&draft, fs::Permissions::from_mode(0o700)).unwrap();
		chown(&draft, Some(65534), None).unwrap();
		refused("a directory of another user");
	}
	assert_eq!(names(&elsewhere), ["precious"]);
}

#[test]
fn a_state_whose_checksum_is_right_but_whose_content_is_nonsense_is_refused_or_harmless() {
	use flashfork_vmm::state::MachineState;
	let Some(kvm) = kvm() else { return };
	let good = template(&kvm).frozen.state.encode().unwrap();
	let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
	runner
		.run(&(24..good.len(), any::<u8>(), 1usize..9), |(at, byte, count)| {
			let mut bad = good.clone();
			let end = (at + count).min(bad.len());
			bad[at..end].fill(byte);
			let checksum = crc32fast::hash(&bad[24..]);
			bad[12..16].copy_from_slice(&checksum.to_le_bytes());
			// Any outcome but a crash; what decodes has the shape it says.
			if let Ok(state) = MachineState::decode(&bad) {
				state.shape.check().unwrap();
			}
			Ok(())
		})
		.unwrap();
}

#[test]
fn an_overlay_of_another_disk_is_refused_however_well_it_is_vouched_for() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	let directory = place.path().join("t");
	save(&template(&kvm), &directory, &kvm).unwrap();
	// One more block in the overlay, zeros, which no checksum counts; the manifest agrees. Lengths are postcard's
	// varints.
	let (image, overlay, longer) = ([0x80, 0xa0, 0x04], [0x80, 0xe0, 0x04], [0x80, 0x80, 0x05]);
	let file = File::options().write(true).open(directory.join("overlay")).unwrap();
	assert_eq!(file.metadata().unwrap().len(), 19 * 4096);
	file.set_len(20 * 4096).unwrap();
	let mut manifest = fs::read(directory.join("manifest")).unwrap();
	let find = |from: usize, what: [u8; 3]| from + manifest[from..].windows(3).position(|w| w == what).unwrap();
	let at = find(find(24, image), overlay);
	manifest[at..at + 3].copy_from_slice(&longer);
	let checksum = crc32fast::hash(&manifest[24..]);
	manifest[12..16].copy_from_slice(&checksum.to_le_bytes());
	fs::write(directory.join("manifest"), manifest).unwrap();
	let refused = load(&directory, &kvm).unwrap_err().to_string();
	assert!(refused.contains("disk and overlay don't belong together"), "{refused}");
}

#[test]
fn another_kind_of_directory_is_refused() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	assert!(matches!(load(place.path(), &kvm), Err(DirectoryError::Read { .. })));
	let file = File::create(place.path().join("manifest")).unwrap();
	file.write_all_at(b"something else, and longer than a header", 0).unwrap();
	let refused = load(place.path(), &kvm).unwrap_err().to_string();
	assert!(refused.contains("not a part of a flashfork template"), "{refused}");
	file.set_len(5 << 20).unwrap();
	assert!(load(place.path(), &kvm).is_err());
}

#[test]
fn a_part_that_is_a_pipe_nobody_writes_to_is_refused_at_once() {
	let Some(kvm) = kvm() else { return };
	let place = tempfile::tempdir().unwrap();
	for name in FILES {
		let directory = place.path().join(name);
		save(&template(&kvm), &directory, &kvm).unwrap();
		let part = directory.join(name);
		fs::remove_file(&part).unwrap();
		assert!(std::process::Command::new("mkfifo").arg(&part).status().unwrap().success());
		let error = load(&directory, &kvm).unwrap_err();
		assert!(error.to_string().contains("neither a file nor a block device"), "{name}: {error}");
	}
}

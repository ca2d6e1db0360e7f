//! Snapshots and restores whose system calls fail.

use crate::{
	memory::Region,
	process::{self, State},
	scene::{Kind, Scene},
	verify::{again, begin, end, family},
};
use flashfork_core::snapshot::{Options, Way, discard, go_back_by, restore, snapshot};
use flashfork_tests::{Result, content::PAGE};

pub const OPTIONS: Options = Options { seal: true, keep: &[], descriptors: &[], close_new: false };

/// Where a third region lies, which is unmapped between snapshot and restore, and a fourth, mapped meanwhile.
const GOES: usize = 0x20_c000_0000;
const COMES: usize = 0x21_0000_0000;
const PAGES: usize = 512;

/// A snapshot is taken while a call fails. Either it isn't, and nothing has changed, or it is, and a restore is right.
pub fn taken(scene: &mut Scene) -> Result {
	begin();
	let outcome = scene.play();
	end();
	match outcome {
		Err(_) => family(scene, "after the snapshot that was refused")?,
		Ok(0) => {
			family(scene, "after the snapshot")?;
			scene.main.write((0..scene.main.tags.len()).step_by(5), 7 << 20);
			return Err(format!("the restore: {:?}", restore(1)));
		}
		Ok(_) => family(scene, "after the restore")?,
	}
	discard().map_err(|e| format!("discard: {e:?}"))?;
	again(scene)
}

/// A restore while a call fails. Either it is refused, and nothing has changed, or it is right.
pub fn restored(scene: &mut Scene, leak_allowed: bool) -> Result {
	let mut goes = Region::new(GOES, PAGES, 4 << 20)?;
	let file = std::fs::File::open("/proc/self/exe").map_err(|e| e.to_string())?;
	let descriptors = [std::os::fd::AsRawFd::as_raw_fd(&file)];
	let before = shared::<State>()?;
	let value = snapshot(&Options { descriptors: &descriptors, ..OPTIONS }).map_err(|e| format!("snapshot: {e:?}"))?;
	if value > 0 {
		end();
		// SAFETY: set before the restore.
		process::same(unsafe { *before }, process::state(), 0, leak_allowed)?;
		goes.check()?;
		goes.write(0..PAGES, 5 << 20);
		family(scene, "after the restore")?;
		discard().map_err(|e| format!("discard: {e:?}"))?;
		return again(scene);
	}
	// SAFETY: the victim's own memory and descriptor.
	unsafe {
		*before = process::state();
		scene.main.write((1..scene.main.tags.len()).step_by(7), 6 << 20);
		libc::munmap(GOES as *mut _, PAGES * PAGE);
		libc::sbrk(1 << 20);
		libc::lseek(descriptors[0], 64, libc::SEEK_SET);
	}
	Region::new(COMES, PAGES, 8 << 20)?;
	scene.side.protect(libc::PROT_READ)?;
	begin();
	let refused = scene.play();
	end();
	family(scene, &format!("after a restore that was refused ({refused:?})"))?;
	Err(format!("the restore after the refused one: {:?}", restore(2)))
}

/// A restore that copies back what was written, or the one before it, from which on that is noted, while a call fails.
pub fn copied(scene: &mut Scene) -> Result {
	const NOTED: u64 = 9;
	go_back_by(Some(Way::Copy));
	let value = snapshot(&OPTIONS).map_err(|e| format!("snapshot: {e:?}"))?;
	if value == 1 || value == 2 {
		end();
		family(scene, "after the restore")?;
		discard().map_err(|e| format!("discard: {e:?}"))?;
		return again(scene);
	}
	scene.main.write((1..scene.main.tags.len()).step_by(7), (6 << 20) + value);
	scene.side.write((0..scene.side.tags.len()).step_by(3), (7 << 20) + value);
	if scene.kind == Kind::RestoreCopies && value == 0 {
		return Err(format!("the first restore: {:?}", restore(NOTED)));
	}
	begin();
	let refused = scene.play();
	end();
	family(scene, &format!("after a restore that was refused ({refused:?})"))?;
	Err(format!("the restore after the refused one: {:?}", restore(2)))
}

/// Memory that no restore touches.
fn shared<T>() -> Result<*mut T> {
	let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
	// SAFETY: a fresh mapping.
	let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<T>(), prot, flags, -1, 0) };
	if at == libc::MAP_FAILED { Err("no shared memory".into()) } else { Ok(at.cast()) }
}

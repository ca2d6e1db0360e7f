//! Plays a scene and looks at everything afterwards.

use crate::{
	memory::{Region, is_sealed, maps_line},
	process, region,
	scene::{DISCARDED, Kind, PART, SCENES, Scene},
	snapshot,
};
use flashfork_tests::{
	Result,
	content::{PAGE, WORDS},
	libraries,
	route::{Outcome, Route},
};

/// The first mark: from where the tracer, for which it stops, goes on system call by system call.
pub fn begin() {
	// SAFETY: no memory is passed.
	unsafe { libc::raise(libc::SIGSTOP) };
}

/// The second mark: a system call that does nothing (`prctl` without such an option), past the shim.
pub fn end() {
	const MARK: usize = 0x666c_6173;
	// SAFETY: an unknown option is refused with EINVAL.
	let _ = unsafe { syscalls::syscall1(syscalls::Sysno::prctl, MARK) };
}

/// Plays the scene called `name` and checks what must hold whatever failed in it.
pub fn run(route: Route, name: &str, leak_allowed: bool) -> Result {
	let (_, kind) = SCENES.iter().find(|(n, _)| *n == name).ok_or("no such scene")?;
	process::prepare()?;
	let mut scene = Scene::set(*kind, route)?;
	match kind {
		Kind::Snapshot => return snapshot::taken(&mut scene),
		Kind::Restore => return snapshot::restored(&mut scene, leak_allowed),
		Kind::RestoreNotes | Kind::RestoreCopies => return snapshot::copied(&mut scene),
		Kind::Rollback => return region::gone_back(&mut scene, leak_allowed),
		_ => {}
	}
	let before = process::state();
	begin();
	let outcome = scene.play();
	end();
	let after = process::state();
	process::same(before, after, growth(&scene, outcome), leak_allowed)?;
	follow(&mut scene, outcome)?;
	if scene.kind == Kind::SealLarge && !leak_allowed {
		is_protected()?;
	}
	family(&mut scene, "after the call")?;
	again(&mut scene)
}

fn growth(scene: &Scene, outcome: Outcome) -> isize {
	match (scene.kind, outcome) {
		(Kind::Keep, Ok(_)) => scene.main.tags.len() as isize,
		(Kind::GrowInPlace | Kind::GrowAndMove, Ok(_)) => (scene.grown() - scene.main.tags.len()) as isize,
		_ => 0,
	}
}

/// Brings what is known of memory up to date with the call, and compares what the call has left open.
fn follow(scene: &mut Scene, outcome: Outcome) -> Result {
	match scene.kind {
		Kind::UnsealUnreadable => {
			let line = maps_line(scene.main.addr)?;
			if !line.contains(" ---p ") {
				return Err(format!("the protection has changed: {line}"));
			}
			scene.main.protect(libc::PROT_READ | libc::PROT_WRITE)?;
		}
		Kind::Advice(libc::MADV_DONTNEED) => dropped(&mut scene.main, PART, outcome.is_err())?,
		Kind::Advice(libc::MADV_FREE) => dropped(&mut scene.main, PART, true)?,
		Kind::Advice(libc::MADV_WIPEONFORK) => scene.wiped_in_children = outcome.is_ok(),
		Kind::LibrariesDiscard => shows_file(&mut scene.libraries[DISCARDED], outcome.is_err())?,
		Kind::Keep => {
			if let Ok(at) = outcome {
				let left = Region { addr: scene.main.addr, tags: vec![0; scene.main.tags.len()] };
				left.check().map_err(|e| format!("left behind: {e}"))?;
				scene.main.addr = at as usize;
			}
		}
		Kind::GrowInPlace | Kind::GrowAndMove => {
			if let Ok(at) = outcome {
				scene.main.addr = at as usize;
				scene.main.tags.resize(scene.grown(), 0);
			}
		}
		_ => {}
	}
	Ok(())
}

/// Pages given up are zero; where that failed, or may be done later, each is what it was or zero, and nothing else.
fn dropped(region: &mut Region, pages: std::ops::Range<usize>, may_stay: bool) -> Result {
	for page in pages {
		if region.page_holds(page, 0) {
			region.tags[page] = 0;
		} else if !may_stay {
			return Err(format!("page {page} was discarded and is not zero"));
		} else if region.page_holds(page, region.tags[page]) {
			// Written, so that the kernel does not take it later.
			region.write(std::iter::once(page), region.tags[page]);
		} else {
			return Err(format!("page {page} is neither zero nor what it was"));
		}
	}
	Ok(())
}

/// Nobody can write to what is sealed, not who may look behind `/proc/self/map_files`. Where what the engine has mapped
/// to write it by can't be taken away, or no call works any more, the seal says that somebody could.
fn is_protected() -> Result {
	let files = std::fs::read_dir("/proc/self/map_files").map_err(|e| format!("/proc/self/map_files: {e}"))?;
	for file in files.flatten() {
		let sealed =
			std::fs::read_link(file.path()).is_ok_and(|name| name.to_string_lossy().contains("memfd:flashfork:"));
		// A memfd may be opened, and refuses what is written then.
		if sealed && let Ok(mut file) = std::fs::OpenOptions::new().write(true).open(file.path()) {
			let written = std::io::Write::write(&mut file, b"x");
			if written.is_ok() {
				return Err("somebody can write to what is sealed".into());
			}
		}
	}
	Ok(())
}

/// Pages of a library that were discarded show its file; where that failed each does or is what it was.
fn shows_file(region: &mut Region, may_stay: bool) -> Result {
	for page in 0..region.tags.len() {
		let at = (region.addr + page * PAGE) as *const [u64; WORDS];
		// SAFETY: a page of a library's data.
		let shown = unsafe { *at }.iter().all(|word| *word == libraries::IN_FILE);
		if !(shown || may_stay && region.page_holds(page, region.tags[page])) {
			return Err(format!("page {page} of a library shows neither its file nor what it was"));
		}
	}
	let tags = region.tags.clone();
	tags.into_iter().enumerate().for_each(|(page, tag)| region.write(std::iter::once(page), tag));
	Ok(())
}

/// Memory is right in this process and in a child, and what the child writes stays its own.
pub fn family(scene: &mut Scene, when: &str) -> Result {
	let all =
		|scene: &Scene| [&scene.main, &scene.side].into_iter().chain(&scene.libraries).try_for_each(Region::check);
	all(scene).map_err(|e| format!("{when}: {e}"))?;
	// SAFETY: one thread.
	let pid = unsafe { libc::fork() };
	if pid == 0 {
		scene.wipe();
		let result = all(scene);
		let some = (0..scene.main.tags.len()).step_by(16);
		scene.main.write(some, 9 << 20);
		let result = result.and_then(|()| all(scene));
		if let Err(e) = &result {
			eprintln!("victim: in the child {when}: {e}");
		}
		// SAFETY: ends the child without the parent's exit handlers.
		unsafe { libc::_exit(i32::from(result.is_err())) };
	}
	let mut status = 0;
	// SAFETY: waits for our own child.
	unsafe { libc::waitpid(pid, &raw mut status, 0) };
	if status != 0 {
		return Err(format!("the child {when} ended with status {status:#x}"));
	}
	all(scene).map_err(|e| format!("{when}, after the child wrote: {e}"))
}

/// A seal that nothing disturbs works, whatever came before.
pub fn again(scene: &mut Scene) -> Result {
	scene.main.write([5, 500].into_iter(), 5 << 20);
	scene.route.seal(true).map_err(|e| format!("the next {e}"))?;
	// The second region is of interest to no scene but the seals.
	if !is_sealed(scene.side.addr + scene.side.len() / 2)? {
		return Err("the next seal left memory unsealed".into());
	}
	if scene.kind == Kind::Libraries && !is_sealed(scene.libraries[DISCARDED].addr)? {
		return Err("the next seal left libraries unsealed".into());
	}
	family(scene, "after the next seal")
}

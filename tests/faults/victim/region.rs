//! A region's rollbacks whose system calls fail.

use crate::{
	process,
	scene::Scene,
	verify::{again, begin, end, family},
};
use flashfork_core::{
	Pages,
	region::{Region, Way},
};
use flashfork_tests::{Result, content::PAGE};

const PAGES: usize = 1024;

/// A region goes back by copying, from the moment on at which that begins, while a call fails. Each rollback that says
/// so has undone everything; the others have left nothing that the next one wouldn't undo.
pub fn gone_back(scene: &mut Scene, leak_allowed: bool) -> Result {
	let mut region = Region::map(PAGES * PAGE, Pages::Small).map_err(|e| format!("map: {e:?}"))?;
	for page in 0..PAGES {
		*byte(&region, page) = page as u8;
	}
	region.seal().map_err(|e| format!("seal: {e:?}"))?;
	let before = process::state();
	region.go_back_by(Some(Way::Copy));
	begin();
	let mut kept = None;
	for turn in 0..4 {
		kept = kept.or(turned(&mut region, turn));
	}
	end();
	if let Some(page) = kept {
		return Err(format!("page {page} was not rolled back"));
	}
	for turn in 0..3 {
		region.rollback().map_err(|e| format!("the next rollback: {e:?}"))?;
		if let Some(page) = wrong(&region, 0..PAGES).or(turned(&mut region, turn)) {
			return Err(format!("page {page} was not rolled back afterwards"));
		}
	}
	region.go_back_by(Some(Way::Drop));
	region.rollback().map_err(|e| format!("by dropping: {e:?}"))?;
	process::same(before, process::state(), 0, leak_allowed)?;
	family(scene, "after the rollbacks")?;
	again(scene)
}

/// Writes, and goes back, in part at first. A page that was to go back, and has not.
fn turned(region: &mut Region, turn: usize) -> Option<usize> {
	let part = 100..300;
	for page in (turn..PAGES).step_by(7 + turn) {
		*byte(region, page) ^= 0xff;
	}
	let kept = region.rollback_range(part.start * PAGE, part.len() * PAGE).ok().and_then(|()| wrong(region, part));
	kept.or_else(|| region.rollback().ok().and_then(|()| wrong(region, 0..PAGES)))
}

fn wrong(region: &Region, mut pages: std::ops::Range<usize>) -> Option<usize> {
	pages.find(|page| *byte(region, *page) != *page as u8)
}

#[allow(clippy::mut_from_ref)]
fn byte(region: &Region, page: usize) -> &mut u8 {
	assert!(page < PAGES);
	// SAFETY: inside the region, of which this program has one such reference at a time.
	unsafe { &mut *((region.range().start + page * PAGE) as *mut u8) }
}

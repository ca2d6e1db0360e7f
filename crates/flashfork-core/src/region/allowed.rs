//! Whether a region may ask the kernel what was written.
//!
//! A rollback by dropping is one call, `madvise`. Copying makes others, for which a seccomp filter may end the program.
//! So a region's seal asks what a seal of the process asks: where there is a filter by then a child tries these calls,
//! and the program's calls are followed from then on, so that its own filter is noticed ([`crate::answers::sandbox`]).
//! Where they can't be, it drops.

use super::Region;
use crate::{
	calls,
	filter::{self, end_in_silence, trial},
	outcome::{Outcome, Pages},
	session::{self, Wait},
	state::STATE,
	sys,
	threads::{exclusive, table},
};
use core::sync::atomic::Ordering::SeqCst;

/// Asked once, when a region is sealed.
pub(super) fn may_ask() -> bool {
	trial::prepare();
	!STATE.is_sandboxed() && filter::allows().is_ok() && filter::allows_also(rehearse) && table::is_own() && follow()
}

/// Whether nobody else uses this process's memory and its descriptors, asked before each rollback that may copy,
/// outside a sandbox: a thread may use any descriptor at any time ([`table`]).
pub(super) fn is_alone() -> bool {
	cfg!(test) || table::is_own()
}

/// Sees to it that the program's calls are followed.
fn follow() -> bool {
	if STATE.followed.load(SeqCst) {
		return true;
	}
	let followed = session::run(Wait::No, |arena| {
		exclusive::run(arena, |arena, mut pauses| {
			calls::take(arena, &mut pauses)?;
			Ok(Outcome::default())
		})
	});
	followed.outcome.is_ok()
}

/// In a child under a filter: everything done to copy. An error is none of the filter's doing, or one that is met
/// again.
fn rehearse() -> ! {
	if sys::knows_itself() {
		end_in_silence();
		if let Ok(mut region) = Region::map(1, Pages::Small)
			&& region.seal_memory().is_ok()
		{
			let at = region.range().start as *mut u8;
			let _ = table::is_own();
			sys::thread_cpu_ns();
			for _ in 0..3 {
				// SAFETY: the region's first byte.
				unsafe { at.write_volatile(1) };
				let _ = region.copy_or_begin();
			}
		}
		sys::exit(0);
	}
	sys::exit(filter::NAMELESS)
}

//! Whether memory is sealed: asked of the kernel each time, because memory moves without our knowing.

use crate::{
	proc::{
		lookup::{self, Wanted},
		vma::{Kind, Vma},
	},
	range::Range,
	seal::offset,
	stack::roomy,
	state::STATE,
	sys::{self, ADDRESSES, Errno, PAGE},
	threads::errand,
};
use linux_raw_sys::general as k;

/// Whether a range holds sealed memory.
pub fn holds_sealed(range: Range) -> bool {
	holds(range, |_| true)
}

/// The same of what is to be discarded, asked once where nothing is sealed.
pub fn discards_sealed(range: Range) -> bool {
	/// Allocators give pages back downwards, too.
	const BELOW: usize = 16 * PAGE;
	let is_known = || !STATE.is_beside_another() && STATE.unsealed.covers(range);
	if !STATE.places.touch(range) || is_known() {
		return false;
	}
	let mut sealed = false;
	let mut ask = || {
		let mut around = Range::new(range.start & !(BELOW - 1), ADDRESSES);
		sealed = false;
		let asked = lookup::for_each(around, Wanted::Files, |v| {
			if v.range.start >= range.end {
				around.end = v.range.start;
				return Err(Errno::ECANCELED);
			}
			around.start = v.range.end;
			sealed |= v.range.end > range.start && v.kind == Kind::Sealed;
			Ok(())
		});
		if sealed {
			around = Range::default();
		}
		if asked == Err(Errno::ECANCELED) { Ok(around) } else { asked.map(|()| around) }
	};
	roomy(|| errand::ask(|| STATE.unsealed.learn(&mut ask))).is_err() || sealed
}

/// Whether some of it is the data of a library.
pub fn holds_library(range: Range) -> bool {
	holds(range, |v| offset::advice_of_sealed(v) & offset::LIBRARY != 0)
}

/// Whether any of a range whose contents are given up is a file's, sealed memory included, or nobody can tell.
pub fn given_up_holds_file(range: Range) -> bool {
	let mut found = false;
	let asked = errand::ask(|| {
		lookup::for_each(range, Wanted::Files, |_| {
			found = true;
			Ok(())
		})
	});
	// Where maps can't be read MADV_FREE tells, on pages that no child has any more.
	// SAFETY: the contents are given up.
	let is_anonymous = |advice| unsafe { sys::madvise(range.start, range.len(), advice) }.is_ok();
	found || asked.is_err() && ![k::MADV_POPULATE_WRITE, k::MADV_FREE].into_iter().all(is_anonymous)
}

fn holds(range: Range, is_such: impl Fn(&Vma) -> bool) -> bool {
	if !STATE.holds_sealed() {
		return false;
	}
	let mut found = false;
	let mut ask = || {
		lookup::for_each(range, Wanted::Files, |v| {
			found |= v.kind == Kind::Sealed && is_such(v);
			Ok(())
		})
	};
	let asked = errand::ask(&mut ask);
	// If maps can't be read, what was ever sealed counts as such, which is the careful answer for every caller.
	if asked.is_err() { STATE.places.touch(range) } else { found }
}

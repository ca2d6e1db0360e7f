//! The limits of memory that a restore meets.

use super::{Error, Step, table::Needs};
use crate::sys::{self, Errno};
use linux_raw_sys::general as k;

const RESOURCES: [u32; 2] = [k::RLIMIT_AS, k::RLIMIT_DATA];

/// Soft limits lifted to the hard ones where a restore needs that; put back at the end.
pub struct Lifted {
	before: [Option<[u64; 2]>; 2],
}

impl Lifted {
	/// Lifts them, or says that they can't be lifted far enough.
	pub fn begin(needs: &Needs) -> Result<Lifted, Error> {
		let mut lifted = Lifted { before: [None; 2] };
		if !needs.asked {
			return Ok(lifted);
		}
		let failed = |e| Error::System(Step::Limits, e);
		for ((resource, needed), before) in
			RESOURCES.into_iter().zip([needs.addresses, needs.data]).zip(&mut lifted.before)
		{
			let [soft, hard] = sys::getrlimit(resource).map_err(failed)?;
			if soft < needed as u64 {
				if hard < needed as u64 {
					return Err(failed(Errno::ENOMEM));
				}
				sys::setrlimit(resource, [hard, hard]).map_err(failed)?;
				*before = Some([soft, hard]);
			}
		}
		Ok(lifted)
	}
}

impl Drop for Lifted {
	fn drop(&mut self) {
		for (resource, before) in RESOURCES.into_iter().zip(self.before) {
			if let Some(before) = before {
				super::restore::must(|| sys::setrlimit(resource, before));
			}
		}
	}
}

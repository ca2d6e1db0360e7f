//! Limits and settings of the process that a seal lifts for its own duration, or minds.

use super::offset::FILE_LEN;
use crate::{
	arena::Arena,
	never_seal::Reason,
	outcome::{Error, Step},
	proc::{
		headroom::Limits,
		text::{decimal, read_file},
	},
	sys::{self, RLIMIT_FSIZE, Result},
};

/// Memory kept free beside what a step takes: page tables, and what others take meanwhile.
pub const SLACK: u64 = 8 << 20;

/// How many more VMAs the process may have, some kept in reserve.
pub fn vma_room(buf: &mut [u8], vmas: usize) -> Result<usize> {
	const RESERVE: usize = 256;
	let most = decimal(read_file(c"/proc/sys/vm/max_map_count", buf)?).unwrap_or(65_530) as usize;
	Ok(most.saturating_sub(vmas + RESERVE))
}

/// What a seal finds out and lifts before it begins; put back at the end.
pub struct Raised {
	/// How much memory there is.
	pub memory: Limits,
	_file_size: FileSize,
	_thp: ThpAllowed,
}

impl Raised {
	/// Looks and lifts.
	pub fn begin(arena: &mut Arena) -> core::result::Result<Raised, Error> {
		let Arena { text, small, .. } = arena;
		let memory = Limits::find(text, small).map_err(|e| Error::System(Step::Look, e))?;
		Ok(Raised { memory, _file_size: FileSize::raise()?, _thp: ThpAllowed::set() })
	}
}

/// The soft `RLIMIT_FSIZE` lifted to the hard one; put back at the end.
pub struct FileSize(Option<[u64; 2]>);

impl FileSize {
	/// Lifts the limit, or says that it can't be lifted far enough.
	pub fn raise() -> core::result::Result<FileSize, Error> {
		let look = |e| Error::System(Step::Look, e);
		let [soft, hard] = sys::getrlimit(RLIMIT_FSIZE).map_err(look)?;
		if hard < FILE_LEN {
			return Err(Error::Refused(Reason::FileSizeLimit));
		}
		if soft >= FILE_LEN {
			return Ok(FileSize(None));
		}
		sys::setrlimit(RLIMIT_FSIZE, [hard, hard]).map_err(look)?;
		Ok(FileSize(Some([soft, hard])))
	}
}

impl Drop for FileSize {
	fn drop(&mut self) {
		if let Some(before) = self.0 {
			// Lowering a soft limit is always allowed; tried again only in case something made the call fail.
			if sys::setrlimit(RLIMIT_FSIZE, before).is_err() {
				let _ = sys::setrlimit(RLIMIT_FSIZE, before);
			}
		}
	}
}

/// `PR_SET_THP_DISABLE` lifted, because `MADV_COLLAPSE` minds it (Redis sets it for itself); put back at the end.
pub struct ThpAllowed(usize);

impl ThpAllowed {
	/// Lifts the setting. Where that fails there are just no 2 MB pages.
	pub fn set() -> ThpAllowed {
		let before = sys::thp_disable().unwrap_or(0);
		if before != 0 && sys::set_thp_disable(0).is_err() {
			return ThpAllowed(0);
		}
		ThpAllowed(before)
	}
}

impl Drop for ThpAllowed {
	fn drop(&mut self) {
		if self.0 != 0 && sys::set_thp_disable(self.0).is_err() {
			let _ = sys::set_thp_disable(self.0);
		}
	}
}

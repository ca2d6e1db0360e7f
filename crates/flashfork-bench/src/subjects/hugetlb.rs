//! The host's pool of huge pages (hugetlb): what can be had of it. Nothing here changes the pool.

use crate::prelude::*;
use procfs::{Current, Meminfo};

/// Bytes of a page of the pool, as the experiments use them.
pub const HUGE: u64 = 2 << 20;

/// The pool at this moment, in pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pool {
	total: u64,
	free: u64,
	page_size: u64,
}

impl Pool {
	/// Reads `/proc/meminfo`.
	pub fn read() -> Result<Self> {
		let info = Meminfo::current().or_cant("read /proc/meminfo")?;
		// Reserved pages are free, but promised to somebody.
		let free = info.hugepages_free.unwrap_or(0).saturating_sub(info.hugepages_rsvd.unwrap_or(0));
		Ok(Self { total: info.hugepages_total.unwrap_or(0), free, page_size: info.hugepagesize.unwrap_or(HUGE) })
	}

	/// Why no memory at all can be had from it, if so.
	pub fn unusable(&self) -> Option<String> {
		if self.page_size != HUGE {
			return Some(format!("this host's pool has pages of {}, not of 2 MB", show(self.page_size)));
		}
		(self.total == 0).then(|| {
			"no huge pages are reserved; `sysctl vm.nr_hugepages=1024` reserves 2 GB of them, `=0` gives them back"
				.to_owned()
		})
	}

	/// Why a parent with `size` bytes can't be had from it whose writes, or whose children's, copy `copied` more, if
	/// so.
	pub fn lacks(&self, size: u64, copied: u64) -> Option<String> {
		if !size.is_multiple_of(HUGE) {
			return Some("the memory is no multiple of a huge page".to_owned());
		}
		let needed = size / HUGE + copied.div_ceil(HUGE);
		(needed > self.free).then(|| {
			let more = self.total + needed - self.free;
			format!(
				"{needed} huge pages are needed and {} are free; `sysctl vm.nr_hugepages={more}` reserves them",
				self.free
			)
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_not_there_is_said_with_the_way_to_get_it() {
		let pool = Pool { total: 0, free: 0, page_size: HUGE };
		assert!(pool.unusable().unwrap().contains("vm.nr_hugepages"));
		assert!(Pool { page_size: 1 << 30, ..pool }.unusable().unwrap().contains("pages of 1 GB"));
		let pool = Pool { total: 100, free: 40, ..pool };
		assert_eq!((pool.unusable(), pool.lacks(64 << 20, 16 << 20)), (None, None));
		let said = pool.lacks(64 << 20, 17 << 20).unwrap();
		assert!(said.contains("41 huge pages are needed and 40 are free") && said.contains("=101"), "{said}");
		assert!(pool.lacks(3 << 20, 0).unwrap().contains("multiple"));
		assert!(Pool::read().is_ok());
	}
}

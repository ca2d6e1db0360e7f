//! How much memory is left, as a seal looks at it before each chunk.

use flashfork_core::proc::headroom::Limits;

/// Memory that can still be taken, and what sets the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headroom {
	/// Bytes that can still be taken.
	pub available: u64,
	/// What sets the limit: `MemAvailable`, `CommitLimit` where memory is never overcommitted, or the file of a memory
	/// cgroup.
	pub limit: String,
}

impl Headroom {
	/// Of this process now: the least of `MemAvailable` and, for every cgroup from its own up to the root, the limit
	/// less its use. File cache counts as free, swap doesn't count.
	pub fn now() -> std::io::Result<Headroom> {
		let mut found = Headroom { available: u64::MAX, limit: String::new() };
		let (mut lines, mut small) = (vec![0; 64 << 10], vec![0; 16 << 10]);
		Limits::find(&mut lines, &mut small)
			.and_then(|limits| {
				limits.each(&mut lines, |available, limit| {
					if available < found.available {
						found = Headroom { available, limit: String::from_utf8_lossy(&limit.concat()).into_owned() };
					}
				})
			})
			.map_err(|e| std::io::Error::from_raw_os_error(e.into_raw()))?;
		Ok(found)
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn there_is_memory_left_here_and_not_more_than_the_machine_has() {
		let headroom = Headroom::now().unwrap();
		let total = procfs::Current::current().map(|all: procfs::Meminfo| all.mem_total).unwrap();
		assert!((1..=total).contains(&headroom.available) && !headroom.limit.is_empty(), "{headroom:?}");
	}
}

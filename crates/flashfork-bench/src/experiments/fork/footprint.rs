//! How much memory a process holds while it seals, seen from outside.
//!
//! Not from the machine's free memory: that also moves with other programs, and pages freed a moment ago wait in
//! per-CPU lists (hundreds of MB on recent kernels) where they don't count as free.

use std::{fs, io, os::unix::fs::MetadataExt};

use crate::prelude::*;
use procfs::process::Process;

/// Bytes of anonymous memory and of open memfds of the process `pid`: what a seal moves from one to the other.
///
/// The two are read one by one, so memory that moves in between is counted twice or not at all: a caller that looks
/// often is off by what can be moved within some ten microseconds.
pub fn held(pid: u32) -> Result<u64> {
	let failed = |error: io::Error| BenchError::system(format!("read how much memory process {pid} holds"), error);
	let process = Process::new(pid as i32).map_err(|error| failed(io::Error::other(error)))?;
	let status = process.status().map_err(|error| failed(io::Error::other(error)))?;
	Ok(status.rssanon.unwrap_or(0) * 1024 + memfds(pid).map_err(failed)?)
}

fn memfds(pid: u32) -> io::Result<u64> {
	let mut bytes = 0;
	for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
		let path = entry?.path();
		// A descriptor closed meanwhile holds nothing any more.
		let Ok(target) = fs::read_link(&path) else { continue };
		if target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
			bytes += fs::metadata(&path).map_or(0, |meta| meta.blocks() * 512);
		}
	}
	Ok(bytes)
}

#[cfg(test)]
mod tests {
	use super::*;
	use rustix::fs::{MemfdFlags, memfd_create};
	use std::io::Write;

	#[test]
	fn anonymous_memory_and_memfds_both_count() {
		// Lower bounds only: other tests allocate in the same process at the same time.
		const MB: u64 = 1 << 20;
		let pid = std::process::id();
		let region = Region::filled(Method::Fork4k, 32 * MB).unwrap();
		assert!(held(pid).unwrap() >= 32 * MB);
		let mut file = fs::File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
		file.write_all(&vec![1; 16 * MB as usize]).unwrap();
		assert!(memfds(pid).unwrap() >= 16 * MB);
		assert!(held(pid).unwrap() >= 48 * MB);
		region.verify().unwrap();
	}

	#[test]
	fn a_process_that_is_gone_is_an_error() {
		assert!(held(u32::MAX >> 1).is_err());
	}
}

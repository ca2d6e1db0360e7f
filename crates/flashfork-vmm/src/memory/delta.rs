//! Memory files that hold some pages of a memory, each at its own offset, and behind them a bit for each page that says
//! whether it is there.
//!
//! What is a hole in the file doesn't say it: where the host makes such files of 2 MB pages
//! (/sys/kernel/mm/transparent_hugepage/shmem_enabled), zeros come with each page that is written.

use super::{
	memfd::{self, MemfdError},
	pagemap::PAGE,
};
use flashfork_proto::shape::Pages;
use rustix::{fs::SeekFrom, io::Errno};
use std::{
	io,
	ops::Range,
	os::fd::{AsFd, OwnedFd},
};

/// An empty one for a memory of `bytes`, whole pages. `name` shows in /proc/PID/maps.
pub fn create(name: &str, bytes: u64) -> Result<OwnedFd, MemfdError> {
	memfd::create(name, length(bytes), Pages::Small)
}

/// Bytes of the file for a memory of `bytes`.
#[must_use]
pub fn length(bytes: u64) -> u64 {
	bytes + bits(bytes)
}

/// Bytes of its bits, whole pages.
#[must_use]
pub fn bits(bytes: u64) -> u64 {
	(bytes / PAGE as u64).div_ceil(8).next_multiple_of(PAGE as u64)
}

/// Whether a file takes no more than so many bytes; where such files are of 2 MB pages, that much comes with each page.
#[must_use]
pub fn fits(file: impl AsFd, bytes: u64) -> bool {
	let Ok(stat) = rustix::fs::fstat(file) else { return false };
	let most = bytes.div_ceil(PAGE as u64).saturating_mul(stat.st_blksize.unsigned_abs().max(PAGE as u64));
	stat.st_blocks.unsigned_abs() * 512 <= most
}

/// The pages that are there by the bits of a file for a memory of `bytes`, in order, by their numbers; of more than
/// `most` no more than a few. Whoever may still write to the file may change them.
pub(super) fn runs(file: impl AsFd, bytes: u64, most: u64) -> io::Result<Vec<Range<u64>>> {
	let (mut found, mut pages, mut at): (Vec<Range<u64>>, _, _) = (Vec::new(), 0, bytes);
	let mut bits = [0; PAGE];
	while pages <= most && at < length(bytes) {
		// Most of it are holes.
		at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
			Ok(data) => data / PAGE as u64 * PAGE as u64,
			Err(Errno::NXIO) => break,
			Err(errno) => return Err(errno.into()),
		};
		read(&file, &mut bits, at)?;
		for (index, byte) in bits.iter().enumerate().filter(|(_, byte)| **byte != 0) {
			let first = (at - bytes + index as u64) * 8;
			// Bits behind the last page say nothing.
			let end = (first + 8).min(bytes / PAGE as u64);
			for page in (first..end).filter(|page| byte >> (page - first) & 1 == 1) {
				pages += 1;
				match found.last_mut() {
					Some(last) if last.end == page => last.end += 1,
					_ => found.push(page..page + 1),
				}
			}
		}
		at += PAGE as u64;
	}
	Ok(found)
}

pub(super) fn mark(bits: &mut [u8], run: &Range<u64>) {
	for page in run.clone() {
		bits[(page / 8) as usize] |= 1 << (page % 8);
	}
}

pub(crate) fn read(file: impl AsFd, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
	while !to.is_empty() {
		match rustix::io::pread(&file, &mut *to, at)? {
			0 => return Err(io::ErrorKind::UnexpectedEof.into()),
			count => (to, at) = (&mut to[count..], at + count as u64),
		}
	}
	Ok(())
}

pub(super) fn write(file: impl AsFd, mut from: &[u8], mut at: u64) -> io::Result<()> {
	while !from.is_empty() {
		match rustix::io::pwrite(&file, from, at)? {
			0 => return Err(io::ErrorKind::WriteZero.into()),
			count => (from, at) = (&from[count..], at + count as u64),
		}
	}
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn pages_are_there_by_their_bits_alone() {
		let bytes = 200_001 * PAGE as u64;
		let file = create("flashfork:test", bytes).unwrap();
		let found = || runs(&file, bytes, u64::MAX).unwrap();
		assert_eq!(found(), []);
		// Written, and not marked.
		write(&file, &[1; PAGE], 7 * PAGE as u64).unwrap();
		let wanted = [0..1, 5..21, 131_071..131_074, 200_000..200_001];
		let mut bits = vec![0; (length(bytes) - bytes) as usize];
		wanted.iter().for_each(|run| mark(&mut bits, run));
		write(&file, &bits, bytes).unwrap();
		assert_eq!(found(), wanted);
		// Whoever wrote the file may have set any.
		write(&file, &[0xff; 8], length(bytes) - 8).unwrap();
		assert_eq!(found(), wanted);
	}
}

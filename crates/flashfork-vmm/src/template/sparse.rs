//! Files that are mostly empty: copied and checked without touching what isn't there.
//!
//! The checksum is that of all pages that are not zero, each after its offset: the same whether zeros are a hole or
//! written out, so that a directory may be copied by any tool.

use super::manifest::Sum;
use crate::memory::delta;
use rustix::{
	fs::{SeekFrom, seek},
	io::Errno,
};
use std::{
	fs::File,
	io, iter,
	ops::Range,
	os::fd::{AsFd, BorrowedFd},
};

/// What is a hole or not.
const PAGE: usize = 4096;
/// What is read at once.
const CHUNK: usize = 1 << 20;

/// Reads `from`, which has `bytes`; gives `take` every run of pages that aren't all zero, with its offset.
pub(super) fn each_run(from: &File, bytes: u64, take: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<Sum> {
	each_run_of(iter::once((0..bytes, from.as_fd())), take)
}

/// The same of what is in several files, from each its part of whole pages, one behind the other.
pub(super) fn each_run_of<'a>(
	parts: impl Iterator<Item = (Range<u64>, BorrowedFd<'a>)>,
	mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Sum> {
	let mut crc = crc32fast::Hasher::new();
	let mut chunk = vec![0; CHUNK];
	let mut bytes = 0;
	for (part, from) in parts {
		bytes = part.end;
		each_run_in(from, part, &mut chunk, &mut crc, &mut take)?;
	}
	Ok(Sum { bytes, crc: crc.finalize() })
}

fn each_run_in(
	from: BorrowedFd<'_>,
	part: Range<u64>,
	chunk: &mut [u8],
	crc: &mut crc32fast::Hasher,
	take: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
	let mut at = part.start;
	while let Some((start, end)) = next_data(from, at, part.end)? {
		at = start;
		while at < end {
			let length = (end - at).min(CHUNK as u64) as usize;
			let read = &mut chunk[..length];
			delta::read(from, read, at)?;
			let mut run = 0..0;
			for (index, page) in read.chunks(PAGE).enumerate() {
				let begin = index * PAGE;
				if is_zero(page) {
					if !run.is_empty() {
						take(at + run.start as u64, &read[run.clone()])?;
					}
					run = begin + page.len()..begin + page.len();
					continue;
				}
				crc.update(&(at + begin as u64).to_le_bytes());
				crc.update(page);
				run.end = begin + page.len();
			}
			if !run.is_empty() {
				take(at + run.start as u64, &read[run])?;
			}
			at += length as u64;
		}
	}
	Ok(())
}

/// The next range at or behind `at` that may hold something, whole pages.
fn next_data(file: BorrowedFd<'_>, at: u64, bytes: u64) -> io::Result<Option<(u64, u64)>> {
	if at >= bytes {
		return Ok(None);
	}
	let start = match seek(file, SeekFrom::Data(at)) {
		Ok(start) => start - start % PAGE as u64,
		Err(Errno::NXIO) => return Ok(None),
		// hugetlbfs and some network file systems don't tell.
		Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => return Ok(Some((at, bytes))),
		Err(e) => return Err(e.into()),
	};
	let end = seek(file, SeekFrom::Hole(start)).map_or(bytes, |end| end.next_multiple_of(PAGE as u64).min(bytes));
	Ok((start < bytes).then_some((start.max(at), end)))
}

fn is_zero(page: &[u8]) -> bool {
	page.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
	use super::*;
	use std::os::unix::fs::FileExt;

	fn runs(file: &File, bytes: u64) -> (Vec<(u64, Vec<u8>)>, Sum) {
		let mut runs = Vec::new();
		let sum = each_run(file, bytes, |at, run| {
			runs.push((at, run.to_vec()));
			Ok(())
		});
		(runs, sum.unwrap())
	}

	#[test]
	fn holes_and_written_zeros_are_the_same_and_everything_else_is_found() {
		let bytes = 5 << 20;
		let sparse = tempfile::tempfile().unwrap();
		sparse.set_len(bytes).unwrap();
		for at in [5000, (1 << 20) - 1, 1 << 20, (3 << 20) + 17, bytes - 1] {
			sparse.write_all_at(&[9], at).unwrap();
		}
		let full = tempfile::tempfile().unwrap();
		let mut content = vec![0; bytes as usize];
		sparse.read_exact_at(&mut content, 0).unwrap();
		full.write_all_at(&content, 0).unwrap();
		let sum = runs(&sparse, bytes).1;
		for file in [&sparse, &full] {
			let (runs, its) = runs(file, bytes);
			assert_eq!(its, sum);
			let mut copy = vec![0; bytes as usize];
			for (at, run) in runs {
				copy[at as usize..][..run.len()].copy_from_slice(&run);
			}
			assert!(copy == content);
		}
		full.write_all_at(&[1], 2 << 20).unwrap();
		assert_ne!(runs(&full, bytes).1, sum);
	}

	#[test]
	fn parts_of_files_are_what_they_would_be_in_one() {
		let bytes = 8 * PAGE as u64;
		let [one, other, both] = [(); 3].map(|()| tempfile::tempfile().unwrap());
		[&one, &other, &both].into_iter().for_each(|file| file.set_len(bytes).unwrap());
		let mut from_one = true;
		let mut parts = Vec::new();
		for (at, end) in [(0, 1), (1, 4), (4, 5), (5, 8)].map(|(at, end)| (at * PAGE as u64, end * PAGE as u64)) {
			let (file, its, byte) = if from_one { (&one, &other, 1) } else { (&other, &one, 2) };
			file.write_all_at(&[byte], end - 1).unwrap();
			both.write_all_at(&[byte], end - 1).unwrap();
			// Not shown.
			its.write_all_at(&[9; PAGE], at).unwrap();
			parts.push((at..end, file.as_fd()));
			from_one = !from_one;
		}
		let mut found = Vec::new();
		let sum = each_run_of(parts.into_iter(), |at, run| {
			found.extend(run.chunks(PAGE).zip(0..).map(|(page, n)| (at + n * PAGE as u64, page.to_vec())));
			Ok(())
		});
		let (runs, expected) = runs(&both, bytes);
		let pages = runs.iter().flat_map(|(at, run)| {
			run.chunks(PAGE).zip(0..).map(move |(page, n)| (at + n * PAGE as u64, page.to_vec()))
		});
		assert_eq!(sum.unwrap(), expected);
		assert!(found.into_iter().eq(pages));
	}

	#[test]
	fn a_file_that_is_too_short_is_an_error() {
		let file = tempfile::tempfile().unwrap();
		file.write_all_at(&[1; 5000], 0).unwrap();
		assert!(each_run(&file, 8192, |_, _| Ok(())).is_err());
	}
}

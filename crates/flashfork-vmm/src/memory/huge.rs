//! 2 MB pages for a template's memory, whatever the host's mode for shared memory is.

use super::Reservation;
use rustix::{
	fs::{SeekFrom, seek},
	io::Errno,
	mm::{MapFlags, ProtFlags},
};
use std::{
	io,
	os::fd::{AsFd, BorrowedFd},
};

/// A 2 MB page.
const HUGE: u64 = 2 << 20;

/// So much of a 2 MB page must be there already: its memory at most doubles.
const DENSE: u64 = HUGE / 2;

/// Puts those parts of the memory file `file`, of `bytes`, on 2 MB pages of which half is there: a clone that reads one
/// page of them has all in one page fault, in its monitor and in KVM. Copies that clones write are 4 KB pages all the
/// same.
///
/// Only makes faster: what the kernel can't give, for want of memory, by its configuration or because it is older
/// than 6.1 (`MADV_COLLAPSE`), stays on 4 KB pages.
pub fn collapse(file: impl AsFd, bytes: u64) {
	// Whatever fails, the memory is as it was.
	let _ = try_collapse(file.as_fd(), bytes);
}

fn try_collapse(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
	let mut mapping = Reservation::new(bytes as usize)?;
	mapping.fill(ProtFlags::READ, MapFlags::SHARED, file)?;
	for range in dense(file, bytes)? {
		// SAFETY: within our own mapping; the advice changes nothing that the range holds.
		unsafe { libc::madvise(mapping.start().add(range as usize).cast(), HUGE as usize, libc::MADV_COLLAPSE) };
	}
	Ok(())
}

/// Where the 2 MB pages begin that are worth it.
fn dense(file: BorrowedFd<'_>, bytes: u64) -> io::Result<Vec<u64>> {
	let (mut found, mut at, mut page, mut there) = (Vec::new(), 0, 0, 0);
	while at < bytes {
		let data = match seek(file, SeekFrom::Data(at)) {
			Err(Errno::NXIO) => break,
			other => other?,
		};
		let hole = seek(file, SeekFrom::Hole(data))?;
		at = data;
		while at < hole {
			if at - at % HUGE != page {
				(page, there) = (at - at % HUGE, 0);
			}
			let end = hole.min(page + HUGE);
			there += end - at;
			at = end;
			// The last, if it is shorter, is none.
			if there >= DENSE && found.last() != Some(&page) && page + HUGE <= bytes {
				found.push(page);
			}
		}
	}
	Ok(found)
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::memory;
	use flashfork_proto::shape::Pages;

	fn write(file: impl AsFd, at: u64, pages: u64) {
		for page in 0..pages {
			rustix::io::pwrite(&file, &[(page % 251) as u8 + 1; 4096], at + page * 4096).unwrap();
		}
	}

	#[test]
	fn what_is_half_there_is_dense_and_keeps_its_content() {
		let bytes = 9 * HUGE + HUGE / 2;
		let file = memory::create("flashfork:test", bytes, Pages::Small).unwrap();
		write(&file, HUGE, 256);
		write(&file, 2 * HUGE, 255);
		// Over a border, and in pieces.
		write(&file, 4 * HUGE - 4096, 257);
		for piece in 0..32 {
			write(&file, 6 * HUGE + piece * (16 << 12), 8);
		}
		write(&file, 9 * HUGE, 256);
		assert_eq!(dense(file.as_fd(), bytes).unwrap(), [HUGE, 4 * HUGE, 6 * HUGE]);
		let before = content(&file, bytes);
		collapse(&file, bytes);
		assert!(content(&file, bytes) == before);
		memory::seal(&file).unwrap();
	}

	fn content(file: impl AsFd, bytes: u64) -> Vec<u8> {
		let mut content = vec![0; bytes as usize];
		assert_eq!(rustix::io::pread(file, &mut content, 0).unwrap(), content.len());
		content
	}
}

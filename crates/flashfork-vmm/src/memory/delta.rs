//! Memory files that hold some pages of a memory, each at its own offset, and behind them a bit for each page that says
//! whether it is there.
//!
//! What is a hole in the file doesn't say it: where the host makes such files of 2 MB pages
//! (/sys/kernel/mm/transparent_hugepage/shmem_enabled), zeros come with each page that is written.

use super::memfd::{self, MemfdError};
use super::pagemap::PAGE;
use flashfork_proto::shape::Pages;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

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

/// The bits of a file for a memory of `bytes`, as they are now: whoever may still write to the file may change them.
pub(super) fn marks(file: impl AsFd, bytes: u64) -> io::Result<Vec<u8>> {
    let mut marks = vec![0; bits(bytes) as usize];
    read(file, &mut marks, bytes)?;
    // Bits behind the last page say nothing.
    let pages = bytes / PAGE as u64;
    for page in pages..marks.len() as u64 * 8 {
        marks[(page / 8) as usize] &= !(1 << (page % 8));
    }
    Ok(marks)
}

/// The pages that are there by their bits, in order, by their numbers.
pub(super) fn runs(marks: &[u8]) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for (index, byte) in marks.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for page in (0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| index as u64 * 8 + bit) {
            match found.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => found.push(page..page + 1),
            }
        }
    }
    found
}

/// Sets the bits of `run`.
pub(super) fn mark(bits: &mut [u8], run: &Range<u64>) {
    for page in run.clone() {
        bits[(page / 8) as usize] |= 1 << (page % 8);
    }
}

/// Reads all of `to` from a file at this offset.
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
        let found = || runs(&marks(&file, bytes).unwrap());
        assert_eq!(found(), []);
        // Written, and not marked.
        write(&file, &[1; PAGE], 7 * PAGE as u64).unwrap();
        let wanted = [0..1, 5..21, 131_071..131_074, 200_000..200_001];
        let mut bits = marks(&file, bytes).unwrap();
        wanted.iter().for_each(|run| mark(&mut bits, run));
        write(&file, &bits, bytes).unwrap();
        assert_eq!(found(), wanted);
        // Whoever wrote the file may have set any.
        write(&file, &[0xff; 8], length(bytes) - 8).unwrap();
        assert_eq!(found(), wanted);
    }
}

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
fn bits(bytes: u64) -> u64 {
    (bytes / PAGE as u64).div_ceil(8).next_multiple_of(PAGE as u64)
}

/// The pages that are there, in order, by their numbers.
pub(super) fn runs(file: impl AsFd, bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let (pages, mut chunk) = (bytes / PAGE as u64, [0; 4 * PAGE]);
    for first in (0..pages).step_by(8 * chunk.len()) {
        let chunk = &mut chunk[..(bits(bytes) - first / 8).min(4 * PAGE as u64) as usize];
        read(&file, chunk, bytes + first / 8)?;
        let set = chunk.iter().enumerate().filter(|(_, byte)| **byte != 0);
        for (index, byte) in set {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                let page = first + index as u64 * 8 + bit;
                match found.last_mut() {
                    // Bits behind the last page say nothing.
                    _ if page >= pages => {}
                    Some(last) if last.end == page => last.end += 1,
                    _ => found.push(page..page + 1),
                }
            }
        }
    }
    Ok(found)
}

/// Marks pages of a file that only this process writes to as there.
pub(super) fn mark(file: impl AsFd, bytes: u64, run: &Range<u64>) -> io::Result<()> {
    let mut part = vec![0; (run.end.div_ceil(8) - run.start / 8) as usize];
    read(&file, &mut part, bytes + run.start / 8)?;
    mark_in(&mut part, run.start - run.start % 8, run);
    write(file, &part, bytes + run.start / 8)
}

/// Sets the bits of `run` in `bits`, of which the first is that of page `first`.
pub(super) fn mark_in(bits: &mut [u8], first: u64, run: &Range<u64>) {
    for page in run.clone() {
        bits[((page - first) / 8) as usize] |= 1 << (page % 8);
    }
}

pub(super) fn read(file: impl AsFd, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
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
        assert_eq!(runs(&file, bytes).unwrap(), []);
        // Written, and not marked.
        write(&file, &[1; PAGE], 7 * PAGE as u64).unwrap();
        let wanted = [0..1, 5..21, 131_071..131_074, 200_000..200_001];
        wanted.iter().for_each(|run| mark(&file, bytes, run).unwrap());
        assert_eq!(runs(&file, bytes).unwrap(), wanted);
        // Whoever wrote the file may have set any.
        write(&file, &[0xff], length(bytes) - 1).unwrap();
        assert_eq!(runs(&file, bytes).unwrap(), wanted);
    }
}

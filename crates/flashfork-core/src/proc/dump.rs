//! What core dumps contain (`core(5)`, `/proc/self/coredump_filter`): sealed memory is file memory, and would be
//! missing.
//!
//! A program that is started inherits the filter and has no sealed memory. So what was added is marked, and the shim
//! takes it back there.

use super::text::{number, read_file};
use crate::sys::{self, Result};
use core::ffi::CStr;

const FILTER: &CStr = c"/proc/self/coredump_filter";

/// Private file memory.
const FILE_PRIVATE: u64 = 1 << 2;

/// Shared memory of files on persistent memory (DAX): the mark. Who dumps that dumps private file memory too, and then
/// nothing is added.
const MARK: u64 = 1 << 8;

/// Adds private file memory. Where that isn't allowed core dumps lack it; everything else works.
pub(crate) fn add_file_memory(buf: &mut [u8]) {
    let Some(filter) = read(buf) else { return };
    if filter & FILE_PRIVATE == 0 {
        // A failure is what the line above says.
        let _ = write(filter | FILE_PRIVATE | MARK);
    }
}

/// Takes back, in a program that was just started, what the one before had added.
pub fn take_back() {
    const ADDED: u64 = FILE_PRIVATE | MARK;
    if let Some(filter) = read(&mut [0; 64]).filter(|filter| filter & ADDED == ADDED) {
        // Where it can't be written its core dumps are larger.
        let _ = write(filter & !ADDED);
    }
}

fn read(buf: &mut [u8]) -> Option<u64> {
    read_file(FILTER, buf).ok().and_then(|text| number(text, 16))
}

fn write(filter: u64) -> Result<()> {
    let digit = |n: u64| b"0123456789abcdef"[(n & 15) as usize];
    let fd = sys::open(FILTER, sys::O_WRONLY)?;
    let written = sys::write(fd, &[b'0', b'x', digit(filter >> 8), digit(filter >> 4), digit(filter)]);
    sys::close(fd);
    written.map(drop)
}

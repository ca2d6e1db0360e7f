//! A file of which code is mapped, as the list of mappings tells of it.

use crate::proc::vma::Vma;
use crate::range::Range;
use crate::sys::{PROT_EXEC, PROT_READ};
use core::ffi::CStr;

/// Executable ranges of one object.
const PARTS: usize = 16;

/// The mappings of a file, from one with the file's beginning on.
pub(crate) struct Object {
    pub device: [u32; 2],
    pub inode: u64,
    /// Where the file begins, when that is mapped and can be read.
    pub start: Option<usize>,
    pub code: [Range; PARTS],
    pub code_count: usize,
    path: [u8; 4096],
}

impl Object {
    /// Begins anew with a mapping.
    pub fn begin(&mut self, v: &Vma, path: &[u8]) {
        (self.device, self.inode, self.code_count) = (v.device, v.inode, 0);
        self.start = (v.offset == 0 && v.prot & PROT_READ != 0).then_some(v.range.start);
        // No path is longer, and the last byte stays zero.
        let len = path.len().min(self.path.len() - 1);
        self.path[..len].copy_from_slice(&path[..len]);
        self.path[len] = 0;
    }

    /// Whether a mapping is of the same file, further on in it.
    pub fn goes_on_with(&self, v: &Vma) -> bool {
        self.inode == v.inode && self.device == v.device && v.offset != 0
    }

    /// Adds a mapping, if it is executable.
    pub fn add(&mut self, v: &Vma) {
        if v.prot & PROT_EXEC == 0 {
            return;
        }
        match self.code[..self.code_count].last_mut() {
            Some(last) if last.end == v.range.start || self.code_count == PARTS => last.end = v.range.end,
            _ => {
                self.code[self.code_count] = v.range;
                self.code_count += 1;
            }
        }
    }

    /// The file's path.
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or(c"")
    }
}

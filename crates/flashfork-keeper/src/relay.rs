//! The program's output while it is warmed, where lines of it tell that it is ready.

use regex::bytes::Regex;
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Passes it on to this process's standard output.
pub struct Relay {
    from: PipeReader,
    line: Vec<u8>,
}

/// Longest line that is looked at.
const LONGEST: usize = 1 << 16;

impl Relay {
    /// And the end for the program.
    pub fn new() -> std::io::Result<(Relay, OwnedFd)> {
        let (from, to) = std::io::pipe()?;
        Ok((Relay { from, line: Vec::new() }, to.into()))
    }

    /// Passes on what there is; whether a line was whole in which `wanted` is found. To be called when something can be
    /// read. The end is an error.
    pub fn pass(&mut self, wanted: &Regex) -> std::io::Result<bool> {
        let mut bytes = [0; 4096];
        let read = self.from.read(&mut bytes)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = &bytes[..read];
        // Nobody listens, perhaps: the program is warmed all the same.
        let _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
        let mut found = false;
        for byte in bytes {
            if *byte == b'\n' {
                found |= wanted.is_match(&self.line);
                self.line.clear();
            } else if self.line.len() < LONGEST {
                self.line.push(*byte);
            }
        }
        Ok(found)
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}

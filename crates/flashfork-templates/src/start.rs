//! What comes with a request for a clone: a memfd, or a pipe.

use crate::error::Error;
use flashfork_warm::Start;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::{fs::File, io::Write};

/// Strings one behind the other, each with its NUL.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    begins: Vec<usize>,
    /// The first that has a NUL in it.
    with_nul: Option<OsString>,
}

impl Strings {
    pub fn push(&mut self, string: &OsStr) {
        let string = string.as_encoded_bytes();
        if string.contains(&0) && self.with_nul.is_none() {
            self.with_nul = Some(OsString::from_vec(string.to_vec()));
        }
        self.begins.push(self.bytes.len());
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
    }

    fn len(&self) -> usize {
        self.begins.len()
    }

    /// The value of a variable; of several of its name the first counts (`getenv(3)`).
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let texts = self.bytes.split(|b| *b == 0);
        let value = |text: &[u8]| text.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::len);
        texts.into_iter().find_map(|text| {
            let len = value(text)?;
            Some(OsStr::from_bytes(&text[text.len() - len..]))
        })
    }

    /// Where each begins, when the first is at `at`, and a zero.
    fn table(&self, at: usize, into: &mut Vec<u8>) {
        self.begins.iter().for_each(|begin| into.extend(((at + begin) as u64).to_ne_bytes()));
        into.extend([0; 8]);
    }
}

/// Writes the caller, arguments and environment into a memfd; or into a pipe where a limit on the size of files, which
/// goes for memfds too, leaves no room.
pub fn file(start: Start, arguments: &Strings, variables: &Strings) -> Result<File, Error> {
    if let Some(string) = arguments.with_nul.as_ref().or(variables.with_nul.as_ref()) {
        return Err(Error::Nul(string.clone()));
    }
    let limit = start.limits[libc::RLIMIT_FSIZE as usize][0];
    let bytes = bytes(start, arguments, variables);
    if bytes.len() as u64 > limit {
        return pipe_of(&bytes).map_err(|source| Error::FileSize { kilobytes: bytes.len() >> 10, source });
    }
    let made = rustix::fs::memfd_create(c"flashfork-start", MemfdFlags::CLOEXEC);
    let mut file = File::from(made.map_err(|e| Error::Start(e.into()))?);
    file.write_all(&bytes).map_err(Error::Start)?;
    Ok(file)
}

/// The end to read of a pipe that holds these.
fn pipe_of(bytes: &[u8]) -> std::io::Result<File> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    fcntl_setpipe_size(&theirs, bytes.len())?;
    File::from(theirs).write_all(bytes)?;
    Ok(File::from(ours))
}

fn bytes(start: Start, arguments: &Strings, variables: &Strings) -> Vec<u8> {
    let strings_at = size_of::<Start>() + (arguments.len() + variables.len() + 2) * 8;
    // The last byte must be a NUL, also where there are no strings.
    let len = strings_at + arguments.bytes.len() + variables.bytes.len() + 1;
    let counts = (arguments.len() as u64, variables.len() as u64);
    let start = Start { len: len as u64, arguments: counts.0, variables: counts.1, ..start };
    let mut all = Vec::with_capacity(len);
    all.extend_from_slice(head(&start));
    arguments.table(strings_at, &mut all);
    variables.table(strings_at + arguments.bytes.len(), &mut all);
    all.extend_from_slice(&arguments.bytes);
    all.extend_from_slice(&variables.bytes);
    all.push(0);
    all
}

fn head(start: &Start) -> &[u8] {
    // SAFETY: a plain C structure of integers without padding (64-bit fields but for two of 32 bits side by side).
    unsafe { std::slice::from_raw_parts((&raw const *start).cast(), size_of::<Start>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(all: &[&str]) -> Strings {
        let mut strings = Strings::default();
        all.iter().for_each(|string| strings.push(OsStr::new(string)));
        strings
    }

    #[test]
    fn a_pipe_holds_what_a_file_may_not() {
        use std::io::Read;
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let mut found = Vec::new();
        pipe_of(&bytes).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    }

    #[test]
    fn every_offset_leads_to_its_string() {
        let (arguments, variables) = (strings(&["a", "", "three"]), strings(&["X=1", "ODD"]));
        let bytes = bytes(crate::own::describe(Some(0)).unwrap(), &arguments, &variables);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let tables = size_of::<Start>();
        let found: Vec<_> = (0..7).map(|i| word(tables + i * 8)).collect();
        assert_eq!((found[3], found[6]), (0, 0), "a zero behind each table");
        let string = |at: usize| bytes[at..].split(|b| *b == 0).next().unwrap();
        let strings: Vec<_> = [0, 1, 2, 4, 5].into_iter().map(|i| string(found[i])).collect();
        assert_eq!(strings, [&b"a"[..], b"", b"three", b"X=1", b"ODD"]);
        assert_eq!((word(8), word(16), word(24), bytes.last()), (bytes.len(), 3, 2, Some(&0)));
    }

    #[test]
    fn a_nul_inside_a_string_is_refused() {
        let start = crate::own::describe(Some(0)).unwrap();
        let refused = file(start, &strings(&["fine", "a\0b"]), &strings(&[]));
        assert!(matches!(refused, Err(Error::Nul(string)) if string == "a\0b"));
        assert!(file(start, &strings(&[]), &strings(&[])).is_ok());
    }
}

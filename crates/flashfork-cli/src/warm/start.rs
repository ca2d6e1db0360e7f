//! What comes with a request for a clone: a memfd, or a pipe.

use super::caller;
use crate::error::CliError;
use flashfork_warm::Start;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::pipe2;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;

/// Writes this process, `arguments` and the environment into a memfd; or into a pipe where a limit on the size of
/// files, which goes for memfds too, leaves no room.
pub fn file<'a>(arguments: impl ExactSizeIterator<Item = &'a OsStr> + Clone) -> Result<File, CliError> {
    let failed =
        |e: std::io::Error| CliError::Unable(format!("can't write down what the clone takes over: {e}; free memory"));
    let start = caller::describe();
    let limit = start.limits[libc::RLIMIT_FSIZE as usize][0];
    let bytes = bytes(start, arguments, &environment());
    if bytes.len() as u64 > limit {
        return pipe_with(&bytes).map_err(|e| {
            CliError::Unable(format!(
                "can't pass on {} KB of arguments and environment under this limit on the size of files: {e}; raise it (ulimit -f)",
                bytes.len() >> 10
            ))
        });
    }
    let mut file = File::from(memfd_create(c"flashfork-start", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(e.into()))?);
    file.write_all(&bytes).map_err(failed)?;
    Ok(file)
}

/// The end to read of a pipe that holds these.
fn pipe_with(bytes: &[u8]) -> std::io::Result<File> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    fcntl(&theirs, FcntlArg::F_SETPIPE_SZ(i32::try_from(bytes.len()).map_err(|_| ErrorKind::ArgumentListTooLong)?))?;
    File::from(theirs).write_all(bytes)?;
    Ok(File::from(ours))
}

fn bytes<'a>(
    start: Start,
    arguments: impl ExactSizeIterator<Item = &'a OsStr> + Clone,
    variables: &[&[u8]],
) -> Vec<u8> {
    let words = arguments.len() + variables.len() + 2;
    let strings_at = size_of::<Start>() + words * 8;
    let (mut table, mut strings) = (Vec::with_capacity(words * 8), Vec::new());
    let mut add = |string: &[u8]| {
        table.extend(((strings_at + strings.len()) as u64).to_ne_bytes());
        strings.extend_from_slice(string);
        strings.push(0);
    };
    arguments.clone().for_each(|argument| add(argument.as_bytes()));
    variables.iter().for_each(|variable| add(variable));
    // Never empty: the last byte must be a NUL.
    strings.push(0);
    let len = (strings_at + strings.len()) as u64;
    let start = Start { len, arguments: arguments.len() as u64, variables: variables.len() as u64, ..start };
    let (first, second) = table.split_at(arguments.len() * 8);
    [head(&start), first, &[0; 8], second, &[0; 8], &strings].concat()
}

fn head(start: &Start) -> &[u8] {
    // SAFETY: a plain C structure of integers without padding (64-bit fields but for two of 32 bits side by side).
    unsafe { std::slice::from_raw_parts((&raw const *start).cast(), size_of::<Start>()) }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The environment as it is, word for word.
fn environment() -> Vec<&'static [u8]> {
    let mut all = Vec::new();
    // SAFETY: a table of strings that a null ends; nothing changes the environment of this process.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            all.push(std::ffi::CStr::from_ptr(*next).to_bytes());
            next = next.add(1);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_holds_what_a_file_may_not() {
        use std::io::Read;
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let mut found = Vec::new();
        pipe_with(&bytes).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    }

    #[test]
    fn every_offset_leads_to_its_string() {
        let arguments = ["a", "", "three"].map(OsStr::new);
        let variables: [&[u8]; 2] = [b"X=1", b"ODD"];
        let bytes = bytes(caller::describe(), arguments.into_iter(), &variables);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let tables = size_of::<Start>();
        let found: Vec<_> = (0..7).map(|i| word(tables + i * 8)).collect();
        assert_eq!((found[3], found[6]), (0, 0), "a zero behind each table");
        let string = |at: usize| bytes[at..].split(|b| *b == 0).next().unwrap();
        let strings: Vec<_> = [0, 1, 2, 4, 5].into_iter().map(|i| string(found[i])).collect();
        assert_eq!(strings, [&b"a"[..], b"", b"three", b"X=1", b"ODD"]);
        assert_eq!((word(8), word(16), word(24), bytes.last()), (bytes.len(), 3, 2, Some(&0)));
    }
}

//! Which number the processes of clones get.
//!
//! A new one, as a rule: libraries that notice a fork by `getpid` then make their random numbers anew, wherever they
//! are linked. Ruby ends with an error if its process has another number than its timer (`timer_posix`,
//! thread_pthread.c). So its clones have their template's, and those libraries are told another by the shim, which
//! finds them by their files' names. What is linked into other files would not be found.

use flashfork_core::forkall::{Unfit, What};
use std::collections::BTreeSet;
use std::io::Result;
use std::path::{Path, PathBuf};

/// How the names of files begin that compare.
const COMPARES: [&str; 2] = ["libruby", "ruby"];

/// And of libraries that are told another number.
const TOLD: [&str; 2] = ["libcrypto.so", "libgcrypt.so"];

/// Names of source files of OpenSSL (3, 1.1.1) and libgcrypt, which their messages have.
const SOURCES: [&[u8]; 3] = [b"rands/drbg.c", b"rand/drbg_lib.c", b"random-csprng.c"];

/// Whether the clones of a program, by its number here, have their template's.
pub fn are_kept(program: i32) -> std::result::Result<bool, Unfit> {
    let all = executed(program).map_err(|e| Unfit::new(What::System, e.raw_os_error().unwrap_or(libc::EIO)))?;
    if !all.iter().any(|path| begins(path, &COMPARES)) {
        return Ok(false);
    }
    // What can't be read may hold anything.
    let holds = |path: &Path| std::fs::read(path).map_or(true, |bytes| SOURCES.iter().any(|name| has(&bytes, name)));
    match all.iter().find(|path| !begins(path, &TOLD) && holds(path)) {
        None => Ok(true),
        Some(path) => {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            Err(Unfit::named(What::Generator, 0, name))
        }
    }
}

/// The files of which something is mapped and executed.
fn executed(program: i32) -> Result<BTreeSet<PathBuf>> {
    let maps = std::fs::read_to_string(format!("/proc/{program}/maps"))?;
    let files = maps.lines().filter_map(|line| {
        let (_, rest) = line.split_once(' ')?;
        let path = rest.split_at_checked(rest.find('/')?)?.1;
        (rest.as_bytes().get(2) == Some(&b'x')).then(|| PathBuf::from(path))
    });
    Ok(files.collect())
}

fn begins(path: &Path, names: &[&str]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    names.iter().any(|begin| name.starts_with(begin))
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    regex::bytes::Regex::new(&regex::escape(&String::from_utf8_lossy(wanted))).is_ok_and(|name| name.is_match(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_gives_its_clones_new_numbers() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(executed(own).unwrap().contains(&std::env::current_exe().unwrap()));
        assert_eq!(are_kept(own), Ok(false));
    }

    #[test]
    fn a_library_that_is_linked_statically_is_seen() {
        assert!(has(b"\0../providers/implementations/rands/drbg.c\0", SOURCES[0]));
        assert!(!has(b"\0drbg\0", SOURCES[0]));
    }
}

//! What is going to be started: whether the shim can get into it.

use crate::error::CliError;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Type of the program header that names the dynamic linker (elf(5), `PT_INTERP`).
const INTERPRETER: u32 = 3;

/// As deep as the kernel follows `#!` lines (fs/exec.c).
const DEEPEST: usize = 5;

/// Refuses what can't be preloaded: statically linked programs, which would run to their end, and setuid ones.
pub fn check(name: &OsStr) -> Result<(), CliError> {
    let mut path = find(name)?;
    for _ in 0..DEEPEST {
        let refuse = |what: &str| {
            Err(CliError::Unable(format!(
                "{} can't be a template: {what}; only dynamically linked programs that run as you can",
                path.display()
            )))
        };
        let mut file = File::open(&path).map_err(CliError::file("read", &path))?;
        let about = file.metadata().map_err(CliError::file("look at", &path))?;
        let mut head = Vec::new();
        file.by_ref().take(1 << 16).read_to_end(&mut head).map_err(CliError::file("read", &path))?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
            let word = line.split(|b| b" \t".contains(b)).next().unwrap_or_default();
            path = OsString::from_vec(word.to_vec()).into();
            continue;
        }
        if about.mode() & 0o6000 != 0 && about.uid() != nix::unistd::geteuid().as_raw() {
            return refuse("it is setuid or setgid");
        }
        return match dynamic(&head) {
            Some(true) => Ok(()),
            Some(false) => refuse("it is statically linked"),
            None => refuse("it is no program for this machine"),
        };
    }
    Ok(())
}

/// The file that a shell would start.
fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    let runs = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        let about = path.metadata().map_err(CliError::file("run", name))?;
        if !about.is_file() || !runs(&path) {
            return Err(CliError::Unable(format!("can't run {}: it is no executable file", name.display())));
        }
        return Ok(path);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|dir| dir.join(name)).find(|path| runs(path));
    found.ok_or_else(|| CliError::Unable(format!("can't run '{}': not found in PATH", name.display())))
}

/// Whether an x86-64 ELF file asks for a dynamic linker; `None` if it is something else.
fn dynamic(head: &[u8]) -> Option<bool> {
    let word = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b)))
    };
    // ELF, 64 bits, little-endian, for x86-64.
    if head.get(..6)? != b"\x7fELF\x02\x01" || word(18, 2)? != 62 {
        return None;
    }
    let (table, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    for i in 0..count {
        let kind = word(table.checked_add(i.checked_mul(size)?)?, 4)?;
        if kind == INTERPRETER as usize {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_programs_are_told_from_others() {
        let read = |path: &str| std::fs::read(path).unwrap();
        assert_eq!(dynamic(&read("/proc/self/exe")), Some(true));
        assert_eq!(dynamic(b"\x7fELF\x02\x01 too short"), None);
        assert_eq!(dynamic(b"#!/bin/sh"), None);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert!(find(OsStr::new("no-such-program")).is_err());
        assert!(find(OsStr::new("/etc/passwd")).is_err());
        assert!(check(OsStr::new("/bin/sh")).is_ok());
    }
}

//! Names of templates: sockets in a directory that is the user's alone.

use super::link::{Found, LIMIT, LOOK, Link};
use crate::error::CliError;
use clap_complete::CompletionCandidate;
use flashfork_warm::LONGEST_NAME;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, RenameFlags, open, openat, renameat2};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// The name of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let good = !text.is_empty() && text.len() <= LONGEST_NAME && text.chars().all(plain);
        if good && !text.starts_with(['.', '-']) {
            return Ok(Name(text.to_owned()));
        }
        Err(format!(
            "a name is 1 to {LONGEST_NAME} letters, digits, '.', '_' and '-', and begins with a letter, digit or '_'"
        ))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// The directory, open: what is checked and what is used are one.
pub struct Names {
    pub directory: OwnedFd,
    pub path: PathBuf,
}

impl Names {
    /// Opens the directory, and makes it first if there is none.
    pub fn open() -> Result<Names, CliError> {
        let path = place();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(CliError::file("create", &path))?;
        // Whoever may rename what is in the directory above decides what is found here.
        let above = path.parent().unwrap_or(&path);
        let found = std::fs::symlink_metadata(above).map_err(CliError::file("look at", above))?;
        if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(CliError::Unable(format!(
                "{} is no place for templates: it is no directory of yours that only you may change; remove it, or set XDG_RUNTIME_DIR to a directory of yours",
                above.display()
            )));
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let failed = |e: nix::Error| CliError::file("open", &path)(e.into());
        let directory = open(&path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&directory).map_err(failed)?;
        let what = if found.st_uid != nix::unistd::geteuid().as_raw() {
            "it belongs to somebody else"
        } else if found.st_mode & 0o077 != 0 {
            "others may look into it"
        } else {
            return Ok(Names { directory, path });
        };
        let path = path.display();
        Err(CliError::Unable(format!(
            "{path} is no place for templates: {what}; remove it, or set XDG_RUNTIME_DIR to a directory of yours"
        )))
    }

    /// A path to an entry that is short enough for a socket, however long the directory's own is.
    pub fn short(&self, entry: impl AsRef<Path>) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(entry)
    }

    /// All names there are, sockets all, in order, whether or not their templates live.
    pub fn all(&self) -> Result<Vec<Name>, CliError> {
        let mut names: Vec<Name> = self.sockets()?.filter_map(|name| name.0.parse().ok()).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn sockets(&self) -> Result<impl Iterator<Item = Name>, CliError> {
        let entries = std::fs::read_dir(&self.path).map_err(CliError::file("read", &self.path))?;
        let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        Ok(sockets.filter_map(|entry| Some(Name(entry.file_name().to_str()?.to_owned()))))
    }

    /// The sockets of programs that are not ready yet, or never became so.
    pub fn temporary(&self) -> Result<Vec<Name>, CliError> {
        Ok(self.sockets()?.filter(|name| name.0.starts_with('.')).collect())
    }

    /// Keeps other commands from giving and taking names as long as the result lives. A name is given, or taken from a
    /// template that is gone, in that time only: so what was found dead is still so when it is removed. A template that
    /// lives gives up its own without.
    pub fn lock(&self) -> Result<Flock<OwnedFd>, CliError> {
        let failed = |e: nix::Error| CliError::file("lock", &self.path)(e.into());
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let mut directory = openat(&self.directory, ".", flags, Mode::empty()).map_err(failed)?;
        let start = Instant::now();
        loop {
            directory = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((directory, nix::Error::EWOULDBLOCK)) if start.elapsed() < LIMIT => directory,
                Err((_, nix::Error::EWOULDBLOCK)) => {
                    return Err(CliError::Unable(format!(
                        "another flashfork command has held the names in {} for {} seconds: it is stopped, perhaps; let it go on, or end it",
                        self.path.display(),
                        LIMIT.as_secs()
                    )));
                }
                Err((_, e)) => return Err(failed(e)),
            };
            std::thread::sleep(LOOK / 50);
        }
    }

    /// Removes the name of a template that is gone; not that of one that lives, which may have taken it just now.
    pub fn clear(&self, name: &Name) -> Result<(), CliError> {
        let _lock = self.lock()?;
        match Link::find(self, name)? {
            Found::Dead => self.remove(name),
            Found::Alive(_) | Found::Stopped(_) | Found::Nobody => Ok(()),
        }
    }

    /// Gives an entry a name that nobody has; false if somebody has it.
    pub fn rename(&self, from: &Path, to: &Name) -> nix::Result<bool> {
        match renameat2(&self.directory, from, &self.directory, to.as_ref(), RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => Ok(true),
            Err(nix::Error::EEXIST) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes an entry, a socket; one that isn't there is no failure. Under the lock, unless nobody else knows of it.
    pub fn remove(&self, entry: impl AsRef<Path>) -> Result<(), CliError> {
        let path = self.path.join(&entry);
        match fstatat(&self.directory, entry.as_ref(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) if found.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFSOCK.bits() => {
                return Err(CliError::Unable(format!(
                    "{} is no template: it is not a socket; move it away",
                    path.display()
                )));
            }
            // What can't be looked at can't be removed, and that says why.
            _ => {}
        }
        match unlinkat(&self.directory, entry.as_ref(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
            Err(e) => Err(CliError::file("remove", path)(e.into())),
        }
    }
}

/// For a shell's completion; where names can't be read there are none.
pub fn candidates() -> Vec<CompletionCandidate> {
    let all = Names::open().and_then(|names| names.all()).unwrap_or_default();
    all.into_iter().map(|name| CompletionCandidate::new(name.to_string())).collect()
}

/// Where they are: under `XDG_RUNTIME_DIR`, or in a directory under /tmp with the user's number.
fn place() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let user = nix::unistd::geteuid();
    runtime.map_or_else(|| format!("/tmp/flashfork-{user}").into(), |dir| dir.join("flashfork")).join("templates")
}

/// The working directory, for a clone.
pub fn working_directory() -> nix::Result<OwnedFd> {
    openat(AT_FDCWD, ".", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for good in ["py", "py3.11", "_x", "A-b_c.d", &"x".repeat(LONGEST_NAME)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "a,b", "ä", &"x".repeat(LONGEST_NAME + 1)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}

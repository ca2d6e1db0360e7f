//! What is going to be started: whether the shim can get into it.

use crate::error::Error;
use flashfork_warm::{WAITS, is_dynamic, is_wrapper, runs_scripts, starts_another};
use rustix::process::{getegid, geteuid, getuid};
use std::{
	ffi::{OsStr, OsString},
	fs::File,
	io::Read,
	os::unix::{
		ffi::{OsStrExt, OsStringExt},
		fs::{MetadataExt, PermissionsExt},
	},
	path::{Path, PathBuf},
};

/// As deep as the kernel follows `#!` lines (fs/exec.c).
const DEEPEST: usize = 5;

/// Refuses what can't be preloaded: statically linked programs, which would run to their end, and those that run with
/// other rights than their caller's. With `work`, because the program is to do some of its own before it is ready,
/// tells a wrapper: a script, or a program, that becomes the one which does it. A name without a slash is looked for
/// in `paths`, as `PATH` has them.
pub fn check(name: &OsStr, paths: &OsStr, work: bool) -> Result<Option<PathBuf>, Error> {
	let mut path = find(name, paths)?;
	let first = path.clone();
	let mut wraps = is_wrapper(path.as_os_str().as_bytes());
	for _ in 0..DEEPEST {
		let refuse = |what: &str| {
			let why = format!("can't be a template: {what}; only dynamically linked programs that run as you can");
			Err(Error::Unfit { program: path.display().to_string(), why })
		};
		let mut file = File::open(&path).map_err(Error::file("read", &path))?;
		let about = file.metadata().map_err(Error::file("look at", &path))?;
		let mut head = Vec::new();
		file.by_ref().take(1 << 16).read_to_end(&mut head).map_err(Error::file("read", &path))?;
		if let Some(line) = head.strip_prefix(b"#!") {
			let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
			let word = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty()).unwrap_or_default();
			path = OsString::from_vec(word.to_vec()).into();
			wraps |= !is_interpreter(path.as_os_str()) && !is_script(&path);
			continue;
		}
		if let Some(what) = other_rights(&about, has_capabilities(&path), Rights::own()) {
			return refuse(what);
		}
		if work && starts_another(path.as_os_str().as_bytes()) {
			return Err(Error::Unfit { program: path.display().to_string(), why: WAITS.into() });
		}
		return match is_dynamic(&head) {
			Some(true) => Ok((wraps && work).then_some(first)),
			Some(false) => refuse("it is statically linked"),
			None => refuse("it is no program for this machine"),
		};
	}
	Ok(None)
}

/// Whether a program has the name of an interpreter that the shim knows: `python3.11`, `perl`.
pub fn is_interpreter(program: &OsStr) -> bool {
	runs_scripts(program.as_bytes())
}

fn is_script(path: &Path) -> bool {
	let mut head = [0; 2];
	File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *b"#!"
}

/// Of whom programs run for.
struct Rights {
	user: u32,
	group: u32,
	root: bool,
}

impl Rights {
	fn own() -> Rights {
		Rights { user: geteuid().as_raw(), group: getegid().as_raw(), root: getuid().is_root() }
	}
}

/// Why a program would run with rights that its caller doesn't have: into such the dynamic linker lets no shim
/// (`AT_SECURE`, ld.so(8)).
fn other_rights(about: &std::fs::Metadata, capabilities: bool, own: Rights) -> Option<&'static str> {
	let mode = about.mode();
	if mode & 0o4000 != 0 && about.uid() != own.user {
		Some("it is setuid")
	} else if mode & 0o2010 == 0o2010 && about.gid() != own.group {
		Some("it is setgid")
	} else {
		(capabilities && !own.root).then_some("it has capabilities of its own (setcap)")
	}
}

fn has_capabilities(path: &Path) -> bool {
	// Asks for the length only.
	rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 0][..]).is_ok_and(|len| len > 0)
}

/// The file that a shell would start, `paths` being its `PATH`; the error says why there is none.
pub fn find(name: &OsStr, paths: &OsStr) -> Result<PathBuf, Error> {
	let runs = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
	if name.as_encoded_bytes().contains(&b'/') {
		let path = PathBuf::from(name);
		let about = path.metadata().map_err(Error::file("run", name))?;
		if !runs(&path) {
			let why = if about.is_dir() { "it is a directory" } else { "it is no executable file" };
			return Err(Error::Run { program: name.display().to_string(), why: why.into() });
		}
		return Ok(path);
	}
	let found = std::env::split_paths(paths).map(|dir| dir.join(name)).find(|path| runs(path));
	found.ok_or_else(|| Error::Run { program: format!("'{}'", name.display()), why: "not found in PATH".into() })
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn programs_are_found_as_a_shell_finds_them() {
		let paths = OsStr::new("/nonexistent:/bin");
		assert_eq!(find(OsStr::new("sh"), paths).unwrap(), Path::new("/bin/sh"));
		assert!(find(OsStr::new("no-such-program"), paths).is_err());
		assert!(find(OsStr::new("/etc/passwd"), paths).is_err());
		assert!(check(OsStr::new("/bin/sh"), OsStr::new(""), true).is_ok());
	}

	#[test]
	fn programs_with_rights_of_their_own_are_told_from_others() {
		let file = tempfile::NamedTempFile::new().unwrap();
		let about = |mode| {
			file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
			file.as_file().metadata().unwrap()
		};
		let plain = about(0o755);
		let (user, group) = (plain.uid(), plain.gid());
		let own = || Rights { user, group, root: false };
		assert_eq!(other_rights(&plain, false, own()), None);
		assert!(other_rights(&plain, true, own()).is_some());
		assert_eq!(other_rights(&plain, true, Rights { root: true, ..own() }), None);
		// Of the caller's own user and group they give nothing.
		assert_eq!(other_rights(&about(0o6755), false, own()), None);
		assert_eq!(other_rights(&about(0o4755), false, Rights { user: user + 1, ..own() }), Some("it is setuid"));
		assert_eq!(other_rights(&about(0o2755), false, Rights { group: group + 1, ..own() }), Some("it is setgid"));
		// Without the group's right to run it the bit means something else.
		assert_eq!(other_rights(&about(0o2745), false, Rights { group: group + 1, ..own() }), None);
	}
}

//! System calls that a file's code makes by itself (docs/SYSTEM_CALLS.md): what a seal would find in it.

use flashfork_core::{
	code::{self, Call, Site},
	name::NAME,
};
use serde::Serialize;
use std::{
	collections::BTreeSet,
	ffi::CString,
	fs::File,
	os::{fd::AsRawFd, unix::ffi::OsStrExt},
	path::{Path, PathBuf},
	time::{Duration, Instant},
};

/// What a seal makes of a file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
	/// Nothing in it speaks against a seal.
	Clean,
	/// It has such calls, and the engine rewrites them: libc, the loader, the runtime of a sanitizer.
	Rewritten,
	/// A process that has it mapped is not sealed.
	Refused,
	/// It is no object for x86-64.
	NoObject,
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct Examined {
	/// What a seal makes of it.
	pub verdict: Verdict,
	/// Whether Go built it.
	pub go: bool,
	/// Bytes of code.
	pub code_bytes: u64,
	/// Address of each call as the file's headers have it, and what it is.
	pub calls: Vec<(u64, Call)>,
	/// Time the look took, reading included.
	pub elapsed: Duration,
}

impl Examined {
	/// Why a process with this file is not sealed, in words.
	pub fn what(&self) -> String {
		let first = if self.go { Some(Call::Go) } else { self.calls.first().map(|(_, call)| *call) };
		first.map_or(String::new(), |call| call.to_string())
	}
}

/// Looks through the files that a process has mapped to be executed. Those that were replaced or removed since are left
/// out.
pub fn of_process(pid: i32) -> std::io::Result<Vec<(PathBuf, Examined)>> {
	let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
	let path = |line: &str| {
		let mut words = line.splitn(6, ' ');
		let executable = words.nth(1)?.contains('x');
		let path = words.nth(3)?.trim_start();
		(executable && path.starts_with('/')).then(|| PathBuf::from(path))
	};
	let paths: BTreeSet<_> = maps.lines().filter_map(path).collect();
	// By the process's own root: it may be another one.
	let root = PathBuf::from(format!("/proc/{pid}/root"));
	let look = |path: PathBuf| {
		let seen = examine(&root.join(path.strip_prefix("/").unwrap_or(&path))).ok()?;
		Some((path, seen))
	};
	Ok(paths.into_iter().filter_map(look).collect())
}

/// Looks through a file.
pub fn examine(path: &Path) -> std::io::Result<Examined> {
	let file = File::open(path)?;
	let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
	let mut window = vec![0; code::memory::WINDOW].into_boxed_slice();
	let window: &mut [u8; code::memory::WINDOW] = window.as_mut().try_into().map_err(std::io::Error::other)?;
	let scratch = code::Scratch::map().map_err(|e| std::io::Error::from_raw_os_error(e.into_raw()))?;
	let start = Instant::now();
	let mut calls = Vec::new();
	let seen = code::file::examine(file.as_raw_fd(), size, None, window, scratch, &mut |site: Site| {
		calls.push((site.at as u64, site.call));
		true
	});
	let elapsed = start.elapsed();
	scratch.unmap();
	if !seen.readable {
		calls.push((0, Call::Unreadable));
	}
	let verdict = match (seen.object, seen.go || !calls.is_empty()) {
		(false, _) => Verdict::NoObject,
		(true, false) => Verdict::Clean,
		(true, true) if !seen.go && is_rewritten(path, &std::fs::read(path)?) => Verdict::Rewritten,
		(true, true) => Verdict::Refused,
	};
	Ok(Examined { verdict, go: seen.go, code_bytes: seen.code as u64, calls, elapsed })
}

/// Whether it is a libc, a loader, or has a sanitizer's runtime in it. In a process the engine looks for the functions
/// themselves.
fn is_rewritten(path: &Path, bytes: &[u8]) -> bool {
	/// Every sanitizer's runtime has one of these functions.
	const RUNTIME: [&[u8]; 2] = [b"__sanitizer_print_stack_trace", b"__sanitizer_set_death_callback"];
	let name = path.file_name().map(|name| name.as_bytes()).unwrap_or_default();
	let starts = |start: &&[u8]| name.starts_with(start);
	name == b"libc.so"
		|| [&b"libc.so."[..], b"libc-2.", b"libpthread-2.", b"ld-linux-", b"ld-2.", b"ld-musl-", b"libc.musl-"]
			.iter()
			.any(starts)
		|| RUNTIME.iter().any(|function| bytes.windows(function.len()).any(|window| window == *function))
}

/// How long the look before a seal takes in this process as it is now.
pub fn time() -> Result<Duration, crate::SealError> {
	Ok(Duration::from_nanos(code::times::time()?))
}

/// Forgets what such looks have found: for the next one all files are new.
pub fn forget() {
	code::times::forget();
}

/// The caller answers for the system calls of a file as it is now at this path: a process that has it mapped is sealed
/// all the same. At most 16 files.
pub fn trust(path: &Path) -> std::io::Result<()> {
	let path = CString::new(path.as_os_str().as_bytes())?;
	code::process::trust(&path).map_err(|e| std::io::Error::from_raw_os_error(e.into_raw()))
}

/// What the last refusal of this process for its code was about: the file, and what it does.
pub(crate) fn culprit() -> Option<String> {
	let mut name = [0; NAME];
	let (call, path) = code::process::culprit().get(&mut name)?;
	Some(format!("{} {call}", String::from_utf8_lossy(path)))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn a_c_library_is_known_and_its_calls_are_seen() {
		let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
		let libc = maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|p| p.contains("/libc.so")));
		let seen = examine(Path::new(libc.unwrap())).unwrap();
		assert_eq!(seen.verdict, Verdict::Rewritten);
		for number in [25, 28] {
			assert!(seen.calls.iter().any(|(_, call)| *call == Call::Number(number)), "{number}");
		}
	}

	#[test]
	fn runtimes_of_sanitizers_are_known_by_their_functions() {
		let is_known = |name: &str, bytes: &[u8]| is_rewritten(Path::new(name), bytes);
		// gcc's libubsan has the second alone.
		assert!(is_known("libubsan.so.1.0.0", b"\0__sanitizer_set_death_callback\0"));
		assert!(is_known("a-program", b"\0__sanitizer_print_stack_trace\0"));
		assert!(!is_known("a-program", b"\0__sanitizer\0"));
	}

	#[test]
	fn what_is_no_object_is_said_to_be_none() {
		assert_eq!(examine(Path::new("/proc/self/maps")).unwrap().verdict, Verdict::NoObject);
		assert!(examine(Path::new("/does/not/exist")).is_err());
	}
}

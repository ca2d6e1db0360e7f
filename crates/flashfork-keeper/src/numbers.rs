//! Which number the processes of clones get, and from where on those that they start.
//!
//! A new one, as a rule: libraries that notice a fork by `getpid` then make their random numbers anew, wherever they
//! are linked. Ruby ends with an error if its process has another number than its timer (`timer_posix`,
//! thread_pthread.c). So its clones have their template's, and those libraries are told another by the shim. What is
//! linked into other files would not be found.

use flashfork_core::forkall::{Fit, Unfit, What};
use std::{
	collections::BTreeSet,
	hash::{BuildHasher, Hasher, RandomState},
	io::Result,
	path::{Path, PathBuf},
};

/// Numbers for clones. What a clone starts has those above its own; namespaces of other clones know nothing of them. So
/// clones begin far from each other: however many live at a time, what they start has different numbers until it is
/// much (scripts name files in /tmp by theirs).
#[derive(Debug)]
pub struct Numbers {
	/// They are above the first, and up to the second.
	row: [i32; 2],
	/// Where the last one lies, as a fraction of what is begun in.
	place: u32,
}

impl Numbers {
	/// The fraction of the golden ratio: multiples of it, without their whole parts, are spread evenly.
	const STEP: u32 = 0x9e37_79b9;

	/// Those above the first of `row`, and up to the second, from anywhere on.
	pub fn new(row: [i32; 2]) -> Numbers {
		Numbers { row, place: RandomState::new().build_hasher().finish() as u32 }
	}

	/// The next.
	pub fn choose(&mut self) -> i32 {
		self.place = self.place.wrapping_add(Self::STEP);
		let [first, last] = self.row;
		// Above the half there is room for what the last of them start: when there is none left the kernel goes on with
		// the lowest, and a thread of the template's may have had those.
		let half = i64::from(last - first + 1) / 2;
		first + 1 + ((i64::from(self.place) * half) >> 32) as i32
	}
}

/// How the names of files begin that compare.
const COMPARES: [&str; 2] = ["libruby", "ruby"];

/// And of libraries that are told another number.
const TOLD: [&str; 2] = ["libcrypto.so", "libgcrypt.so"];

/// Names of source files of OpenSSL (3, 1.1.1) and libgcrypt, which their messages have.
const SOURCES: [&[u8]; 3] = [b"rands/drbg.c", b"rand/drbg_lib.c", b"random-csprng.c"];

/// Whether the clones of a program, by its number here, have their template's.
pub fn are_kept(program: i32) -> Fit<bool> {
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
	fn clones_begin_far_from_each_other() {
		let mut numbers = Numbers::new([300, 32767]);
		let all: Vec<i32> = (0..1000).map(|_| numbers.choose()).collect();
		assert!(all.iter().all(|number| (301..=16534).contains(number)));
		for live in [2, 10, 100] {
			for some in all.windows(live) {
				let mut some = some.to_vec();
				some.sort_unstable();
				let nearest = some.windows(2).map(|two| two[1] - two[0]).min();
				assert!(nearest > Some(16234 / live as i32 / 3), "{live}: {nearest:?}");
			}
		}
		assert_eq!(Numbers::new([7, 8]).choose(), 8);
	}

	#[test]
	fn a_library_that_is_linked_statically_is_seen() {
		assert!(has(b"\0../providers/implementations/rands/drbg.c\0", SOURCES[0]));
		assert!(!has(b"\0drbg\0", SOURCES[0]));
	}
}

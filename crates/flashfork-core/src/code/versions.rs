//! Versions of files whose code was looked through, and what was found.

use super::Call;
use crate::{
	range::Range,
	sys::{O_DIRECTORY, O_PATH, Result, Status, close, open, status, status_at},
};
use core::{
	ffi::CStr,
	sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// How many are remembered.
pub const VERSIONS: usize = 512;
/// Lists that they are in, by device and inode.
const LISTS: usize = 256;
/// Bytes of a path that is kept, a zero at its end among them.
const PATH: usize = 192;
/// Words that tell a version of a file from others: device, inode, size, time of change in seconds and nanoseconds.
const KEY: usize = 5;
/// [`Version::found`] of code in which nothing was found; otherwise it is [`Call::to_word`].
const WELL: u64 = 1;

/// What is remembered of a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
	/// Nothing speaks against it.
	Well,
	/// It has such a call.
	Calls(Call),
}

/// Versions of files.
pub struct Versions {
	versions: [Version; VERSIONS],
	/// The first of each list, by its number from 1 on; 0: there is none.
	lists: [AtomicUsize; LISTS],
	/// How many there have ever been.
	count: AtomicUsize,
}

/// A version of a file, part of it, and what was found there. All zeros: none.
struct Version {
	key: [AtomicU64; KEY],
	/// Where in the file the part begins and ends.
	part: [AtomicU64; 2],
	found: AtomicU64,
	/// The next of the list, as in [`Versions::lists`].
	next: AtomicUsize,
	/// Where the file was seen, and how long its path is; 0 where it is longer, or not known. It is but the way to ask
	/// what the file is like now.
	path: [AtomicU64; PATH / 8],
	path_len: AtomicUsize,
}

impl Versions {
	#[cfg(test)]
	fn new() -> Versions {
		// SAFETY: all of it is atomics, of which zeros are a value.
		unsafe { core::mem::zeroed() }
	}

	/// What is known of parts of a file as it is now; `None` when not all of them have been looked through.
	pub fn known(&self, file: &Status, parts: &[Range]) -> Option<Known> {
		let key = key(file);
		let versions = || self.of_file(file.device, file.inode).filter(|(_, version)| version.is(&key));
		if let Some(call) = versions().find_map(|(_, version)| Call::from_word(version.found.load(Relaxed))) {
			return Some(Known::Calls(call));
		}
		let is_well = |part: &Range| versions().any(|(_, version)| version.is_well(*part));
		parts.iter().all(is_well).then_some(Known::Well)
	}

	/// The number of a version in which this part of a file is well, if there is a path to ask about it.
	pub fn find(&self, device: u64, inode: u64, part: Range) -> Option<usize> {
		let mut versions = self.of_file(device, inode);
		let found = versions.find(|(_, version)| version.is_well(part) && version.path_len.load(Relaxed) > 0);
		found.map(|(number, _)| number)
	}

	/// Whether files are now as they were in versions, given by number.
	pub fn are_as_they_were(&self, numbers: impl Iterator<Item = usize>) -> bool {
		let mut directory = Directory { fd: None, path: [0; PATH], len: 0 };
		numbers.map(|number| &self.versions[number]).all(|version| {
			let (path, len) = version.path();
			directory.status(&path, len).is_ok_and(|now| version.is(&key(&now)))
		})
	}

	/// Remembers what was found in part of a file: in place of what was found in the same part, or in another version
	/// of the file, or in place of the oldest. `path`: where it was seen; empty where that isn't known.
	pub fn remember(&self, file: &Status, part: Range, found: Option<Call>, path: &CStr) {
		let key = key(file);
		let mut versions = self.of_file(file.device, file.inode);
		let older = versions.find(|(_, version)| !version.is(&key) || version.part() == part);
		let number = older.map_or_else(|| self.begin(file), |(number, _)| number);
		let version = &self.versions[number];
		version.found.store(0, Relaxed);
		version.key.iter().zip(key).for_each(|(place, word)| place.store(word, Relaxed));
		version.part[0].store(part.start as u64, Relaxed);
		version.part[1].store(part.end as u64, Relaxed);
		version.path_len.store(0, Relaxed);
		version.found.store(found.map_or(WELL, Call::to_word), Relaxed);
		if !path.is_empty() {
			self.note_path(file, path);
		}
	}

	/// Remembers where a file was seen last.
	pub fn note_path(&self, file: &Status, path: &CStr) {
		let key = key(file);
		let versions = self.of_file(file.device, file.inode).filter(|(_, version)| version.is(&key));
		versions.for_each(|(_, version)| version.set_path(path.to_bytes()));
	}

	/// Forgets a file, of which nothing can be told any more.
	pub fn forget(&self, device: u64, inode: u64) {
		self.of_file(device, inode).for_each(|(_, version)| version.found.store(0, Relaxed));
	}

	/// Forgets all.
	pub fn forget_all(&self) {
		self.versions.iter().for_each(|version| version.found.store(0, Relaxed));
	}

	fn of_file(&self, device: u64, inode: u64) -> impl Iterator<Item = (usize, &Version)> {
		let mut next = self.lists[list(device, inode)].load(Relaxed);
		let all = core::iter::from_fn(move || {
			let number = next.checked_sub(1)?;
			next = self.versions[number].next.load(Relaxed);
			Some((number, &self.versions[number]))
		});
		all.filter(move |(_, version)| version.is_of(device, inode))
	}

	/// Takes the oldest away, and puts it into the list of a file.
	fn begin(&self, file: &Status) -> usize {
		let number = self.count.fetch_add(1, Relaxed) % VERSIONS;
		let version = &self.versions[number];
		version.found.store(0, Relaxed);
		let mut place = &self.lists[list(version.key[0].load(Relaxed), version.key[1].load(Relaxed))];
		while let Some(other) = place.load(Relaxed).checked_sub(1) {
			if other == number {
				place.store(version.next.load(Relaxed), Relaxed);
				break;
			}
			place = &self.versions[other].next;
		}
		let first = &self.lists[list(file.device, file.inode)];
		version.key[0].store(file.device, Relaxed);
		version.key[1].store(file.inode, Relaxed);
		version.next.store(first.load(Relaxed), Relaxed);
		first.store(number + 1, Relaxed);
		number
	}
}

impl Version {
	fn is(&self, key: &[u64; KEY]) -> bool {
		self.key.iter().zip(key).all(|(a, b)| a.load(Relaxed) == *b)
	}

	fn is_of(&self, device: u64, inode: u64) -> bool {
		self.key[1].load(Relaxed) == inode && self.key[0].load(Relaxed) == device
	}

	fn part(&self) -> Range {
		let [start, end] = self.part.each_ref().map(|word| word.load(Relaxed) as usize);
		Range::new(start, end)
	}

	fn is_well(&self, part: Range) -> bool {
		self.found.load(Relaxed) == WELL && self.part().intersect(part) == part
	}

	/// The path, with zeros behind it, and how long it is.
	fn path(&self) -> ([u8; PATH], usize) {
		let (mut path, len) = ([0; PATH], self.path_len.load(Relaxed).min(PATH - 1));
		for (bytes, word) in path.chunks_exact_mut(8).zip(&self.path).take(len.div_ceil(8)) {
			bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
		}
		(path, len)
	}

	fn set_path(&self, path: &[u8]) {
		let len = if path.len() < PATH { path.len() } else { 0 };
		let mut bytes = [0; PATH];
		bytes[..len].copy_from_slice(&path[..len]);
		for (word, bytes) in self.path.iter().zip(bytes.as_chunks().0) {
			word.store(u64::from_ne_bytes(*bytes), Relaxed);
		}
		self.path_len.store(len, Relaxed);
	}
}

/// The directory of the file that was asked about last. It is opened when another file follows that lies there, too: to
/// find its way to a file takes the kernel as long as all the rest of the question.
struct Directory {
	fd: Option<i32>,
	/// With the slash at its end.
	path: [u8; PATH],
	len: usize,
}

impl Directory {
	/// What `stat(2)` says of a path of `len` bytes, behind which are zeros.
	fn status(&mut self, path: &[u8; PATH], len: usize) -> Result<Status> {
		let string = |bytes| CStr::from_bytes_until_nul(bytes).unwrap_or(c"");
		let len = path[..len].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
		if len == 0 || path[..len] != self.path[..self.len] {
			self.close();
			self.path[..len].copy_from_slice(&path[..len]);
			self.len = len;
			return status(string(path));
		}
		if self.fd.is_none() {
			self.path[len] = 0;
			self.fd = open(string(&self.path), O_PATH | O_DIRECTORY).ok();
		}
		self.fd.map_or_else(|| status(string(path)), |fd| status_at(fd, string(&path[len..])))
	}

	fn close(&mut self) {
		if let Some(fd) = self.fd.take() {
			close(fd);
		}
	}
}

impl Drop for Directory {
	fn drop(&mut self) {
		self.close();
	}
}

fn key(file: &Status) -> [u64; KEY] {
	[file.device, file.inode, file.size, file.changed[0], file.changed[1]]
}

/// The list of a file (Fibonacci hashing).
fn list(device: u64, inode: u64) -> usize {
	((device.rotate_left(32) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LISTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
	use super::*;

	fn file(inode: u64, changed: u64) -> Status {
		Status { device: 1, inode, regular: true, size: 4096, changed: [changed, 0] }
	}

	const PART: Range = Range { start: 4096, end: 8192 };
	const CALLS: Known = Known::Calls(Call::Unknown);

	#[test]
	fn a_version_is_known_with_the_parts_that_were_looked_through() {
		let versions = Versions::new();
		let known = |file: Status, parts: &[Range]| versions.known(&file, parts);
		versions.remember(&file(7, 1), PART, None, c"/lib/a");
		assert_eq!(known(file(7, 1), &[PART]), Some(Known::Well));
		assert_eq!(known(file(7, 1), &[Range::new(4096, 4097)]), Some(Known::Well), "part of it");
		assert_eq!(known(file(7, 1), &[Range::new(4096, 8193)]), None, "more than was looked through");
		assert_eq!(known(file(7, 1), &[PART, Range::new(0, 4096)]), None);
		assert_eq!(known(file(7, 2), &[PART]), None, "another version");
		assert_eq!(known(file(8, 1), &[PART]), None, "another file");
		versions.remember(&file(7, 1), Range::new(0, 4096), Some(Call::Unknown), c"/lib/a");
		assert_eq!(known(file(7, 1), &[PART]), Some(CALLS), "a file with such calls, whichever part is mapped");
		versions.remember(&file(7, 2), PART, None, c"/lib/a");
		versions.remember(&file(7, 2), Range::new(0, 4096), None, c"/lib/a");
		assert_eq!(known(file(7, 2), &[PART, Range::new(0, 4096)]), Some(Known::Well), "as it is now");
		assert_eq!(known(file(7, 1), &[PART]), None, "an older version is forgotten");
		versions.forget(1, 7);
		assert_eq!(known(file(7, 2), &[PART]), None);
	}

	#[test]
	fn the_oldest_make_room() {
		let versions = Box::new(Versions::new());
		for inode in 1..=2 * VERSIONS as u64 + 5 {
			versions.remember(&file(inode, 1), PART, None, c"/lib/a");
			let is_known = |inode: u64| versions.known(&file(inode, 1), &[PART]).is_some();
			let oldest = inode.saturating_sub(VERSIONS as u64 - 1).max(1);
			assert!(is_known(oldest) && is_known(inode.midpoint(oldest)) && is_known(inode));
			assert!(!is_known(oldest - 1) && !is_known(inode + 1));
		}
		let listed: usize = (0..=2 * VERSIONS as u64 + 5).map(|inode| versions.of_file(1, inode).count()).sum();
		assert_eq!(listed, VERSIONS);
	}

	#[test]
	fn a_file_is_found_with_its_path_and_asked_about_there() {
		let versions = Versions::new();
		let dir = std::env::temp_dir().join(format!("flashfork-versions-{}", std::process::id()));
		std::fs::create_dir_all(&dir).unwrap();
		let paths = ["a", "b", "c"].map(|name| dir.join(name));
		let string = |path: &std::path::Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
		let mut numbers = Vec::new();
		for path in &paths {
			std::fs::write(path, "code").unwrap();
			let file = status(&string(path)).unwrap();
			versions.remember(&file, PART, None, c"");
			assert_eq!(versions.find(file.device, file.inode, PART), None, "there is no path");
			versions.note_path(&file, &string(path));
			numbers.push(versions.find(file.device, file.inode, PART).unwrap());
			assert_eq!(versions.find(file.device, file.inode, Range::new(0, 8192)), None);
		}
		let are = || versions.are_as_they_were(numbers.iter().copied());
		assert!(are());
		std::fs::rename(&paths[2], dir.join("d")).unwrap();
		assert!(!are(), "it is somewhere else");
		std::fs::write(&paths[2], "code").unwrap();
		assert!(!are(), "that is another file");
		std::fs::rename(dir.join("d"), &paths[2]).unwrap();
		let again = status(&string(&paths[2])).unwrap();
		versions.remember(&again, PART, None, &string(&paths[2]));
		assert!(are());
		std::fs::write(&paths[1], "longer code").unwrap();
		assert!(!are(), "written in place");
		std::fs::remove_dir_all(&dir).unwrap();
	}

	#[test]
	fn a_path_that_is_too_long_is_none() {
		let versions = Versions::new();
		let long = std::ffi::CString::new(vec![b'a'; PATH]).unwrap();
		versions.remember(&file(7, 1), PART, None, &long);
		assert_eq!(versions.find(1, 7, PART), None);
		assert_eq!(versions.known(&file(7, 1), &[PART]), Some(Known::Well));
	}
}

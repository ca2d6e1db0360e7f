//! What the kernel says of this process's mappings.
#![allow(dead_code)] // each test program uses a part

use std::{collections::BTreeSet, ops::Range};

pub struct Mapping {
	pub range: Range<usize>,
	/// As in `rw-p`.
	pub prot: String,
	pub device: String,
	pub inode: String,
	pub name: String,
	pub line: String,
}

impl Mapping {
	/// Where the kernel has its file.
	pub fn file(&self) -> String {
		format!("/proc/self/map_files/{:x}-{:x}", self.range.start, self.range.end)
	}
}

fn range(line: &str) -> Option<Range<usize>> {
	let (start, end) = line.split(' ').next()?.split_once('-')?;
	let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).ok());
	Some(start?..end?)
}

pub fn mappings() -> Vec<Mapping> {
	let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
	let mapping = |line: &str| {
		let mut words = line.split_whitespace().skip(1).map(str::to_owned);
		let mut word = || words.next().unwrap_or_default();
		let (prot, _, device, inode, name) = (word(), word(), word(), word(), word());
		Mapping { range: range(line).unwrap(), prot, device, inode, name, line: line.to_owned() }
	};
	maps.lines().map(mapping).collect()
}

pub fn mapping<T>(at: *const T) -> Option<Mapping> {
	mappings().into_iter().find(|mapping| mapping.range.contains(&(at as usize)))
}

/// How many files the engine has mapped. Inodes of files in mounts of their own are the same.
pub fn sealed_files() -> usize {
	let file = |mapping: &Mapping| (mapping.device.clone(), mapping.inode.clone());
	sealed().iter().map(file).collect::<BTreeSet<_>>().len()
}

/// Those of the engine's files.
pub fn sealed() -> Vec<Mapping> {
	let mut all = mappings();
	all.retain(|mapping| mapping.name.starts_with("/memfd:flashfork:"));
	all
}

/// The flags of the mappings that have something of a range, as smaps has them, each between spaces. That writes are
/// noted is the engine's, and left out.
pub fn flags_in(wanted: Range<usize>) -> Vec<String> {
	let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
	let (mut here, mut flags) = (false, Vec::new());
	for line in smaps.lines() {
		if let Some(range) = range(line) {
			here = range.start < wanted.end && range.end > wanted.start;
		} else if let Some(rest) = line.strip_prefix("VmFlags:").filter(|_| here) {
			flags.push(format!("{rest} ").replace(" uw ", " "));
		}
	}
	flags
}

pub fn flags_of<T>(at: *const T) -> String {
	flags_in(at as usize..at as usize + 1).pop().unwrap_or_else(|| panic!("nothing is mapped at {at:p}"))
}

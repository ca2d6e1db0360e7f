//! The committed records: `all`, and `others.tar.lz`, because small ones are packed much better together. What
//! `scripts/measure` has taken since lies beside them, as NAME.json.lz.

use std::{
	collections::BTreeMap,
	fs::{File, read_dir},
	io::Read,
	path::{Path, PathBuf},
};

use lzma_rust2::LzipReader;

/// The one that is alone.
pub const ALL: &str = "all";
const ENDING: &str = ".json.lz";

pub fn place() -> PathBuf {
	Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/records")
}

pub fn others() -> PathBuf {
	place().join("others.tar.lz")
}

fn unpacked(path: &Path) -> impl Read + use<> {
	LzipReader::new(File::open(path).unwrap())
}

pub fn files() -> impl Iterator<Item = (String, PathBuf)> {
	let all = read_dir(place()).unwrap().map(|entry| entry.unwrap().path());
	all.filter_map(|path| Some((path.file_name()?.to_str()?.strip_suffix(ENDING)?.to_owned(), path)))
}

/// All, by their names, as they are written: JSON with `ranks`.
pub fn texts() -> BTreeMap<String, String> {
	let text = |of: &mut dyn Read| {
		let mut text = String::new();
		of.read_to_string(&mut text).unwrap();
		text
	};
	let mut archive = tar::Archive::new(unpacked(&others()));
	let entries = archive.entries().unwrap().map(|entry| {
		let mut entry = entry.unwrap();
		let name = entry.path().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
		(name, text(&mut entry))
	});
	let mut all: BTreeMap<_, _> = entries.collect();
	all.extend(files().map(|(name, path)| (name, text(&mut unpacked(&path)))));
	assert!(all.len() > 9 && all.contains_key(ALL));
	all
}

//! Shared libraries of the programs in a root, found with ldd, which asks the dynamic loader
//! itself and so knows its cache, RPATH and all; it lists the whole closure.

use std::{
	fs::File,
	io::Read,
	path::{Path, PathBuf},
};

use super::tree::{Node, Tree};
use crate::{GuestFile, ImageError, host::LDD};

/// The loader's cache: without it, libraries outside the usual directories would not be found.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Adds the libraries of every ELF file in `tree` at the paths the host has them.
pub(super) fn add_needed(tree: &mut Tree) -> Result<(), ImageError> {
	if Path::new(LOADER_CACHE).is_file() {
		tree.add_from_host(&GuestFile { host: LOADER_CACHE.into(), guest: LOADER_CACHE.into() })?;
	}
	let files: Vec<PathBuf> = tree
		.entries()
		.filter_map(|(_, node)| match node {
			Node::HostFile(path, _) => Some(path.clone()),
			_ => None,
		})
		.collect();
	for file in files {
		if !is_elf(&file)? {
			continue;
		}
		for library in needed_by(&file)? {
			if !tree.contains(&library) {
				tree.add_from_host(&GuestFile { host: library.clone(), guest: library })?;
			}
		}
	}
	Ok(())
}

fn is_elf(path: &Path) -> Result<bool, ImageError> {
	let mut magic = Vec::new();
	File::open(path)
		.and_then(|file| file.take(4).read_to_end(&mut magic))
		.map_err(ImageError::io("cannot read", path))?;
	Ok(magic == *b"\x7fELF")
}

/// The libraries and the loader of `binary`; none when it is static.
fn needed_by(binary: &Path) -> Result<Vec<PathBuf>, ImageError> {
	let mut command = LDD.command();
	// What this process's environment adds or hides is not there in the guest.
	command.arg(binary).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
	let output = LDD.output(&mut command)?;
	let text = String::from_utf8_lossy(&output.stdout);
	if !output.status.success() {
		// Static programs, kernel modules and programs of other machines have none to list.
		let message = String::from_utf8_lossy(&output.stderr);
		if message.contains("not a dynamic executable") || text.contains("not a dynamic executable") {
			return Ok(Vec::new());
		}
		return Err(LDD.failed(&output));
	}
	parse(&text).map_err(|library| ImageError::MissingLibrary { binary: binary.to_owned(), library })
}

/// The paths in ldd's output, or the name of a library it did not find.
fn parse(listing: &str) -> Result<Vec<PathBuf>, String> {
	let mut paths = Vec::new();
	for line in listing.lines().map(str::trim) {
		let (name, place) = line.split_once(" => ").unwrap_or((line, line));
		if place == "not found" {
			return Err(name.to_owned());
		}
		// `PATH (0xADDRESS)`; the vdso has a name and no path.
		let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
		if path.starts_with('/') {
			paths.push(path.into());
		}
	}
	Ok(paths)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn listings_are_understood() {
		let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
			\tlibtinfo.so.6 => /lib/x86_64-linux-gnu/libtinfo.so.6 (0x00007f3e)\n\
			\tlibodd name.so => /opt/odd dir/libodd name.so (0x00007f3d)\n\
			\t/lib64/ld-linux-x86-64.so.2 (0x00007f3f)\n";
		assert_eq!(
			parse(listing).unwrap(),
			["/lib/x86_64-linux-gnu/libtinfo.so.6", "/opt/odd dir/libodd name.so", "/lib64/ld-linux-x86-64.so.2"]
				.map(PathBuf::from)
		);
		assert_eq!(parse("\tstatically linked\n").unwrap(), [] as [PathBuf; 0]);
		assert_eq!(parse("\tliba.so => not found\n"), Err("liba.so".to_owned()));
	}

	#[test]
	fn a_dynamic_program_brings_its_libraries_and_loader() {
		let mut tree = Tree::new();
		let bash = GuestFile::at_same_path("/bin/bash").unwrap();
		tree.add_from_host(&bash).unwrap();
		add_needed(&mut tree).unwrap();
		let names: Vec<_> = tree.entries().filter_map(|(path, _)| path.file_name()?.to_str()).collect();
		assert!(names.contains(&"libc.so.6"), "{names:?}");
		assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
	}
}

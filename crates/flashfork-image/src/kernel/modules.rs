//! Which modules to load, and in which order, for a kernel whose `modules.dep` nobody made:
//! a package that is only unpacked has none, so the dependencies are read from the modules.

use std::{
	collections::{BTreeMap, BTreeSet},
	fs,
	path::{Path, PathBuf},
};

use elf::{ElfBytes, endian::LittleEndian};

use crate::{ImageError, host::busybox_applet};

/// A module, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
	/// Its name with underscores, as in `/proc/modules`.
	pub name: String,
	/// The content of its `.ko` file.
	pub content: Vec<u8>,
}

/// The modules in `dir` needed for `wanted`, dependencies first.
pub(super) fn load_order(dir: &Path, wanted: &[&str]) -> Result<Vec<Module>, ImageError> {
	let mut search =
		Search { dir, files: BTreeMap::new(), builtin: builtin(dir)?, seen: BTreeSet::new(), order: Vec::new() };
	collect_files(&dir.join("kernel"), &mut search.files)?;
	for name in wanted {
		search.visit(&canonical(name))?;
	}
	Ok(search.order)
}

struct Search<'a> {
	dir: &'a Path,
	files: BTreeMap<String, PathBuf>,
	builtin: BTreeSet<String>,
	seen: BTreeSet<String>,
	order: Vec<Module>,
}

impl Search<'_> {
	fn visit(&mut self, name: &str) -> Result<(), ImageError> {
		if !self.seen.insert(name.to_owned()) {
			return Ok(());
		}
		let Some(path) = self.files.get(name) else {
			if self.builtin.contains(name) {
				return Ok(());
			}
			return Err(ImageError::NoModule { module: name.to_owned(), modules: self.dir.to_owned() });
		};
		let content = read(path)?;
		for dependency in dependencies(path, &content)? {
			self.visit(&dependency)?;
		}
		self.order.push(Module { name: name.to_owned(), content });
		Ok(())
	}
}

/// Module names are equal when they differ only in `-` and `_`.
fn canonical(name: &str) -> String {
	name.replace('-', "_")
}

fn module_name(file: &str) -> Option<String> {
	let stem = file.strip_suffix(".xz").unwrap_or(file);
	stem.strip_suffix(".ko").map(canonical)
}

/// Names of the modules built into the kernel; none if the list is missing.
fn builtin(dir: &Path) -> Result<BTreeSet<String>, ImageError> {
	let path = dir.join("modules.builtin");
	let list = match fs::read_to_string(&path) {
		Ok(list) => list,
		Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
		Err(error) => return Err(ImageError::io("cannot read", &path)(error)),
	};
	Ok(list.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect())
}

fn collect_files(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), ImageError> {
	for entry in dir.read_dir().map_err(ImageError::io("cannot list", dir))? {
		let entry = entry.map_err(ImageError::io("cannot list", dir))?;
		let kind = entry.file_type().map_err(ImageError::io("cannot read", &entry.path()))?;
		if kind.is_dir() {
			collect_files(&entry.path(), files)?;
		} else if let Some(name) = entry.file_name().to_str().and_then(module_name) {
			files.insert(name, entry.path());
		}
	}
	Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
	if path.extension().is_some_and(|extension| extension == "xz") {
		busybox_applet("xzcat", Some(path))
	} else {
		fs::read(path).map_err(ImageError::io("cannot read", path))
	}
}

/// The `depends=` entry of the module's `.modinfo` section: names separated by commas.
fn dependencies(path: &Path, content: &[u8]) -> Result<Vec<String>, ImageError> {
	let unfit = || ImageError::Unfit { path: path.to_owned(), reason: "it is no kernel module" };
	let file = ElfBytes::<LittleEndian>::minimal_parse(content).map_err(|_| unfit())?;
	let section = file.section_header_by_name(".modinfo").map_err(|_| unfit())?.ok_or_else(unfit)?;
	let (modinfo, _) = file.section_data(&section).map_err(|_| unfit())?;
	Ok(modinfo
		.split(|byte| *byte == 0)
		.filter_map(|entry| entry.strip_prefix(b"depends="))
		.flat_map(|names| names.split(|byte| *byte == b','))
		.filter(|name| !name.is_empty())
		.map(|name| canonical(&String::from_utf8_lossy(name)))
		.collect())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn files_are_modules_by_their_name() {
		assert_eq!(module_name("kvm-amd.ko").as_deref(), Some("kvm_amd"));
		assert_eq!(module_name("virtio_blk.ko.xz").as_deref(), Some("virtio_blk"));
		assert_eq!(module_name("modules.order"), None);
	}

	#[test]
	fn built_in_modules_need_no_file_and_unknown_ones_are_an_error() {
		let dir = tempfile::tempdir().unwrap();
		fs::create_dir(dir.path().join("kernel")).unwrap();
		fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio-pci.ko\n").unwrap();
		assert_eq!(load_order(dir.path(), &["virtio_pci"]).unwrap(), []);
		let error = load_order(dir.path(), &["virtio_blk"]).unwrap_err();
		assert!(matches!(error, ImageError::NoModule { module, .. } if module == "virtio_blk"));
	}

	#[test]
	fn a_file_that_is_no_module_is_refused() {
		let dir = tempfile::tempdir().unwrap();
		fs::create_dir(dir.path().join("kernel")).unwrap();
		fs::write(dir.path().join("kernel/kvm.ko"), "text").unwrap();
		let error = load_order(dir.path(), &["kvm"]).unwrap_err();
		assert!(matches!(error, ImageError::Unfit { .. }), "{error}");
	}
}

//! The files of a guest's root before they are archived.

use std::{
	collections::BTreeMap,
	ffi::OsString,
	fs,
	os::unix::fs::PermissionsExt,
	path::{Component, Path, PathBuf},
};

use crate::{GuestFile, ImageError};

/// The directories of a merged /usr, and in one place what Debian keeps in `bin` and `sbin`, so
/// that a file is found by every path it is known by.
const MERGED: [(&str, &str); 5] =
	[("bin", "usr/bin"), ("sbin", "usr/bin"), ("usr/sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")];

/// A root: paths relative to `/`, parents always before their children.
#[derive(Debug)]
pub struct Tree(BTreeMap<PathBuf, Node>);

/// One entry of a root, with its permission bits.
#[derive(Debug)]
pub enum Node {
	/// A directory.
	Dir(u32),
	/// A file of the host, read when the archive is written.
	HostFile(PathBuf, u32),
	/// A file with this content.
	Bytes(Vec<u8>, u32),
	/// A symbolic link to this target.
	Link(OsString),
}

impl Default for Tree {
	fn default() -> Self {
		Self::new()
	}
}

impl Tree {
	/// A root with nothing but the merged directories.
	#[must_use]
	pub fn new() -> Self {
		let mut tree = Self(BTreeMap::new());
		for (link, target) in MERGED {
			tree.add_dir(&format!("/{target}"), 0o755);
			tree.0.insert(link.into(), Node::Link(format!("/{target}").into()));
		}
		tree
	}

	/// Adds a directory with these permissions, unless there is one.
	pub fn add_dir(&mut self, path: &str, mode: u32) {
		self.insert(Path::new(path), Node::Dir(mode));
	}

	/// Adds a file with this content and these permissions.
	pub fn add_bytes(&mut self, path: &str, content: Vec<u8>, mode: u32) {
		self.insert(Path::new(path), Node::Bytes(content, mode));
	}

	/// Adds a text that all may read.
	pub fn add_text(&mut self, path: &str, content: String) {
		self.add_bytes(path, content.into_bytes(), 0o644);
	}

	/// Adds a symbolic link.
	pub fn add_link(&mut self, path: &str, target: &str) {
		self.insert(Path::new(path), Node::Link(target.into()));
	}

	/// Adds a file, or a directory with all that is in it.
	///
	/// # Errors
	/// [`ImageError::Unfit`] for what no root can hold, [`ImageError::Io`].
	pub fn add_from_host(&mut self, file: &GuestFile) -> Result<(), ImageError> {
		let unfit = |reason| Err(ImageError::Unfit { path: file.host.clone(), reason });
		if !file.guest.is_absolute() {
			return unfit("its path in the guest is not absolute");
		}
		let top = place(&file.guest);
		if ["dev", "proc", "sys"].iter().any(|dir| top.starts_with(dir)) {
			return unfit("the guest mounts a file system of its own at that path");
		}
		let metadata = fs::metadata(&file.host).map_err(ImageError::io("cannot find", &file.host))?;
		self.add_entry(&file.host, &file.guest, &metadata)
	}

	fn add_entry(&mut self, host: &Path, guest: &Path, metadata: &fs::Metadata) -> Result<(), ImageError> {
		let mode = metadata.permissions().mode() & 0o777;
		if metadata.is_file() {
			self.insert(guest, Node::HostFile(host.to_owned(), mode));
		} else if metadata.is_symlink() {
			let target = fs::read_link(host).map_err(ImageError::io("cannot read", host))?;
			self.insert(guest, Node::Link(target.into()));
		} else if metadata.is_dir() {
			self.insert(guest, Node::Dir(mode));
			for entry in host.read_dir().map_err(ImageError::io("cannot list", host))? {
				let entry = entry.map_err(ImageError::io("cannot list", host))?;
				let metadata = entry.metadata().map_err(ImageError::io("cannot read", &entry.path()))?;
				self.add_entry(&entry.path(), &guest.join(entry.file_name()), &metadata)?;
			}
		} else {
			return Err(ImageError::Unfit {
				path: host.to_owned(),
				reason: "it is neither a file, a directory nor a symbolic link",
			});
		}
		Ok(())
	}

	/// Whether there is something at this path.
	#[must_use]
	pub fn contains(&self, path: &Path) -> bool {
		self.0.contains_key(&place(path))
	}

	/// Whether there is a symbolic link at this path.
	#[must_use]
	pub fn is_link(&self, path: &Path) -> bool {
		matches!(self.0.get(&place(path)), Some(Node::Link(_)))
	}

	/// All entries, parents before their children.
	pub fn entries(&self) -> impl Iterator<Item = (&Path, &Node)> {
		self.0.iter().map(|(path, node)| (path.as_path(), node))
	}

	/// Bytes in all files.
	///
	/// # Errors
	/// [`ImageError::Io`] for a file of the host that is gone.
	pub fn size(&self) -> Result<u64, ImageError> {
		let mut size = 0;
		for node in self.0.values() {
			size += match node {
				Node::HostFile(path, _) => fs::metadata(path).map_err(ImageError::io("cannot read", path))?.len(),
				Node::Bytes(bytes, _) => bytes.len() as u64,
				Node::Dir(_) | Node::Link(_) => 0,
			};
		}
		Ok(size)
	}

	fn insert(&mut self, path: &Path, node: Node) {
		let path = place(path);
		for parent in path.ancestors().skip(1) {
			if parent != Path::new("") && !self.0.contains_key(parent) {
				self.0.insert(parent.to_owned(), Node::Dir(0o755));
			}
		}
		// A directory that is there keeps what it has; `/` itself needs no entry.
		let kept = matches!(node, Node::Dir(_)) && self.0.contains_key(&path);
		if !kept && path != Path::new("") {
			self.0.insert(path, node);
		}
	}
}

/// Where an absolute path really lies in the root: relative to it, without `.` and `..`, by way of
/// the merged directories.
fn place(path: &Path) -> PathBuf {
	let mut plain = PathBuf::new();
	for component in path.components() {
		match component {
			Component::Normal(name) => plain.push(name),
			Component::ParentDir => {
				plain.pop();
			}
			Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
		}
	}
	for (link, target) in MERGED {
		if let Ok(rest) = plain.strip_prefix(link) {
			// Joining nothing would leave a slash at the end.
			return Path::new(target).join(rest).components().collect();
		}
	}
	plain
}

#[cfg(test)]
mod tests;
